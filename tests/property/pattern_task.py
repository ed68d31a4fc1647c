"""A pattern's operator without an engine, driven by hand: batches, watermarks, restarts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tests.property.pattern_truth import Event
from topo import EventTime, Pattern, PatternBolt
from topo.event_time import BEFORE_ALL
from topo.storage.saving import Changes
from topo.timed import Clock, Rows

FIELDS = ("key", "ts", "kind", "n", "number")


class Task:
    """What an operator knows of its task."""

    owner = "bolt 'p'"
    component: Any
    conf: dict[str, Any] = {}
    follows_tuples = True

    def __init__(self) -> None:
        self.component = self
        self.context = self
        self.rows: dict[str, list[Any]] = {"default": [], "out": []}
        self.late = 0
        self.clock = 0.0

    def now(self) -> float:
        return self.clock

    def emit(self, rows: list[list[Any]], stream: str = "default") -> None:
        self.rows[stream] += rows

    def set_aside(self, rows: Rows, places: Any) -> None:
        self.late += len(list(places))

    def note_expired(self, count: int) -> None: ...
    def acks(self, tuples: Any) -> None: ...
    def fails(self, tuples: Any, reason: str | None) -> None: ...
    def failed(self, error: BaseException) -> None: ...

    def users_code(self) -> AbstractContextManager[None]:
        return nullcontext()

    def warn_once(self, text: str) -> None:
        raise AssertionError(text)

    def gauge(self, name: str, value: float | None) -> None: ...
    def counter(self, name: str, by: int = 1) -> None: ...


class World:
    """A bolt's operator, driven by hand: batches, watermarks, restarts."""

    def __init__(
        self,
        document: dict[str, Any],
        lag: int = 0,
        limit: int = 100_000,
        *,
        by_arrival: bool = False,
    ) -> None:
        time = None if by_arrival else EventTime("ts", lag=lag)
        self.bolt = PatternBolt(
            Pattern.from_dict(document), key="key", time=time, timed_out_stream="out", limit=limit
        )
        self.task = Task()
        self.saved: dict[str, bytes] = {}
        self.watermark = BEFORE_ALL
        self.lag = lag
        self.restart()

    def restart(self) -> None:
        self.operator: Any = self.bolt.operator(self.task)  # type: ignore[arg-type]
        self.operator.load(dict(self.saved), self.watermark)

    def batch(self, events: Sequence[Event], watermark: int) -> None:
        if events:
            columns = [[getattr(event, name) for event in events] for name in FIELDS]
            make: Any = events.__getitem__
            rows = Rows("events", "default", FIELDS, columns, len(events), columns[1], make)
            self.operator.rows(rows)
        before, self.watermark = self.watermark, max(self.watermark, watermark)
        self.operator.advance(Clock(before, self.watermark, 0.0))
        self.save()

    def arrive(self, events: Sequence[Event], ts: int) -> None:
        """Let events come at a time of the clock, in a batch of their own."""
        self.task.clock = ts / 1_000
        self.operator.begin(Clock(BEFORE_ALL, BEFORE_ALL, self.task.clock))
        columns = [[getattr(event, name) for event in events] for name in FIELDS]
        make: Any = events.__getitem__
        self.operator.rows(Rows("events", "default", FIELDS, columns, len(events), None, make))
        self.operator.advance(Clock(BEFORE_ALL, BEFORE_ALL, self.task.clock))
        self.save()

    def save(self) -> None:
        changes = Changes()
        self.operator.save(changes)
        changes.apply_to(self.saved)

    def open_records(self) -> list[Any]:
        """Return what is still saved, at the end: nothing but counts may be."""
        return [name for name in self.saved if not name.startswith("pattern:")]

    def results(self, stream: str) -> list[tuple[Any, list[tuple[str, int]], int]]:
        found = []
        for key, _, end, match in self.task.rows[stream]:
            taken = [(one.number, part) for part, events in match.items() for one in events]
            found.append((key, [(part, number) for number, part in sorted(taken)], end))
        return found
