// One component: its tasks, its streams, its errors.

import { follow, get, of, post, who } from './api.js';
import { h, link, setText } from './dom.js';
import { bytes, count, duration, inputKey, level, ms, percent, rate } from './format.js';
import { Errors, meter, panel, segments, Table, Tiles, toast } from './parts.js';
import { Past, Spark } from './past.js';
import { firingsOf, isFiring, roleFigures, ROLES } from './roles.js';
import { head, WINDOWS } from './topology.js';

export function component(main, name, id, signal) {
  const tiles = new Tiles(['Now', 'Emitted', 'Executed', 'Failed', 'Latency', 'Busiest task now', 'State']);
  const errors = new Errors();
  const tasks = tasksTable();
  const skew = h('span', { class: 'note' });
  const streams = new Table([
    { title: 'Stream', sort: (row) => row.stream, cell: (row) => row.stream },
    { title: 'Fields', cell: (row) => row.fields },
    { title: 'Read by', wide: true, cell: (row) => row.readers },
    { title: 'Emitted', num: true, sort: (row) => row.emitted, cell: (row) => count(row.emitted) },
    { title: 'Now', num: true, sort: (row) => row.rate, cell: (row) => rate(row.rate) },
  ], (row) => row.stream, { onempty: 'It emits nothing.' });
  const inputs = new Table([
    { title: 'From', mark: (row) => row.component, cell: (row) => h('a', { href: link('topology', name, 'component', row.component) }, row.component) },
    { title: 'Stream', cell: (row) => row.stream },
    { title: 'Grouping', cell: (row) => row.grouping },
    { title: 'Executed', num: true, sort: (row) => row.executed, cell: (row) => count(row.executed) },
    { title: 'One execute', num: true, sort: (row) => row.executeMs, cell: (row) => ms(row.executeMs) },
    { title: 'Execute to ack', num: true, sort: (row) => row.processMs, cell: (row) => ms(row.processMs) },
    { title: 'Sent now', num: true, sort: (row) => row.rate, cell: (row) => rate(row.rate) },
  ], (row) => `${row.component}/${row.stream}`, { onempty: 'It reads nothing: it is a spout.' });
  const roleTiles = new RoleTiles();
  const past = new Past();
  const firings = new OwnFigures('Firings by rule', past, (figures) => firingsOf(figures).map(({ key, rule, value }) => [key, value, rule]), 'counters');
  const counted = (figures) => Object.entries(figures.counters ?? {}).filter(([key]) => !isFiring(key));
  const ownFigures = [firings, new OwnFigures('Counters', past, counted, 'counters'), new OwnFigures('Gauges', past, (figures) => Object.entries(figures.gauges ?? {}), 'gauges'), new Spreads()];
  let plan = null;
  let chosen = '10m';
  let windowed = null;
  let latest = null;
  let nowRates = null;
  let known = -1;
  const show = () => {
    const view = chosen === 'all' ? latest : windowed;
    const figures = view?.components[id];
    if (!figures) return;
    const now = nowRates?.of(id);
    tiles.update(tilesOf(figures, now));
    const placed = plan?.components.find((one) => one.id === id);
    tasks.update(Object.entries(figures.by_task ?? {}).map(([task, of_]) => ({
      task, figures: of_, slot: placed ? placed.slots[Number(task) - placed.first_task] : null,
    })));
    setText(skew, skewOf(figures));
    for (const own of ownFigures) own.update(figures);
    if (!placed) return;
    roleTiles.update(roleFigures(placed, figures, plan));
    streams.update(placed.outputs.map((output) => ({
      stream: output.name, fields: output.fields.join(', '), emitted: figures.emitted_by?.[output.name] ?? 0, rate: now?.streams[output.name] ?? null,
      readers: plan.components.flatMap((one) => one.inputs.filter((read) => read.component === id && read.stream === output.name).map((read) => `${one.id} (${groupingOf(read)})`)).join(', ') || 'nobody',
    })));
    const of_ = (by, read) => figures[by]?.[inputKey(read.component, read.stream)] ?? null;
    inputs.update(placed.inputs.map((read) => ({
      executed: of_('executed_by_input', read), executeMs: of_('execute_ms_by_input', read), processMs: of_('process_ms_by_input', read),
      component: read.component, stream: read.stream, grouping: groupingOf(read), rate: nowRates?.of(read.component)?.streams[read.stream] ?? null,
    })));
  };
  const getWindow = async () => {
    if (chosen === 'all') return show();
    try {
      windowed = await get(of(name), { window: chosen }, signal);
    } catch { /* the next one may come */ }
    return show();
  };
  const getErrors = async () => {
    try {
      errors.update(await get(of(name, 'errors'), { component: id }, signal));
    } catch { /* shown by the events */ }
  };
  const about = h('span', { class: 'note' });
  const body = head(main, name, null, signal, (view, rates) => {
    [latest, nowRates] = [view, rates];
    past.add(view.components[id], rates.of(id));
    show();
    if (view.errors !== known) {
      known = view.errors;
      getErrors();
    }
  });
  const choice = segments(WINDOWS, chosen, 'window', (value) => {
    [chosen, windowed] = [value, null];
    getWindow();
  });
  body.replaceChildren(h('div', { class: 'row between' }, h('div', {}, h('h1', {}, id), about), h('div', { class: 'row' },
    choice, h('a', { class: 'button', href: `${link('topology', name, 'logs')}?component=${encodeURIComponent(id)}` }, 'Logs'))),
  tiles.element, roleTiles.element, past.element, firings.element, samplePanel(name, id, signal), panel('Tasks', tasks.element, skew), panel('Reads', inputs.element), panel('Emits', streams.element), ...ownFigures.slice(1).map((own) => own.element), panel('Errors', errors.element));
  get(of(name, 'plan'), {}, signal).then((found) => {
    plan = found;
    const placed = plan.components.find((one) => one.id === id);
    about.textContent = placed ? [placed.kind, ROLES[placed.role]?.words ?? '', placed.class_name, `level ${placed.level}`,
      placed.fused_into ? `fused into ${placed.fused_into}` : '', placed.keeps_state ? 'keeps state' : 'no state',
      placed.pending_limit ? `at most ${count(placed.pending_limit)} pending` : ''].filter(Boolean).join(' · ') : 'there is no such component';
    show();
  }, () => {});
  getWindow();
  getErrors();
  const every = setInterval(() => document.hidden || (getWindow(), getErrors()), 5000);
  signal.addEventListener('abort', () => clearInterval(every));
}

