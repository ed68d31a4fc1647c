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
  if (element.textContent !== words) element.textContent = words;
}

/** Set an attribute if it has another value. */
export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** The path of a page: each part is encoded, whatever a name holds. */
export function link(...parts) {
  return '#/' + parts.map((part) => encodeURIComponent(part)).join('/');
}
