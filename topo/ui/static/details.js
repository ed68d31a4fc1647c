// The smaller pages of a topology: batches, plan, errors, logs, workers, settings.

import { follow, get, of, post, who } from './api.js';
import { h, link, setText } from './dom.js';
import { bytes, clock, count, date, duration, json, ms, percent, plural, rate } from './format.js';
import { BatchBars, LineChart } from './chart.js';
import { ask, Errors, facts, panel, poll, segments, Table, toast } from './parts.js';
import { stackButtons, Stacks } from './stacks.js';
import { head, WINDOWS } from './topology.js';

const PHASES = [['latestOffset', 'offsets'], ['queryPlanning', 'planning'], ['walCommit', 'log'], ['addBatch', 'work'], ['commitOffsets', 'commit'], ['commitBatch', 'commit']];

const COLORS = { 'waiting for spouts': 0, offsets: 4, planning: 5, log: 3, work: 1, commit: 2, other: 6 };
const PAGE = 25;
const HUNDRED = 100;  // batches that are drawn and asked for at once

export function batches(main, name, signal) {
  const bars = new BatchBars('The latest batches', ms, (part) => COLORS[part] ?? 5);
  const table = new Table([
    { title: 'Batch', num: true, sort: (row) => row.id, cell: (row) => count(row.id) },
    { title: 'Ended', num: true, cell: (row) => clock(row.ended_at) },
    { title: 'Rows', num: true, sort: (row) => row.rows, cell: (row) => count(row.rows) },
    { title: 'Time', num: true, sort: (row) => row.ms, cell: (row) => ms(row.ms) },
    { title: 'Waited for spouts', num: true, sort: (row) => row.waited_ms, cell: (row) => ms(row.waited_ms) },
    { title: 'Where the time went', wide: true, cell: (row) => partsOf(row).filter(([part, time]) => time >= 0.5 && part !== 'waiting for spouts').sort(([, a], [, b]) => b - a).map(([part, time]) => `${part} ${ms(time)}`).join(', ') },
  ], (row) => row.id, { sortBy: 0, onempty: 'No batch has ended yet.' });
  const body = head(main, name, 'batches', signal, () => {});
  const before = [];  // the numbers at which older hundreds end; none: the latest are shown
  let oldest = 0;
  const load = async (at) => {
    const asked = before.at(-1);
    const found = await get(of(name, 'batches'), { ...(asked === undefined ? {} : { before: asked }), limit: HUNDRED + 1 }, signal);
    if (asked !== before.at(-1)) return;
    const isMore = found.length > HUNDRED;
    const batches = found.slice(-HUNDRED);
    oldest = batches[0]?.id ?? 0;
    bars.update(batches.map((batch) => ({ id: batch.id, parts: partsOf(batch), label: `batch ${batch.id}, ${clock(batch.ended_at)}\n${ms(batch.ms)}, ${count(batch.rows)} rows` })));
    pages.update([...batches].reverse(), { at, isMore, isLater: before.length > 0 });
  };
  const pages = new Pages(PAGE, (rows) => {
    table.update(rows);
    bars.shade(new Set(rows.map((row) => row.id)));
  }, (by) => {
    if (by > 0) before.push(oldest);
    else before.pop();
    load(by > 0 ? 0 : HUNDRED).catch(() => {});
  });
  body.replaceChildren(bars.element, panel('Batches', table.element, pages.element));
  poll(load, 2000, signal);
}

/** Buttons that go through many rows, the latest first, and beyond them. */
class Pages {
  constructor(size, show, beyond) {
    [this.size, this.show, this.beyond, this.at, this.rows, this.ends] = [size, show, beyond, 0, [], {}];
    this.note = h('span', { class: 'note' });
    this.buttons = [['Newer', -1], ['Older', 1]].map(([words, by]) => h('button', { type: 'button', onclick: () => this.turn(by) }, words));
    this.element = h('span', { class: 'row' }, this.note, this.buttons);
  }

  turn(by) {
    const at = this.at + by;
    if (at < 0 || at > this.last) return this.beyond(by);
    return this.update(this.rows, { ...this.ends, at });
  }

  get last() {
    return Math.max(0, Math.ceil(this.rows.length / this.size) - 1);
  }

