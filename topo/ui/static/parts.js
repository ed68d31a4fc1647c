// What several pages show: badges, tiles, tables, errors, questions.

import { h, setAttribute, setText } from './dom.js';
import { ago, count, date } from './format.js';

export function badge(status) {
  const known = /^[A-Z]+$/.test(status) ? status : '';
  return h('span', { class: `badge ${known}` }, status);
}

export function empty(title, ...more) {
  return h('div', { class: 'empty' }, h('h2', {}, title), more);
}

export function panel(title, body, ...tools) {
  return h('section', { class: 'panel' }, h('header', {}, h('h2', {}, title), tools), body);
}

export function banner(kind, title, ...more) {
  return h('div', { class: `banner ${kind}`, role: kind === 'bad' ? 'alert' : 'status' }, h('div', {}, h('strong', {}, title), more));
}

/** Figures in a row; `update` takes [value, sub, kind] for each. */
export class Tiles {
  constructor(labels) {
    this.tiles = labels.map((label) => {
      const [value, sub] = [h('div', { class: 'value' }, '–'), h('div', { class: 'sub' })];
      return { value, sub, element: h('div', { class: 'tile' }, h('div', { class: 'label' }, label), value, sub) };
    });
    this.element = h('div', { class: 'tiles' }, this.tiles.map((tile) => tile.element));
  }

  update(rows) {
    rows.forEach(([value, sub = '', kind = ''], at) => {
      setText(this.tiles[at].value, value);
      setText(this.tiles[at].sub, sub);
      setAttribute(this.tiles[at].element, 'class', `tile ${kind}`.trim());
      setAttribute(this.tiles[at].element, 'title', `${value} ${sub}`);
    });
  }
}

/**
 * A table whose rows are kept by key, so that an update changes only what is another.
 * @param columns {title, cell: (row) => string | Node, num, sort: (row) => value, wide}; a cell that
 * is a Node is made anew only when `mark(row)` changes.
 */
export class Table {
  constructor(columns, key, { sortBy = null, down = true, onempty = null } = {}) {
    this.columns = columns;
    this.key = key;
    this.sorted = sortBy;
    this.down = down;
    this.rows = new Map();
    this.body = h('tbody');
    this.heads = columns.map((column, at) => h('th', { scope: 'col', class: column.num ? 'num' : null },
      column.sort ? h('button', { type: 'button', onclick: () => this.sort(at) }, column.title) : column.title));
    this.none = onempty;
    this.table = h('table', {}, h('thead', {}, h('tr', {}, this.heads)), this.body);
    this.element = h('div', { class: 'scroll' }, this.table);
    // One that is wider than its place is scrolled by the keyboard as well. A cell whose text becomes
    // longer makes the table wider, not its place.
    const sizes = new ResizeObserver(() => {
      if (this.element.scrollWidth <= this.element.clientWidth) this.element.removeAttribute('tabindex');
      else this.element.tabIndex = 0;
    });
    for (const each of [this.element, this.table]) sizes.observe(each);
    this.marked();
  }

  sort(at) {
    this.down = this.sorted === at ? !this.down : Boolean(this.columns[at].num);
    this.sorted = at;
    this.marked();
    this.update(this.latest ?? []);
  }

