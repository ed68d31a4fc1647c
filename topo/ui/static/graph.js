// The graph of a topology: coloured by how busy the busiest task of each component is, its edges as
// thick as what flows. Drawn anew only if a level is folded or unfolded; figures change attributes and texts.

import { h, inTurns, link, s, Seen, setAttribute, setText } from './dom.js';
import { Excerpt } from './excerpt.js';
import { clock, count, duration, moment, ms, percent, plural, rate } from './format.js';
import { arranged, BOX, folded, placed, route } from './layout.js';
import { heat } from './rates.js';
import { loopWords, ROLES, roleWords } from './roles.js';

const LABELLED = 30;  // with more edges their labels lie on each other: they are shown of what is pointed at
const LENGTH = 22;

export class Graph {
  /** @param {any} plan @param {string} topology */
  constructor(plan, topology) {
    [this.plan, this.topology] = [plan, topology];
    this.levels = arranged(plan);
    this.unfolded = new Set();
    this.wanted = '';
    this.latest = null;
    this.svg = s('svg', { 'aria-label': `graph of ${topology}` });
    this.excerpt = new Excerpt(this.svg);
    this.element = h('div', {}, this.excerpt.frame, keys(plan));
    this.svg.addEventListener('focusin', (event) => this.reveal(event.target.closest('.node')));
    this.seen = new Seen(this.element, () => this.show());
    this.draw();
  }