  /** Show rows, from a page on if one is named; there may be more rows, and later ones. */
  update(rows, ends) {
    [this.rows, this.ends] = [rows, ends];
    this.at = Math.min(this.last, Math.max(0, ends.at ?? this.at));
    const first = this.at * this.size;
    const [from, to] = [rows[first], rows[Math.min(rows.length, first + this.size) - 1]];
    this.element.hidden = this.last === 0 && !ends.isMore && !ends.isLater;
    setText(this.note, from ? `${from.id} to ${to.id}` : '');
    this.buttons[0].disabled = this.at === 0 && !ends.isLater;
    this.buttons[1].disabled = this.at === this.last && !ends.isMore;
    this.show(rows.slice(first, first + this.size));
  }
}

/** Waiting, Spark's phases, and the rest of a batch's time. */
function partsOf(batch) {
  const waited = Math.min(batch.waited_ms, batch.ms);
  const times = {};
  for (const [phase, words] of PHASES) if (batch.phases[phase] > 0) times[words] = (times[words] ?? 0) + batch.phases[phase];
  if (times.work) times.work = Math.max(0, times.work - waited);
  const told = Object.values(times).reduce((sum, time) => sum + time, 0) + waited;
  return [['waiting for spouts', waited], ...Object.entries(times), ['other', Math.max(0, batch.ms - told)]];
}

export function plan(main, name, signal) {
  let ui = '';
  const spark = h('span');
  const body = head(main, name, 'plan', signal, (view) => {
    if (view.spark_ui === ui) return;
    ui = view.spark_ui;
    const isWeb = /^https?:\/\//.test(ui);
    spark.replaceChildren(isWeb ? h('a', { href: ui, rel: 'noreferrer', target: '_blank' }, 'Spark’s own pages') : '');
  });
  body.replaceChildren(h('div', { class: 'empty' }, 'Loading …'));
  get(of(name, 'plan'), {}, signal).then((found) => {
    const by = new Map(found.components.map((one) => [one.id, one]));
    const levels = found.levels.map((level, number) => h('div', { class: 'plan-level' }, h('h3', {}, `Level ${number}`), level.map((id) => {
      const one = by.get(id);
      return h('div', { class: 'item' }, h('a', { class: 'strong', href: link('topology', name, 'component', id) }, id), ` ×${one.tasks}`,
        h('div', { class: 'note' }, [one.kind, one.keeps_state ? 'keeps state' : 'no state', one.fused_into ? `fused into ${one.fused_into}` : ''].filter(Boolean).join(' · ')));
    })));
    const table = new Table([
      { title: 'Component', mark: (row) => row.id, cell: (row) => h('a', { class: 'strong', href: link('topology', name, 'component', row.id) }, row.id) },
      { title: 'Class', wide: true, cell: (row) => row.class_name },
      { title: 'Tasks', num: true, cell: (row) => (row.tasks > 1 ? `${row.first_task}–${row.first_task + row.tasks - 1}` : String(row.first_task)) },
      { title: 'Slots', wide: true, cell: (row) => row.slots.join(', ') },
      { title: 'Reads', wide: true, cell: (row) => row.inputs.map((read) => `${read.component}${read.stream === 'default' ? '' : `/${read.stream}`} ${read.grouping}${read.fields.length ? `(${read.fields.join(', ')})` : ''}`).join(', ') || '–' },
    ], (row) => row.id);
    table.update([...found.components].sort((a, b) => a.level - b.level));
    body.replaceChildren(
      panel(`${plural(found.levels.length, 'level')}, ${plural(found.slots, 'slot')}, ${plural(found.levels.length - 1, 'exchange')}`,
        h('div', { class: 'body' }, h('div', { class: 'plan-levels' }, levels)), h('span', { class: 'note' }, found.is_final ? '' : 'provisional until it has started'), spark),
      panel('Components', table.element),
      found.warnings.length ? panel('Warnings', h('div', { class: 'body' }, found.warnings.map((warning) => h('p', {}, warning)))) : '');
  }, (problem) => body.replaceChildren(h('div', { class: 'empty' }, problem.message)));
}

