// Small charts as SVG: lines over time, and stacked bars of batches.

import { h, s, setAttribute } from './dom.js';
import { clock, count, number } from './format.js';
import { drawn as drawnMarks, near, placed } from './marks.js';

const HEIGHT = 150;
const LEFT = 62;
const RIGHT = 12;
const TOP = 14;
const BOTTOM = 22;

/** A round number that is not less, and whose half is round as well: it has a line of its own. */
function ceiling(value, least = 0) {
  if (!(value > least)) return least || 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 1.6, 2, 4, 6, 8, 10].map((step) => step * size).find((step) => step >= value) ?? value;
}

function legendOf(lines) {
  if (lines.length < 2) return null;
  return h('span', { class: 'legend' }, lines.map((line, at) => h('span', {}, h('i', { class: `k${line.color ?? at + 1}` }), line.name)));
}

/** A chart of lines that is drawn anew by `update`. */
export class LineChart {
  /** @param {{title: string, lines: {name: string, key: string, color?: number, area?: boolean}[], unit: (value: number) => string}} what */
  constructor(what) {
    this.what = what;
    this.svg = s('svg', { role: 'img', 'aria-label': what.title });
    this.width = 460;
    new ResizeObserver(() => this.times && this.svg.clientWidth !== this.width && this.update(this.times, this.series, this.marks)).observe(this.svg);
    this.tip = h('div', { class: 'tip', hidden: true });
    this.element = h('figure', { class: 'chart panel' },
      h('figcaption', {}, h('span', {}, what.title), legendOf(what.lines)), this.svg, this.tip);
    this.svg.addEventListener('pointermove', (event) => this.point(event));
    this.svg.addEventListener('pointerleave', () => this.leave());
  }

  update(times, series, marks = []) {
    this.times = times;
    this.series = series;
    this.marks = marks;
    this.groups = [];
    this.width = this.svg.clientWidth || 460;
    setAttribute(this.svg, 'viewBox', `0 0 ${this.width} ${HEIGHT}`);
    const { lines, unit } = this.what;
    const values = lines.flatMap((line) => (series[line.key] ?? []).map(number)).filter((value) => value !== null);
    if (times.length < 2 || !values.length) {
      this.svg.replaceChildren(s('text', { class: 'axis', x: this.width / 2, y: HEIGHT / 2, 'text-anchor': 'middle' }, times.length ? 'no figures in this time' : 'no figures yet'));
      return;
    }
    const top = ceiling(Math.max(...values), unit === count ? 2 : 0);
    const [from, to] = [times[0], times.at(-1)];
    this.x = (at) => LEFT + ((at - from) / (to - from || 1)) * (this.width - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
    const grid = [0, 0.5, 1].map((share) => [
      s('line', { class: 'grid', x1: LEFT, x2: this.width - RIGHT, y1: y(top * share), y2: y(top * share) }),
      s('text', { class: 'axis', x: LEFT - 6, y: y(top * share) + 3.5, 'text-anchor': 'end' }, unit(top * share)),
    ]);
    const ends = [[from, 'start', LEFT], [to, 'end', this.width - RIGHT]].map(([at, anchor, x]) =>
      s('text', { class: 'axis', x, y: HEIGHT - 6, 'text-anchor': anchor }, clock(at)));
    const drawn = lines.map((line, at) => {
      const color = line.color ?? at + 1;
      const path = this.path(series[line.key] ?? [], y);
      const area = lines.length === 1 && path
        ? s('path', { class: `area f${color}`, d: `${path} L${this.x(to).toFixed(1)},${y(0)} L${this.x(from).toFixed(1)},${y(0)} Z` }) : null;
      return [area, s('path', { class: `line s${color}`, d: path })];
    });
    this.groups = placed(marks, from, to, this.x);
    this.cursor = s('line', { class: 'cursor', y1: TOP, y2: HEIGHT - BOTTOM, visibility: 'hidden' });
    this.svg.replaceChildren(...[grid, ends, drawnMarks(this.groups, TOP, HEIGHT - BOTTOM), drawn, this.cursor].flat(3).filter(Boolean));
  }

  path(values, y) {
    let path = '';
    let broken = true;
    values.forEach((given, at) => {
      const value = number(given);
      if (value === null) {
        broken = true;
        return;
      }
      path += `${broken ? 'M' : 'L'}${this.x(this.times[at]).toFixed(1)},${y(value).toFixed(1)} `;
      broken = false;
    });
    return path;
  }

  point(event) {
    if (!this.cursor || !this.times?.length) return;
    const box = this.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.width;
    let nearest = 0;
    this.times.forEach((at, index) => {
      if (Math.abs(this.x(at) - x) < Math.abs(this.x(this.times[nearest]) - x)) nearest = index;
    });
    const at = this.x(this.times[nearest]);
    this.cursor.setAttribute('x1', at);
    this.cursor.setAttribute('x2', at);
    this.cursor.setAttribute('visibility', 'visible');
    const rows = this.what.lines.map((line) => `${line.name}  ${this.what.unit(this.series[line.key]?.[nearest])}`);
    this.tip.textContent = [clock(this.times[nearest]), ...rows, ...near(this.groups, x)].join('\n');
    this.tip.hidden = false;
    const left = (at / this.width) * box.width;
    this.tip.style.left = left > box.width / 2 ? '' : `${left + 12}px`;
    this.tip.style.right = left > box.width / 2 ? `${box.width - left + 12}px` : '';
  }

  leave() {
    this.tip.hidden = true;
    this.cursor?.setAttribute('visibility', 'hidden');
  }
}

/** Bars of batches, each stacked of its phases. */
export class BatchBars {
  /** @param {(value: number) => string} unit @param {(name: string) => number} color */
  constructor(title, unit, color) {
    this.unit = unit;
    this.color = color;
    this.legend = h('span', { class: 'legend' });
    this.svg = s('svg', { class: 'bars', viewBox: `0 0 960 260`, role: 'img', 'aria-label': title });
    this.element = h('figure', { class: 'chart panel tall' }, h('figcaption', {}, h('span', {}, title), this.legend), this.svg);
  }