  draw() {
    this.nodes = new Map();
    this.groups = [];
    this.edges = [];
    const boxes = folded(this.levels, this.unfolded);
    const { width, height, places } = placed(boxes);
    this.places = places;
    const reads = this.reads();
    this.isDense = reads.size > LABELLED;
    this.svg.classList.toggle('dense', this.isDense);
    this.taken = new Map();
    const edges = [...reads.values()].map((read) => this.edge(read));
    const names = boxes.map((level, number) => this.levelName(number, level[0]));
    const arrow = s('marker', { id: 'back', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: 'userSpaceOnUse', orient: 'auto' },
      s('path', { d: 'M0,0 L8,4 L0,8 Z' }));
    const hatch = s('pattern', { id: 'hatch', width: 8, height: 8, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
      s('path', { d: 'M0,0 L0,8' }));
    const by = new Map(this.plan.components.map((component) => [component.id, component]));
    const drawn = boxes.flat().map((box) => (box.ids.length === 1 ? this.node(by.get(box.ids[0])) : this.group(box)));
    this.svg.replaceChildren(s('defs', {}, hatch, arrow), ...names, ...edges, ...drawn);
    this.excerpt.resize(width, height);
    this.mark();
    this.show();
  }

  /** The edges between boxes: of what is folded away, those with the same ends are one. */
  reads() {
    const reads = new Map();
    for (const component of this.plan.components) {
      for (const read of component.inputs) {
        const [from, to] = [this.places.get(read.component), this.places.get(component.id)];
        if (!from || !to) continue;
        const isSingle = from.box.ids.length === 1 && to.box.ids.length === 1;
        const key = JSON.stringify([from.box.ids[0], to.box.ids[0], isSingle ? read.stream : '', isSingle ? component.inputs.indexOf(read) : '']);
        if (!reads.has(key)) reads.set(key, { from, to, flows: [], words: '', loop: read.loop });
        const edge = reads.get(key);
        edge.flows.push({ from: read.component, to: component.id, stream: read.stream });
        edge.words = isSingle ? wordsOf(read) : plural(edge.flows.length, 'stream');
      }
    }
    return reads;
  }

  levelName(number, first) {
    const place = this.places.get(first.ids[0]);
    const text = s('text', { class: 'level-name', x: place.x, y: 12 }, `level ${number}`);
    if (!this.unfolded.has(number)) return text;
    const fold = s('text', { class: 'level-name fold', x: place.x + 52, y: 12, role: 'button', tabindex: '0' }, 'fold');
    this.button(fold, () => this.unfolded.delete(number));
    return s('g', {}, text, fold);
  }

  /** Let an element change what is folded, by mouse and keyboard. */
  button(element, change) {
    const act = () => {
      change();
      this.draw();
    };
    element.addEventListener('click', act);
    element.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' && event.key !== ' ') return;
      event.preventDefault();
      act();
    });
  }

  edge({ from, to, flows, words, loop }) {
    const way = route(from, to);
    const path = s('path', { d: way.d, 'marker-end': loop ? 'url(#back)' : null });
    const group = s('g', { class: loop ? 'edge idle loop' : 'edge idle' }, path,
      s('title', {}, flows.slice(0, 12).map((flow) => `${flow.from} → ${flow.to}${flow.stream === 'default' ? '' : ` (${flow.stream})`}`).join('\n') + `\n${words}`));
    const edge = { group, path, flows, words, way, loop: loop && flows[0].stream, label: null, flow: null };
    if (this.isDense) {
      group.addEventListener('pointerenter', () => this.near([edge], true));
      group.addEventListener('pointerleave', () => this.near([edge], false));
    } else {
      this.label(edge);
    }
    this.edges.push(edge);
    return group;
  }

  label(edge) {
    const { x, y, anchor } = edge.way;
    const spot = `${Math.round(x / 40)}:${Math.round(y / 22)}`;
    const lower = this.isDense ? 0 : (this.taken.get(spot) ?? 0) * 30;
    this.taken.set(spot, (this.taken.get(spot) ?? 0) + 1);
    edge.flow = s('text', { x, y: y + 14 + lower, 'text-anchor': anchor });
    const words = edge.loop ? `${edge.loop}, loop` : edge.words;  // its grouping is in the tooltip: room is scarce there
    edge.label = s('text', { x, y: y - 5 + lower, 'text-anchor': anchor }, short(words, edge.loop ? 14 : LENGTH));
    edge.path.after(edge.label, edge.flow);
    if (this.latest) this.updateEdge(edge, this.latest[1]);
  }

  /** Show the edges that are pointed at, with their labels, or no longer. */
  near(edges, isNear) {
    for (const edge of edges) {
      if (isNear && !edge.label) this.label(edge);
      edge.group.classList.toggle('near', isNear);
    }
  }

  node(component) {
    const place = this.places.get(component.id);
    const role = ROLES[component.role] ?? null;
    const rx = role?.shape === 'pill' ? BOX.height / 2 - 3 : 9;
    const parts = {
      group: s('a', { class: `node ${component.kind}`, href: link('topology', this.topology, 'component', component.id), transform: `translate(${place.x},${place.y})` }),
      first: text(12, 40, '', ''), side: text(BOX.width - 12, 40, 'faint', '', 'end'),
      last: text(12, 62, 'faint', ''), fill: s('rect', { class: 'fill', x: 12, y: 47, width: 0, height: 3, rx: 1.5 }),
      chip: s('g', { class: 'watermark', visibility: 'hidden' }, s('rect', { x: 8, y: BOX.height - 4, width: BOX.width - 16, height: 15, rx: 7.5 }), text(BOX.width / 2, BOX.height + 7, '', '', 'middle')),
      title: s('title', {}, component.id),
    };
    parts.group.append(
      s('rect', { class: 'box', width: BOX.width, height: BOX.height, rx }),
      s('rect', { class: 'hatch', width: BOX.width, height: BOX.height, rx }),
      ...(role?.shape === 'framed' ? [s('path', { class: 'frame', d: `M5,0 V${BOX.height} M${BOX.width - 5},0 V${BOX.height}` })] : []),
      ...(role ? [badgeOf(role.badge)] : []),
      text(12, 21, 'name', middle(component.id, 17)), text(BOX.width / 2, 45, 'far-name', middle(component.id, 12), 'middle'), text(BOX.width - 12, 21, 'faint', `×${component.tasks}`, 'end'),
      parts.first, parts.side, parts.last, parts.chip, parts.title);
    if (component.kind !== 'spout') {
      parts.group.append(s('rect', { class: 'meter', x: 12, y: 47, width: BOX.width - 24, height: 3, rx: 1.5 }), parts.fill);
    }
    this.pointed(parts.group, (flow) => flow.from === component.id || flow.to === component.id);
    this.nodes.set(component.id, { ...parts, component });
    return parts.group;
  }

  /** One box for what is folded away of a level, which opens it. */
  group(box) {
    const place = this.places.get(box.ids[0]);
    const parts = { first: text(12, 42, '', ''), last: text(12, 62, 'faint', '') };
    const group = s('g', { class: 'node group', role: 'button', tabindex: '0', transform: `translate(${place.x},${place.y})` },
      s('rect', { class: 'box behind', x: 5, y: 5, width: BOX.width, height: BOX.height, rx: 9 }),
      s('rect', { class: 'box', width: BOX.width, height: BOX.height, rx: 9 }), text(12, 21, 'name', `${count(box.ids.length)} more`), parts.first, parts.last);
    this.button(group, () => this.unfolded.add(box.number));
    this.pointed(group, (flow) => box.ids.includes(flow.from) || box.ids.includes(flow.to));
    this.groups.push({ ...parts, group, box });
    return group;
  }

  pointed(element, isOfIt) {
    const show = (isNear) => this.near(this.edges.filter((edge) => edge.flows.some(isOfIt)), isNear);
    for (const [begin, end] of [['pointerenter', 'pointerleave'], ['focusin', 'focusout']]) {
      element.addEventListener(begin, () => show(true));
      element.addEventListener(end, () => show(false));
    }
  }

  /** Bring a box that got the focus of the keyboard into sight. */
  reveal(node) {
    const place = [...this.places.values()].find((one) => this.nodes.get(one.box.ids[0])?.group === node || this.groups.some((group) => group.group === node && group.box === one.box));
    if (place) this.excerpt.centre(place.x + BOX.width / 2, place.y + BOX.height / 2);
  }

  /** Mark the components whose names contain a text; levels that hide one of them are unfolded. */
  search(words) {
    this.wanted = words.trim().toLowerCase();
    const hidden = this.groups.filter((group) => this.wanted && group.box.ids.some((id) => this.isWanted(id)));
    if (hidden.length) {
      hidden.forEach((group) => this.unfolded.add(group.box.number));
      this.draw();
    }
    this.mark();
    const first = this.wanted && this.plan.components.find((component) => this.isWanted(component.id));
    if (!first) return;
    const place = this.places.get(first.id);
    this.excerpt.centre(place.x + BOX.width / 2, place.y + BOX.height / 2);
  }

  isWanted(id) {
    return id.toLowerCase().includes(this.wanted);
  }

  mark() {
    this.svg.classList.toggle('searched', Boolean(this.wanted));
    for (const [id, node] of this.nodes) node.group.classList.toggle('wanted', Boolean(this.wanted) && this.isWanted(id));
  }

  /** Show figures: `rates` of now, `view` of the topology, `failing` components with fresh errors. */
  update(view, rates, failing) {
    this.latest = [view, rates, failing];
    this.seen.ask();
  }

  /** Show the latest figures; of earlier ones, whose turns are not over, the rest is left out. */
  show() {
    if (!this.latest) return false;
    const [view, rates, failing] = this.latest;
    inTurns([
      ...[...this.nodes].map(([id, node]) => () => this.updateNode(id, node, view, rates, failing)),
      ...this.groups.map((group) => () => this.updateGroup(group, rates, failing)),
      ...this.edges.map((edge) => () => this.updateEdge(edge, rates)),
    ], () => this.latest[0] === view);
    return true;
  }

  updateEdge(edge, rates) {
    const flows = edge.flows.map((flow) => rates.of(flow.from)?.streams[flow.stream] ?? null).filter((flow) => flow !== null);
    const sum = flows.length ? flows.reduce((total, flow) => total + flow, 0) : null;
    setAttribute(edge.path, 'stroke-width', (1.2 + (sum > 0 ? Math.log10(sum + 1) * 1.1 : 0)).toFixed(1));
    edge.group.classList.toggle('idle', !(sum > 0));
    if (edge.flow) setText(edge.flow, sum === null ? '' : rate(sum));
  }

  updateGroup(group, rates, failing) {
    const busiest = group.box.ids.map((id) => ({ id, capacity: rates.of(id)?.capacity ?? null }))
      .reduce((most, one) => ((one.capacity ?? -1) > (most.capacity ?? -1) ? one : most));
    const broken = group.box.ids.filter((id) => failing.has(id)).length;
    setAttribute(group.group, 'class', ['node group', heat(busiest.capacity), broken ? 'errors' : ''].join(' ').trim());
    setText(group.first, busiest.capacity === null ? '' : `${middle(busiest.id, 14)} ${percent(busiest.capacity)}`);
    setText(group.last, broken ? `errors in ${broken}` : 'show all');
  }

  updateNode(id, node, view, rates, failing) {
    const now = rates.of(id);
    const figures = view.components?.[id];
    const isSpout = node.component.kind === 'spout';
    const isLate = (figures?.oldest_held_secs ?? 0) > view.message_timeout_secs;
    const limit = node.component.pending_limit;
    const atLimit = Boolean(isSpout && limit && (figures?.pending ?? 0) >= limit);
    const slow = atLimit ? slowestAfter(this.plan, id, rates) : null;
    const classes = ['node', node.component.kind];
    if (!isSpout) classes.push(heat(now?.capacity));
    if (failing.has(id)) classes.push('errors');
    if (atLimit) classes.push('limit');
    if (isLate) classes.push('late');
    if (node.group.classList.contains('wanted')) classes.push('wanted');
    setAttribute(node.group, 'class', classes.join(' '));
    const own = roleWords(node.component, figures, this.plan);
    if (isSpout) this.updateSpout(node, view, figures, now, limit, slow, own);
    else this.updateBolt(node, figures, now, own);
    const watermark = updateWatermark(node, figures?.gauges ?? {});
    setText(node.title, [id, node.component.class_name, ROLES[node.component.role]?.words ?? '', own, loopWords(figures), plural(node.component.tasks, 'task'),
      isSpout ? '' : `busiest task: ${now?.task ?? '–'}, ${percent(now?.capacity ?? null)} of its time`,
      failing.has(id) ? 'errors in the last ten minutes' : '', atLimit ? `at its pending limit${slow ? `: waits for ${slow}` : ''}` : '',
      isLate ? 'holds tuples longer than the message timeout' : '', watermark].filter(Boolean).join('\n'));
  }

  updateSpout(node, view, figures, now, limit, slow, own) {
    setText(node.first, rate(now?.emitted ?? null));
    setText(node.side, figures?.failed ? `${count(figures.failed)} failed` : '');
    const pending = `${count(figures?.pending ?? null)} pending${limit ? ` of ${count(limit)}` : ''}`;
    setText(node.last, slow ? `waits for ${middle(slow, 16)}` : own || (view.tracked ? pending : 'not tracked'));
  }

  updateBolt(node, figures, now, own) {
    const notes = [own || loopWords(figures)].filter(Boolean);
    setText(node.first, rate(now?.executed ?? null));
    setText(node.side, now?.capacity === null || now?.capacity === undefined ? '' : `${percent(now.capacity)} · task ${now.task}`);
    setAttribute(node.fill, 'width', (Math.min(1, now?.capacity ?? 0) * (BOX.width - 24)).toFixed(1));
    if (notes.length) notes[0] = short(notes[0], 28);  // there is no room for more
    else if (figures?.held) notes.push(`${count(figures.held)} held ${duration(figures.oldest_held_secs)}`);
    else if (figures?.execute_ms !== null && figures?.execute_ms !== undefined) notes.push(`${ms(figures.execute_ms)} each`);
    if (node.component.fused_into && !own) notes.push('fused');
    setText(node.last, notes.join(' · '));
  }
}

