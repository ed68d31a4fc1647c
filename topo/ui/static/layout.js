// Where the boxes of a graph stand: levels from left to right as the plan has them. A level with more
// than eight boxes is folded, since of a fan of fifty nobody reads one, and the rest is out of sight.

export const BOX = { width: 176, height: 74 };
const GAP = { x: 132, y: 46, low: 26 };
const EDGE = { x: 20, top: 24 };
const MOST = 8;

/** The components of each level, ordered by the middle of what they are wired to. */
export function arranged(plan) {
  const levels = plan.levels.map((level) => [...level]);
  const by = new Map(plan.components.map((component) => [component.id, component]));
  const readers = new Map(plan.components.map((component) => [component.id, []]));
  for (const component of plan.components) {
    for (const read of component.inputs) readers.get(read.component)?.push(component.id);
  }
  for (let round = 0; round < 4; round += 1) {
    const row = new Map();
    levels.forEach((level) => level.forEach((id, at) => row.set(id, (at + 0.5) / level.length)));
    const middle = (ids, otherwise) => (ids.length ? ids.reduce((sum, id) => sum + row.get(id), 0) / ids.length : otherwise);
    const forward = round % 2 === 0;
    for (const level of levels) {
      const place = new Map(level.map((id) => [id, middle(
        (forward ? by.get(id).inputs.map((read) => read.component) : readers.get(id)).filter((other) => row.has(other)), row.get(id))]));
      level.sort((a, b) => place.get(a) - place.get(b));
      level.forEach((id, at) => row.set(id, (at + 0.5) / level.length));
    }
  }
  return levels;
}

/**
 * The boxes of each level: `{ ids, number }`, of which one with several ids stands for the components
 * that are folded away. `unfolded` has the numbers of levels that are shown whole.
 */
export function folded(levels, unfolded) {
  return levels.map((level, number) => {
    if (level.length <= MOST || unfolded.has(number)) return level.map((id) => ({ ids: [id], number }));
    const seen = level.slice(0, MOST - 1).map((id) => ({ ids: [id], number }));
    return [...seen, { ids: level.slice(MOST - 1), number }];
  });
}

/** The size of a graph, and the place of each component: that of the box which stands for it. */
export function placed(boxes) {
  const tallest = Math.max(...boxes.map((level) => level.length), 1);
  const gap = tallest > 4 ? GAP.low : GAP.y;
  const height = tallest * (BOX.height + gap) + EDGE.top;
  const width = boxes.length * (BOX.width + GAP.x) - GAP.x + 2 * EDGE.x;
  const places = new Map();
  boxes.forEach((level, number) => level.forEach((box, at) => {
    const place = {
      box, number, x: EDGE.x + number * (BOX.width + GAP.x),
      y: EDGE.top + (height - EDGE.top) * ((at + 0.5) / level.length) - BOX.height / 2,
    };
    for (const id of box.ids) places.set(id, place);
  }));
  return { width, height, places };
}

/** The way of an edge, and the spot of its label: `{ d, x, y, anchor }`. */
export function route(from, to) {
  if (from === to) {  // a loop of one component: below its box, with the label beside it
    const [x1, x2, y] = [from.x + BOX.width * 0.75, from.x + BOX.width * 0.25, from.y + BOX.height];
    return { d: `M${x1},${y} C${x1},${y + 30} ${x2},${y + 30} ${x2},${y + 2}`, x: x1 + 10, y: y + 19, anchor: 'start' };
  }
  if (to.number < from.number) {  // a loop: below the boxes, back to the left
    const [x1, x2] = [from.x + BOX.width / 2, to.x + BOX.width / 2];
    const low = Math.max(from.y, to.y) + BOX.height + 36;
    return { d: `M${x1},${from.y + BOX.height} C${x1},${low} ${x2},${low} ${x2},${to.y + BOX.height}`, x: (x1 + x2) / 2, y: low - 10, anchor: 'middle' };
  }
  if (to.number === from.number) {
    const [x, y1, y2] = [from.x + BOX.width / 2, from.y + BOX.height, to.y];
    return { d: `M${x},${y1} C${x},${y1 + 30} ${x},${y2 - 30} ${x},${y2}`, x: x + 10, y: (from.y + to.y + BOX.height) / 2, anchor: 'start' };
  }
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const bend = Math.max(40, (x2 - x1) / 2);
  return { d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`, x: (x1 + x2) / 2, y: (y1 + y2) / 2, anchor: 'middle' };
}
