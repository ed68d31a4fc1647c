"""`CoGroup`: the values of several streams side by side, by key, in windows or over everything.

`keep` says what is kept of each stream: "all" values, as a list; the "first" or the "last" one; or
the "product", every combination as a result of its own. `emit` says when: "final", when the window
or the input ends; "complete", as soon as every stream has something, which then begins anew;
"running", at every value. In a window, values count in the order of their times, so that results
come when it ends; without one, in the order of their arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from topo.components import OutputFieldsDeclarer
from topo.errors import JoinError, Problem, did_you_mean
from topo.event_time import BEFORE_ALL, EventTime
from topo.joins.session_rows import KeyedRowsOperator, SessionRows
from topo.operators.inputs import (
    KeyedInput,
    StreamName,
    check_widths,
    input_problems,
    key_columns,
    missing_fields,
    parse_inputs,
    unhashable,
)
from topo.operators.results import WindowOperator
from topo.operators.time import ARRIVAL
from topo.storage.namespaces import SavedNamespaces
from topo.timed import Clock, InputFields, Operator, OperatorTask, Rows, TimedBolt
from topo.tuples import Fields
from topo.windows.assigners import Session, Sessions, WindowSpec, check_joinable

KEEPS = ("all", "first", "last", "product")
EMITS = ("final", "complete", "running")


class CoGroup(TimedBolt):
    """A bolt that puts the values of equal keys of several inputs side by side.

    It emits the key, a field for each input, named as its component (or stream), and `start` and
    `end` of the window. A field has a list of values, or one value, None if there is none; `values`
    names the field of an input that is the value, otherwise it is a dict of all of them.
    With `together`, one field of that name has a tuple of all inputs' groups.
    """

    def __init__(
        self,
        inputs: Sequence[StreamName],
        *,
        on: Any,
        window: WindowSpec | None = None,
        time: EventTime | None = None,
        keep: str = "all",
        emit: str = "final",
        values: str | Mapping[str, str] | None = None,
        together: str | None = None,
        result_ts: str | None = None,
        late_stream: str | None = "late",
    ) -> None:
        if isinstance(inputs, str) or len(inputs) < 2:
            raise JoinError(
                f"inputs is {inputs!r}; it takes two components or more",
                hint='write inputs=["views", "clicks"]',
            )
        named = {f"input {number}": given for number, given in enumerate(inputs, 1)}
        self.sides = parse_inputs(named, on)
        check_widths(self.sides)
        check_modes(keep, emit)
        if window is not None:
            check_joinable(window)
            window.in_ticks(time or ARRIVAL)
        self.window = window
        self.event_time = time
        self.keep = keep
        self.emit_when = emit
        self.values = values
        self.together = together
        self.result_ts = result_ts
        self.late_stream = late_stream if window is not None else None

    @property
    def names(self) -> list[str]:
        """The output fields of the inputs."""
        components = [one.component for one in self.sides]
        return [
            one.component if components.count(one.component) == 1 else one.stream
            for one in self.sides
        ]

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        names = [*self.sides[0].key, *([self.together] if self.together else self.names)]
        if self.window is not None and not self.together:
            names += ["start", "end"]
        if self.result_ts is not None:
            names.append(self.result_ts)
        declarer.declare(Fields(*names))
        if self.late_stream is not None:
            declarer.declare_stream(self.late_stream, "late_tuple")

    def result_time(self, stream: str) -> tuple[str, int] | None:
        if stream == "default" and self.result_ts is not None:
            return self.result_ts, 0
        return None

    def value_field(self, one: KeyedInput) -> str | None:
        """Return the field of an input that is the value; None for all of them."""
        if isinstance(self.values, Mapping):
            return self.values.get(one.component)
        return self.values

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterator[Problem]:
        yield from input_problems(self.sides, where, inputs, tasks)
        for one in self.sides:
            read, name = one.found_in(inputs), self.value_field(one)
            if read is not None and name is not None:
                yield from missing_fields(where, read, [name], "join-value", "the value ")

    def result_delay(self) -> int:
        # A session is complete a tick after its end, and its results have its last time.
        return 1 if isinstance(self.window, Session) else 0

    def operator(self, task: OperatorTask) -> Operator:
        return WindowedGroups(self, task) if self.window is not None else RunningGroups(self, task)


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


class _GroupOperator(WindowOperator):
    """The base of both operators: it reads keys and values, and makes results."""

    def __init__(self, bolt: CoGroup, task: OperatorTask) -> None:
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

    def __init__(self, bolt: CoGroup, task: OperatorTask) -> None:
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

    def __init__(self, bolt: CoGroup, task: OperatorTask) -> None:
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
