"""A spout that a test feeds by hand."""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from typing import Any

from topo.components import FieldNames, Spout
from topo.errors import RunError
from topo.runtime.emitter import check_values
from topo.tuples import Fields

_numbers = itertools.count()
_feeds: weakref.WeakValueDictionary[int, _Feed]


class _Seen:
    """A time among what is fed."""

    def __init__(self, ts: Any) -> None:
        self.ts = ts


class _Feed:
    """The queue and the verdicts that the test and the feeder's tasks share."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[list[Any] | _Seen, Any]] = deque()
        self.acked: list[Any] = []
        self.failed: list[Any] = []
        self.reasons: dict[Any, str] = {}
        self.ended = False


_feeds = weakref.WeakValueDictionary()


class FeederSpout(Spout):
    """A spout that emits the tuples given to `feed`, one per call; its tasks share one queue."""

    transient = ("_feed",)

    def __init__(self, fields: FieldNames) -> None:
        self.outputs = tuple(Fields(fields))
        self.number = next(_numbers)
        self._feed = _feeds[self.number] = _Feed()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_feed"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        feed = _feeds.get(self.number)
        if feed is None:
            raise RunError(
                "a FeederSpout works in the process of its test only",
                hint="keep a reference to it, and use TestCluster; on Spark, give mock_sources",
            )
        self._feed = feed

    def observe_time(self, ts: Any) -> None:
        """Have the readers in event time told of a time, in order with what is fed."""
        self._feed.waiting.append((_Seen(ts), None))

    def feed(self, values: list[Any] | tuple[Any, ...], msg_id: Any = None) -> None:
        """Queue a tuple for emission; it is tracked if it has a message id."""
        check_values(values, f"FeederSpout({list(self.outputs)}) was fed")
        self._feed.waiting.append((list(values), msg_id))

    @property
    def acked(self) -> list[Any]:
        """The acked message ids, in order."""
        return self._feed.acked

    @property
    def failed(self) -> list[Any]:
        """The failed message ids, in order."""
        return self._feed.failed

    @property
    def reasons(self) -> dict[Any, str]:
        """The last reason of failure by message id."""
        return self._feed.reasons

    def next_tuple(self) -> None:
        while self._feed.waiting:
            values, msg_id = self._feed.waiting.popleft()
            if not isinstance(values, _Seen):
                self.emit(values, msg_id=msg_id)
                return
            self.collector.observe_time(values.ts)

    def ack(self, msg_id: Any) -> None:
        self._feed.acked.append(msg_id)

    def fail(self, msg_id: Any, reason: str = "") -> None:
        self._feed.failed.append(msg_id)
        self._feed.reasons[msg_id] = reason


class EndingFeeder(FeederSpout):
    """A feeder whose input may end."""

    def end(self) -> None:
        """Feed nothing more."""
        self._feed.ended = True

    def is_exhausted(self) -> bool:
        return self._feed.ended and not self._feed.waiting
