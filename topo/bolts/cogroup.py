"""`CoGroup`: the values of several streams side by side, by key, in windows or over everything.

`keep` says what is kept of each stream: "all" values, as a list; the "first" or the "last" one; or
the "product", every combination as a result of its own. `emit` says when: "final", when the window
or the input ends; "complete", as soon as every stream has something, which then begins anew;
"running", at every value. In a window, values count in the order of their times, so that results
come when it ends; without one, in the order of their arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from topo.bolts.keyed_join import KeyedJoin
from topo.errors import JoinError, Problem
from topo.event_time import EventTime
from topo.joins.cogroup import RunningGroups, WindowedGroups, check_modes
from topo.operators.inputs import KeyedInput, StreamName, missing_fields, untimed_problems
from topo.operators.time import ARRIVAL
from topo.timed import InputFields, Operator, OperatorTask
from topo.windows.assigners import Session, WindowSpec, check_joinable


class CoGroup(KeyedJoin):
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
        named = {f"input {number}": name for number, name in enumerate(inputs, 1)}
        super().__init__(named, on, time, result_ts, late_stream if window is not None else None)
        check_modes(keep, emit)
        if window is not None:
            check_joinable(window)
            window.in_ticks(time or ARRIVAL)
        self.window = window
        self.keep = keep
        self.emit_when = emit
        self.values = values
        self.together = together

    @property
    def names(self) -> list[str]:
        """The output fields of the inputs."""
        components = [side.component for side in self.sides]
        return [
            side.component if components.count(side.component) == 1 else side.stream
            for side in self.sides
        ]

    def result_fields(self) -> Sequence[str]:
        names = [*self.sides[0].key, *([self.together] if self.together else self.names)]
        if self.window is not None and not self.together:
            names += ["start", "end"]
        if self.result_ts is not None:
            names.append(self.result_ts)
        return names

    def value_field(self, side: KeyedInput) -> str | None:
        """Return the field of an input that is the value; None for all of them."""
        if isinstance(self.values, Mapping):
            return self.values.get(side.component)
        return self.values

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterator[Problem]:
        yield from super().problems(where, inputs, tasks, outputs)
        if self.window is not None:
            hint = "look it up in a table"
            yield from untimed_problems(self.event_time, where, "groups", inputs, hint)
        for side in self.sides:
            read, name = side.found_in(inputs), self.value_field(side)
            if read is not None and name is not None:
                yield from missing_fields(where, read, [name], "join-value", "the value ")

    def result_delay(self) -> int:
        # A session is complete a tick after its end, and its results have its last time.
        return 1 if isinstance(self.window, Session) else 0

    def operator(self, task: OperatorTask) -> Operator:
        return WindowedGroups(self, task) if self.window is not None else RunningGroups(self, task)
