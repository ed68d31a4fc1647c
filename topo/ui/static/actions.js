// What can be done with a topology: resume its spouts, stop them, give it other slots, end it.

import { who } from './api.js';
import { h } from './dom.js';
import { ask, toast } from './parts.js';

/**
 * The buttons of a topology; a list has those that one needs in haste.
 * @param {(path: string, body?: object) => Promise<any>} change
 */
export function actions(row, change, { isList = false } = {}) {
  const closed = who()?.read_only;
  if (closed || ['KILLED', 'COMPLETED', 'FAILED'].includes(row.status)) return h('span');
  const run = async (path, body, done) => {
    try {
      const answer = await change(path, body);
      toast(`${row.name}: ${done} (was ${answer.was})`);
    } catch (problem) {
      toast([problem.message, problem.hint].filter(Boolean).join(' – '), 'bad');
    }
  };
  const isActive = row.status !== 'INACTIVE';
  return h('div', { class: 'row nowrap' },
    row.status !== 'STARTING' && h('button', {
      type: 'button', onclick: async () => {
        if (!isActive) return run('activate', {}, 'activated');
        const sure = await ask({ title: `Deactivate ${row.name}?`, text: 'Its spouts stop; what is in flight is still processed.', action: 'Deactivate' });
        return sure && run('deactivate', {}, 'deactivated');
      },
    }, isActive ? 'Deactivate' : 'Activate'),
    !isList && row.status !== 'STARTING' && row.status !== 'REBALANCING' && h('button', {
      type: 'button', onclick: async () => {
        const answer = await ask({
          title: `Rebalance ${row.name}?`, action: 'Rebalance',
          text: 'It goes over to another number of slots: batches pause while its state moves; nothing is lost or comes twice.',
          fields: [{ name: 'workers', label: 'Slots', type: 'number', min: 1, step: 1, value: row.workers ?? '', required: true }],
        });
        if (answer) await run('rebalance', { workers: Number(answer.workers) }, `goes over to ${answer.workers} slots`);
      },
    }, 'Rebalance'),
    h('button', {
      type: 'button', class: 'danger', onclick: async () => {
        const answer = await ask({
          title: `Kill ${row.name}?`, danger: true, action: 'Kill',
          text: 'Its spouts stop, what is in flight may finish, then it ends. Its state is kept: topo submit --resume.',
          fields: [{ name: 'wait', label: 'Seconds to wait for what is in flight', type: 'number', min: 0, step: 'any', placeholder: 'the message timeout' }],
        });
        if (answer) await run('kill', answer.wait === '' ? {} : { wait_secs: Number(answer.wait) }, 'is being killed');
      },
    }, 'Kill'));
}
