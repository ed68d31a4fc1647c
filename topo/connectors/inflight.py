"""Messages that were emitted and are not acked: those that fail come again.

For sources that do not read their records again. What a message takes to be emitted again is in its
id, which the runtime saves with the batch and keeps for as long as the message is pending: so the
source's position may pass it. Only what has failed, and waits for its pause to end, is saved here.
"""

from __future__ import annotations

import secrets
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import count, repeat
from typing import Any, NamedTuple, Unpack

from topo.components import Spout
from topo.connectors.formats import requirements_of
from topo.connectors.retries import Backoff
from topo.connectors.translation import Arrival, Page, Reader, Reading, Translation
from topo.errors import ComponentError
from topo.tuples import DEFAULT_STREAM

DEAD_FIELDS = ("value", "where", "reason", "failures")


def dead_fields(retry: Backoff) -> tuple[str, ...]:
    """Return the fields of the stream of messages that are given up; none if none ever is."""
    return () if retry.retries is None else DEAD_FIELDS


def is_tracked(connector: str, track: bool | None, conf: Mapping[str, Any]) -> bool:
    """Return True if messages are tracked; raise ComponentError if they should be and cannot."""
    has_ackers = bool(conf["topology.acker.executors"])
    if track and not has_ackers:
        raise ComponentError(
            f"{connector}: track=True, and the topology has no ackers",
            hint="set topology.acker.executors to 1, or leave track out",
        )
    return has_ackers and track is not False


class Sent(NamedTuple):
    """The id of a message: all that it takes to emit it again."""

    name: tuple[str, int]
    """Of the instance that emitted it first, and a number: no other message has it."""
    stream: str
    values: Any
    where: str
    """The place that it came from, as told if it is given up."""
    tag: Hashable = None
    """What the source calls it; None if the source has forgotten it already."""
    failures: int = 0


