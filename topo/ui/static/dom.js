// Making elements. Everything that is shown becomes a text node: there is no way to give HTML.

const SVG = 'http://www.w3.org/2000/svg';

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked' || name === 'disabled') element[name] = value;
    else element.setAttribute(name === 'className' ? 'class' : name, value === true ? '' : value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
  return element;
}

/** An HTML element with attributes, listeners (`onclick`) and children. @returns {HTMLElement} */
export function h(tag, properties, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** An SVG element. @returns {SVGElement} */
export function s(tag, properties, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

/** Set an element's text if it is another one, so that selections and screen readers are left alone. */
export function setText(element, text) {
  const words = String(text);
  const first = element.firstChild;
  const isShown = first ? first === element.lastChild && first.data === words : words === '';
  if (!isShown) element.textContent = words;
}

/** Set an attribute if it has another value. */
export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Draws something when it is asked to: the first time at once, and later only what is in sight. */
export class Seen {
  /** @param {Element} element @param {() => boolean} draw returns false if there is nothing to draw yet */
  constructor(element, draw) {
    [this.draw, this.isSeen, this.isDue, this.isDrawn] = [draw, true, false, false];
    new IntersectionObserver((entries) => {
      this.isSeen = entries.at(-1).isIntersecting;
      if (this.isSeen && this.isDue) this.ask();
    }, { rootMargin: NEAR }).observe(element);
  }

  ask() {
    this.isDue = !this.isSeen && this.isDrawn;
    if (!this.isDue) this.isDrawn = this.draw() || this.isDrawn;
  }
}

const NEAR = '200px';  // what is that near to the screen is ready before it is scrolled to
const A_TURN = 80;
const NEXT_FRAME_MS = 20;

/**
 * Do many small pieces of work in turns, each in a frame of its own: the browser lays out and paints what
 * they change, and a frame of all of them would be too long. They end when it is not `isWanted` any more.
 * @param {(() => void)[]} pieces @param {() => boolean} isWanted
 */
export function inTurns(pieces, isWanted) {
  pieces.slice(0, A_TURN).forEach((piece) => piece());
  const rest = pieces.slice(A_TURN);
  if (rest.length) setTimeout(() => isWanted() && inTurns(rest, isWanted), NEXT_FRAME_MS);
}

/** Set a property of an element's style if it has another value. */
export function setStyle(element, name, value) {
  if (element.style[name] !== value) element.style[name] = value;
}

/** The path of a page: each part is encoded, whatever a name holds. */
export function link(...parts) {
  return '#/' + parts.map((part) => encodeURIComponent(part)).join('/');
}