const ORDERS = [['last', 'Latest'], ['count', 'Most'], ['first', 'First']];
const BY = { last: (a, b) => b.last - a.last, count: (a, b) => b.count - a.count, first: (a, b) => a.first - b.first };

export function errors(main, name, signal) {
  const list = new Errors();
  const chart = new LineChart({ title: 'Errors over time', unit: rate, lines: [{ name: 'errors', key: 'errors_per_sec', color: 3 }] });
  const amount = h('span', { class: 'note', 'aria-live': 'polite' });
  let [window, order] = ['10m', 'last'];
  const getHistory = async () => {
    const history = await get(of(name, 'history'), { window }, signal);
    chart.update(history.times, history.series, history.marks);
  };
  const body = head(main, name, 'errors', signal, () => {});
  const filter = h('input', { type: 'search', id: 'filter', placeholder: 'Filter  ( / )', 'aria-label': 'filter errors', oninput: () => show() });
  let found = [];
  const show = () => {
    const wanted = filter.value.toLowerCase();
    const rows = found.filter((error) => `${error.component} ${error.type} ${error.message} ${error.at}`.toLowerCase().includes(wanted));
    list.update(rows.sort(BY[order]));
    setText(amount, rows.length ? `${count(rows.reduce((sum, error) => sum + error.count, 0))} in all, ${plural(rows.length, 'kind')}` : '');
  };
  const windows = segments(WINDOWS, window, 'window', (value) => {
    window = value;
    getHistory().catch(() => {});
  });
  const orders = segments(ORDERS, order, 'order', (value) => {
    order = value;
    show();
  });
  body.replaceChildren(h('div', { class: 'row between' }, h('h2', {}, 'Over time'), windows), chart.element, panel('Errors', list.element, amount, orders, filter));
  poll(getHistory, 5000, signal);
  poll(async () => {
    found = await get(of(name, 'errors'), { limit: 1000 }, signal);
    show();
  }, 3000, signal);
}

const LOG_ROWS = 2000;

export function logs(main, name, signal, query) {
  const level = h('select', { 'aria-label': 'least level' }, ['DEBUG', 'INFO', 'WARNING', 'ERROR'].map((word) => h('option', { value: word }, word)));
  level.value = 'INFO';
  const component = h('select', { 'aria-label': 'component' }, h('option', { value: '' }, 'All components'));
  const grep = h('input', { type: 'search', id: 'filter', placeholder: 'Search, a regular expression  ( / )', 'aria-label': 'search' });
  const following = h('input', { type: 'checkbox', checked: true, id: 'follow' });
  const lines = h('div', { class: 'log', role: 'log', 'aria-live': 'off', tabindex: '0', 'aria-label': 'log lines' });
  const note = h('span', { class: 'note', 'aria-live': 'polite' });
  const body = head(main, name, 'logs', signal, () => {});
  const levels = who()?.read_only ? '' : h('button', { type: 'button', onclick: () => askLevel(name) }, 'Log level …');
  body.replaceChildren(panel('Logs', lines, note, component, level, grep, h('label', { class: 'row' }, following, 'Follow'), levels));
  let reading = new AbortController();
  const add = (found) => {
    const atEnd = following.checked;
    lines.append(...found.map((line) => h('p', { class: line.level },
      h('span', { class: 'time', title: line.time }, String(line.time).slice(11, 23).replace(/[+Z].*/, '')), h('span', { class: 'level' }, line.level),
      h('span', { class: 'who' }, line.component ? `${line.component}/${line.task}` : line.logger), h('span', { class: 'msg' }, line.message))));
    while (lines.childElementCount > LOG_ROWS) lines.firstElementChild.remove();
    setText(note, plural(lines.childElementCount, 'line'));
    if (atEnd) lines.scrollTop = lines.scrollHeight;
  };
  const start = async () => {
    reading.abort();
    reading = new AbortController();
    const asked = { level: level.value, component: component.value, grep: grep.value, count: 500 };
    try {
      await get(of(name, 'logs'), { ...asked, count: 1 }, reading.signal);
    } catch (problem) {
      if (problem.name !== 'AbortError') setText(note, problem.message);
      return;
    }
    lines.replaceChildren();
    setText(note, 'no lines yet');
    let first = true;
    follow(of(name, 'logs', 'events'), asked, {
      lines: (found) => {
        if (first) lines.replaceChildren();  // a connection made anew begins again
        first = false;
        add(found);
      },
      problem: (found) => setText(note, found.message),
    }, reading.signal);
  };
  let typing = 0;
  grep.addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(start, 300);
  });
  level.addEventListener('change', start);
  component.addEventListener('change', start);
  lines.addEventListener('scroll', () => {
    following.checked = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 30;
  });
  signal.addEventListener('abort', () => reading.abort());
  const wanted = new URLSearchParams(query).get('component') ?? '';
  get(of(name, 'plan'), {}, signal).then((found) => {
    component.append(...found.components.map((one) => h('option', { value: one.id }, one.id)));
    if (!wanted) return;
    component.value = wanted;
    start();
  }, () => {});
  if (!wanted) start();
}

