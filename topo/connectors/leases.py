"""Spouts of messages that a service lends for some time: SQS's and Pub/Sub's.

What is done commits with the batch, as the handles by which messages are deleted: those whose tuple
trees are acked, or, if they are not tracked, what the batch has emitted. A task that starts again
deletes those of its last batch first, so that a message comes twice only if the service gives it
twice: most do so now and then, and all do when a lease has ended.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from topo.components import StatefulSpout
from topo.connectors.inflight import InflightSpout, Sent
from topo.connectors.translation import Arrival


class LeaseSpout(InflightSpout, StatefulSpout):
    """A spout whose messages have handles, by which they are kept, given back, or deleted."""

    transient: Iterable[str] = (*InflightSpout.transient, "_next_look", "_open", "_next_end")
    max_in_flight: int
    lease_secs: float
    """How long a message is lent; it is extended until the message is done with."""
    poll_secs: float
    """The pause after there was none."""

    # -- what subclasses say ------------------------------------------------------------------

    def fetch(self, most: int) -> Sequence[Arrival]:
        """Return messages that are lent from now on, with their handles as tags."""
        raise NotImplementedError

    def extend(self, handles: Sequence[str]) -> None:
        """Have messages lent anew, for `lease_secs` from now on."""
        raise NotImplementedError

    def delete(self, handles: Sequence[str]) -> None:
        """Have the service forget messages; raise Unavailable if it might not."""
        raise NotImplementedError

    def give_back(self, handles: Sequence[str]) -> None:
        """Have messages lent to others at once."""
        raise NotImplementedError

    # -- life ---------------------------------------------------------------------------------

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.open_reading(conf)
        self._open: dict[str, float] = {}  # handles that are not deleted, and until when they hold
        self._next_end = 0.0  # no lease ends before
        self._next_look = 0.0

    def restored(self) -> None:
        """Keep what is in flight: it will be acked, or fail, here."""
        self._open |= {key[1]: 0.0 for key in self.state.raw() if isinstance(key, tuple)}

    def owner(self, key: Any, tasks: int) -> int:
        """Return the task that deletes the messages that a task has received."""
        return int(key[0] if isinstance(key, tuple) else key) % tasks

    def next_tuple(self) -> None:
        now = self.context.now()
        self.keep_alive()
        room = self.max_in_flight - len(self._open)
        if self.emit_again() or now < self._next_look or room <= 0:
            return
        arrivals = self.fetch(self.most(room))
        if not arrivals:
            self._next_look = now + self.poll_secs
            return
        handles = [arrival.tag for arrival in arrivals]
        self._lend(handles, now)
        done = self.emit_page(arrivals)
        if self._is_tracked:
            for handle in set(handles).difference(done):
                self.state[self.context.this_task_index, handle] = None
        self._delete_later(done if self._is_tracked else handles)
        self.context.counter("messages", len(arrivals))

    def keep_alive(self) -> None:
        """Extend the leases of messages that have been in flight for long."""
        now = self.context.now()
        if self._next_end - now >= self.lease_secs / 2:
            return
        ending = [h for h, until in self._open.items() if until - now < self.lease_secs / 2]
        if ending:
            self.extend(ending)
            self._lend(ending, now)
        self._next_end = min(self._open.values(), default=math.inf)

    def _lend(self, handles: Sequence[str], now: float) -> None:
        """Note that messages are lent from now on."""
        until = now + self.lease_secs
        self._open |= dict.fromkeys(handles, until)
        self._next_end = min(self._next_end, until)

    def _delete_later(self, handles: Sequence[Hashable]) -> None:
        """Have messages deleted once the batch in work has committed."""
        if handles:
            own = self.context.this_task_index
            self.state[own] = [*self.state.raw().get(own, []), *handles]

    # -- what becomes of messages -------------------------------------------------------------

    def ack(self, msg_id: Any) -> None:
        if isinstance(msg_id, Sent):
            self.is_done(msg_id.tag)

    def is_done(self, tag: Any) -> None:
        """Have a message deleted."""
        self.state.pop((self.context.this_task_index, tag), None)
        self._delete_later([tag])

    def release(self, tag: Any) -> bool:
        """Give a message back to the service, which counts how often it was received."""
        self.state.pop((self.context.this_task_index, tag), None)
        self._open.pop(tag, None)
        self.give_back([tag])
        return True

    def committed(self, batch_id: int) -> None:
        """Delete what is done."""
        for key in [key for key in self.state.raw() if not isinstance(key, tuple)]:
            handles = self.state.raw()[key]
            self.delete(handles)
            for handle in handles:
                self._open.pop(handle, None)
            del self.state[key]
