"""The one table of groupings: what each is called, whether it stays in its slot, how it is made.

A new grouping is a Grouper in `groupers.py`, a line here, and the builder's method that names it.
The table is read where topologies are built, which needs no numpy: groupers load when one is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from topo.errors import InvalidTopologyError, Problem, did_you_mean

if TYPE_CHECKING:
    from topo.routing.groupers import Grouper


@dataclass(frozen=True)
class Wiring:
    """The facts about a stream that a grouping may use to deal its tuples."""

    tasks: Sequence[int]
    """The tasks of the bolt that reads; of a local grouping those in the slot, if there are any."""
    positions: Sequence[int] = ()
    """The positions of the fields it groups by."""
    start: int = 0
    """The number of the producing task in its component."""
    choose: Callable[[list[Any]], Iterable[int]] | None = None
    """The user's choice, and what it is called."""
    name: str = ""


Make: TypeAlias = Callable[[Any, Wiring], "Grouper"]


@dataclass(frozen=True)
class Grouping:
    """One line of the table; `make` gets the module of groupers."""

    kind: str
    make: Make
    is_local: bool = False
    is_aligned: bool = False
    """Task i of the bolt reads what task i of its producer emits; they are equally many."""
    is_by_value: bool = False
    """Equal values go to the same task, which has what is kept of them."""

    def grouper(self, wiring: Wiring) -> Grouper:
        """Make the grouper of one producing task and one reading bolt."""
        return self.make(importlib.import_module("topo.routing.groupers"), wiring)


def _one_task_or(make: Make) -> Make:
    """Deal everything to the only task, if there is but one."""
    return lambda g, w: g.OneTask(w.tasks) if len(w.tasks) == 1 else make(g, w)


def _by(name: str) -> Make:
    """Deal by fields; tuples that are equal in no field all go to one task."""

    def make(g: Any, w: Wiring) -> Grouper:
        made: Grouper = (
            getattr(g, name)(w.tasks, w.positions) if w.positions else g.OneTask(w.tasks)
        )
        return made

    return _one_task_or(make)


def _same_task(g: Any, w: Wiring) -> Grouper:
    made: Grouper = g.OneTask([w.tasks[w.start % len(w.tasks)]])
    return made


_SHUFFLE = _one_task_or(lambda g, w: g.Shuffle(w.tasks, start=w.start))

GROUPINGS = {
    grouping.kind: grouping
    for grouping in (
        Grouping("shuffle", _SHUFFLE),
        Grouping("fields", _by("ByFields"), is_by_value=True),
        Grouping("all", lambda g, w: g.EveryTask(w.tasks)),
        Grouping("global", lambda g, w: g.OneTask(w.tasks), is_by_value=True),
        Grouping("direct", lambda g, w: g.Direct(w.tasks)),
        Grouping("local_or_shuffle", _SHUFFLE, is_local=True),
        Grouping("none", _SHUFFLE, is_local=True),
        Grouping("same_task", _same_task, is_local=True, is_aligned=True, is_by_value=True),
        Grouping("partial_key", _by("PartialKey"), is_by_value=True),
        Grouping("custom", lambda g, w: g.Custom(w.tasks, w.choose, w.name)),
    )
}


def grouping_named(kind: str) -> Grouping:
    """Return the line of this kind; raise an error for any other kind."""
    found = GROUPINGS.get(kind)
    if found is None:
        problem = Problem(
            "unknown-grouping",
            "a grouping",
            f"there is no grouping {kind!r}; there are {', '.join(GROUPINGS)}",
            did_you_mean(kind, GROUPINGS) or "was the topology built by a later topo?",
        )
        raise InvalidTopologyError([problem])
    return found
