"""The components that the cases are made of: small, importable, and silent but for what they emit.

What a case looks at is what its components emit, since they may run in other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from topo import (
    BasicBolt,
    Bolt,
    CustomStreamGrouping,
    FailTuple,
    Spout,
    StatefulBasicBolt,
    Stream,
    Tuple,
)


class Words(Spout):
    """A source for `mock_sources`; by itself it emits nothing."""

    outputs = ("word",)

    def next_tuple(self) -> None:
        pass


class Numbers(Spout):
    """The numbers below `limit`, in order, tracked by themselves; tasks share them out."""

    outputs: Any = ("num",)

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.next = context.this_task_index
        self.step = len(context.component_tasks(context.this_component_id))

    def next_tuple(self) -> None:
        if self.next < self.limit:
            self.emit([self.next], msg_id=self.next)
            self.next += self.step

    def is_exhausted(self) -> bool:
        return bool(self.next >= self.limit)


class Counter(BasicBolt):
    """(word, running count of its task)."""

    outputs = ("word", "count")

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.counts: dict[Any, int] = {}

    def execute(self, tup: Tuple) -> None:
        word = tup[0]
        self.counts[word] = self.counts.get(word, 0) + 1
        self.emit([word, self.counts[word]])


class Total(BasicBolt):
    """Its running total."""

    outputs = ("total",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.total = 0

    def execute(self, tup: Tuple) -> None:
        self.total += 1
        self.emit([self.total])


class LastCounts(BasicBolt):
    """Keeps the last count of each word, and emits their sum."""

    outputs = ("sum",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.last: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        self.last[tup["word"]] = tup["count"]
        self.emit([sum(self.last.values())])


class Agg(Bolt):
    """Keeps n tuples, emits once anchored to all of them, and acks them."""

    outputs = ("num",)

    def __init__(self, n: int) -> None:
        self.n = n

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)
        if len(self.kept) == self.n:
            self.emit([1], anchors=self.kept)
            for kept in self.kept:
                self.ack(kept)
            self.kept = []


class Branch(Bolt):
    """Emits n anchored tuples and acks."""

    outputs = ("num",)

    def __init__(self, n: int) -> None:
        self.n = n

    def execute(self, tup: Tuple) -> None:
        for number in range(self.n):
            self.emit([number], anchors=tup)
        self.ack(tup)


class Identity(Bolt):
    """Emits its input again, anchored, and acks."""

    outputs = ("num",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup[0]], anchors=tup)
        self.ack(tup)


class Sink(Bolt):
    """Acks."""

    def execute(self, tup: Tuple) -> None:
        self.ack(tup)


class Failing(Bolt):
    """Fails the numbers it is told to, and acks the others."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def execute(self, tup: Tuple) -> None:
        if tup[0] in self.numbers:
            self.fail(tup, reason="not wanted")
        else:
            self.ack(tup)


class TaskIndex(BasicBolt):
    """The index of its task, and what it got."""

    outputs = ("index", "value")

    def execute(self, tup: Tuple) -> None:
        self.emit([self.context.this_task_index, tup[0]])


class TaskId(BasicBolt):
    """The id of its task."""

    outputs = ("id",)

    def execute(self, tup: Tuple) -> None:
        self.emit([self.context.this_task_id])


class SelfAnchored(Bolt):
    """Emits once, with its input twice among the anchors."""

    outputs = ("num",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup[0]], anchors=[tup, tup])
        self.ack(tup)


class Unread(Bolt):
    """Emits anchored on a stream that nobody reads."""

    outputs = ("num",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup[0]], stream="default", anchors=tup)
        self.ack(tup)


class ToNamedStreams(BasicBolt):
    """Emits on the default stream and on another, and returns."""

    outputs = {"default": ("num",), "other": ("num",)}

    def execute(self, tup: Tuple) -> None:
        self.emit([tup[0]])
        self.emit([-tup[0]], stream="other")


class FailsAfterTwoEmits(BasicBolt):
    outputs = ("num",)

    def execute(self, tup: Tuple) -> None:
        self.emit([1])
        self.emit([2])
        raise FailTuple("on purpose")


class Raises(BasicBolt):
    def execute(self, tup: Tuple) -> None:
        raise ZeroDivisionError("the user's own")


class Emits(BasicBolt):
    """Emits on `stream` by the call it is told to."""

    outputs = {"regular": ("num",), "direct": Stream(("num",), direct=True)}

    def __init__(self, call: str, stream: str, task: int = 0) -> None:
        self.call = call
        self.stream = stream
        self.task = task

    def execute(self, tup: Tuple) -> None:
        if self.call == "emit":
            self.emit([tup[0]], stream=self.stream)
        else:
            self.emit_direct(self.task, [tup[0]], stream=self.stream)


class KeyedState(StatefulBasicBolt):
    """A bolt that emits the answers of its keyed state to Storm's calls."""

    outputs = ("call", "answer")

    def execute(self, tup: Tuple) -> None:
        self.state.put("a", 1)
        self.state.put("b", 2)
        for key in ("a", "b", "c"):
            self.emit([f"get {key}", self.state.get(key)])
        self.emit(["delete a", self.state.delete("a")])
        self.emit(["get a", self.state.get("a")])


class FirstTasks(CustomStreamGrouping):
    """The first n of the target tasks, for every tuple, as what `kind` makes of their list."""

    def __init__(self, n: int, kind: Callable[[list[int]], Any] = list) -> None:
        self.n = n
        self.kind = kind

    def prepare(self, context: Any, stream: tuple[str, str], target_tasks: Sequence[int]) -> None:
        self.chosen = list(target_tasks)[: self.n]

    def choose_tasks(self, source_task: int, values: list[Any]) -> Any:
        return self.kind(self.chosen)
