"""Bolts whose `execute` is written in many ways, to be run as it is and rewritten."""

from __future__ import annotations

import json
import re as re_module
from collections.abc import Callable, Iterator
from typing import Any

from topo import BasicBolt, EmitError, FailTuple, Tuple, bolt

FACTOR = 3


def doubled(value: Any) -> Any:
    return value * 2


class Plain(BasicBolt):
    outputs = ("a", "b")

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n, tup["m"]])


class OneValue(BasicBolt):
    outputs = ("a",)

    def execute(self, tup: Tuple) -> None:
        for number in range(tup.n % 4):
            self.emit([number + tup[0] + tup[-1]])


class Local(BasicBolt):
    outputs = ("a", "b")

    def __init__(self) -> None:
        self.seen = 0
        self.__own = 5

    def execute(self, tup: Tuple) -> None:
        """Keep a count, and a private name."""
        self.seen += 1
        n, m = tup.values
        if n % 3 == 0:
            return
        pairs = [(one, n) for one in range(m % 3)]
        for one, other in pairs:
            self.emit((one + self.__own, other * FACTOR))


class Unpacking(BasicBolt):
    outputs = ("a", "b")

    def execute(self, tup: Tuple) -> None:
        n, *rest = tup
        [one, other] = tup
        self.emit([n + one, (rest, other)])


class UnpackingTooFew(BasicBolt):
    def execute(self, tup: Tuple) -> None:
        (self.only,) = tup


class Failing(BasicBolt):
    outputs = ("a", "b")

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n, 1])
        if tup.n % 5 == 2:
            raise FailTuple("five")
        self.emit([tup.n, self.touchy(tup.m)])

    def touchy(self, value: int) -> int:
        if value % 7 == 3:
            raise ValueError(f"no {value}")
        return value


class Catching(BasicBolt):
    outputs = ("a", "b")

    def execute(self, tup: Tuple) -> None:
        try:
            self.emit([tup.n, 10 // (tup.n % 3)])
        except ZeroDivisionError as error:
            self.emit([tup.n, str(error)])
        finally:
            self.emit([tup.values[1], None])


class Beside(BasicBolt):
    """Emits in other ways as well, between those that are rewritten."""

    outputs = ("a", "b")

    def execute(self, tup: Tuple) -> None:
        values = [tup.n, "before"]
        self.emit(values)
        self.emit([tup.n, self.then(tup.m)])
        self.collector.emit([tup.m, tup.source_component[-1:]])
        if tup.n % 11 == 4:
            self.told = self.emit([tup.n, "asked"], task_ids=True)
        self.emit([tup.is_tick, len(tup.source_stream)])

    def then(self, value: int) -> int:
        self.emit([value, "inside"])
        return value


class Streams(BasicBolt):
    outputs: Any = {"default": ("a",), "odd": ("a", "b")}

    def execute(self, tup: Tuple) -> None:
        if tup.n % 2:
            self.emit([tup.n, tup.m], stream="odd")
        self.emit([tup.n])
        self.emit([tup.m], stream="default")


class KeepsTuples(BasicBolt):
    outputs = ("a",)

    def __init__(self) -> None:
        self.stored: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        if tup.n % 4 == 0:
            self.stored.append(tup)
        self.emit([len(self.stored)])


class Wrong(BasicBolt):
    """Emits what does not fit, and reads what is not there."""

    outputs = ("a", "b")

    def execute(self, tup: Tuple) -> None:
        if tup.n % 6 == 1:
            self.emit([tup.n])
        if tup.n % 6 == 2:
            self.emit([tup.wrong, 1])
        self.emit([tup.n, tup.m])


class Closures(BasicBolt):
    outputs = ("a", "b")

    def execute(self, tup: Tuple) -> None:
        later: Callable[[int], int] = lambda extra: tup.n + extra  # noqa: E731
        largest = max(range(3), key=lambda one: -one * tup.m)
        self.emit([later(largest), dict.fromkeys("xy", tup.m)])


class Reassigning(BasicBolt):
    outputs = ("a", "b")

    def execute(self, tup: Tuple) -> None:
        n = tup.n
        n += 1
        (m := tup.m)
        del m
        self.emit([n, (n := n + 1)])


class Inherited(Plain):
    def execute(self, tup: Tuple) -> None:
        if tup.n % 2:
            super().execute(tup)
        self.emit([tup.n, "own"])


class Silent(BasicBolt):
    def __init__(self) -> None:
        self.total = 0

    def execute(self, tup: Tuple) -> None:
        self.total += tup.n


class Counting(BasicBolt):
    outputs = ("a",)

    def __init__(self) -> None:
        self.count = 0

    def execute(self, tup: Tuple) -> None:
        self.count += 1
        self.emit([self.count])


class Looking(BasicBolt):
    outputs = ("a",)

    def execute(self, tup: Tuple) -> None:
        here = locals()
        self.emit([sorted(name for name in here if name != "here")])


class Returning(BasicBolt):
    outputs = ("a",)

    def execute(self, tup: Tuple) -> Any:
        match tup.n % 3:
            case 0:
                return self.emit([0])
            case 1:
                self.emit([1])
            case _:
                self.emit([f"{tup.n=} {tup.m:>3}"])
        return None


class Own(BasicBolt):
    """Emits by a method of its own."""

    outputs = ("a",)

    def emit(self, values: Any, **options: Any) -> Any:
        return super().emit([doubled(values[0])], **options)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n])


