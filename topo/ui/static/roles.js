// What a component is besides a spout or a bolt, and the figures that tell how its work goes: the graph
// draws it by them, and the component's page begins with them.

import { count, plural } from './format.js';

export const ROLES = {
  drpc: { badge: 'DRPC', words: 'calls of a function', shape: 'pill' },
  answers: { badge: 'answers', words: 'brings results to callers', shape: 'pill' },
  pattern: { badge: 'pattern', words: 'looks for a pattern of events', shape: 'framed' },
  rules: { badge: 'rules', words: 'asks rules', shape: 'framed' },
};

const REQUESTS = 'requests';  // a call is a second message on this stream, if anybody reads it

/** The figures of its role: `[label, value, unit]`, the most telling one first; none of other components. */
export function roleFigures(component, figures, plan) {
  const [counters, gauges] = [figures?.counters ?? {}, figures?.gauges ?? {}];
  switch (component.role) {
    case 'drpc': {
      const isAnnounced = plan.components.some((one) => one.inputs.some((read) => read.component === component.id && read.stream === REQUESTS));
      // Of an announced call one message may be done and the other not: how many calls are open, nobody knows.
      return [isAnnounced ? ['Open messages of calls', figures?.pending ?? 0, 'open message'] : ['Open calls', figures?.pending ?? 0, 'open call']];
    }
    case 'answers':
      return [['Answers given', counters.answered ?? 0, 'answer'], ['Undelivered', counters.undelivered ?? 0, 'undelivered']];
    case 'pattern':
      return [['Partial matches', gauges.partial_matches ?? 0, 'partial match'], ['Matches', counters.matches ?? 0, 'match'],
        ['Timed out', counters.timed_out ?? 0, ''], ['Dropped', counters.dropped ?? 0, ''], ['Waiting events', gauges.waiting_events ?? 0, '']];
    case 'rules': {
      const firings = firingsOf(figures);
      const sum = firings.reduce((total, { value }) => total + value, 0);
      return [['Firings', sum, 'firing'], ['Rules that fired', firings.length, ''], ['Rejected', counters.rejected ?? 0, '']];
    }
    default: return [];
  }
}

/** The most telling figure in words, for a box of the graph: '' of a component without a role. */
export function roleWords(component, figures, plan) {
  const [first] = figures ? roleFigures(component, figures, plan) : [];
  if (!first) return '';
  const [, value, unit] = first;
  return unit.endsWith('match') ? plural(value, unit, `${unit}es`) : plural(value, unit);
}

const FIRING = /^firings\{rule="(.*)"\}$/s;

/** True if this is the key of how often a rule fired. */
export function isFiring(key) {
  return FIRING.test(key);
}

/** What each rule of a component has fired: `{ rule, value }`, the busiest first. */
export function firingsOf(figures) {
  return Object.entries(figures?.counters ?? {}).flatMap(([key, value]) => {
    const rule = FIRING.exec(key)?.[1].replace(/\\(.)/gs, (_, escaped) => (escaped === 'n' ? '\n' : escaped));
    return rule === undefined ? [] : [{ key, rule, value }];
  }).sort((a, b) => b.value - a.value);
}

/** How many tuples of a loop wait for the next batch, in words: '' if none does. */
export function loopWords(figures) {
  return figures?.looping ? `${count(figures.looping)} on the loop` : '';
}
