// The list of topologies.

import { follow, post, of } from './api.js';
import { h, link, setText } from './dom.js';
import { both, count, date, duration, number, plural, rate } from './format.js';
import { actions } from './actions.js';
import { badge, banner, empty, panel, Table } from './parts.js';

const columns = [
  { title: 'Name', sort: (row) => row.name, mark: (row) => `${row.name} ${row.id} ${row.over}`,
    cell: (row) => h('div', { class: 'name' }, h('a', { class: 'strong', href: link('topology', row.over ? row.id : row.name) }, row.name), h('div', { class: 'note mono' }, row.id)) },
  { title: 'Status', sort: (row) => row.status, wide: true, mark: (row) => `${row.status} ${row.reason} ${row.restarts}`,
    cell: (row) => h('div', {}, badge(row.status), row.reason && h('div', { class: 'note' }, row.reason),
      row.restarts ? h('div', { class: 'note', title: row.last_failure }, `restarted ${plural(row.restarts, 'time')}`) : '') },
  { title: 'Tuples in', num: true, sort: (row) => row.rows_per_sec, cell: (row) => (row.status === 'ACTIVE' || row.status === 'STALLED' ? rate(row.rows_per_sec) : '–') },
  { title: 'Acked, 10 m', num: true, sort: (row) => row.acked, cell: (row) => count(row.acked) },
  { title: 'Failed', num: true, sort: (row) => row.failed, mark: (row) => row.failed,
    cell: (row) => h('span', { class: row.failed ? 'bad-text' : '' }, count(row.failed)) },
  { title: 'Lag', num: true, sort: (row) => row.lag_secs, cell: (row) => (row.lag_secs && row.status !== 'STARTING' ? duration(row.lag_secs) : '–') },
  { title: 'Batch p50 / p99', num: true, sort: (row) => row.p50_ms, cell: (row) => (row.p50_ms === null ? '–' : both(row.p50_ms, row.p99_ms)) },
  { title: 'Tasks', num: true, sort: (row) => row.tasks, cell: (row) => count(row.tasks) },
  { title: 'Workers', num: true, cell: (row) => (row.workers === null ? 'all cores' : count(row.workers)) },
  { title: 'Uptime', num: true, sort: (row) => row.uptime_secs, cell: (row) => duration(row.uptime_secs) },
];

export function topologies(main, signal) {
  const live = new Table([...columns, actionsColumn()], (row) => row.id);
  const over = new Table([
    columns[0], columns[1],
    { title: 'Acked, total', num: true, sort: (row) => row.acked, cell: (row) => count(row.acked) },
    columns[4], { title: 'Batches', num: true, sort: (row) => row.batch, cell: (row) => count(row.batch) },
    { title: 'Submitted', num: true, sort: (row) => row.submitted_at, cell: (row) => date(row.submitted_at) },
    { title: 'Ran for', num: true, sort: (row) => row.uptime_secs, cell: (row) => duration(row.uptime_secs) },
  ], (row) => row.id);
  const search = h('input', { type: 'search', placeholder: 'Filter  ( / )', 'aria-label': 'filter topologies', id: 'filter', oninput: () => show() });
  const notes = h('div');
  const totals = h('span', { class: 'note' });
  const livePanel = panel('Topologies', h('div', {}, live.element), totals, search, h('a', { class: 'button', href: link('submit') }, 'Submit …'));
  const overPanel = panel('Ended in the last 7 days', over.element);
  let latest = null;
  const show = () => {
    const wanted = search.value.toLowerCase();
    const rows = latest.topologies.filter((row) => `${row.name} ${row.id} ${row.status} ${row.reason}`.toLowerCase().includes(wanted));
    const running = rows.filter((row) => !row.over);
    live.update(running);
    setText(totals, running.length > 1 ? totalsOf(running) : '');
    over.update(rows.filter((row) => row.over));
    live.element.hidden = !running.length;
    overPanel.hidden = !rows.some((row) => row.over);
    const none = livePanel.querySelector('.empty');
    if (running.length) none?.remove();
    else if (!none) livePanel.append(nothing());
    const damaged = latest.damaged.map((name) => banner('warn', `${name} is not shown`, 'Its directory in the registry is damaged: ', h('code', {}, `${latest.registry}/runs/${name}`)));
    notes.replaceChildren(...damaged);
    notes.hidden = !damaged.length;
  };
  notes.hidden = true;
  main.replaceChildren(h('h1', { class: 'visually-hidden' }, 'Topologies'), notes, livePanel, overPanel);
  overPanel.hidden = true;
  livePanel.append(h('div', { class: 'empty' }, 'Loading …'));
  follow('/api/events', {}, {
    figures: (document) => {
      const first = latest === null;
      latest = document;
      if (first) livePanel.querySelector('.empty')?.remove();
      show();
    },
    problem: (problem) => {
      notes.hidden = false;
      notes.replaceChildren(banner('bad', problem.message, problem.hint));
    },
  }, signal);
}

/** All topologies that are shown, in a line. */
function totalsOf(rows) {
  const sum = (key) => rows.reduce((total, row) => total + (number(row[key]) ?? 0), 0);
  const failed = sum('failed');
  return [plural(rows.length, 'topology', 'topologies'), `${rate(sum('rows_per_sec'))} in`, `${count(sum('acked'))} acked in 10 m`,
    failed ? `${count(failed)} failed` : '', plural(sum('tasks'), 'task')].filter(Boolean).join(' · ');
}

function nothing() {
  return empty('No topologies running', h('a', { href: link('submit') }, 'Submit one'), ', and it is here in a moment.',
    h('div', {}, h('pre', {}, 'topo quickstart words && cd words\ntopo submit wordcount.py')));
}

function actionsColumn() {
  return { title: h('span', { class: 'visually-hidden' }, 'Actions'), mark: (row) => row.status, cell: (row) => actions(row, (path, body) => post(of(row.name, path), body), { isList: true }) };
}