class Swapping(BasicBolt):
    outputs = ("a",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.execute = self.other  # type: ignore[method-assign]

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n])

    def other(self, tup: Tuple) -> None:
        self.emit([-tup.n])


class Alternating(BasicBolt):
    """A state machine: each state is an `execute` of its own."""

    outputs = ("a",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n])
        self.execute = self.odd  # type: ignore[method-assign]

    def odd(self, tup: Tuple) -> None:
        self.emit([-tup.n])
        self.become("execute" if tup.n % 3 else "odd")

    def become(self, name: str) -> None:
        setattr(self, "execute", getattr(type(self), name).__get__(self))  # noqa: B010


class Muted(BasicBolt):
    """Replaces its emit on the way, in a method that `execute` calls."""

    outputs = ("a",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.n])
        if tup.n % 5 == 3:
            self.mute()

    def mute(self) -> None:
        self.emit = self.emit_nothing  # type: ignore[method-assign]

    def emit_nothing(self, values: Any, **options: Any) -> None:
        del values, options


class CallingModules(BasicBolt):
    outputs = ("a", "b")

    def execute(self, tup: Tuple) -> None:
        self.emit([json.loads(f"[{tup.n}]"), re_module.findall("[1-3]", str(tup.m))])


class Changing(BasicBolt):
    """Changes what it has emitted, which a check finds."""

    outputs = ("a", "b")

    def execute(self, tup: Tuple) -> None:
        row = [tup.n]
        self.emit([row, tup.m])
        self.emit((tup.m, [tup.n]))
        if tup.n % 11 == 5:
            row.append(tup.m)


class Bound:
    """A value that cannot travel."""

    def __repr__(self) -> str:
        return "Bound()"

    def __reduce__(self) -> str:
        raise TypeError("bound to its process")


class Refused(BasicBolt):
    """Emits values that cannot travel, and catches the error if there is one at once."""

    outputs = ("a", "b", "c")

    def execute(self, tup: Tuple) -> None:
        try:
            self.emit([tup.n, tup.m if tup.n % 7 else Bound(), tup.m])
        except EmitError:
            self.emit([tup.n, "refused", 0])


def enclosed(offset: int) -> type[BasicBolt]:
    class Enclosed(BasicBolt):
        outputs = ("a",)

        def execute(self, tup: Tuple) -> None:
            self.emit([tup.n + offset])

    return Enclosed


@bolt(outputs=("a", "b"))
def yielding(tup: Tuple) -> Iterator[Any]:
    for one in range(tup.n % 3):
        yield [one, tup.m]
    if tup.m % 5 == 4:
        raise ValueError("four")
    yield (tup.n, tup["m"])


@bolt(outputs=("a",))
def yielding_names(tup: Tuple) -> Iterator[list[Any]]:
    row = [tup.n]
    yield row
    yield [tup.m]


@bolt(outputs=("a",))
def by_collector(tup: Tuple, collector: Any) -> None:
    collector.emit([tup.n])


BASIC: dict[str, Callable[[], BasicBolt]] = {
    one.__name__: one
    for one in (
        Plain, OneValue, Unpacking, UnpackingTooFew, Local, Failing,
        Catching, Beside, Streams, KeepsTuples, Wrong, Closures,
        Reassigning, Inherited, Silent, Counting, Looking, Returning, Own, Swapping,
        Alternating, Muted, CallingModules, Changing, Refused,
    )
} | {
    "enclosed": lambda: enclosed(100)(),
    "yielding": lambda: yielding,
    "yielding_names": lambda: yielding_names,
    "by_collector": lambda: by_collector,
}  # fmt: skip

BASIC_REWRITTEN = {
    "Plain", "OneValue", "Unpacking", "UnpackingTooFew", "Local", "Failing",
    "Catching", "Beside", "Streams", "Closures",
    "Reassigning", "Silent", "Counting", "Returning", "enclosed", "yielding",
    "CallingModules", "Changing", "Refused",
}  # fmt: skip
"""Those that can be: others pass the tuple on, or their code looks at itself or replaces itself."""
