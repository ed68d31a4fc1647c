// What a component did since its page was opened. A driver keeps the history of the sums over all
// components only: of each one, with its own counters and gauges, it would be as long as they are many.

import { LineChart } from './chart.js';
import { h, s, setAttribute } from './dom.js';
import { number, percent, rate } from './format.js';

const KEPT = 300;  // ten minutes, two seconds apart
const SPAN_SECS = 8;  // over which the rate of a counter is taken
const SPARK = { width: 120, height: 22 };

export class Past {
  constructor() {
    /** @type {{at: number, figures: any, now: any}[]} */
    this.samples = [];
    this.throughput = new LineChart({ title: 'Throughput since this page was opened', unit: (value) => rate(value), lines: [{ name: 'emits', key: 'emitted' }, { name: 'executes', key: 'executed', color: 5 }] });
    this.busy = new LineChart({ title: 'Busiest task since this page was opened', unit: percent, lines: [{ name: 'busy', key: 'capacity', color: 4 }] });
    this.element = h('div', { class: 'charts' }, this.throughput.element, this.busy.element);
  }

  /** Take in the figures since the start, and the rates of now, of which the first time has none. */
  add(figures, now, at = Date.now() / 1000) {
    if (!figures) return;
    this.samples.push({ at, figures, now });
    if (this.samples.length > KEPT) this.samples.shift();
    const rated = this.samples.filter((sample) => sample.now);
    const line = (key) => rated.map((sample) => sample.now[key]);
    const isSpout = figures.kind === 'spout';
    this.busy.element.hidden = isSpout;
    const series = { emitted: line('emitted'), executed: isSpout ? [] : line('executed'), capacity: line('capacity') };
    const times = rated.map((sample) => sample.at);
    this.throughput.update(times, series);
    if (!isSpout) this.busy.update(times, series);
  }

  /** The levels of a gauge. */
  gauge(name) {
    return this.samples.map((sample) => number(sample.figures.gauges?.[name]));
  }

  /** The rates of a counter, none before there are two samples some seconds apart. */
  counter(name) {
    const value = (sample) => number(sample.figures.counters?.[name]);
    let before = 0;
    return this.samples.map((sample, at) => {
      while (before + 1 < at && sample.at - this.samples[before + 1].at >= SPAN_SECS) before += 1;
      const [now, then, secs] = [value(sample), value(this.samples[before]), sample.at - this.samples[before].at];
      return now === null || then === null || secs <= 0 ? null : Math.max(0, now - then) / secs;
    });
  }
}

/** A line without axes, as tall as a row: of which the ends are told in `words`. */
export class Spark {
  constructor() {
    this.line = s('path', { class: 'line s1' });
    this.element = s('svg', { class: 'spark', role: 'img', viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, width: SPARK.width, height: SPARK.height }, this.line);
  }

  update(values, words) {
    const known = values.filter((value) => value !== null);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const x = (at) => (at / Math.max(1, values.length - 1)) * SPARK.width;
    const y = (value) => (high === low ? SPARK.height / 2 : SPARK.height - 2 - ((value - low) / (high - low)) * (SPARK.height - 4));
    const points = values.map((value, at) => (value === null ? null : `${x(at).toFixed(1)},${y(value).toFixed(1)}`)).filter(Boolean);
    setAttribute(this.line, 'd', points.length > 1 ? `M${points.join(' L')}` : '');
    setAttribute(this.element, 'aria-label', points.length > 1 ? `between ${words(low)} and ${words(high)} since the page was opened` : 'no figures yet');
  }
}
