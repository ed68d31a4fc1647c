// The cluster: hosts with their places, the slots on them, and whose they are.

import { get } from './api.js';
import { h, link, setText } from './dom.js';
import { bytes, count, date, plural } from './format.js';
import { badge, banner, meter, panel, poll, Table, Tiles } from './parts.js';

const EVERY_MS = 5000;
const OPEN = '–';
const SHOWN = 6;  // components of a slot by name; all of them are in the title, and are searched

const number = (title, key, words = count) => ({ title, num: true, sort: (row) => row[key], cell: (row) => (row[key] === null ? OPEN : words(row[key])) });

const hostColumns = [
  { title: 'Host', sort: (row) => row.host, mark: (row) => `${row.host} ${row.is_here}`,
    cell: (row) => h('div', { class: 'name' }, h('span', { class: 'strong' }, row.host), row.is_here ? h('div', { class: 'note' }, 'this machine') : h('div', { class: 'note' }, /:\/\//.test(row.host) ? 'slots that it has not placed yet, or that its driver does not tell of' : 'its places are not known here')) },
  { title: 'Places taken', num: true, sort: (row) => row.slots, mark: (row) => `${row.slots} ${row.places}`,
    cell: (row) => (row.places ? meter(row.slots / row.places, `${count(row.slots)} of ${count(row.places)}`) : h('span', {}, count(row.slots))) },
  number('Free', 'free'), number('Topologies', 'topologies'), number('Executors', 'executors'),
  number('Load, 1 min', 'load', (value) => value.toFixed(2)),
  { title: 'Memory free', num: true, sort: (row) => row.free_memory_bytes, cell: (row) => (row.memory_bytes ? `${bytes(row.free_memory_bytes)} of ${bytes(row.memory_bytes)}` : OPEN) },
];

const slotColumns = [
  { title: 'Host', sort: (row) => row.host, mark: (row) => `${row.host} ${row.places}`,
    cell: (row) => h('div', { class: 'name' }, row.host, row.places.map((place) => h('div', { class: 'note' }, place))) },
  { title: 'Topology', sort: (row) => row.topology, mark: (row) => row.topology,
    cell: (row) => h('div', { class: 'name' }, h('a', { class: 'strong', href: link('topology', row.topology, 'workers') }, row.topology)) },
  { title: 'Status', sort: (row) => row.status, mark: (row) => row.status, cell: (row) => badge(row.status) },
  number('Slot', 'slot'),
  { title: 'Owner', sort: (row) => row.owner, cell: (row) => row.owner || OPEN },
  number('Executors', 'executors'),
  { title: 'Tasks', wide: true, mark: (row) => tasksOf(row).join(', '), cell: (row) => h('span', { title: tasksOf(row).join(', ') }, someOf(tasksOf(row))) },
];

const executorColumns = [
  { title: 'Host', sort: (row) => row.host, mark: (row) => row.place, cell: (row) => h('div', { class: 'name' }, h('span', { class: 'strong' }, row.host), h('div', { class: 'note' }, row.place)) },
  { title: 'Topology', sort: (row) => row.topology, cell: (row) => h('a', { class: 'strong', href: link('topology', row.topology, 'workers') }, row.topology) },
  { title: 'State', sort: (row) => row.lost_at ?? 0, mark: (row) => `${row.lost_at}`, cell: (row) => h('span', { class: row.lost_at ? 'bad-text' : '' }, row.lost_at ? 'lost' : 'alive') },
  number('Cores', 'cores'),
  { title: 'Slots', cell: (row) => row.slots.join(', ') || OPEN },
  number('Spark tasks now', 'tasks'),
  { title: 'Lost', wide: true, mark: (row) => `${row.lost_at} ${row.why}`, cell: (row) => (row.lost_at ? `${date(row.lost_at)}${row.why ? `: ${row.why}` : ''}` : OPEN) },
];

function tasksOf(row) {
  return Object.entries(row.components).map(([id, tasks]) => (tasks > 1 ? `${id} ×${tasks}` : id));
}

function someOf(names) {
  const more = names.length - SHOWN;
  return more > 1 ? `${names.slice(0, SHOWN).join(', ')} and ${count(more)} more` : names.join(', ') || 'none';
}

export function cluster(main, signal) {
  const tiles = new Tiles(['Hosts', 'Topologies', 'Places taken', 'Free places', 'Executors', 'Owners']);
  const hosts = new Table(hostColumns, (row) => row.host);
  const owners = new Table([
    { title: 'Owner', sort: (row) => row.owner, cell: (row) => row.owner || OPEN },
    number('Topologies', 'topologies'), number('Slots', 'slots'), number('Executors', 'executors'),
  ], (row) => row.owner, { onempty: 'Nobody has a topology that runs.' });
  const slots = new Table(slotColumns, (row) => `${row.id} ${row.slot}`, { onempty: 'No topology runs.' });
  const executors = new Table(executorColumns, (row) => `${row.id} ${row.place} ${row.lost_at ?? ''}`);
  const executorPanel = panel('Executors of Spark clusters', executors.element);
  executorPanel.hidden = true;
  const shown = h('span', { class: 'note', 'aria-live': 'polite' });
  const search = h('input', { type: 'search', id: 'filter', placeholder: 'Filter  ( / )', 'aria-label': 'filter slots', oninput: () => show() });
  const notes = h('div', { hidden: true });
  let latest = null;
  const show = () => {
    if (!latest) return;
    const wanted = search.value.trim().toLowerCase();
    const rows = latest.slots.filter((row) => `${row.host} ${row.places.join(' ')} ${row.topology} ${row.owner} ${Object.keys(row.components).join(' ')}`.toLowerCase().includes(wanted));
    slots.update(rows);
    setText(shown, wanted ? `${count(rows.length)} of ${plural(latest.slots.length, 'slot')}` : '');
  };
  main.replaceChildren(h('h1', {}, 'Cluster'), notes, tiles.element,
    panel('Hosts', hosts.element), executorPanel, panel('Slots', slots.element, shown, search), panel('Owners', owners.element));
  poll(async () => {
    try {
      latest = await get('/api/cluster', {}, signal);
    } catch (problem) {
      if (signal.aborted) return;
      notes.hidden = false;
      notes.replaceChildren(banner('bad', problem.message, problem.hint));
      return;
    }
    notes.hidden = true;
    const known = latest.hosts.filter((host) => host.places !== null);
    const places = known.reduce((sum, host) => sum + host.places, 0);
    const crowded = known.some((host) => host.slots > host.places);
    tiles.update([
      [count(latest.hosts.length)], [count(latest.topologies), 'not over'],
      [count(latest.slots_used), `${plural(places, 'place')} known`, crowded ? 'warn' : ''],
      [count(latest.slots_free), crowded ? 'slots share cores' : 'cores without a slot'],
      [count(latest.executors), 'one task each'], [count(latest.owners.length)],
    ]);
    hosts.update(latest.hosts);
    owners.update(latest.owners);
    executors.update(latest.spark_executors);
    executorPanel.hidden = !latest.spark_executors.length;
    show();
  }, EVERY_MS, signal);
}
