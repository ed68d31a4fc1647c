"""Bolts that anchor and ack by hand, in many ways, to be run as they are and rewritten."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from topo import Bolt, FailTuple, Tuple


class Acking(Bolt):
    outputs = ("a", "b")

    def execute(self, tup: Tuple) -> None:
        for one in range(tup.n % 3):
            self.emit([one, tup.m], anchors=tup)
        self.ack(tup)


class ByCollector(Bolt):
    outputs = ("a",)

    def execute(self, tup: Tuple) -> None:
        self.collector.emit([tup["n"]], anchors=[tup])
        self.collector.emit([tup["m"]], anchors=(tup,))
        self.collector.ack(tup)


class ByBranches(Bolt):
    """Acks, fails with and without a reason, or does neither."""

    outputs = ("a",)

    def execute(self, tup: Tuple) -> Any:
        kind = tup.n % 6
        if kind == 0:
            self.ack(tup)
            return None
        if kind == 1:
            self.emit([1], anchors=tup)
            return self.fail(tup)
        if kind == 2:
            self.emit([2])
            self.fail(tup, f"no {tup.m}")
        elif kind == 3:
            self.emit([3], anchors=[])
            self.fail(tup, reason=None)
        elif kind == 4:
            return tup.m
        else:
            self.emit([5], anchors=None)
            return self.ack(tup)
        return None


class Catching(Bolt):
    outputs = ("a",)

    def execute(self, tup: Tuple) -> None:
        try:
            self.emit([10 // (tup.n % 3)], anchors=tup)
            self.ack(tup)
        except ZeroDivisionError as error:
            self.fail(tup, str(error))


class Raising(Bolt):
    outputs = ("a",)

    def execute(self, tup: Tuple) -> None:
        with suppress(KeyError):
            if tup.n % 5 == 1:
                raise KeyError
            if tup.n % 5 == 2:
                raise FailTuple("two")
            if tup.n % 5 == 3:
                raise ValueError("three")
            self.emit([tup.m], anchors=tup)
            self.ack(tup)


class Matching(Bolt):
    outputs: Any = {"default": ("a",), "odd": ("a", "b")}

    def execute(self, tup: Tuple) -> None:
        match tup.n % 2:
            case 0:
                self.emit([tup.n], anchors=tup)
                self.ack(tup)
            case 1 if tup.m > 3:
                self.emit([tup.n, tup.m], stream="odd", anchors=tup)
                self.ack(tup)


class Beside(Bolt):
    """Emits in other ways as well, between those that are rewritten."""

    outputs = ("a",)

    def execute(self, tup: Tuple) -> None:
        row = [tup.n]
        self.emit(row)
        self.emit([self.then(tup.m)], anchors=tup)
        if tup.n % 7 == 2:
            self.told = self.emit([tup.n], task_ids=True)
        self.emit([0], anchors=tup)
        self.ack(tup)

    def then(self, value: int) -> int:
        self.emit([value])
        return value


class Silent(Bolt):
    def __init__(self) -> None:
        self.total = 0

    def execute(self, tup: Tuple) -> None:
        self.total += tup.n
        self.ack(tup)


class NeverAcking(Bolt):
    outputs = ("a",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n], anchors=tup)


class AckingFirst(Bolt):
    outputs = ("a",)

    def execute(self, tup: Tuple) -> None:
        self.ack(tup)
        self.emit([tup.n])


class AckingInALoop(Bolt):
    def execute(self, tup: Tuple) -> None:
        for _ in range(tup.n % 2):
            self.ack(tup)


class AckingTwice(Bolt):
    def execute(self, tup: Tuple) -> None:
        if tup.n % 2:
            self.ack(tup)
        self.ack(tup)


class AckingFinally(Bolt):
    outputs = ("a",)

    def execute(self, tup: Tuple) -> None:
        try:
            self.emit([10 // (tup.n % 3)], anchors=tup)
        except ZeroDivisionError:
            self.emit([0], anchors=tup)
        finally:
            self.ack(tup)


class Transaction:
    """A block that is left with a commit, which may fail."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        if self.number % 3 == 1:
            raise OSError("the commit failed")


class AckingInTransaction(Bolt):
    def execute(self, tup: Tuple) -> None:
        with Transaction(tup.n):
            self.total = tup.n
            self.ack(tup)


class ReturningInTransaction(Bolt):
    def execute(self, tup: Tuple) -> Any:
        with Transaction(tup.n):
            if tup.m % 2:
                return self.ack(tup)
        return self.fail(tup)


class AckingBeforeElse(Bolt):
    def execute(self, tup: Tuple) -> None:
        try:
            self.ack(tup)
        except ValueError:
            pass
        else:
            raise ValueError(tup.n)


class AckingAfterTransaction(Bolt):
    outputs = ("a",)

    def execute(self, tup: Tuple) -> None:
        with Transaction(tup.n):
            self.emit([tup.m], anchors=tup)
        self.ack(tup)


class Alternating(Bolt):
    """A state machine: each state is an `execute` of its own."""

    outputs = ("a",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n], anchors=tup)
        self.execute = self.second  # type: ignore[method-assign]
        self.ack(tup)

    def second(self, tup: Tuple) -> None:
        self.fail(tup, "second")


class AnchoringToSeveral(Bolt):
    outputs = ("a",)

    def __init__(self) -> None:
        self.waiting: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.waiting.append(tup)
        if len(self.waiting) == 3:
            self.emit([tup.n], anchors=self.waiting)
            for one in self.waiting:
                self.ack(one)
            self.waiting.clear()


class Overriding(Bolt):
    outputs = ("a",)

    def ack(self, tup: Tuple) -> None:
        self.emit([-1], anchors=tup)
        super().ack(tup)

    def execute(self, tup: Tuple) -> None:
        self.ack(tup)


RICH: dict[str, Callable[[], Bolt]] = {
    f"rich {one.__name__}": one
    for one in (
        Acking, ByCollector, ByBranches, Catching, Raising, Matching, Beside, Silent, NeverAcking,
        AckingFirst, AckingInALoop, AckingTwice, AckingFinally, AnchoringToSeveral, Overriding,
        AckingInTransaction, ReturningInTransaction, AckingBeforeElse, AckingAfterTransaction,
        Alternating,
    )
}  # fmt: skip

RICH_REWRITTEN = {
    f"rich {name}"
    for name in (
        "Acking", "ByCollector", "ByBranches", "Matching", "Beside", "Silent", "NeverAcking",
        "AckingAfterTransaction",
    )
}  # fmt: skip
"""Those that can be: of the others something may come after the ack (the end of a `with` does), the
tuple is kept, or a call is replaced."""
