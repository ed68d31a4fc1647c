"""The operators of a cogroup: what a value changes by key, and what is a result then.

In a window, values count in the order of their times, so that results come when it ends; without
one, in the order of their arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Protocol

from topo.errors import JoinError, did_you_mean
from topo.event_time import BEFORE_ALL, EventTime
from topo.joins.session_rows import KeyedRowsOperator, SessionRows
from topo.operators.inputs import (
    KeyedInput,
    key_columns,
    unhashable,
)
from topo.operators.results import WindowOperator
from topo.storage.namespaces import SavedNamespaces
from topo.timed import Clock, OperatorTask, Rows
from topo.windows.assigners import Sessions, WindowSpec

KEEPS = ("all", "first", "last", "product")
EMITS = ("final", "complete", "running")


def check_modes(keep: Any, emit: Any) -> None:
    """Raise a JoinError if these are no modes of a cogroup."""
    for name, value, known in (("keep", keep, KEEPS), ("emit", emit, EMITS)):
        if value not in known:
            hint = did_you_mean(value, known) if isinstance(value, str) else ""
            words = ", ".join(map(repr, known))
            raise JoinError(f"cogroup: {name} is {value!r}; it must be one of {words}", hint=hint)


class Groups:
    """The rule of a cogroup: what a value changes, and what is a result then."""

    def __init__(self, width: int, keep: str, emit: str) -> None:
        self._width = width
        self._keep = keep
        self._emit = emit

    def new(self) -> list[list[Any]]:
        """Return the groups of no value."""
        return [[] for _ in range(self._width)]

    def add(self, groups: list[list[Any]], side: int, value: Any) -> list[tuple[Any, ...]]:
        """Add a value of one stream; return the results that this gives."""
        own = groups[side]
        if self._keep == "last":
            own[:] = [value]
        elif self._keep != "first" or not own:
            own.append(value)
        if self._emit == "running":
            return self.results(groups)
        if self._emit == "complete" and all(groups):
            found = self.results(groups)
            for one in groups:
                one.clear()
            return found
        return []

    def end(self, groups: list[list[Any]]) -> list[tuple[Any, ...]]:
        """Return the results at the end."""
        return self.results(groups) if self._emit == "final" else []

    def results(self, groups: list[list[Any]]) -> list[tuple[Any, ...]]:
        """Return what the groups are as results."""
        if self._keep == "all":
            return [tuple(list(own) for own in groups)]
        return list(product(*[own or [None] for own in groups]))


class GroupDeclaration(Protocol):
    """What a bolt declares of the groups of several inputs: `CoGroup`."""

    sides: list[KeyedInput]
    window: WindowSpec | None
    event_time: EventTime | None
    keep: str
    emit_when: str
    together: str | None
    result_ts: str | None

    def value_field(self, read: KeyedInput, /) -> str | None:
        """Return the field of an input that is the value; None for all of them."""


class _GroupOperator(WindowOperator):
    """The base of both operators: it reads keys and values, and makes results."""

    def __init__(self, bolt: GroupDeclaration, task: OperatorTask) -> None:
        super().__init__(task, bolt.event_time)
        self._bolt = bolt
        self._rule = Groups(len(bolt.sides), bolt.keep, bolt.emit_when)
        self._single = len(bolt.sides[0].key) == 1

    def rows(self, rows: Rows) -> None:
        if not rows.count:
            return
        late = []
        times = self._clock.times(rows, self._task.now())
        for side, one in enumerate(self._bolt.sides):
            if not one.is_of(rows.component, rows.stream):
                continue
            keys = key_columns(rows.columns, rows.fields, one.key)
            values = self._values(rows, one)
            for place, (key, ts, value) in enumerate(zip(keys, times, values, strict=True)):
                try:
                    if ts is None or not self._take(side, key, ts, value, rows, place):
                        late.append(place)
                except TypeError as error:
                    raise unhashable(self._task.owner, keys) or error from None
        self._flush()
        if late:
            self._task.set_aside(rows, late)

    def _values(self, rows: Rows, one: KeyedInput) -> Sequence[Any]:
        name = self._bolt.value_field(one)
        if name is not None:
            return rows.columns[rows.fields.index(name)]
        columns = zip(*rows.columns, strict=True)
        return [dict(zip(rows.fields, values, strict=True)) for values in columns]

    def _take(self, side: int, key: Any, ts: int, value: Any, rows: Rows, place: int) -> bool:
        """Take one value in; return False if it is late."""
        raise NotImplementedError

    def _alone(self, side: int, key: Any, value: Any, window: Any, ts: int) -> None:
        """Report a value whose key equals no other."""
        groups = self._rule.new()
        found = self._rule.add(groups, side, value) + self._rule.end(groups)
        self._report(key, found, window, ts)

    def _report(
        self, key: Any, found: Iterable[tuple[Any, ...]], window: tuple[int, int] | None, ts: int
    ) -> None:
        bolt, shown = self._bolt, self._time.shown
        if self._single:
            keys = [key]
        else:
            keys = [None] * len(bolt.sides[0].key) if key is None else list(key)
        bounds = [] if window is None or bolt.together else [shown(window[0]), shown(window[1])]
        tail = [] if bolt.result_ts is None else [shown(ts)]
        for groups in found:
            own = [groups] if bolt.together else list(groups)
            self._out.append([*keys, *own, *bounds, *tail])


class WindowedGroups(KeyedRowsOperator, _GroupOperator):
    """The groups of one task, in windows."""

    def __init__(self, bolt: GroupDeclaration, task: OperatorTask) -> None:
        super().__init__(bolt, task)
        assert bolt.window is not None, "else there is another operator"
        self._assigner = bolt.window.in_ticks(self._time)
        self._rows = SessionRows(self._assigner, self._time, task.owner, self._ended)

    def _take(self, side: int, key: Any, ts: int, value: Any, rows: Rows, place: int) -> bool:
        assigner = self._assigner
        is_session = isinstance(assigner, Sessions)
        dynamic = isinstance(assigner, Sessions) and assigner.dynamic is not None
        tup = rows.tuple(place) if dynamic else None
        if key is not None:
            return self._rows.add(key, ts, side, value, self._task.now(), tup)
        windows = [assigner.session(ts, tup)] if is_session else assigner.assign(ts)  # type: ignore[union-attr]
        live = [w for w in windows if assigner.complete_at(w[1]) > self._watermark]
        for window in live:
            self._alone(side, key, value, window, window[1] - 1)
        return bool(live) or not windows

    def _ended(self, key: Any, window: tuple[int, int], items: Sequence[Any]) -> None:
        groups = self._rule.new()
        found = []
        for _, _, side, value in items:
            found += self._rule.add(groups, side, value)
        self._report(key, [*found, *self._rule.end(groups)], window, window[1] - 1)


_GROUPS = 0


class RunningGroups(_GroupOperator):
    """The groups of one task over everything so far."""

    def __init__(self, bolt: GroupDeclaration, task: OperatorTask) -> None:
        super().__init__(bolt, task)
        self._keys: dict[Any, tuple[int, list[list[Any]]]] = {}
        self._saved = SavedNamespaces("groups", task.owner)

    def _take(self, side: int, key: Any, ts: int, value: Any, rows: Rows, place: int) -> bool:
        if key is None:
            self._alone(side, key, value, None, ts)
            return True
        latest, groups = self._keys.get(key) or (BEFORE_ALL, self._rule.new())
        latest = max(latest, ts)
        self._report(key, self._rule.add(groups, side, value), None, latest)
        if any(groups):
            self._keys[key] = latest, groups
        else:
            self._keys.pop(key, None)
        self._saved.touch(_GROUPS, key)
        self.state_rows = len(self._keys)
        return True

    def begin(self, clock: Clock) -> None:
        """Nothing is due before the end of the input."""

    def advance(self, clock: Clock) -> int:
        if not clock.ended:
            return 0
        for key, (latest, groups) in self._keys.items():
            self._report(key, self._rule.end(groups), None, latest)
            self._saved.touch(_GROUPS, key)
        self._keys = {}
        self.state_rows = 0
        return self._flush()

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self._keys = self._saved.load(saved).get(_GROUPS, {})
        self.state_rows = len(self._keys)

    def save(self, changes: Any) -> None:
        self._saved.save({_GROUPS: self._keys}, changes)