const SAMPLE_SECS = 30;

/** A sample of what the component emits, which its tasks write into their log for a while. */
function samplePanel(name, id, signal) {
  const lines = h('div', { class: 'log short', role: 'log', 'aria-label': 'sampled tuples', tabindex: '0', hidden: true });
  let following = new AbortController();
  signal.addEventListener('abort', () => following.abort());
  const start = async () => {
    following.abort();
    following = new AbortController();
    try {
      await post(of(name, 'sample'), { component: id, per_sec: 5, secs: SAMPLE_SECS });
    } catch (problem) {
      toast([problem.message, problem.hint].filter(Boolean).join(' – '), 'bad');
      return;
    }
    lines.hidden = false;
    lines.replaceChildren(h('p', {}, 'Waiting for the next batch …'));
    let first = true;
    follow(of(name, 'logs', 'events'), { component: id, grep: '^sample of ', since_secs: 1, count: 50 }, {
      lines: (found) => {
        if (!found.length) return;
        if (first) lines.replaceChildren();
        first = false;
        lines.append(...found.map((line) => h('p', {}, h('span', { class: 'time' }, String(line.time).slice(11, 19)), h('span', { class: 'level' }, `task ${line.task}`),
          h('span', { class: 'who' }, String(line.message).slice(10).split(':')[0]), h('span', { class: 'msg' }, String(line.message).split(': ').slice(1).join(': ')))));
        while (lines.childElementCount > 200) lines.firstElementChild.remove();
        lines.scrollTop = lines.scrollHeight;
      },
    }, following.signal);
    setTimeout(() => following.abort(), (SAMPLE_SECS + 5) * 1000);
  };
  const button = who()?.read_only ? '' : h('button', { type: 'button', onclick: start }, `Sample for ${SAMPLE_SECS} s`);
  return panel('Emitted tuples', lines, h('span', { class: 'note' }, 'a few a second, values cut, secrets hidden; they are in the log as well'), button);
}

