"""Sinks that send records to somebody who keeps no marker of batches: MQTT, AMQP, HTTP.

They send before the commit, so that a batch that runs again is sent again; or, with the batch kept
in state, once it has committed (`after_commit`): then nothing of an attempt that was rolled back is
ever sent, and what is sent twice bears the same id both times.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, TypeVar

from topo.connectors.base import OnBad, as_record, check_guarantee, check_positive
from topo.connectors.publication import PublishingSink, Rejected
from topo.errors import ComponentError, Unavailable
from topo.tuples import Tuple

_FIRST_PAUSE_SECS = 0.1
_LONGEST_PAUSE_SECS = 5.0
_MOST = 1_000  # records that wait to be sent together

Chosen = str | Callable[[Tuple], Any]
T = TypeVar("T")


@dataclass(slots=True)
class Outgoing:
    """A record on its way."""

    where: str
    """The topic, the routing key, the URL."""
    body: bytes
    more: Any = None
    """What else the target needs."""
    id: str = ""
    """The same if the same is sent again; given when the record is sent."""


Refused = list[tuple[Outgoing, Exception]]


class OutboxSink(PublishingSink):
    """A bolt that sends a record for each tuple; those that are refused it rejects."""

    refused: Mapping[str, str] = {}
    """Guarantees that are not to be had, with the reasons and the remedies."""
    guarantees: tuple[str, ...] = ("none", "at_least_once")
    transient: Iterable[str] = ("_waiting", "_sent")

    def set_up(
        self,
        *,
        guarantee: str,
        after_commit: bool,
        map: Callable[[Tuple], Any] | None,
        on_bad: OnBad,
        retry_secs: float,
    ) -> None:
        """Check and keep what every such sink has; called by the constructor."""
        check_guarantee(self.connector, guarantee, self.guarantees, self.refused)
        check_positive(self.connector, retry_secs=retry_secs)
        if after_commit and guarantee == "none":
            raise ComponentError(
                f"{self.connector}: after_commit=True with guarantee='none', which does not wait"
            )
        self.guarantee, self.after_commit, self.map = guarantee, after_commit, map
        self.set_on_bad(on_bad)
        self.retry_secs = retry_secs

    # -- what subclasses say ------------------------------------------------------------------

    def outgoing(self, tup: Tuple) -> Outgoing | None:
        """Return the record of a tuple, None for none; what it raises rejects the tuple."""
        raise NotImplementedError

    def send(self, records: Sequence[Outgoing]) -> Refused:
        """Send records and, unless nothing is waited for, wait until the target has them.

        Return those that the target will never take; raise Unavailable if it cannot be reached.
        """
        raise NotImplementedError

    def as_record(self, tup: Tuple) -> Any:
        return as_record(tup, self.map)

    @property
    def is_patient(self) -> bool:
        """True iff a target that is away is waited for."""
        return self.guarantee != "none"

    def deliver(self, call: Callable[[], object], records: Sized) -> None:
        """Make a call until the target answers; count its records as lost if nobody waits."""
        pause, waited = _FIRST_PAUSE_SECS, 0.0
        while True:
            try:
                call()
                return
            except Unavailable as error:
                if not self.is_patient:
                    self.context.counter("lost", len(records))
                    return
                if error.after_secs is not None:
                    pause = error.after_secs
                if waited + pause >= self.retry_secs:
                    raise
            time.sleep(pause)
            waited += pause
            pause = min(2 * pause, _LONGEST_PAUSE_SECS)

    # -- a batch ------------------------------------------------------------------------------

    def restored(self) -> None:
        self._waiting: list[Outgoing] = []
        self._sent = 0  # of this batch

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            return
        try:
            outgoing = self.outgoing(tup)
        except Exception as error:
            self.reject(list(tup.values), error)
            return
        if outgoing is None:
            self.context.counter("skipped")
            return
        self._waiting.append(outgoing)
        if len(self._waiting) >= _MOST and not self.after_commit:
            self._send_waiting()

    def on_tick(self, tup: Tuple) -> None:
        """Do nothing but work in this batch: `pre_commit` emits what was rejected late."""

    def pre_commit(self, batch_id: int) -> None:
        """Send what the batch has; or keep it until the batch has committed."""
        if not self.after_commit:
            self._send_waiting()
            self._sent = 0
            return
        self.emit_rejected()
        waiting, self._waiting = self._waiting, []
        self.keep(batch_id, waiting)

    def publish(self, number: int, batch: Any) -> Rejected:
        """Send the records of a batch, under ids that are the same if it is sent again."""
        records: list[Outgoing] = batch
        for count, record in enumerate(records):
            record.id = f"{self._task}/{number}/{count}"
        refused = self.send(records)
        self.context.counter("sent", len(records) - len(refused))
        return [([record.where, record.body], error) for record, error in refused]

    @property
    def _task(self) -> str:
        context = self.context
        name = f"{context.checkpoint_id}/{context.this_component_id}"
        return f"{name}/{context.this_task_index}"

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        first = f"{self._task}/{self.context.batch_id}"
        for count, record in enumerate(waiting, self._sent):
            # Another attempt of the batch may have something else in this place.
            digest = hashlib.blake2b(record.where.encode() + b"\0" + record.body, digest_size=8)
            record.id = f"{first}/{count}/{digest.hexdigest()}"
        self._sent += len(waiting)
        refused = self.send(waiting)
        self.context.counter("sent", len(waiting) - len(refused))
        for record, error in refused:
            self.reject([record.where, record.body], error)


def parts(
    items: Iterable[T], size: Callable[[T], int], *, most: int, most_bytes: int
) -> Iterator[list[T]]:
    """Yield the items of each request: as many as it may have, and no empty one."""
    part: list[T] = []
    total = 0
    for item in items:
        own = size(item)
        if part and (len(part) >= most or total + own > most_bytes):
            yield part
            part, total = [], 0
        part.append(item)
        total += own
    if part:
        yield part


def size_of(record: Outgoing) -> int:
    """Return how many bytes a record has."""
    return len(record.body)


def chosen(given: Chosen | None, tup: Tuple) -> Any:
    """Return a field of the tuple by its name, or what a function makes of the tuple."""
    if given is None:
        return None
    return tup[given] if isinstance(given, str) else given(tup)
