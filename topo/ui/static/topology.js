// One topology: its head, which all of its pages share, and the overview.

import { follow, get, of, post } from './api.js';
import { h, link, Seen, setText } from './dom.js';
import { bytes, count, date, duration, ms, percent, plural, rate } from './format.js';
import { actions } from './actions.js';
import { LineChart } from './chart.js';
import { Graph } from './graph.js';
import { Happened } from './marks.js';
import { badge, banner, Errors, meter, panel, segments, Table, Tiles } from './parts.js';
import { Rates } from './rates.js';
import { ROLES } from './roles.js';

const TABS = [['', 'Overview'], ['batches', 'Batches'], ['plan', 'Plan'], ['errors', 'Errors'], ['logs', 'Logs'], ['state', 'State'], ['workers', 'Workers'], ['settings', 'Settings']];
export const WINDOWS = [['10m', '10 min'], ['3h', '3 h'], ['1d', '1 day'], ['all', 'All']];
const HISTORY_MS = 5000;

/** Draw the head of a topology's pages; `onview` gets its figures every two seconds. */
export function head(main, name, tab, signal, onview) {
  const status = h('span', { 'aria-live': 'polite' });
  const tools = h('div');
  const notes = h('div');
  const title = h('h1', {}, name);
  const sub = h('div', { class: 'note' });
  const body = h('div', { class: 'page' });
  main.replaceChildren(
    h('div', { class: 'row between' }, h('div', { class: 'row' }, title, status), tools), sub, notes,
    h('nav', { class: 'tabs', 'aria-label': 'pages of this topology' }, TABS.map(([path, words]) =>
      h('a', { href: path ? link('topology', name, path) : link('topology', name), 'aria-current': path === tab ? 'page' : null }, words))), body);
  main.querySelector('.tabs [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });  // on a phone they are wider than it
  notes.hidden = true;
  const rates = new Rates();
  let said = '';
  follow(of(name, 'events'), { window: 'all' }, {
    figures: (view) => {
      rates.add(view);
      const now = JSON.stringify([view.status, view.reason, view.traceback, view.hint, view.answers, view.over, view.workers]);
      if (now !== said) {
        said = now;
        status.replaceChildren(badge(view.status));
        tools.replaceChildren(actions(view, (path, change) => post(of(name, path), change)));
        const shown = notesOf(view);
        notes.replaceChildren(...shown);
        notes.hidden = !shown.length;
      }
      setText(sub, [view.id, view.master, view.over ? `ended ${date(view.since)}` : `up ${duration(view.uptime_secs)}`,
        view.batch?.id ? `batch ${count(view.batch.id)}` : '',
        view.resumed ? 'resumed' : '', view.restarts ? `restarted ${plural(view.restarts, 'time')}: ${view.last_failure}` : ''].filter(Boolean).join(' · '));
      onview(view, rates);
    },
    problem: (problem) => {
      notes.hidden = false;
      notes.replaceChildren(banner('bad', problem.message, problem.hint));
    },
  }, signal);
  return body;
}

function notesOf(view) {
  const found = [];
  if (view.status === 'FAILED') {
    found.push(banner('bad', view.reason || 'It failed.', view.hint && h('p', {}, view.hint), view.traceback && h('pre', {}, view.traceback)));
  } else if (view.status === 'STALLED') {
    found.push(banner('warn', 'Stalled: no tuple is processed', view.reason));
  } else if (view.status === 'STARTING') {
    found.push(banner('info', 'Starting', view.reason || 'The driver is coming up.'));
  } else if (view.reason) {
    found.push(banner('info', view.reason));
  }
  if (!view.over && !view.answers && view.status !== 'STARTING') {
    found.push(banner('warn', 'Its driver does not answer', 'The figures are those it wrote last.'));
  }
  const lost = lossesOf(view);
  if (lost.length) found.push(banner('warn', 'Not everything is in the results', lost.join(' · ')));
  if (!view.tracked) found.push(banner('info', 'Tracking is off', 'topology.acker.executors is 0: nothing counts as acked or failed.'));
  return found;
}

// What sources and bolts in event time leave out of the results, and count.
const LOSSES = { late: 'too late', ahead: 'too far ahead of the clock', expired: 'expired', bad_records: 'unreadable', bad_rows: 'unreadable', dead: 'given up after retries', skipped: 'skipped', dropped: 'dropped' };

/** A sentence for each component that leaves something out: first screens hide nothing. */
function lossesOf(view) {
  return Object.entries(view.components).flatMap(([id, figures]) => {
    const own = Object.entries(figures.counters ?? {}).map(([name, amount]) => [name.split('{')[0], amount]);
    const amounts = {};
    for (const [name, amount] of [...own, ['late', figures.late], ['ahead', figures.ahead]]) {
      if (Object.hasOwn(LOSSES, name) && amount > 0) amounts[name] = (amounts[name] ?? 0) + amount;
    }
    const words = Object.entries(amounts).map(([name, amount]) => `${count(amount)} ${LOSSES[name]}`);
    return words.length ? [`${id}: ${words.join(', ')}`] : [];
  });
}

const SEARCHED = 12;  // with more components than these, one looks for a name

/** The overview: tiles, graph, charts, components, errors. */
export function overview(main, name, signal) {
  const tiles = new Tiles(['Tuples in', 'Acked', 'Failed', 'Pending', 'Lag', 'Batch, median', 'State']);
  const errors = new Errors();
  const components = componentsTable(name);
  components.element.classList.add('low');
  const charts = chartsOf();
  let graph = null;
  let failing = new Set();
  let known = -1;
  let chosen = '10m';
  let latest = null;
  let windowed = null;
  let allRates = null;
  const graphPanel = panel('Graph', h('div', { class: 'empty' }, 'Loading …'));
  const shownOf = h('span', { class: 'note', 'aria-live': 'polite' });
  const search = h('input', { type: 'search', id: 'filter', placeholder: 'Find a component  ( / )', 'aria-label': 'find a component', hidden: true, oninput: () => {
    graph?.search(search.value);
    showTable();
  } });
  let order = new Map();
  let roles = new Map();
  const showTable = () => {
    const view = chosen === 'all' ? latest : windowed;
    if (!view) return false;
    const wanted = search.value.trim().toLowerCase();
    const rows = Object.entries(view.components).map(([id, figures]) => ({ id, figures, role: roles.get(id), rates: allRates?.of(id) }))
      .sort((a, b) => (order.get(a.id) ?? 0) - (order.get(b.id) ?? 0));
    const seen = rows.filter((row) => row.id.toLowerCase().includes(wanted));
    setText(shownOf, wanted ? `${count(seen.length)} of ${count(rows.length)}` : '');
    components.update(seen);
    return true;
  };
  const getWindow = async () => {
    if (chosen === 'all') return table.ask();
    const asked = chosen;
    try {
      const view = await get(of(name), { window: asked }, signal);
      if (asked === chosen) windowed = view;
    } catch { /* the next one may come */ }
    return table.ask();
  };
  const table = new Seen(components.element, showTable);
  const body = head(main, name, '', signal, (view, rates) => {
    latest = view;
    allRates = rates;
    tiles.update(tilesOf(view));
    graph?.update(view, rates, failing);
    setTimeout(() => table.ask());  // in a frame of its own
    if (view.errors !== known) {
      known = view.errors;
      getErrors();
    }
  });
  const getErrors = async () => {
    try {
      const found = await get(of(name, 'errors'), { limit: 50 }, signal);
      const fresh = Date.now() / 1000 - 600;
      failing = new Set(found.filter((error) => error.last > fresh).map((error) => error.component));
      errors.update(found.slice(0, 8));
      if (latest && allRates) graph?.update(latest, allRates, failing);
    } catch { /* shown by the events */ }
  };
  const getPlan = async () => {
    try {
      const plan = await get(of(name, 'plan'), {}, signal);
      order = new Map(plan.levels.flat().map((id, at) => [id, at]));
      roles = new Map(plan.components.map((component) => [component.id, ROLES[component.role]?.badge]));
      search.hidden = order.size <= SEARCHED;
      graph = new Graph(plan, name);
      graphPanel.firstChild.append(search, graph.excerpt.tools);
      graphPanel.replaceChildren(graphPanel.firstChild, graph.element);
      showTable();
      if (latest && allRates) graph.update(latest, allRates, failing);
    } catch (problem) {
      if (!signal.aborted) graphPanel.replaceChildren(graphPanel.firstChild, h('div', { class: 'body muted' }, problem.message));
    }
  };
  const choice = segments(WINDOWS, chosen, 'window', (value) => {
    chosen = value;
    windowed = null;
    getWindow();
    charts.load(name, value, signal);
  });
  body.replaceChildren(tiles.element, graphPanel, h('div', { class: 'row between' }, h('h2', {}, 'Over time'), choice), charts.element,
    panel('Latest errors', errors.element, h('a', { href: link('topology', name, 'errors') }, 'All')), panel('Components', components.element, shownOf));
  getPlan();
  getWindow();
  getErrors();
  charts.load(name, chosen, signal);
  const every = setInterval(() => {
    if (document.hidden) return;
    charts.load(name, chosen, signal);
    getWindow();
    getErrors();
  }, HISTORY_MS);
  signal.addEventListener('abort', () => clearInterval(every));
}

function tilesOf(view) {
  const all = Object.values(view.components);
  const spouts = all.filter((figures) => figures.kind === 'spout');
  const sum = (list, key) => list.reduce((total, figures) => total + (figures[key] ?? 0), 0);
  const failed = sum(spouts, 'failed');
  const reasons = {};
  for (const spout of spouts) {
    for (const [reason, number] of Object.entries(spout.failed_by ?? {})) reasons[reason] = (reasons[reason] ?? 0) + number;
  }
  const batch = view.batch ?? {};
  const pending = sum(spouts, 'pending');
  const lag = view.acker?.lag_secs ?? null;
  return [
    [view.over ? '–' : rate(batch.rows_per_sec ?? null), `${count(sum(spouts, 'emitted'))} emitted`],
    [count(sum(spouts, 'acked')), 'since the start'],
    [count(failed), Object.entries(reasons).map(([reason, number]) => `${reason} ${count(number)}`).join(', '), failed ? 'bad' : ''],
    [view.over ? '–' : count(pending), 'messages in flight'],
    [lag && !view.over ? duration(lag) : '–', 'oldest message', lag > view.message_timeout_secs ? 'warn' : ''],
    [ms(batch.p50_ms ?? null), `p99 ${ms(batch.p99_ms ?? null)}`],
    [bytes(sum(all, 'saved_bytes')), 'saved'],
  ];
}

function chartsOf() {
  const per = (value) => rate(value);
  const all = [
    new LineChart({ title: 'Throughput', unit: per, lines: [{ name: 'spouts emit', key: 'emitted_per_sec' }, { name: 'bolts execute', key: 'executed_per_sec', color: 5 }] }),
    new LineChart({ title: 'Acked and failed', unit: per, lines: [{ name: 'acked', key: 'acked_per_sec', color: 2 }, { name: 'failed', key: 'failed_per_sec', color: 3 }] }),
    new LineChart({ title: 'Batch time', unit: ms, lines: [{ name: 'p50', key: 'p50_ms' }, { name: 'p99', key: 'p99_ms', color: 4 }] }),
    new LineChart({ title: 'Lag', unit: (value) => duration(value), lines: [{ name: 'oldest message', key: 'lag_secs', color: 4 }] }),
    new LineChart({ title: 'Pending and held', unit: count, lines: [{ name: 'pending', key: 'pending' }, { name: 'held', key: 'held', color: 4 }] }),
    new LineChart({ title: 'State', unit: bytes, lines: [{ name: 'saved', key: 'saved_bytes', color: 5 }] }),
  ];
  const happened = new Happened();
  const grid = h('div', { class: 'charts' }, all.map((chart) => chart.element));
  const none = h('div', { class: 'panel pad muted', hidden: true }, 'No figures of this time are left: a driver writes them while it runs.');
  return {
    element: h('div', { class: 'page' }, grid, none, happened.element),
    async load(name, window, signal) {
      try {
        const history = await get(of(name, 'history'), { window }, signal);
        const isEmpty = !history.times.length;
        if (none.hidden === isEmpty) none.hidden = !isEmpty;
        if (grid.hidden !== isEmpty) grid.hidden = isEmpty;  // six empty charts say no more than one line
        for (const chart of all) chart.update(history.times, history.series, history.marks);
        happened.update(history.marks);
      } catch { /* the next one may come */ }
    },
  };
}

function componentsTable(name) {
  const figure = (title, key, words = count) => ({ title, num: true, sort: (row) => row.figures[key], cell: (row) => words(row.figures[key]) });
  return new Table([
    { title: 'Component', sort: (row) => row.id, mark: (row) => row.id,
      cell: (row) => h('a', { class: 'strong', href: link('topology', name, 'component', row.id) }, row.id) },
    { title: 'Kind', sort: (row) => `${row.figures.kind} ${row.role ?? ''}`, cell: (row) => (row.role ? `${row.figures.kind}, ${row.role}` : row.figures.kind) },
    figure('Tasks', 'tasks'),
    { title: 'Now', num: true, sort: (row) => row.rates?.executed || row.rates?.emitted, cell: (row) => rate(row.rates ? row.figures.kind === 'spout' ? row.rates.emitted : row.rates.executed : null) },
    figure('Emitted', 'emitted'), figure('Executed', 'executed', (value) => (value ? count(value) : '–')), figure('Acked', 'acked'),
    { title: 'Failed', num: true, sort: (row) => row.figures.failed, mark: (row) => row.figures.failed,
      cell: (row) => h('span', { class: row.figures.failed ? 'bad-text' : '', title: reasonsOf(row.figures) }, count(row.figures.failed)) },
    { title: 'Latency', num: true, sort: (row) => row.figures.complete_ms ?? row.figures.execute_ms, cell: (row) => ms(row.figures.complete_ms ?? row.figures.execute_ms) },
    { title: 'Busiest task now', num: true, sort: (row) => row.rates?.capacity, mark: (row) => `${row.rates?.capacity} ${row.rates?.task}`,
      cell: (row) => (row.rates?.capacity === null || row.rates?.capacity === undefined ? h('span', {}, '–') : meter(row.rates.capacity, `${percent(row.rates.capacity)} (${row.rates.task})`)) },
    figure('Held', 'held', (value) => (value ? count(value) : '–')),
    figure('State', 'saved_bytes', (value) => (value ? bytes(value) : '–')),
  ], (row) => row.id);
}

function reasonsOf(figures) {
  return Object.entries(figures.failed_by ?? {}).map(([reason, number]) => `${reason}: ${count(number)}`).join('\n');
}