/** How unevenly the tuples of the period lie on the tasks. */
function skewOf(figures) {
  const key = figures.kind === 'spout' ? 'emitted' : 'executed';
  const amounts = Object.values(figures.by_task ?? {}).map((task) => task[key] ?? 0);
  const mean = amounts.reduce((sum, amount) => sum + amount, 0) / amounts.length;
  if (amounts.length < 2 || !mean) return '';
  const most = Number((Math.max(...amounts) / mean).toPrecision(2));
  return most > 1 ? `the fullest task has ${most} times the mean` : 'spread evenly over the tasks';
}

function groupingOf(read) {
  return read.fields.length ? `${read.grouping}(${read.fields.join(', ')})` : read.grouping;
}

function tilesOf(figures, now) {
  const spout = figures.kind === 'spout';
  return [
    [rate(now ? (spout ? now.emitted : now.executed) : null), spout ? 'emitted' : 'executed'],
    [count(figures.emitted), `${count(figures.transferred)} transferred`],
    [spout ? '–' : count(figures.executed), `${count(figures.acked)} acked`],
    [count(figures.failed), Object.entries(figures.failed_by ?? {}).map(([reason, number]) => `${reason} ${count(number)}`).join(', '), figures.failed ? 'bad' : ''],
    [ms(figures.complete_ms ?? figures.execute_ms), spout ? 'emit to ack' : 'one execute'],
    [now?.capacity === null || now?.capacity === undefined ? '–' : percent(now.capacity), now?.task ? `task ${now.task}` : ''],
    [bytes(figures.saved_bytes), figures.held ? `${count(figures.held)} held, ${duration(figures.oldest_held_secs)}` : spout ? `${count(figures.pending)} pending` : 'nothing held'],
  ];
}

/** The figures of what a component is besides a spout or a bolt; hidden if it is nothing else. */
class RoleTiles {
  constructor() {
    this.element = h('div', { class: 'own', hidden: true });
    this.tiles = null;
  }

  update(figures) {
    if (!figures.length) return;
    if (!this.tiles) {
      this.tiles = new Tiles(figures.map(([label]) => label));
      this.element.append(this.tiles.element);
      this.element.hidden = false;
    }
    this.tiles.update(figures.map(([, value]) => [count(value)]));
  }
}

/** What the component itself counts, or notes as levels; hidden if there is none. */
class OwnFigures {
  /**
   * @param {(figures: any) => [string, number, string?][]} entries what it shows: key, value, and another name than the key
   * @param {'counters' | 'gauges'} kind
   */
  constructor(title, past, entries, kind) {
    [this.kind, this.past, this.entries, this.sparks] = [kind, past, entries, new Map()];
    const isCounter = kind === 'counters';
    this.table = new Table([
      { title: 'Name', sort: (row) => row.name, cell: (row) => row.name },
      { title: 'Since this page was opened', num: true, mark: (row) => row.key, cell: (row) => this.spark(row.key).element },
      ...(isCounter ? [{ title: 'A second', num: true, sort: (row) => row.lately.at(-1), cell: (row) => rate(row.lately.at(-1)) }] : []),
      { title: isCounter ? 'Count' : 'Level', num: true, sort: (row) => row.value, cell: (row) => level(row.key, row.value) },
    ], (row) => row.key);
    this.element = panel(title, this.table.element);
    this.element.hidden = true;
  }

