"""The tuples that windows with sessions, triggers and lateness hold, by their numbers.

The tuples themselves wait as columns, each saved once (`rows`). Which of them a window holds is
not written down one by one, since a batch would then save each changed window whole. It follows
from what is saved of a tuple and of the window: a tuple is in the aligned windows of its time that
there are, between the numbers `since` and `until`; and in the session whose name was written beside
it, in place of its time. Sessions that join share their names.

A record of an own time would not do for sessions: one that begins anew, or that late tuples make
longer, may cover times at which a session that is over had tuples.
Checkpoints name `Held`, so that the module cannot be called otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from topo.errors import CheckpointError
from topo.event_time import AFTER_ALL
from topo.operators.aggregates.accumulators import Accumulators
from topo.operators.aggregates.combiners import Collect
from topo.storage.namespaces import SavedNamespaces
from topo.windows.assigners import Aligned, Sessions
from topo.windows.general import Assigner, KeyedWindows
from topo.windows.records import OpenWindow, Pane, ReportRules
from topo.windows.rows import WaitingRows
from topo.windows.triggers import Facts, Trigger


class Held:
    """The numbers of the tuples that one window holds, and the bounds by which they are found."""

    __slots__ = ("name", "names", "new", "numbers", "since", "until")

    def __init__(self, name: int, names: dict[int, int], since: int, until: int) -> None:
        self.name = name
        """The mark written beside the tuples of a session; 0 in aligned windows."""
        self.names = names
        """That name, and those of sessions that have joined: {name: first number that is new}."""
        self.since = since
        self.until = until
        self.numbers: list[int] = []
        """Of the tuples that were in a pane before."""
        self.new: list[int] = []

    def __reduce__(self) -> tuple[object, ...]:
        return Held, (self.name, self.names, self.since, self.until)

    @property
    def highest(self) -> int:
        """The highest number that is a bound."""
        until = self.until if self.until < AFTER_ALL else 0
        return max(self.since, until, *self.names.values())

    def adopt(self, name: int, number: int) -> None:
        """Hold a tuple again, after a restart; in aligned windows its name is 0."""
        (self.new if number >= self.names[name] else self.numbers).append(number)

    def report(self, bound: int) -> None:
        """Note that all tuples, those before the bound, were in a pane."""
        self.numbers += self.new
        self.new = []
        self.names = dict.fromkeys(self.names, bound)


class Holding(Accumulators):
    """The cells of windows that hold tuples: a `Held` for each window."""

    def __init__(self, waiting: WaitingRows, *, by_name: bool) -> None:
        super().__init__({"tuples": Collect()})
        self._waiting = waiting
        self._by_name = by_name
        self.next_name = 1
        self.sessions: dict[int, Held] = {}
        """Of each name, what has its tuples."""
        self.number = 0
        """The number of the tuple that is being added, or else of the next one."""
        self.taken = 0
        """How many windows have it."""
        self.name = 0
        """The name of the session that took a tuple last."""

    def new(self) -> Held:
        if not self._by_name:
            return Held(0, {0: 0}, 0, AFTER_ALL)
        name, self.next_name = self.next_name, self.next_name + 1
        held = self.sessions[name] = Held(name, {name: 0}, 0, AFTER_ALL)
        return held

    def add(self, cell: Held, values: Sequence[Any]) -> Held:
        cell.new.append(self.number)
        self.taken += 1
        self.name = cell.name
        return cell

    def merge(self, a: Held, b: Held) -> Held:
        held = Held(a.name, {**a.names, **b.names}, 0, AFTER_ALL)
        held.numbers, held.new = a.numbers + b.numbers, a.new + b.new
        self.sessions.update(dict.fromkeys(held.names, held))
        return held

    def results(self, cell: Held) -> list[Any]:
        return [cell]

    def named(self, cell: Held) -> dict[str, Any]:
        return {"tuples": self._waiting.unread(cell.numbers + cell.new).read()}

    def bound(self, cell: Held) -> int:
        """Return the first number that a tuple of this cell does not have yet."""
        own = cell.new or cell.numbers
        return self.number + 1 if own and own[-1] == self.number else self.number

    def restore(self, held: Held) -> None:
        """Know what was saved of a window."""
        if not isinstance(held, Held):
            raise CheckpointError(
                "the windows of this checkpoint were saved by an earlier topo, with all tuples",
                hint="start it with another checkpoint",
            )
        if not self._by_name:
            return
        self.sessions.update(dict.fromkeys(held.names, held))
        self.next_name = max(self.next_name, *(name + 1 for name in held.names))


class HoldingWindows(KeyedWindows):
    """Windows that hold tuples, and let those go that no window has any more."""

    def __init__(
        self, assigner: Assigner, cells: Holding, trigger: Trigger, rules: ReportRules,
        emit: Callable[[Pane], None], saved: SavedNamespaces,
    ) -> None:  # fmt: skip
        super().__init__(assigner, cells, trigger, rules, emit, saved.touch, saved.drop)
        self._holding = cells
        self._several: dict[int, int] = {}  # of tuples in more than one window: in how many
        self._left: list[int] = []

    def note_several(self, number: int, times: int) -> None:
        """Note that a tuple is in more than one window."""
        self._several[number] = times

    def let_go(self) -> list[int]:
        """Return the numbers of tuples that have left their last window since the last call."""
        left, self._left = self._left, []
        several = self._several
        if not several:
            return left
        gone = []
        for number in left:
            times = several.get(number)
            if times is None:
                gone.append(number)
            elif times == 2:
                del several[number]
            else:
                several[number] = times - 1
        return gone

    # -- what is saved ------------------------------------------------------------------------

    def has_still(self, key: Any, mark: int, number: int) -> bool:
        """Return True if a window has a tuple, by what is saved of it."""
        return bool(self._holders(key, mark, number))

    def adopt(self, key: Any, mark: int, number: int) -> bool:
        """Hold a tuple that was saved in the windows that have it; return False if none has."""
        holders = self._holders(key, mark, number)
        if isinstance(self._assigner, Sessions):
            self._holding.next_name = max(self._holding.next_name, mark + 1)
        for held in holders:
            held.adopt(mark if held.name else 0, number)
        if len(holders) > 1:
            self._several[number] = len(holders)
        return bool(holders)

    def _holders(self, key: Any, mark: int, number: int) -> list[Held]:
        if isinstance(self._assigner, Sessions):
            held = self._holding.sessions.get(mark)
            return [] if held is None else [held]
        assert isinstance(self._assigner, Aligned)
        records = [self.tables.get(one[0], {}).get(key) for one in self._assigner.assign(mark)]
        cells = [record.cell for record in records if record is not None]
        return [held for held in cells if held.since <= number < held.until]

    # -- tuples that leave ---------------------------------------------------------------------

    def _release(self, held: Held) -> None:
        self._left += held.numbers
        self._left += held.new
        for name in held.names:
            self._holding.sessions.pop(name, None)

    def _send(self, record: OpenWindow, timing: str, *, last: bool) -> None:
        held = record.cell
        super()._send(record, timing, last=last)
        bound = self._holding.bound(held)
        if record.cell is held:
            held.report(bound)
        else:  # begun anew (mode discard)
            record.cell.since = bound
            self._release(held)

    def _after(self, record: OpenWindow, facts: Facts) -> None:
        super()._after(record, facts)
        if record.finished:
            record.cell.until = self._holding.bound(record.cell)

    def _forget(self, record: OpenWindow) -> None:
        super()._forget(record)
        self._release(record.cell)