  marked() {
    this.heads.forEach((head, at) => {
      if (at === this.sorted) head.setAttribute('aria-sort', this.down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
  }

  update(rows) {
    this.latest = rows;
    const ordered = this.sorted === null ? rows : [...rows].sort((a, b) => this.compared(a, b));
    const seen = new Set();
    const wanted = ordered.map((row) => {
      const key = this.key(row);
      seen.add(key);
      if (!this.rows.has(key)) this.rows.set(key, this.made());
      this.fill(this.rows.get(key), row);
      return this.rows.get(key).element;
    });
    for (const key of this.rows.keys()) if (!seen.has(key)) this.rows.delete(key);
    const now = this.body.children;
    if (now.length !== wanted.length || wanted.some((element, at) => now[at] !== element)) this.body.replaceChildren(...wanted);
    if (this.none && !rows.length) this.body.replaceChildren(h('tr', {}, h('td', { class: 'muted', colspan: this.columns.length }, this.none)));
  }

  compared(a, b) {
    const sort = this.columns[this.sorted].sort;
    const [one, other] = [sort(a), sort(b)];
    const way = this.down ? -1 : 1;
    if (typeof one === 'string') return way * one.localeCompare(String(other));
    return way * ((one ?? -Infinity) - (other ?? -Infinity) || 0);
  }

  made() {
    const cells = this.columns.map((column) => h('td', { class: column.num ? 'num' : column.wide ? 'wide' : null }));
    return { element: h('tr', {}, cells), cells, marks: [] };
  }

  fill(made, row) {
    this.columns.forEach((column, at) => {
      if (column.mark) {
        const mark = column.mark(row);
        if (made.marks[at] === mark) return;
        made.marks[at] = mark;
        made.cells[at].replaceChildren(column.cell(row));
      } else {
        const words = column.cell(row);
        if (made.marks[at] === words) return;
        made.marks[at] = words;
        setText(made.cells[at], words);
      }
    });
  }
}

/** A list of errors, each of which opens to its traceback; stays open over updates. */
export class Errors {
  constructor() {
    this.open = new Set();
    this.element = h('div');
    this.said = '';
  }

  update(errors) {
    const said = JSON.stringify(errors);
    if (said === this.said) return;
    this.said = said;
    this.element.replaceChildren(...errors.map((error) => this.row(error)));
    if (!errors.length) this.element.append(h('div', { class: 'pad muted' }, 'No errors.'));
  }

  row(error) {
    const key = `${error.component}:${error.kind}:${error.type}:${error.message}`;
    const words = `${error.type ? `${error.type}: ` : ''}${error.message}`;
    const where = [`${error.component} task ${error.task}`, error.kind, error.at, `${date(error.first)} – ${date(error.last)}`, error.host];
    const row = h('details', { class: 'error', open: this.open.has(key) },
      h('summary', {}, h('span', { class: 'count' }, `${count(error.count)} ×`), h('span', { class: 'muted' }, ago(error.last)),
        h('span', { class: 'text' }, words), h('span', { class: 'muted' }, error.component)),
      h('pre', {}, [where.filter(Boolean).join(' · '), error.traceback].filter(Boolean).join('\n\n')));
    row.addEventListener('toggle', () => (row.open ? this.open.add(key) : this.open.delete(key)));
    return row;
  }
}

/** A few choices of which one holds. */
export function segments(choices, chosen, label, onchoice) {
  const buttons = choices.map(([value, words]) => h('button', {
    type: 'button', 'aria-pressed': String(value === chosen),
    onclick: () => {
      buttons.forEach((button, at) => button.setAttribute('aria-pressed', String(choices[at][0] === value)));
      onchoice(value);
    },
  }, words));
  return h('div', { class: 'segments', role: 'group', 'aria-label': label }, buttons);
}

/** Ask before something is done; resolves to the form's values, or null: also if the page is left, whose question it is. */
export function ask({ title, text, fields = [], action, danger = false }) {
  return new Promise((resolve) => {
    const inputs = fields.map((field) => h('input', { name: field.name, type: field.type ?? 'text', min: field.min, step: field.step, value: field.value ?? '', placeholder: field.placeholder ?? '', required: field.required }));
    const dialog = h('dialog', { 'aria-labelledby': 'question' }, h('form', { method: 'dialog' },
      h('h2', { id: 'question' }, title), text && h('p', { class: 'muted' }, text),
      fields.map((field, at) => h('label', { class: 'field' }, field.label, inputs[at], field.note && h('span', { class: 'note' }, field.note))),
      h('div', { class: 'row' }, h('button', { type: 'button', onclick: () => dialog.close('') }, 'Cancel'),
        h('button', { type: 'submit', value: 'yes', class: danger ? 'danger solid' : 'primary' }, action))));
    const leave = () => dialog.close('');
    addEventListener('hashchange', leave);
    dialog.addEventListener('close', () => {
      removeEventListener('hashchange', leave);
      resolve(dialog.returnValue === 'yes' ? Object.fromEntries(fields.map((field, at) => [field.name, inputs[at].value])) : null);
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

const toasts = h('div', { class: 'toasts', 'aria-live': 'polite' });

/** Say something for a few seconds. */
export function toast(text, kind = '') {
  if (!toasts.isConnected) document.body.append(toasts);
  const shown = h('div', { class: `toast ${kind}` }, text);
  toasts.append(shown);
  setTimeout(() => shown.remove(), kind === 'bad' ? 9000 : 4000);
}

/** A share as a bar with its number. */
export function meter(share, words) {
  const kind = share >= 0.8 ? 'high' : share >= 0.5 ? 'mid' : '';
  const fill = h('i', { class: kind });
  fill.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  return h('span', {}, h('span', { class: 'bar' }, fill), words);
}

export function facts(pairs) {
  return h('dl', { class: 'facts' }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== '')
    .map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}

/** Ask for a document at once and again and again, while the page is looked at. */
export function poll(ask, every, signal) {
  const once = () => document.hidden || ask().catch(() => {});
  once();
  const timer = setInterval(once, every);
  signal.addEventListener('abort', () => clearInterval(timer));
}
