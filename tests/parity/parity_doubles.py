"""The components that the cases of topologies in YAML name."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from topo import BasicBolt, CustomStreamGrouping, Spout, Stream, TopologyBuilder, Tuple


class S(Spout):
    outputs = {"default": ("word", "n"), "other": ("a",), "direct": Stream("d", direct=True)}

    def next_tuple(self) -> None:
        """Emit nothing."""


class B(BasicBolt):
    outputs = ("word", "n")

    def __init__(self, a: Any = None, b: Any = None) -> None:
        self.a, self.b = a, b
        self.pub: Any = None
        self.set: Any = None
        self.calls: list[str] = []

    @classmethod
    def make(cls, o: str = "") -> B:
        return cls(f"made {o}".strip())

    def set_set(self, value: Any) -> None:
        self.set = value

    def set_num(self, n: int) -> None:
        self.calls.append(f"setNum {n}")

    def with_x(self, x: Any) -> B:
        self.calls.append(f"withX {x}")
        return self

    def with_two(self, x: Any, y: Any) -> None:
        self.calls.append(f"withTwo {x} {y}")

    def with_none(self) -> None:
        self.calls.append("withNone")

    def execute(self, tup: Tuple) -> None:
        """Take the tuple."""


def Text(text: str) -> str:
    return text


class T:
    def get_topology(self, config: dict[str, Any]) -> TopologyBuilder:
        builder = TopologyBuilder()
        builder.set_spout("s", S())
        builder.set_bolt("b", B(config.get("k"))).shuffle_grouping("s")
        return builder

    def other(self, config: dict[str, Any]) -> TopologyBuilder:
        builder = TopologyBuilder()
        builder.set_spout("s2", S())
        return builder


class NGrouping(CustomStreamGrouping):
    def __init__(self, n: int) -> None:
        self.n = n
        self.tasks: Sequence[int] = ()

    def prepare(self, context: Any, stream: Any, target_tasks: Sequence[int]) -> None:
        self.tasks = target_tasks

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        return list(self.tasks[: self.n])


class Units(Enum):
    KB = 1
    MB = 2


class WithUnit(BasicBolt):
    def __init__(self, count: float, unit: Units) -> None:
        self.count, self.unit = count, unit

    def execute(self, tup: Tuple) -> None:
        """Take the tuple."""


class H:
    """Stands for any class."""