/** The name of a role, on the upper edge of a box. */
function badgeOf(words) {
  const width = 14 + 7.4 * words.length;
  return s('g', { class: 'role' }, s('rect', { x: 20, y: -12, width, height: 16, rx: 4 }), text(20 + width / 2, 0, '', words, 'middle'));
}

/** Show how far event time has come in a component; return what its tooltip says of it. */
function updateWatermark(node, gauges) {
  const at = gauges.watermark_secs ?? null;
  setAttribute(node.chip, 'visibility', at === null ? 'hidden' : 'visible');
  if (at === null) return '';
  const holders = Object.keys(gauges).map((name) => /^watermark_held_secs\{by="(.*)"\}$/.exec(name)?.[1].replace(/\\(.)/g, '$1')).filter(Boolean);
  const isToday = new Date(at * 1000).toDateString() === new Date().toDateString();
  setText(node.chip.lastChild, short(holders.length ? `held back by ${holders[0]}` : isToday ? `watermark ${clock(at)}` : moment(at), 26));
  node.chip.classList.toggle('held', holders.length > 0);
  const behind = gauges.watermark_lag_secs ?? null;
  return [`watermark ${moment(at)}${behind === null ? '' : `, ${duration(behind)} behind`}`,
    ...holders.map((holder) => `held back by ${holder}`)].join('\n');
}