  /** @param {{id: number, parts: [string, number][], label: string}[]} bars */
  update(bars) {
    const names = [...new Set(bars.flatMap((bar) => bar.parts.map(([name]) => name)))];
    this.legend.replaceChildren(...names.map((name) => h('span', {}, h('i', { class: `k${this.color(name)}` }), name)));
    const [width, height, left, bottom, above] = [960, 260, 56, 24, 14];
    const totals = bars.map((bar) => bar.parts.reduce((sum, [, ms]) => sum + ms, 0)).sort((a, b) => a - b);
    // A first batch that started Spark must not make all others invisible: it is cut off.
    const usual = totals[Math.floor(totals.length * 0.9)] ?? 0;
    const top = ceiling(Math.min(totals.at(-1) ?? 0, 1.6 * usual));
    const step = (width - left - 8) / Math.max(bars.length, 20);
    const tall = height - bottom - above;
    const grid = [0, 0.5, 1].map((share) => {
      const y = height - bottom - share * tall;
      return [s('line', { class: 'grid', x1: left, x2: width - 8, y1: y, y2: y }),
        s('text', { class: 'axis', x: left - 6, y: y + 3.5, 'text-anchor': 'end' }, this.unit(top * share))];
    });
    const drawn = bars.map((bar, at) => {
      let y = height - bottom;
      const stack = bar.parts.map(([name, ms]) => {
        const size = Math.min((ms / top) * tall, y - above);
        y -= size;
        return s('rect', { class: `f${this.color(name)}`, x: (left + at * step + 0.5).toFixed(1), y: y.toFixed(1), width: Math.max(1, step - 1.5).toFixed(1), height: Math.max(0, size).toFixed(1), rx: 1 });
      });
      return s('g', { 'data-id': bar.id }, stack, s('title', {}, bar.label));
    });
    const ends = bars.length
      ? [s('text', { class: 'axis', x: left, y: height - 6 }, `batch ${bars[0].id}`),
        s('text', { class: 'axis', x: left + step * bars.length, y: height - 6, 'text-anchor': 'end' }, `${bars.at(-1).id}`)] : [];
    this.svg.replaceChildren(...[grid, drawn, ends].flat(3));
  }

  /** Draw paler what is not among these bars: the table below shows them. */
  shade(ids) {
    for (const bar of this.svg.querySelectorAll('[data-id]')) bar.classList.toggle('pale', !ids.has(Number(bar.dataset.id)));
  }
}
