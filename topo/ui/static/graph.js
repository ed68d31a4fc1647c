// The graph of a topology: its levels from left to right as the plan has them, coloured by how busy
// the busiest task of each component is. Drawn once; figures only change attributes and texts.

import { h, link, s, setAttribute, setText } from './dom.js';
import { count, duration, ms, percent, rate } from './format.js';
import { heat } from './rates.js';

const BOX = { width: 176, height: 74 };
const GAP = { x: 132, y: 46 };
const EDGE_LIMIT = 150;  // with more edges their labels are tooltips only: drawing them takes longer than the rest

/** Order components within their levels by the middle of what they are wired to. */
export function arranged(plan) {
  const levels = plan.levels.map((level) => [...level]);
  const by = new Map(plan.components.map((component) => [component.id, component]));
  const readers = new Map(plan.components.map((component) => [component.id, []]));
  for (const component of plan.components) {
    for (const read of component.inputs) readers.get(read.component)?.push(component.id);
  }
  for (let round = 0; round < 4; round += 1) {
    const row = new Map();
    levels.forEach((level) => level.forEach((id, at) => row.set(id, (at + 0.5) / level.length)));
    const middle = (ids, otherwise) => (ids.length ? ids.reduce((sum, id) => sum + row.get(id), 0) / ids.length : otherwise);
    const forward = round % 2 === 0;
    for (const level of levels) {
      const place = new Map(level.map((id) => [id, middle(
        (forward ? by.get(id).inputs.map((read) => read.component) : readers.get(id)).filter((other) => row.has(other)), row.get(id))]));
      level.sort((a, b) => place.get(a) - place.get(b));
      level.forEach((id, at) => row.set(id, (at + 0.5) / level.length));
    }
  }
  return levels;
}