/** Give a logger of the user's code another level for a while. */
async function askLevel(name) {
  const answer = await ask({
    title: 'Log at another level', action: 'Set', text: 'The loggers of the topology’s own code, until the time is over.',
    fields: [
      { name: 'logger', label: 'Logger', placeholder: 'the root logger' },
      { name: 'level', label: 'Level', value: 'DEBUG', required: true },
      { name: 'minutes', label: 'Minutes', type: 'number', min: 0, step: 'any', value: '10', required: true },
    ],
  });
  if (!answer) return;
  try {
    await post(of(name, 'log-level'), { logger: answer.logger.trim(), level: answer.level.trim().toUpperCase(), secs: Number(answer.minutes) * 60 });
    toast(`${answer.logger || 'the root logger'}: ${answer.level.toUpperCase()} for ${answer.minutes} min`);
  } catch (problem) {
    toast([problem.message, problem.hint].filter(Boolean).join(' – '), 'bad');
  }
}

/** What a topology that scales by itself has decided. */
class Scaling {
  constructor() {
    const figure = (value) => (value === null ? '–' : count(value));
    this.table = new Table([
      { title: 'At', cell: (row) => date(row.at) },
      { title: 'Decision', cell: (row) => (row.is_dry ? `${row.verdict} (not made)` : row.verdict) },
      { title: 'Slots', num: true, cell: (row) => (row.to === row.slots ? count(row.slots) : `${count(row.slots)} → ${count(row.to)}`) },
      { title: 'In, a second', num: true, cell: (row) => figure(row.rate) },
      { title: 'To do, a second', num: true, cell: (row) => figure(row.demand) },
      { title: 'Busy', num: true, cell: (row) => (row.busy === null ? '–' : percent(row.busy)) },
      { title: 'Lag', num: true, cell: (row) => figure(row.lag) },
      { title: 'Needs', num: true, cell: (row) => figure(row.needed) },
      { title: 'Reason', wide: true, mark: (row) => row.reason, cell: (row) => row.reason },
    ], (row) => `${row.at} ${row.verdict}`, { onempty: 'Nothing is decided yet.' });
    this.note = h('span', { class: 'note' });
    this.element = panel('Scaling', this.table.element, this.note);
    this.element.hidden = true;
  }

  update(view) {
    this.element.hidden = view.most === null;
    setText(this.note, `between ${view.least} and ${view.most} slots${view.is_dry ? ', decides only' : ''}`);
    this.table.update(view.decisions);
  }
}

const SHOWN = 12;  // components of a slot that are named at once

/** The tasks of a slot; of many components, those after the first ones can be unfolded. */
function tasksOf(row) {
  const words = Object.entries(row.tasks).map(([id, tasks]) => `${id} ${tasks.join(', ')}`);
  if (words.length <= SHOWN + 2) return h('span', {}, words.join(' · ') || 'none');
  return h('details', {}, h('summary', {}, `${words.slice(0, SHOWN).join(' · ')} and ${count(words.length - SHOWN)} more`), words.slice(SHOWN).join(' · '));
}

