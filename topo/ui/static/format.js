// Figures in words. What is not a number is a dash: a damaged file must not break a page.

/** @param {unknown} value */
export function number(value) {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

const GROUPED = new Intl.NumberFormat('en-US');  // made once: toLocaleString makes it each time
const UNITS = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];

/** 12,040 up to a hundred thousand, 71.2 M beyond. */
export function count(value) {
  const found = number(value);
  if (found === null) return '–';
  if (Math.abs(found) < 1e5) return GROUPED.format(Math.round(found));
  return short(found);
}

/** Three digits and a unit: 1.21 M. */
export function short(value) {
  const found = number(value);
  if (found === null) return '–';
  for (const [size, unit] of UNITS) {
    if (Math.abs(found) >= size) {
      const scaled = found / size;
      return `${Number(scaled.toPrecision(3))} ${unit}`;
    }
  }
  return found === 0 ? '0' : found >= 100 || Number.isInteger(found) ? found.toFixed(0) : found.toPrecision(2);
}

export function rate(value) {
  return number(value) === null ? '–' : `${short(value)}/s`;
}

export function ms(value) {
  const found = number(value);
  if (found === null) return '–';
  if (found >= 2000) return `${Number((found / 1000).toPrecision(3))} s`;
  if (found >= 10 || found === 0) return `${GROUPED.format(Math.round(found))} ms`;
  return found >= 0.1 ? `${found.toFixed(2)} ms` : `${(found * 1000).toFixed(found >= 0.01 ? 0 : 1)} µs`;
}

/** Two times with one unit: 540 / 910 ms. */
export function both(one, other) {
  const [a, b] = [ms(one), ms(other)];
  return a.split(' ')[1] === b.split(' ')[1] ? `${a.split(' ')[0]} / ${b}` : `${a} / ${b}`;
}

export function bytes(value) {
  const found = number(value);
  if (found === null) return '–';
  if (found < 1000) return `${found.toFixed(0)} B`;
  return `${short(found)}B`;
}

export function percent(value) {
  const found = number(value);
  if (found === null) return '–';
  const share = found * 100;
  return `${share >= 10 || share === 0 ? share.toFixed(0) : share.toFixed(1)} %`;
}

/** 8 s, 12m 05s, 3h 02m, 2d 04h. */
export function duration(value) {
  const found = number(value);
  if (found === null) return '–';
  const secs = Math.max(0, found);
  const two = (part) => String(Math.floor(part)).padStart(2, '0');
  if (secs < 60) return `${secs < 10 && secs % 1 ? secs.toFixed(1) : Math.floor(secs)} s`;
  if (secs < 3600) return `${Math.floor(secs / 60)}m ${two(secs % 60)}s`;
  if (secs < 86400) return `${Math.floor(secs / 3600)}h ${two((secs % 3600) / 60)}m`;
  return `${Math.floor(secs / 86400)}d ${two((secs % 86400) / 3600)}h`;
}

export function clock(secs) {
  const found = number(secs);
  return found === null ? '–' : new Date(found * 1000).toLocaleTimeString('en-GB');
}

export function date(secs) {
  const found = number(secs);
  if (!found) return '–';
  const then = new Date(found * 1000);
  const day = then.toDateString() === new Date().toDateString() ? '' : `${then.toISOString().slice(0, 10)} `;
  return `${day}${then.toLocaleTimeString('en-GB')}`;
}

export function ago(secs) {
  const found = number(secs);
  return found ? `${duration(Date.now() / 1000 - found).split(' ').slice(0, 1).join('')}${Date.now() / 1000 - found < 60 ? 's' : ''} ago` : '–';
}

const MOMENTS = ['watermark_secs', 'oldest_window_secs'];

/** Seconds since 1970 as a date and a time in UTC. */
export function moment(secs) {
  const found = number(secs);
  if (found === null) return '–';
  return Math.abs(found) < 8e12 ? new Date(found * 1000).toISOString().slice(0, 19).replace('T', ' ') : `${found} s`;
}

/** A counter or gauge of a component, with the unit that the end of its name says. */
export function level(name, value) {
  const found = number(value);
  const [stem] = name.split('{');
  if (found === null) return '–';
  if (MOMENTS.includes(stem)) return moment(found);
  if (/_(secs|seconds)$/.test(stem)) return duration(found);
  if (stem.endsWith('_bytes')) return bytes(found);
  if (stem.endsWith('_ms')) return ms(found);
  return Number.isInteger(found) ? count(found) : short(found);
}

/** The key of a bolt's figures of a stream that it reads, as `figure_key` writes it. */
export function inputKey(component, stream) {
  const escaped = (text) => text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
  return `input{component="${escaped(component)}",stream="${escaped(stream)}"}`;
}

/** A value of a setting, as JSON. */
export function json(value) {
  return typeof value === 'string' ? value : JSON.stringify(value) ?? '–';
}

export function plural(amount, noun, several = `${noun}s`) {
  return `${count(amount)} ${amount === 1 ? noun : several}`;
}
