// Rates of now, from figures that are counted since the start and come every two seconds.

const SPAN_MS = 9000;
const KEPT_MS = 30000;

export class Rates {
  constructor() {
    /** @type {{at: number, view: any}[]} */
    this.samples = [];
  }

  /** Take in a topology's figures of the window "all". */
  add(view, at = performance.now()) {
    const last = this.samples.at(-1);
    if (last && (view.batch?.count ?? 0) < (last.view.batch?.count ?? 0)) this.samples = [];
    this.samples.push({ at, view });
    while (this.samples.length > 2 && at - this.samples[0].at > KEPT_MS) this.samples.shift();
  }

  /** The two samples that rates are taken between, or null. */
  pair() {
    const now = this.samples.at(-1);
    if (!now || this.samples.length < 2) return null;
    const then = this.samples.findLast((one) => now.at - one.at >= SPAN_MS) ?? this.samples[0];
    return { now: now.view, then: then.view, secs: (now.at - then.at) / 1000 };
  }

  /** Rates of a component: emitted, executed, acked, failed, of its streams, and its capacity. */
  of(name) {
    const pair = this.pair();
    const now = pair?.now.components[name];
    const then = pair?.then.components[name];
    if (!now || !then || pair.secs < 1) return null;
    const per = (key, a = now, b = then) => Math.max(0, (a[key] ?? 0) - (b[key] ?? 0)) / pair.secs;
    const streams = {};
    for (const [stream, amount] of Object.entries(now.emitted_by ?? {})) {
      streams[stream] = Math.max(0, amount - (then.emitted_by?.[stream] ?? 0)) / pair.secs;
    }
    return {
      emitted: per('emitted'), executed: per('executed'), acked: per('acked'), failed: per('failed'),
      streams, ...busiest(now, then, pair.secs),
    };
  }
}

/** The capacity of the busiest task and its number; null where nothing is executed. */
function busiest(now, then, secs) {
  let capacity = null;
  let task = null;
  for (const [id, of] of Object.entries(now.by_task ?? {})) {
    const before = then.by_task?.[id];
    if (of.execute_ms === null || of.execute_ms === undefined || !before) continue;
    const busy = (of.executed * of.execute_ms - before.executed * (before.execute_ms ?? 0)) / 1000;
    const share = Math.max(0, busy / secs);
    if (capacity === null || share > capacity) [capacity, task] = [share, id];
  }
  return { capacity, task };
}

/** How a capacity is coloured. */
export function heat(capacity) {
  if (capacity === null || capacity === undefined) return 'idle';
  return capacity >= 0.8 ? 'high' : capacity >= 0.5 ? 'mid' : capacity > 0 ? 'low' : 'idle';
}