export class Graph {
  /** @param {any} plan @param {string} topology */
  constructor(plan, topology) {
    this.nodes = new Map();
    this.edges = [];
    this.plan = plan;
    const levels = arranged(plan);
    const tallest = Math.max(...levels.map((level) => level.length), 1);
    const height = tallest * (BOX.height + GAP.y) + 24;
    const width = levels.length * (BOX.width + GAP.x) - GAP.x + 40;
    const places = new Map();
    levels.forEach((level, number) => level.forEach((id, at) => places.set(id, {
      x: 20 + number * (BOX.width + GAP.x),
      y: 24 + (height - 24) * ((at + 0.5) / level.length) - BOX.height / 2,
    })));
    const shapes = [];
    const labelled = plan.components.reduce((sum, component) => sum + component.inputs.length, 0) <= EDGE_LIMIT;
    const taken = new Map();
    for (const component of plan.components) {
      for (const read of component.inputs) {
        const [from, to] = [places.get(read.component), places.get(component.id)];
        if (from && to) shapes.push(this.edge(read, component, from, to, labelled, taken));
      }
    }
    const names = levels.map((level, number) => s('text', { class: 'level-name', x: 20 + number * (BOX.width + GAP.x), y: 12 },
      `level ${number}`));
    for (const component of plan.components) shapes.push(this.node(component, places.get(component.id), topology));
    const hatch = s('pattern', { id: 'hatch', width: 8, height: 8, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
      s('path', { d: 'M0,0 L0,8' }));
    this.svg = s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, 'aria-label': `graph of ${topology}` }, s('defs', {}, hatch), names, shapes);
    this.element = h('div', {}, h('div', { class: 'graph', tabindex: '0', role: 'group', 'aria-label': 'graph' }, this.svg), keys());
  }

  edge(read, component, from, to, labelled, taken) {
    const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
    const same = x2 <= x1;
    const bend = same ? 60 : Math.max(40, (x2 - x1) / 2);
    const d = same
      ? `M${from.x + BOX.width / 2},${from.y + BOX.height} C${from.x + BOX.width / 2},${from.y + BOX.height + 30} ${to.x + BOX.width / 2},${to.y - 30} ${to.x + BOX.width / 2},${to.y}`
      : `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`;
    const path = s('path', { d });
    const fields = read.fields.length ? `(${read.fields.join(', ')})` : '';
    const words = `${read.stream === 'default' ? '' : `${read.stream}: `}${read.grouping}${fields}`;
    const middle = same ? [to.x + BOX.width / 2, (from.y + to.y + BOX.height) / 2] : [(x1 + x2) / 2, (y1 + y2) / 2];
    const spot = `${Math.round(middle[0] / 40)}:${Math.round(middle[1] / 22)}`;
    const lower = (taken.get(spot) ?? 0) * 30;
    taken.set(spot, (taken.get(spot) ?? 0) + 1);
    const [left, anchor, up] = same ? [middle[0] + 10, 'start', 4] : [middle[0], 'middle', 0];
    const flow = s('text', { x: left, y: middle[1] + 14 + lower - up, 'text-anchor': anchor });
    const group = s('g', { class: 'edge idle' }, path,
      labelled && [s('text', { x: left, y: middle[1] - 5 + lower + up, 'text-anchor': anchor }, words.length > 22 ? `${words.slice(0, 21)}…` : words), flow],
      s('title', {}, `${read.component} → ${component.id}\n${words}`));
    this.edges.push({ group, path, flow, from: read.component, stream: read.stream });
    return group;
  }

  node(component, place, topology) {
    const text = (x, y, className, words, anchor) => s('text', { x, y, class: className, 'text-anchor': anchor ?? 'start' }, words);
    const name = component.id.length > 22 ? `${component.id.slice(0, 21)}…` : component.id;
    const parts = {
      group: s('a', { class: `node ${component.kind}`, href: link('topology', topology, 'component', component.id), transform: `translate(${place.x},${place.y})` }),
      first: text(12, 40, '', ''), side: text(BOX.width - 12, 40, 'faint', '', 'end'),
      last: text(12, 62, 'faint', ''), fill: s('rect', { class: 'fill', x: 12, y: 47, width: 0, height: 3, rx: 1.5 }),
      title: s('title', {}, component.id),
    };
    parts.group.append(
      s('rect', { class: 'box', width: BOX.width, height: BOX.height, rx: 9 }),
      s('rect', { class: 'hatch', width: BOX.width, height: BOX.height, rx: 9 }),
      text(12, 21, 'name', name), text(BOX.width - 12, 21, 'faint', `×${component.tasks}`, 'end'),
      parts.first, parts.side, parts.last, parts.title);
    if (component.kind !== 'spout') {
      parts.group.append(s('rect', { class: 'meter', x: 12, y: 47, width: BOX.width - 24, height: 3, rx: 1.5 }), parts.fill);
    }
    this.nodes.set(component.id, { ...parts, component });
    return parts.group;
  }

  /** Show figures: `rates` of now, `view` of the topology, `failing` components with fresh errors. */
  update(view, rates, failing) {
    for (const [id, node] of this.nodes) this.updateNode(id, node, view, rates.of(id), failing);
    for (const edge of this.edges) {
      const flow = rates.of(edge.from)?.streams[edge.stream] ?? null;
      setAttribute(edge.path, 'stroke-width', (1.2 + (flow > 0 ? Math.log10(flow + 1) * 1.1 : 0)).toFixed(1));
      setAttribute(edge.group, 'class', flow > 0 ? 'edge' : 'edge idle');
      setText(edge.flow, flow === null ? '' : rate(flow));
    }
  }

  updateNode(id, node, view, now, failing) {
    const figures = view.components?.[id];
    const isSpout = node.component.kind === 'spout';
    const late = (figures?.oldest_held_secs ?? 0) > view.message_timeout_secs;
    const limit = node.component.pending_limit;
    const atLimit = isSpout && limit && (figures?.pending ?? 0) >= limit;
    const classes = ['node', node.component.kind];
    if (!isSpout) classes.push(heat(now?.capacity));
    if (failing.has(id)) classes.push('errors');
    if (atLimit) classes.push('limit');
    if (late) classes.push('late');
    setAttribute(node.group, 'class', classes.join(' '));
    const notes = [];
    if (isSpout) {
      setText(node.first, rate(now?.emitted ?? null));
      setText(node.side, figures?.failed ? `${count(figures.failed)} failed` : '');
      notes.push(view.tracked ? `${count(figures?.pending ?? null)} pending${limit ? ` of ${count(limit)}` : ''}` : 'not tracked');
    } else {
      setText(node.first, rate(now?.executed ?? null));
      setText(node.side, now?.capacity === null || now?.capacity === undefined ? '' : `${percent(now.capacity)} · task ${now.task}`);
      setAttribute(node.fill, 'width', (Math.min(1, now?.capacity ?? 0) * (BOX.width - 24)).toFixed(1));
      if (figures?.held) notes.push(`${count(figures.held)} held ${duration(figures.oldest_held_secs)}`);
      else if (figures?.execute_ms !== null && figures?.execute_ms !== undefined) notes.push(`${ms(figures.execute_ms)} each`);
      if (node.component.fused_into) notes.push('fused');
    }
    setText(node.last, notes.join(' · '));
    setText(node.title, [id, node.component.class_name, `${count(node.component.tasks)} tasks`,
      isSpout ? '' : `busiest task: ${now?.task ?? '–'}, ${percent(now?.capacity ?? null)} of its time`,
      failing.has(id) ? 'errors in the last ten minutes' : '', atLimit ? 'at its pending limit' : '',
      late ? 'holds tuples longer than the message timeout' : ''].filter(Boolean).join('\n'));
  }
}

function keys() {
  const entries = [['spout', 'spout'], ['low', 'busy'], ['mid', 'over 50 %'], ['high', 'over 80 %'], ['', 'idle'],
    ['errors', 'errors in 10 m'], ['limit', 'at its pending limit']];
  return h('div', { class: 'keys' }, h('span', {}, 'Colour: the busiest task of a component.'),
    entries.map(([name, words]) => h('span', {}, h('i', { class: name }), words)));
}
