// Marks in charts: restarts, rebalances, stalls, changes and errors at their time.

import { h, s, setText } from './dom.js';
import { count, date, plural } from './format.js';

// In the order of their weight: of marks that lie on each other the first of these is drawn.
const KINDS = { restart: ['restart'], rebalance: ['rebalance'], stall: ['stall'], error: ['error'], change: ['change of status', 'changes of status'] };
const NEAR = 5;  // pixels within which marks are one
const TOLD = 4;  // marks of one place that are told of by their text
const LISTED = 50;

const known = (mark) => Object.hasOwn(KINDS, mark.kind);

/** The marks between two times with the place of each, those that lie on each other as one. */
export function placed(marks, from, to, x) {
  const groups = [];
  for (const mark of marks) {
    if (!known(mark) || mark.at < from || mark.at > to) continue;
    const at = x(mark.at);
    const last = groups.at(-1);
    if (last && at - last.at < NEAR) last.marks.push(mark);
    else groups.push({ at, marks: [mark] });
  }
  return groups.map((group) => ({ ...group, kind: Object.keys(KINDS).find((kind) => group.marks.some((mark) => mark.kind === kind)) }));
}

/** The lines of placed marks. */
export function drawn(groups, top, bottom) {
  return groups.map(({ at, kind }) => s('g', { class: `mark ${kind}` },
    s('line', { x1: at.toFixed(1), x2: at.toFixed(1), y1: top, y2: bottom }),
    s('path', { d: `M${(at - 4).toFixed(1)},${top - 6} h8 l-4,6 z` })));
}

/** The texts of the marks near a place. */
export function near(groups, x) {
  const marks = groups.filter((group) => Math.abs(group.at - x) <= NEAR + 2).flatMap((group) => group.marks);
  const texts = marks.slice(-TOLD).map((mark) => cut(mark.text));
  return marks.length > TOLD ? [...texts, `and ${count(marks.length - TOLD)} more`] : texts;
}

function cut(text) {
  const line = text.split('\n')[0];
  return line.length > 60 ? `${line.slice(0, 60)} …` : line;
}

/** What the marks of a time are, in words, and each of them below. */
export class Happened {
  constructor() {
    this.summary = h('summary');
    this.list = h('ol', { class: 'happened' });
    this.element = h('details', { class: 'panel', hidden: true }, this.summary, this.list);
    this.shown = '';
  }

  update(marks) {
    const now = JSON.stringify(marks);
    if (now === this.shown) return;
    this.shown = now;
    const kinds = Object.entries(KINDS).map(([kind, words]) => [kind, words, marks.filter((mark) => mark.kind === kind).length]).filter(([, , amount]) => amount);
    this.element.hidden = !kinds.length;
    this.summary.replaceChildren(h('strong', {}, 'What happened'), ...kinds.map(([kind, words, amount]) => h('span', { class: 'note' }, h('i', { class: `dot ${kind}` }), plural(amount, ...words))));
    this.list.replaceChildren(...marks.filter(known).slice(-LISTED).reverse().map((mark) => {
      const text = h('span', { class: 'text' });
      setText(text, mark.text);
      return h('li', {}, h('span', { class: 'muted nowrap' }, date(mark.at)), h('i', { class: `dot ${mark.kind}`, role: 'img', 'aria-label': KINDS[mark.kind][0] }), text);
    }));
  }
}