  /** The line of a figure; made once, since a row is kept as well. */
  spark(key) {
    if (!this.sparks.has(key)) this.sparks.set(key, new Spark());
    return this.sparks.get(key);
  }

  update(figures) {
    const isCounter = this.kind === 'counters';
    const rows = this.entries(figures).map(([key, value, name = key]) => ({ key, name, value, lately: isCounter ? this.past.counter(key) : this.past.gauge(key) }));
    for (const row of rows) this.spark(row.key).update(row.lately, isCounter ? rate : (value) => level(row.key, value));
    this.table.update(rows);
    this.element.hidden = !rows.length;
  }
}

/** Histograms that the component keeps itself; hidden if there is none. */
class Spreads {
  constructor() {
    const limit = (title, part) => ({
      title, num: true, sort: (row) => quantile(row, part), cell: (row) => `≤ ${level(row.stem, quantile(row, part))}`,
    });
    this.table = new Table([
      { title: 'Name', sort: (row) => row.name, cell: (row) => row.name },
      { title: 'Values', num: true, sort: (row) => row.count, cell: (row) => count(row.count) },
      { title: 'Mean', num: true, sort: (row) => row.sum / row.count, cell: (row) => level(row.stem, row.sum / row.count) },
      limit('Half', 0.5), limit('99 %', 0.99), limit('All', 1),
    ], (row) => row.name);
    this.element = panel('Histograms', this.table.element);
    this.element.hidden = true;
  }

  update(figures) {
    const rows = spreads(figures.histograms ?? {});
    this.table.update(rows);
    this.element.hidden = !rows.length;
  }
}

/** The histograms of their counts, whose keys end in le="LIMIT", or in le="sum". */
function spreads(counts) {
  const found = new Map();
  for (const [key, amount] of Object.entries(counts)) {
    const [, stem, labels, limit] = /^([^{]*)\{(.*?),?le="([^"]*)"\}$/.exec(key) ?? [];
    if (limit === undefined) continue;
    const name = labels ? `${stem}{${labels}}` : stem;
    const one = found.get(name) ?? { name, stem, count: 0, sum: 0, buckets: [] };
    found.set(name, one);
    if (limit === 'sum') one.sum = amount;
    else {
      one.count += amount;
      one.buckets.push([limit === '+Inf' ? Infinity : Number(limit), amount]);
    }
  }
  for (const one of found.values()) one.buckets.sort(([a], [b]) => a - b);
  return [...found.values()].filter((one) => one.count > 0);
}

/** The limit at or below which this part of a histogram's values lay. */
function quantile(one, part) {
  let below = 0;
  for (const [limit, amount] of one.buckets) {
    below += amount;
    if (below >= part * one.count) return limit;
  }
  return null;
}

function tasksTable() {
  const figure = (title, key, words = count) => ({ title, num: true, sort: (row) => row.figures[key], cell: (row) => words(row.figures[key]) });
  return new Table([
    { title: 'Task', sort: (row) => Number(row.task), cell: (row) => row.task },
    { title: 'Slot', num: true, sort: (row) => row.slot, cell: (row) => (row.slot === null || row.slot === undefined ? '–' : String(row.slot)) },
    figure('Emitted', 'emitted'), figure('Executed', 'executed'), figure('Acked', 'acked'), figure('Failed', 'failed'),
    { title: 'Latency', num: true, sort: (row) => row.figures.complete_ms ?? row.figures.execute_ms, cell: (row) => ms(row.figures.complete_ms ?? row.figures.execute_ms) },
    { title: 'Busy', num: true, sort: (row) => row.figures.capacity, mark: (row) => row.figures.capacity,
      cell: (row) => (row.figures.capacity === null ? h('span', {}, '–') : meter(row.figures.capacity, percent(row.figures.capacity))) },
    figure('Pending', 'pending'), figure('Held', 'held'), figure('State', 'saved_bytes', bytes),
  ], (row) => row.task);
}
