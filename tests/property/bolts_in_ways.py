"""Bolts that are written in each of the ways there are, to do the same in all of them.

All bolts of a family have one class name and the same attributes, so that what is saved of them can
be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from topo import BasicBolt, FailTuple, StatefulBasicBolt, Tuple, bolt


def touchy(value: int) -> int:
    if value % 13 == 5:
        raise ValueError(f"no {value}")
    if value % 17 == 3:
        raise FailTuple(f"not {value}")
    return value


@bolt(outputs=("a", "b"))
def split_of_tuple(tup: Tuple) -> Iterator[list[Any]]:
    for part in range(tup.n % 4):
        yield [part, tup.m]


@bolt(outputs=("a", "b"))
def split_of_values(m: int, n: int) -> Iterator[list[Any]]:
    for part in range(n % 4):
        yield [part, m]


@bolt(outputs=("a", "b"))
def some_of_tuple(tup: Tuple) -> Iterator[tuple[int, int]] | None:
    return iter([(tup.n, touchy(tup.m))]) if tup.n % 2 else None


@bolt(outputs=("a", "b"))
def some_of_values(n: int, m: int) -> tuple[int, int] | None:
    return (n, touchy(m)) if n % 2 else None


@bolt(outputs=("a", "b"))
def breaking_of_tuple(tup: Tuple) -> Iterator[Any]:
    yield tup.n, 0
    yield touchy(tup.n), tup.m
    if tup.n % 7 == 6:
        yield [tup.n]  # one value for two fields


@bolt(outputs=("a", "b"))
def breaking_of_values(n: int, m: int) -> Iterator[Any]:
    yield n, 0
    yield touchy(n), m
    if n % 7 == 6:
        yield [n]


@bolt(outputs={"default": ("a", "b"), "odd": "c"})
def sort_of_tuple(tup: Tuple, collector: Any) -> None:
    if tup.n % 2:
        collector.emit([tup.n], stream="odd")
    collector.emit([tup.n, tup.m])


@bolt(outputs={"default": ("a", "b"), "odd": "c"})
def sort_of_values(n: int, m: int, collector: Any) -> None:
    if n % 2:
        collector.emit_values(n, stream="odd")
    collector.emit_values(n, m)


class _CountOfTuple(StatefulBasicBolt):
    outputs = ("a", "b")

    def __init__(self) -> None:
        self.seen = 0

    def execute(self, tup: Tuple) -> None:
        self.seen += 1
        self.state[tup.n] = count = self.state.get(tup.n, 0) + touchy(tup.m)
        self.emit([tup.n, count])


class _CountOfValues(StatefulBasicBolt):
    outputs = ("a", "b")

    def __init__(self) -> None:
        self.seen = 0

    def process(self, n: int, m: int) -> None:
        self.seen += 1
        self.state[n] = count = self.state.get(n, 0) + touchy(m)
        self.emit_values(n, count)


class _KeepOfTuple(BasicBolt):
    outputs = ("a", "b")

    def __init__(self) -> None:
        self.values: list[Any] = []

    def execute(self, tup: Tuple) -> None:
        self.values.append((tup.source_component, tup.n, tup.get("more", 7)))
        self.emit([tup.n, self.step(tup.m)])

    def step(self, value: int) -> int:
        self.emit([0, value])
        return touchy(value)


class _KeepOfValues(BasicBolt):
    outputs = ("a", "b")

    def __init__(self) -> None:
        self.values: list[Any] = []

    def process(self, tup: Tuple, m: int, more: int = 7, *, n: int) -> list[int]:
        self.values.append((tup.source_component, n, more))
        return [n, self.step(m)]

    def step(self, value: int) -> int:
        self.emit([0, value])
        return touchy(value)


class _ChangeOfTuple(BasicBolt):
    """Replaces its own hook while it runs."""

    outputs = ("a", "b")
    transient = ("execute",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n, 1])
        if tup.n % 5 == 0:
            vars(self)["execute"] = self.later

    def later(self, tup: Tuple) -> None:
        self.emit([tup.n, 2])


class _ChangeOfValues(BasicBolt):
    outputs = ("a", "b")
    transient = ("process",)

    def process(self, n: int, m: int) -> None:
        self.emit([n, 1])
        if n % 5 == 0:
            vars(self)["process"] = self.later

    def later(self, n: int, m: int) -> None:
        self.emit([n, 2])


class _FifthOfTuple(StatefulBasicBolt):
    """Passes numbers on, sums them by key, and fails every fifth."""

    outputs = ("a", "b")

    def execute(self, tup: Tuple) -> None:
        if tup.n % 5 == 0:
            raise FailTuple("a fifth")
        self.state[tup.n % 3] = self.state.get(tup.n % 3, 0) + tup.m
        for part in range(tup.n % 3):
            self.emit([part, tup.m])


class _FifthOfValues(StatefulBasicBolt):
    outputs = ("a", "b")

    def process(self, n: int, m: int) -> Iterator[tuple[int, int]]:
        if n % 5 == 0:
            raise FailTuple("a fifth")
        self.state[n % 3] = self.state.get(n % 3, 0) + m
        for part in range(n % 3):
            yield part, m


class _FifthOfBatch(StatefulBasicBolt):
    outputs = ("a", "b")

    def process_batch(self, batch: Any) -> None:
        rows = batch.to_pylist()
        failed = [place for place, row in enumerate(rows) if row["n"] % 5 == 0]
        parents = []
        emitted: dict[str, list[int]] = {"a": [], "b": []}
        for place, row in enumerate(rows):
            if place in failed:
                continue
            key = row["n"] % 3
            self.state[key] = self.state.get(key, 0) + row["m"]
            parents += [place] * key
            emitted["a"] += range(key)
            emitted["b"] += [row["m"]] * key
        self.emit_batch(emitted, parents=parents)
        if failed:
            raise FailTuple("a fifth", rows=failed)


class _CleanOfTuple(BasicBolt):
    """Reassigns what it reads, has private names, and emits in each form there is."""

    outputs = ("a", "b")

    def __init__(self) -> None:
        self.seen = 0
        self.__own = 3

    def execute(self, tup: Tuple) -> None:
        n, m = tup.n, tup.m
        if n % 7 == 0:
            return
        m = m % 10 + self.__own * 2
        self.emit([n, m])
        for part in [one * 2 for one in range(n % 3)]:
            self.emit([part, touchy(m)])
        try:
            self.emit([m, n])
            touchy(n)
        finally:
            self.seen += 1
        if n % 2:
            self.emit([n, self.seen])


class _CleanOfValues(BasicBolt):
    outputs = ("a", "b")

    def __init__(self) -> None:
        self.seen = 0
        self.__own = 3

    def process(self, n: int, m: int, *, more: int = 2) -> tuple[int, int] | None:
        if n % 7 == 0:
            return None
        m = m % 10 + self.__own * more
        self.emit([n, m])
        for part in [one * 2 for one in range(n % 3)]:
            self.collector.emit_values(part, touchy(m))
        try:
            self.emit((m, n))
            touchy(n)
        finally:
            self.seen += 1
        if n % 2:
            return n, self.seen
        return None


WAYS: dict[str, tuple[Callable[[], BasicBolt], ...]] = {
    "split": (lambda: split_of_tuple, lambda: split_of_values),
    "some": (lambda: some_of_tuple, lambda: some_of_values),
    "breaking": (lambda: breaking_of_tuple, lambda: breaking_of_values),
    "sort": (lambda: sort_of_tuple, lambda: sort_of_values),
    "count": (_CountOfTuple, _CountOfValues),
    "keep": (_KeepOfTuple, _KeepOfValues),
    "change": (_ChangeOfTuple, _ChangeOfValues),
    "clean": (_CleanOfTuple, _CleanOfValues),
    "fifth": (_FifthOfTuple, _FifthOfValues, _FifthOfBatch),
}

REWRITTEN = {"clean", "count", "fifth", "split"}
"""Those whose `process` can be compiled once more, to append to columns."""
