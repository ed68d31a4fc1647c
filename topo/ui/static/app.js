// The frame of the pages: which one is shown, who is logged in, whether the server is there.

import { onConnection, Problem, startSession, who } from './api.js';
import { cluster } from './cluster.js';
import { component } from './component.js';
import * as details from './details.js';
import { h, link, setText } from './dom.js';
import { empty } from './parts.js';
import { state } from './state.js';
import { submit } from './submit.js';
import { topologies } from './topologies.js';
import { overview } from './topology.js';

const app = document.getElementById('app');
const crumbs = h('nav', { class: 'crumbs', 'aria-label': 'where you are' });
const live = h('div', { class: 'live wait', role: 'status', 'aria-live': 'polite' }, h('i'), h('span', {}, 'connecting'));
const user = h('span', { class: 'note' });
const leave = h('button', { type: 'button', hidden: true, onclick: logout }, 'Log out');
const places = h('a', { class: 'places', href: '#/cluster', hidden: true }, 'Cluster');
const main = h('main', { id: 'main', tabindex: '-1' });
const MORE = { batches: details.batches, plan: details.plan, errors: details.errors, logs: details.logs, state, workers: details.workers, settings: details.settings };
let page = new AbortController();

function frame() {
  app.replaceChildren(
    h('a', { class: 'skip', href: '#main', onclick: (event) => { event.preventDefault(); main.focus(); } }, 'Skip to the page'),
    h('header', { class: 'top' }, h('a', { class: 'brand', href: '#/' }, h('img', { src: '/static/icon.svg', alt: '' }), 'topo'), crumbs, h('span', { class: 'grow' }), places, user, leave, live), main);
}

function trail(...steps) {
  crumbs.replaceChildren(...steps.flatMap(([words, href], at) => [
    h('span', { 'aria-hidden': 'true' }, '/'), at === steps.length - 1 ? h('span', { class: 'here' }, words) : h('a', { href }, words)]));
  document.title = [...steps.map(([words]) => words).reverse(), 'topo'].join(' · ');
}

function parts() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  try {
    return [path.split('/').filter(Boolean).map(decodeURIComponent), query ?? ''];
  } catch {
    return [['?'], ''];
  }
}

function show() {
  page.abort();
  page = new AbortController();
  const { signal } = page;
  const [[room, name, tab, id], query] = parts();
  scrollTo(0, 0);
  if (who() && live.classList.contains('wait')) connection('live');  // a page that follows events says so anew
  if (room === undefined) {
    trail(['Topologies']);
    topologies(main, signal);
  } else if (room === 'cluster' && !name) {
    trail(['Cluster']);
    cluster(main, signal);
  } else if (room === 'submit' && !name) {
    trail(['Submit']);
    submit(main);
  } else if (room === 'topology' && name && !tab) {
    trail([name]);
    overview(main, name, signal);
  } else if (room === 'topology' && tab === 'component' && id) {
    trail([name, link('topology', name)], [id]);
    component(main, name, id, signal);
  } else if (room === 'topology' && Object.hasOwn(MORE, tab ?? '')) {
    trail([name, link('topology', name)], [tab]);
    MORE[tab](main, name, signal, query);
  } else {
    trail(['Nothing here']);
    main.replaceChildren(h('h1', { class: 'visually-hidden' }, 'Nothing here'), empty('There is no such page', h('a', { href: '#/' }, 'All topologies')));
  }
}

function login() {
  page.abort();
  const token = h('input', { type: 'password', name: 'token', autocomplete: 'current-password', required: true, 'aria-label': 'token', placeholder: 'token' });
  const said = h('p', { class: 'bad-text', role: 'alert' });
  trail(['Log in']);
  user.replaceChildren();
  leave.hidden = true;
  places.hidden = true;
  live.className = 'live wait';
  setText(live.lastChild, 'not logged in');
  const form = h('form', { class: 'panel login', onsubmit: async (event) => {
    event.preventDefault();
    const answer = await fetch('/login', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ token: token.value.trim() }) });
    if (answer.ok) begin();
    else setText(said, (await answer.json()).message);
  } }, h('header', {}, h('h1', {}, 'Log in')), h('div', { class: 'body' }, h('p', { class: 'note' }, 'The token is what this prints:'), h('pre', {}, 'topo ui token'),
    h('div', { class: 'row' }, token, h('button', { class: 'primary', type: 'submit' }, 'Log in')), said));
  main.replaceChildren(form);
  token.focus();
}

async function logout() {
  await fetch('/logout', { method: 'POST', credentials: 'same-origin' });
  login();
}

async function begin() {
  try {
    await startSession();
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 401) login();
    else setTimeout(begin, 1000);
    return;
  }
  const { environment, role, read_only: closed, user: name } = who();
  setText(user, [environment, name, closed ? 'read-only' : role].filter(Boolean).join(' · '));
  leave.hidden = false;
  places.hidden = false;
  show();
}

const WORDS = { live: 'live', wait: 'connecting', off: 'no connection, trying again' };
function connection(state) {
  live.className = `live ${state}`;
  setText(live.lastChild, WORDS[state]);
}

onConnection(connection);
addEventListener('hashchange', show);
addEventListener('topo-login', login);
addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? '')) return;
  const field = document.getElementById('filter');
  if (!field) return;
  event.preventDefault();
  field.focus();
});
frame();
begin();