class InflightSpout(Spout):
    """A spout whose messages are tracked, and emitted again when they fail.

    `track` is by default True if there are ackers. After a failure a message waits for the pause of
    `retry`; after its `retries` it goes to the stream `dead`, or is reported if nobody reads that.
    """

    connector = ""
    transient: Iterable[str] = ("_instance", "_is_tracked", "_numbers", "_reader")
    translation: Translation
    """Of a source of records; `set_up_reading` makes it."""
    failed: dict[tuple[str, int], tuple[float, Sent]]
    """Messages that failed and wait, with the time at which each is due: saved with the batch."""
    rest: list[Sent]
    """Messages that have come, and are beyond the limit of what may be in flight: saved as well."""

    def set_up_inflight(self, track: bool | None, retry: Backoff | None) -> None:
        """Check and keep what every such spout has; called by the constructor."""
        self.track, self.retry = track, retry or Backoff()
        self.failed, self.rest = {}, []

    def set_up_reading(
        self,
        record: type[Any],
        default: tuple[str, ...],
        *,
        track: bool | None,
        retry: Backoff | None,
        **reading: Unpack[Reading],
    ) -> None:
        """Check and keep as well how records become tuples, as `Translation` says."""
        self.set_up_inflight(track, retry)
        self.requires = (*self.requires, *requirements_of(reading["value"]))
        self.translation = Translation(
            self.connector, record, default, dead=dead_fields(self.retry), **reading
        )
        self.outputs: Any = self.translation.outputs

    def open_inflight(self, conf: Mapping[str, Any]) -> None:
        """Begin with nothing in flight; called by `open`."""
        self._is_tracked = is_tracked(self.connector, self.track, conf)
        self._instance = secrets.token_hex(8)
        self._numbers = count()

    def open_reading(self, conf: Mapping[str, Any]) -> None:
        """Begin with nothing in flight, and load what reads the records."""
        self.open_inflight(conf)
        self._reader: Reader = self.translation.reader(self)

    def most(self, limit: int) -> int:
        """Return how many messages may be emitted now, of as many as `limit`."""
        return self.room(limit) if self._is_tracked else limit

    def emit_page(self, arrivals: Iterable[Arrival], *, is_decoded: bool = False) -> list[Hashable]:
        """Emit what records make that came together.

        Return the tags of those of which nothing is emitted. `arrivals` may note how far the source
        is: what it has yielded is emitted, even if the record after it stops the topology.
        """
        page = Page()
        try:
            self._reader.read_page(self, arrivals, page, self._emit_other, is_decoded=is_decoded)
        finally:
            if page.rows:
                self.emit_rows(page.rows, page.places, tags=page.tags)
        if page.done and not page.rows:
            self.context.end_batch()
        return page.done

    def _emit_other(self, stream: str, values: Any, arrival: Arrival) -> None:
        self.emit_row(values, arrival.where, stream=stream, tag=arrival.tag)

    def emit_rows(
        self,
        rows: Sequence[Any],
        where: str | Sequence[str],
        *,
        tags: Sequence[Hashable] | None = None,
    ) -> None:
        """Emit rows that came from a place, or one each, with what the source calls them.

        What is beyond the limit of messages in flight follows later.
        """
        if not self._is_tracked:
            self.emit_many(rows)
            return
        instance, numbers = self._instance, self._numbers
        names = ((instance, next(numbers)) for _ in rows)
        places = repeat(where, len(rows)) if isinstance(where, str) else where
        all_tags = tags if tags is not None else repeat(None, len(rows))
        ids = [
            Sent(name, DEFAULT_STREAM, values, place, tag)
            for name, values, place, tag in zip(names, rows, places, all_tags, strict=True)
        ]
        room = self.room(len(ids))
        if room < len(ids):
            self.rest += ids[room:]
        self.emit_many(rows[:room], msg_ids=ids[:room])

    def emit_row(self, values: Any, where: str, *, stream: str, tag: Hashable = None) -> None:
        """Emit one row on a stream."""
        sent = Sent((self._instance, next(self._numbers)), stream, values, where, tag)
        self.emit(values, stream=stream, msg_id=sent if self._is_tracked else None)

    def emit_again(self) -> bool:
        """Emit what failed and is due again, or waited for room; True: nothing else may follow."""
        if not self.most(1):
            return True
        if self.rest:
            part = self.rest[: self.most(len(self.rest))]
            del self.rest[: len(part)]
            if self.collector.hears_splits:
                for each in part:
                    self._emit_sent(each)
            else:
                self.emit_many([each.values for each in part], msg_ids=part)
            return True
        if not self.failed:
            return False
        now = self.context.now()
        due = [name for name, (time, _) in self.failed.items() if time <= now]
        due = due[: self.most(len(due))]
        if due:
            for name in due:
                self._emit_sent(self.failed.pop(name)[1])
            self.context.counter("replayed", len(due))
        return bool(due)

    def _emit_sent(self, sent: Sent) -> None:
        self.emits_again(sent)
        self.emit(sent.values, stream=sent.stream, msg_id=sent)

    def emits_again(self, sent: Sent) -> None:
        """Hear that a message is about to be emitted."""

    def is_done(self, tag: Hashable) -> None:
        """Hear that a message is acked, or buried: its source may forget it."""

    def release(self, tag: Hashable) -> bool:
        """Give a message back to its source, which may bury it; return False if it cannot."""
        return False

    def fail(self, msg_id: Any, reason: str = "") -> None:
        if not isinstance(msg_id, Sent):
            return
        sent = msg_id._replace(failures=msg_id.failures + 1)
        if self.retry.gives_up(sent.failures):
            self._give_up(sent, reason)
        else:
            due = self.context.now() + self.retry.pause(sent.failures)
            self.failed[sent.name] = (due, sent)

    def _give_up(self, sent: Sent, reason: str) -> None:
        self.context.counter("dead")
        if self.context.this_targets.get("dead"):
            self.emit([sent.values, sent.where, reason, sent.failures], stream="dead")
            self.is_done(sent.tag)
            return
        self.report_error(
            f"{sent.where}: a message failed {sent.failures} times, and is given up; "
            f"the last time: {reason}"
        )
        if not self.release(sent.tag):
            self.is_done(sent.tag)