/** The busiest component that a spout at its limit waits for: nobody's, if none is over half of its time. */
export function slowestAfter(plan, spout, rates) {
  const reached = new Set([spout]);
  let grown = true;
  while (grown) {
    const next = plan.components.filter((component) => !reached.has(component.id) && component.inputs.some((read) => reached.has(read.component)));
    next.forEach((component) => reached.add(component.id));
    grown = next.length > 0;
  }
  reached.delete(spout);
  const busy = [...reached].map((id) => [id, rates.of(id)?.capacity ?? 0]).filter(([, capacity]) => capacity >= 0.5);
  return busy.sort(([, a], [, b]) => b - a)[0]?.[0] ?? null;
}

function wordsOf(read) {
  const fields = read.fields.length ? `(${read.fields.join(', ')})` : '';
  return `${read.stream === 'default' ? '' : `${read.stream}: `}${read.grouping}${fields}${read.loop ? ', loop' : ''}`;
}

function short(words, most = LENGTH) {
  return words.length > most ? `${words.slice(0, most - 1)}…` : words;
}

/** A name cut in its middle: names of a family begin alike, and those of a place end alike. */
function middle(name, most) {
  const kept = most - 1;
  return name.length > most ? `${name.slice(0, Math.ceil(kept / 2))}…${name.slice(-Math.floor(kept / 2))}` : name;
}

function text(x, y, className, words, anchor = 'start') {
  return s('text', { x, y, class: className, 'text-anchor': anchor }, words);
}

/** What the graph's colours and shapes mean; those of roles and loops only where there are some. */
function keys(plan) {
  const entries = [['spout', 'spout'], ['low', 'busy'], ['mid', 'over 50 %'], ['high', 'over 80 %'], ['', 'idle'],
    ['errors', 'errors in 10 m'], ['limit', 'at its pending limit']];
  return h('div', { class: 'keys' }, h('span', {}, 'Colour: the busiest task of a component.'),
    [...entries, ...special(plan)].map(([name, words]) => h('span', {}, h('i', { class: name }), words)));
}

function special(plan) {
  const has = (...roles) => plan.components.some((component) => roles.includes(component.role));
  return [
    ...(has('drpc', 'answers') ? [['pill', 'calls of functions (DRPC)']] : []),
    ...(has('pattern', 'rules') ? [['framed', 'patterns and rules']] : []),
    ...(plan.components.some((component) => component.inputs.some((read) => read.loop)) ? [['looped', 'loop: goes back, to the next batch']] : []),
  ];
}
