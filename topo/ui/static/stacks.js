// What the threads of a slot do: a dump of one moment, and a flame graph of samples.

import { of, post, who } from './api.js';
import { h, setText } from './dom.js';
import { percent, plural } from './format.js';
import { facts, Table, toast } from './parts.js';

const SAMPLE_SECS = 3;
const LEAST_SHARE = 0.004;  // narrower functions are left out of the picture, not of the table
const MOST_DEPTH = 60;

/** Buttons for a slot whose process can be asked; the answer is shown in `stacks`. */
export function stackButtons(name, slot, stacks) {
  if (who()?.read_only || slot.pid === null) return h('span', { class: 'muted' }, slot.pid === null ? 'elsewhere' : '');
  return h('span', { class: 'row nowrap' },
    h('button', { type: 'button', onclick: () => stacks.load(name, slot.slot, 0) }, 'Threads'),
    h('button', { type: 'button', onclick: () => stacks.load(name, slot.slot, SAMPLE_SECS) }, 'Flame graph'));
}

/** The panel with the latest answer. */
export class Stacks {
  constructor() {
    this.title = h('h2', { 'aria-live': 'polite' });
    this.about = h('span', { class: 'note' });
    this.body = h('div');
    this.top = new Table([
      { title: 'Function', wide: true, mark: (row) => row.place, cell: (row) => h('code', {}, row.place) },
      { title: 'By itself', num: true, sort: (row) => row.own, cell: (row) => percent(row.own) },
      { title: 'With what it calls', num: true, sort: (row) => row.total, cell: (row) => percent(row.total) },
    ], (row) => row.place, { sortBy: 1 });
    this.element = h('section', { class: 'panel', hidden: true }, h('header', {}, this.title, this.about), this.body);
  }

  async load(name, slot, secs) {
    this.element.hidden = false;
    setText(this.title, `Slot ${slot}`);
    setText(this.about, secs ? `sampling for ${secs} s …` : 'asking …');
    this.body.replaceChildren();
    this.element.scrollIntoView({ block: 'nearest' });
    try {
      this.show(await post(of(name, 'stacks'), { slot, secs }), secs);
    } catch (problem) {
      setText(this.about, 'no answer');
      toast([problem.message, problem.hint].filter(Boolean).join(' – '), 'bad');
    }
  }

  show(answer, secs) {
    setText(this.title, secs ? `Slot ${answer.slot}: where its time goes` : `Slot ${answer.slot}: its threads`);
    setText(this.about, [`process ${answer.pid}`, secs ? `${plural(answer.samples, 'sample')} by ${answer.by}` : '', secs && answer.by === 'faulthandler' ? 'threads that wait count as well' : ''].filter(Boolean).join(' · '));
    if (!secs) {
      this.body.replaceChildren(...answer.threads.map((thread) => h('details', { class: 'error', open: thread.is_current },
        h('summary', {}, h('span', { class: 'mono' }, thread.is_current ? 'current' : 'thread'), h('span', { class: 'mono muted' }, thread.name.replace(/^0x.*(?=.{8}$)/, '')),
          h('span', { class: 'text' }, thread.frames.at(-1) ?? 'no Python code'), h('span', { class: 'muted' }, plural(thread.frames.length, 'frame'))),
        h('pre', {}, [...thread.frames].reverse().join('\n') || 'no Python code'))));
      return;
    }
    const whole = answer.stacks.reduce((sum, stack) => sum + stack.count, 0);
    this.top.update(functionsOf(answer.stacks, whole));
    this.body.replaceChildren(h('div', { class: 'body' }, flame(answer.stacks, whole)), this.top.element);
  }
}

/** Each function with the share of samples in which it ran itself, and in which it was on the stack. */
function functionsOf(stacks, whole) {
  const functions = new Map();
  for (const { frames, count: times } of stacks) {
    for (const place of new Set(frames)) {
      const row = functions.get(place) ?? { place, own: 0, total: 0 };
      row.total += times / whole;
      if (place === frames.at(-1)) row.own += times / whole;
      functions.set(place, row);
    }
  }
  return [...functions.values()].sort((a, b) => b.own - a.own || b.total - a.total).slice(0, 40);
}

/** Stacks as boxes, callers above what they call, each as wide as its share. */
function flame(stacks, whole) {
  const rows = [];
  const add = (members, depth, left) => {
    const groups = new Map();
    for (const stack of members) {
      if (stack.frames.length <= depth) continue;
      const group = groups.get(stack.frames[depth]) ?? { members: [], count: 0 };
      group.members.push(stack);
      group.count += stack.count;
      groups.set(stack.frames[depth], group);
    }
    let at = left;
    for (const [place, group] of [...groups].sort(([, a], [, b]) => b.count - a.count)) {
      const share = group.count / whole;
      if (share >= LEAST_SHARE && depth < MOST_DEPTH) {
        (rows[depth] ??= []).push({ place, at, share, count: group.count });
        add(group.members, depth + 1, at);
      }
      at += share;
    }
  };
  add(stacks, 0, 0);
  if (!rows.length) return facts([['Samples', 'none had Python code']]);
  return h('div', { class: 'flame', role: 'img', 'aria-label': 'flame graph; the table below has its figures' }, rows.map((row) => h('div', {}, row.map((box) => {
    const words = `${box.place}\n${percent(box.share)}, ${plural(box.count, 'sample')}`;
    const element = h('span', { title: words, class: `h${hue(box.place)}` }, box.place.split(' (')[0]);
    element.style.left = `${box.at * 100}%`;
    element.style.width = `${box.share * 100}%`;
    return element;
  }))));
}

/** The same colour for the same file, whatever the topology. */
function hue(place) {
  const file = place.split('(').at(-1);
  return [...file].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0)) % 997, 7) % 5;
}
