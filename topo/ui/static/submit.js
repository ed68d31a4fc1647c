// Submitting a topology: a form for those who may, and what allows it for all others.

import { post, Problem, who } from './api.js';
import { h, link, setText } from './dom.js';
import { bytes } from './format.js';
import { banner, panel, toast } from './parts.js';

const SUFFIXES = '.py,.yaml,.yml,.zip';
const MOST_BYTES = 47 << 20;  // in base64 and with all else, what a request may hold

export function submit(main) {
  if (!who()) {
    dispatchEvent(new Event('topo-login'));
    return;
  }
  const { role, read_only: closed, allows_submit: isAllowed } = who();
  const body = isAllowed && !closed ? form() : h('div', { class: 'body page' }, refused(role, isAllowed, closed));
  main.replaceChildren(h('h1', { class: 'visually-hidden' }, 'Submit a topology'), panel('Submit a topology', body));
}

/** Why there is no form, and what would change it. */
function refused(role, isAllowed, closed) {
  const why = isAllowed ? [] : ['Whoever submits a topology runs code on this machine, so the server has to be started for it: ', h('code', {}, 'topo ui --allow-submit')];
  const whose = role === 'view' ? ['The role view only looks on. Log out, and log in with what this prints: ', h('code', {}, 'topo ui token')]
    : closed ? ['The server was started with ', h('code', {}, '--read-only'), ', which refuses every change.'] : [];
  return [banner('info', 'Topologies cannot be submitted here', [why, whose].filter((words) => words.length).map((words) => h('p', {}, words))),
    h('p', { class: 'note' }, 'On this machine, the same is done by a command:'), h('pre', {}, 'topo submit wordcount.py')];
}

function field(label, input, note) {
  return h('label', { class: 'field' }, label, input, note && h('span', { class: 'note' }, note));
}

function choice(name, ...options) {
  return h('select', { name }, options.map(([value, words]) => h('option', { value }, words)));
}

function form() {
  const file = h('input', { type: 'file', name: 'file', accept: SUFFIXES, required: true });
  const text = (name, placeholder = '') => h('input', { name, type: 'text', placeholder, autocomplete: 'off', spellcheck: 'false' });
  const [name, args, target, master] = [text('name', "topology.name, or the file's name"), text('args', '--limit 100'), text('target', 'wordcount.py:topology'), text('master', 'local[*]')];
  const slots = h('input', { name: 'slots', type: 'number', min: 1, step: 1, placeholder: 'as the code says, or all cores' });
  const mode = choice('mode', ['', 'as the code says'], ['micro-batch', 'micro-batch: throughput'], ['real-time', 'real-time: milliseconds']);
  const settings = h('textarea', { name: 'settings', rows: 3, placeholder: 'topology.max.spout.pending=1000', spellcheck: 'false' });
  const state = choice('state', ['refuse', 'refuse if there is any'], ['resume', 'resume from it'], ['fresh', 'begin without it']);
  const active = h('input', { name: 'active', type: 'checkbox', checked: true });
  const [button, note, failure] = [h('button', { type: 'submit', class: 'primary' }, 'Submit'), h('span', { class: 'note', role: 'status' }), h('div')];

  const more = h('details', {}, h('summary', {}, 'More'), h('div', { class: 'fields' },
    field('Target', target, 'Which topology of the file, if there are several; of a .zip, in which file.'), field("Spark's master", master),
    field('State that this name has left', state), h('label', { class: 'row' }, active, 'Start with its spouts running')));

  const wanted = async () => {
    const [chosen] = file.files;
    if (chosen.size > MOST_BYTES) throw new Problem(413, { message: `${chosen.name} has ${bytes(chosen.size)}`, hint: `${bytes(MOST_BYTES)} at most` });
    const conf = settingsIn(settings.value);
    if (slots.value) conf['topology.workers'] = Number(slots.value);
    if (mode.value) conf['topology.mode'] = mode.value;
    return { file: chosen.name, content: await base64(chosen), name: name.value.trim(), args: args.value, target: target.value.trim(), conf, master: master.value.trim() || 'local[*]', state: state.value, active: active.checked };
  };

  const element = h('form', { class: 'body submit', onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    failure.replaceChildren();
    setText(note, `${file.files[0].name} is sent and imported; this takes some seconds …`);
    try {
      const answer = await post('/api/submissions', await wanted());
      toast(`${answer.name} is submitted`);
      if (element.isConnected) location.hash = link('topology', answer.name);
    } catch (problem) {
      if (problem.status === 401) dispatchEvent(new Event('topo-login'));
      const message = problem instanceof Problem ? problem.message : `the server cannot be reached: ${problem.message}`;
      failure.replaceChildren(banner('bad', message, problem.hint));
      more.open ||= /^(state|target):/.test(problem.hint ?? '');
      failure.scrollIntoView({ block: 'nearest' });
    }
    setText(note, '');
    button.disabled = false;
  } },
  field('File', file, 'A .py or .yaml as topo submit takes it, or a .zip with all that it imports.'),
  h('div', { class: 'fields' },
    field('Name', name), field('Arguments of its code', args), field('Slots', slots), field('Mode', mode)),
  field('Settings', settings, 'KEY=VALUE in each line, or COMPONENT/KEY=VALUE. A value is JSON, else a text.'),
  more, failure, h('div', { class: 'row' }, button, note));
  return element;
}

/** The settings in lines of KEY=VALUE, read as -c of topo submit reads them. */
function settingsIn(text) {
  return Object.fromEntries(text.split('\n').map((one) => one.trim()).filter(Boolean).map((line) => {
    const at = line.indexOf('=');
    if (at < 1) throw new Problem(400, { message: `a setting is KEY=VALUE; got ${line}`, hint: 'one in each line' });
    const [key, value] = [line.slice(0, at), line.slice(at + 1)];
    try {
      return [key, JSON.parse(value)];
    } catch {
      return [key, value];
    }
  }));
}

/** The content of a file; one that was changed since it was chosen cannot be read. */
function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(',') + 1));
    reader.onerror = () => reject(new Problem(400, { message: `${file.name} cannot be read`, hint: 'choose it again: it was changed or is gone' }));
    reader.readAsDataURL(file);
  });
}