export function workers(main, name, signal) {
  const stacks = new Stacks();
  const processes = new Table([
    { title: 'Process', sort: (row) => row.role, cell: (row) => row.role },
    { title: 'Pid', num: true, sort: (row) => row.pid, cell: (row) => String(row.pid) },
    { title: 'Memory', num: true, sort: (row) => row.memory_bytes, cell: (row) => bytes(row.memory_bytes) },
    { title: 'CPU', num: true, sort: (row) => row.cpu_secs, cell: (row) => duration(row.cpu_secs) },
    { title: 'Command', wide: true, mark: (row) => row.command, cell: (row) => h('code', {}, row.command || '–') },
  ], (row) => row.pid, { onempty: 'No process of it is on this machine.' });
  const slots = new Table([
    { title: 'Slot', num: true, cell: (row) => String(row.slot) },
    { title: 'Tasks', wide: true, mark: (row) => json(row.tasks), cell: (row) => tasksOf(row) },
    { title: 'Host', mark: (row) => `${row.host} ${row.places}`, cell: (row) => h('div', {}, row.host || '–', row.places.map((place) => h('div', { class: 'note' }, place))) },
    { title: 'Process', num: true, cell: (row) => (row.pid === null ? '–' : String(row.pid)) },
    { title: 'What it does', mark: (row) => row.pid, cell: (row) => stackButtons(name, row, stacks) },
  ], (row) => row.slot);
  const about = h('div', { class: 'body' });
  const scaling = new Scaling();
  const body = head(main, name, 'workers', signal, () => {});
  body.replaceChildren(panel('Driver', about), panel('Slots', slots.element), scaling.element, stacks.element, panel('Processes on this machine', processes.element));
  poll(async () => scaling.update(await get(of(name, 'scale'), {}, signal)), 5000, signal);
  poll(async () => {
    const found = await get(of(name, 'workers'), {}, signal);
    about.replaceChildren(facts([
      ['Host', found.host], ['Master', found.master],
      ['Driver', found.driver_pid ? `process ${found.driver_pid}` : 'not running'],
      ['Supervisor', found.supervisor_pid ? `process ${found.supervisor_pid}` : 'not running'],
      ['Started', plural(found.starts, 'time')], ['Failures in a row', found.failures ? count(found.failures) : null],
      ['Last failure', found.last_failure], ['Next start', found.waiting_until * 1000 > Date.now() ? date(found.waiting_until) : null],
    ]));
    processes.update(found.processes);
    slots.update(found.slots);
  }, 3000, signal);
}

export function settings(main, name, signal) {
  const table = new Table([
    { title: 'Setting', sort: (row) => row.key, mark: (row) => row.key, cell: (row) => h('div', {}, h('code', {}, row.key), h('div', { class: 'note' }, row.meaning)) },
    { title: 'Value', wide: true, mark: (row) => json(row.value), cell: (row) => h('code', {}, json(row.value)) },
    { title: 'Decided by', sort: (row) => row.origin, mark: (row) => row.origin, cell: (row) => h('span', { class: row.origin === 'default' ? 'muted' : '' }, row.origin) },
  ], (row) => row.key);
  const filter = h('input', { type: 'search', id: 'filter', placeholder: 'Filter  ( / )', 'aria-label': 'filter settings', oninput: () => show() });
  const own = h('input', { type: 'checkbox', id: 'own', onchange: () => show() });
  const about = h('div', { class: 'body' });
  let found = [];
  const show = () => table.update(found.filter((row) => `${row.key} ${json(row.value)} ${row.meaning}`.toLowerCase().includes(filter.value.toLowerCase())
    && !(own.checked && row.origin === 'default')));
  let said = '';
  const body = head(main, name, 'settings', signal, (view) => {
    if (said === view.id) return;
    said = view.id;
    about.replaceChildren(facts([['Id', view.id], ['Submitted', date(view.submitted_at)], ['Master', view.master], ['Checkpoint', h('code', {}, view.checkpoint)],
      ['Resumed', view.resumed ? 'yes' : 'no'], ['Workers', view.workers === null ? 'all cores' : count(view.workers)]]));
  });
  body.replaceChildren(panel('Submission', about), panel('Settings', table.element, h('label', { class: 'row' }, own, 'only what was set'), filter));
  get(of(name, 'conf'), {}, signal).then((answer) => {
    found = answer;
    show();
  }, () => {});
}
