// The part of a picture that is in sight: fitted, zoomed and moved by mouse, finger and keyboard.
// The wheel alone scrolls the page, since a picture that takes it away is a trap on a long page.
// The whole picture is laid out once, and what is in sight of it is a matter of a transform: a `viewBox`
// that changes lays every text out anew, 25 ms a frame with 200 components.

import { h, setAttribute, setStyle } from './dom.js';

const MOST_HEIGHT = 640;
const LEAST = 0.05;
const LEGIBLE = 0.75;  // below it the figures in a box are smaller than 8 px
const FAR = 0.5;  // below it only names are drawn, and larger
const STEP = 1.25;
const DRAG = 4;
const SHARP_MS = 200;  // so long after the last move the picture is drawn sharp again

export class Excerpt {
  /** @param {SVGElement} svg */
  constructor(svg) {
    this.svg = svg;
    this.frame = h('div', { class: 'graph', tabindex: '0', role: 'group', 'aria-label': 'graph; arrows move it, + and - zoom, 0 fits it' }, svg);
    this.tools = h('div', { class: 'graph-tools' }, [['Fit', 'Fit: show all of it', () => this.fit()],
      ['−', 'Smaller', () => this.zoom(1 / STEP)], ['+', 'Larger', () => this.zoom(STEP)]].map(([words, title, onclick]) =>
      h('button', { type: 'button', title, 'aria-label': title, onclick }, words)));
    [this.x, this.y, this.scale, this.touched] = [0, 0, 1, false];
    new ResizeObserver(() => (this.touched ? this.draw() : this.begin())).observe(this.frame);
    this.frame.addEventListener('keydown', (event) => this.key(event));
    this.frame.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
    this.frame.addEventListener('pointerdown', (event) => this.drag(event));
    this.frame.addEventListener('dragstart', (event) => event.preventDefault());
  }

  /** Take a picture of another size; what is in sight stays where it was. */
  resize(width, height) {
    [this.width, this.height] = [width, height];
    setAttribute(this.svg, 'viewBox', `0 0 ${width} ${height}`);
    setStyle(this.svg, 'width', `${width}px`);
    setStyle(this.svg, 'height', `${height}px`);
    if (this.touched) this.draw();
    else this.begin();
  }

  seen() {
    return this.frame.clientWidth || 960;
  }

  tall() {
    return Math.max(120, Math.min(MOST_HEIGHT, this.height * this.scale));
  }

  /** All of it if it is legible so; its left end in any case, where the spouts are. */
  begin() {
    this.scale = Math.max(LEGIBLE, this.whole());
    this.x = Math.min(0, (this.width - this.seen() / this.scale) / 2);
    this.y = (this.height - this.tall() / this.scale) / 2;
    this.draw();
  }

  /** The scale at which all of it is in sight. */
  whole() {
    return Math.max(LEAST, Math.min(1, this.seen() / this.width, MOST_HEIGHT / this.height));
  }

  fit() {
    this.scale = this.whole();
    this.touched = false;
    this.x = (this.width - this.seen() / this.scale) / 2;
    this.y = (this.height - this.tall() / this.scale) / 2;
    this.draw();
  }

  /** Zoom by a factor around a point of the frame, or around its middle. */
  zoom(factor, at = null) {
    const [px, py] = at ?? [this.seen() / 2, this.tall() / 2];
    const [x, y] = [this.x + px / this.scale, this.y + py / this.scale];
    this.scale = Math.min(2, Math.max(LEAST, this.scale * factor));
    [this.x, this.y] = [x - px / this.scale, y - py / this.scale];
    this.moved();
  }

  move(dx, dy) {
    this.x += dx / this.scale;
    this.y += dy / this.scale;
    this.moved();
  }

  /** Bring a point of the picture into the middle if it is out of sight or `always`. */
  centre(x, y, always = false) {
    const [wide, tall] = [this.seen() / this.scale, this.tall() / this.scale];
    const margin = 60;
    if (!always && x > this.x + margin && x < this.x + wide - margin && y > this.y + margin && y < this.y + tall - margin) return;
    [this.x, this.y] = [x - wide / 2, y - tall / 2];
    this.moved();
  }

  moved() {
    this.touched = true;
    if (!this.svg.classList.contains('moving')) this.svg.classList.add('moving');
    clearTimeout(this.sharp);
    this.sharp = setTimeout(() => this.svg.classList.remove('moving'), SHARP_MS);
    this.draw();
  }

  draw() {
    const [wide, tall] = [this.seen() / this.scale, this.tall() / this.scale];
    const within = (at, whole, part) => (part >= whole ? (whole - part) / 2 : Math.min(whole - part, Math.max(0, at)));
    this.x = within(this.x, this.width, wide);
    this.y = within(this.y, this.height, tall);
    this.svg.classList.toggle('far', this.scale < FAR);
    setStyle(this.frame, 'height', `${this.tall().toFixed(0)}px`);
    const [left, top] = [-this.x * this.scale, -this.y * this.scale];
    setStyle(this.svg, 'transform', `translate(${left.toFixed(1)}px, ${top.toFixed(1)}px) scale(${this.scale.toFixed(4)})`);
  }

  key(event) {
    if (event.target !== this.frame || event.ctrlKey || event.metaKey || event.altKey) return;
    const ways = { ArrowLeft: [-80, 0], ArrowRight: [80, 0], ArrowUp: [0, -80], ArrowDown: [0, 80] };
    if (ways[event.key]) this.move(...ways[event.key]);
    else if (event.key === '+' || event.key === '=') this.zoom(STEP);
    else if (event.key === '-') this.zoom(1 / STEP);
    else if (event.key === '0') this.fit();
    else return;
    event.preventDefault();
  }

  wheel(event) {
    const box = this.frame.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey) this.zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1, [event.clientX - box.left, event.clientY - box.top]);
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move(event.deltaX, 0);
    else return;
    event.preventDefault();
  }

  drag(event) {
    if (event.button !== 0) return;
    const from = { x: event.clientX, y: event.clientY, left: this.x, top: this.y };
    let dragged = false;
    const listening = new AbortController();
    const { signal } = listening;
    const move = (moved) => {
      const [dx, dy] = [moved.clientX - from.x, moved.clientY - from.y];
      if (!dragged && Math.hypot(dx, dy) < DRAG) return;
      if (!dragged) {
        this.frame.setPointerCapture(event.pointerId);  // its cursor, and no box is pointed at
        this.frame.classList.add('dragged');
      }
      dragged = true;
      [this.x, this.y] = [from.left - dx / this.scale, from.top - dy / this.scale];
      this.moved();
    };
    const end = () => {
      listening.abort();
      this.frame.classList.remove('dragged');
      if (!dragged) return;
      const ignored = (click) => click.preventDefault();  // the end of a drag on a box is not meant for its link
      this.frame.addEventListener('click', ignored, { capture: true });
      setTimeout(() => this.frame.removeEventListener('click', ignored, { capture: true }));
    };
    addEventListener('pointermove', move, { signal });
    addEventListener('pointerup', end, { signal });
    addEventListener('pointercancel', end, { signal });
  }
}
