// The state of a topology: keys and values of a component, and savepoints.

import { get, of, post, who } from './api.js';
import { h, setText } from './dom.js';
import { bytes, count, date, json, plural } from './format.js';
import { panel, poll, Table, toast } from './parts.js';
import { head } from './topology.js';

const SHOWN = 100;

export function state(main, name, signal) {
  const body = head(main, name, 'state', signal, () => {});
  const closed = who()?.read_only;
  body.replaceChildren(closed ? panel('Keys', h('div', { class: 'pad muted' }, 'Who operates may look into the state.')) : keysPanel(name, signal), savepointsPanel(name, signal, closed));
}

function keysPanel(name, signal) {
  const table = new Table([
    { title: 'Task', num: true, sort: (row) => row.index, cell: (row) => String(row.index) },
    { title: 'Key', wide: true, sort: (row) => json(row.key), mark: (row) => json(row.key), cell: (row) => h('code', {}, json(row.key)) },
    { title: 'Value', wide: true, mark: (row) => json(row.value), cell: (row) => h('code', {}, json(row.value)) },
  ], (row) => `${row.index} ${json(row.key)}`, { onempty: 'No key is like that.' });
  table.element.hidden = true;
  const component = h('select', { 'aria-label': 'component', name: 'component' });
  const like = h('input', { type: 'search', id: 'filter', placeholder: 'Keys like, such as user-*  ( / )', 'aria-label': 'keys like', class: 'long' });
  const note = h('span', { class: 'note', 'aria-live': 'polite' }, 'as of the last commit; reading it makes the topology write a savepoint');
  const button = h('button', { type: 'submit', class: 'primary' }, 'Read');
  const form = h('form', { class: 'body row', onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    setText(note, 'reading …');
    try {
      const answer = await post(of(name, 'state'), { component: component.value, like: like.value.trim(), limit: SHOWN });
      table.element.hidden = false;
      table.update(answer.entries);
      setText(note, answer.entries.length === SHOWN ? `the first ${SHOWN} keys` : plural(answer.entries.length, 'key'));
    } catch (problem) {
      setText(note, [problem.message, problem.hint].filter(Boolean).join(' – '));
    }
    button.disabled = false;
  } }, component, like, button, note);
  get(of(name, 'plan'), {}, signal).then((plan) => {
    const bolts = plan.components.filter((one) => one.kind !== 'spout');
    component.append(...[...bolts, ...plan.components.filter((one) => one.kind === 'spout')].map((one) => h('option', { value: one.id }, one.id)));
  }, () => {});
  return panel('Keys', h('div', {}, form, table.element));
}

function savepointsPanel(name, signal, closed) {
  const table = new Table([
    { title: 'Made', sort: (row) => row.made_at, cell: (row) => date(row.made_at) },
    { title: 'Batch', num: true, cell: (row) => count(row.batch) },
    { title: 'Size', num: true, sort: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
    { title: 'In flight', num: true, cell: (row) => count(row.pending) },
    { title: 'To begin with it', wide: true, mark: (row) => row.directory, cell: (row) => h('code', {}, `topo submit --from ${quoted(row.directory)} TARGET`) },
  ], (row) => row.directory, { onempty: 'None lies beside the registry.' });
  const notes = h('span', { class: 'note bad-text', 'aria-live': 'polite' });
  const load = async () => {
    const answer = await get(of(name, 'savepoints'), {}, signal);
    table.update(answer.savepoints);
    setText(notes, answer.damaged.length ? `cannot be read: ${answer.damaged.join(', ')}` : '');
  };
  const button = closed ? '' : h('button', { type: 'button', onclick: async () => {
    button.disabled = true;
    try {
      const saved = await post(of(name, 'savepoint'));
      toast(`saved batch ${count(saved.batch)}, ${bytes(saved.bytes)}`);
      await load();
    } catch (problem) {
      toast([problem.message, problem.hint].filter(Boolean).join(' – '), 'bad');
    }
    button.disabled = false;
  } }, 'Save now');
  poll(load, 10000, signal);
  return panel('Savepoints', table.element, notes, button);
}

/** A path as a shell takes it. */
function quoted(path) {
  return /^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}
