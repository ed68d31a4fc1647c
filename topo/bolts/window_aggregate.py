"""`WindowAggregate`: aggregates by key in windows, with no user code per tuple."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from topo.components import OutputFieldsDeclarer
from topo.errors import Problem, WindowError
from topo.event_time import Duration, EventTime
from topo.operators.aggregates.combiners import Combiner
from topo.operators.aggregates.inputs import AggregateInputs, Bound, check_aggregates
from topo.operators.inputs import key_fields, key_problems, missing_fields, untimed_problems
from topo.operators.time import ARRIVAL, check_time
from topo.timed import InputFields, Operator, OperatorTask, TimedBolt
from topo.tuples import Fields
from topo.windows.aggregate_operator import CELLS, AggregateOperator
from topo.windows.assigners import (
    Global,
    PerEvent,
    Session,
    Sliding,
    WindowSpec,
    check_spec,
)
from topo.windows.records import UNBOUNDED, ReportRules
from topo.windows.triggers import AtWatermark, Trigger, check_trigger, prepared

_MOST_PANES = 100_000
"""A day by a second has 86,400."""


class WindowAggregate(TimedBolt):
    """A bolt that reports aggregates of its tuples by key and window.

    It emits the key's fields, `start` and `end` of the window and the aggregates by their names.
    If a window may report several times (`trigger`, `allowed_lateness`), also `timing` ("early",
    "on_time", "late") and `pane`, its number; in mode "retract", before them, `change`: "-" takes
    a pane back that "+" has reported. Without `time`, windows are by arrival, by the batch's clock.

    `allowed_lateness` keeps windows for tuples that come after their end ("unbounded": for ever).
    `on_time="if_new"` sends no pane at the end that says nothing new; `final="always"` sends a
    last one though it says nothing new. With `result_ts` "earliest" or "latest", the output has
    the field `ts`, the time of the pane's earliest or latest tuple. With `emit="changed"` a sliding
    window reports the keys of which a tuple has come or left since the window before it.
    """

    def __init__(
        self,
        *,
        window: WindowSpec,
        aggregates: Mapping[str, Combiner | Bound],
        key: str | Iterable[str] | None = None,
        time: EventTime | None = None,
        trigger: Trigger | None = None,
        mode: str = "accumulate",
        allowed_lateness: Duration | str = 0,
        on_time: str = "always",
        final: str = "if_new",
        result_ts: str = "end",
        late_stream: str | None = None,
        emit: str = "all",
    ) -> None:
        check_spec(window)
        if trigger is not None:
            check_trigger(trigger)
        check_time(time, WindowError)
        if late_stream is not None and time is None:
            raise WindowError(
                "a late stream needs event time: by arrival, nothing is late",
                hint='give time=EventTime("ts")',
            )
        self.window = window
        self.aggregates: Mapping[str, Bound] = check_aggregates(aggregates)
        self.key = key_fields(key)
        self.event_time = time
        self.trigger = trigger
        self.late_stream = late_stream
        clock = time or ARRIVAL
        unbounded = allowed_lateness == UNBOUNDED
        self.rules = ReportRules(
            mode,
            None if unbounded else clock.ticks(allowed_lateness, "allowed_lateness", 0),  # type: ignore[arg-type]
            on_time,
            final,
            result_ts,
        )
        self.reports_often = trigger is not None or self.rules.lateness != 0
        self.emit_changed = _emits_changed(emit)
        window.in_ticks(clock)
        whole = [n for n, bound in self.aggregates.items() if not bound.combiner.mergeable]
        if whole and isinstance(window, Session | PerEvent):
            why = "sessions join" if isinstance(window, Session) else "windows share their tuples"
            raise WindowError(
                f"{why}, and the aggregate {whole[0]!r} cannot: its combiner has no merge",
                hint=f"override {type(self.aggregates[whole[0]].combiner).__name__}.merge",
            )
        if self.emit_changed and (
            self.reports_often or whole or mode == "retract" or not isinstance(window, Sliding)
        ):
            raise WindowError(
                'emit="changed" goes with sliding windows that report once, of aggregates that '
                "have a merge",
                hint="take it away, or the trigger, the allowed lateness and mode='retract'",
            )
        prepared(trigger or AtWatermark(), clock)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        names = [*self.key, "start", "end", *self.aggregates]
        if self.rules.mode == "retract":
            names.append("change")
        if self.reports_often:
            names += ["timing", "pane"]
        if self.rules.result_ts != "end":
            names.append("ts")
        declarer.declare(Fields(*names))
        if self.late_stream is not None:
            declarer.declare_stream(self.late_stream, "late_tuple")

    def result_time(self, stream: str) -> tuple[str, int] | None:
        if stream != "default" or self.event_time is None:
            return None
        if self.rules.result_ts != "end":
            return "ts", 0
        return "end", 0 if isinstance(self.window, PerEvent) else -1

    def result_delay(self) -> int:
        # A session is complete a tick after its end, and its results have its last time.
        return 1 if isinstance(self.window, Session) else 0

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterable[Problem]:
        for read in inputs:
            yield from missing_fields(where, read, self.key, "window-key")
            for bound in self.aggregates.values():
                try:
                    AggregateInputs.of(bound, read.fields, f"{read.component!r}")
                except WindowError as error:
                    yield Problem("window-field", where, f"{where}: {error.message}", error.hint)
            yield from key_problems(self.key, where, read, tasks)
        hint = "read it in another bolt"
        yield from untimed_problems(self.event_time, where, "aggregates", inputs, hint)

    def records_by_key(self, inputs: Sequence[InputFields]) -> Sequence[str]:
        by_key = all(tuple(read.grouping_fields) == tuple(self.key) for read in inputs)
        # A window per event has the points of all keys of its task under numbers.
        return (CELLS,) if by_key and self.key and not isinstance(self.window, PerEvent) else ()

    def warnings(self, where: str, is_finite: bool) -> Iterable[str]:
        if isinstance(self.window, Global) and self.trigger is None and not is_finite:
            yield (
                f"{where} has a Global window without a trigger: it reports at the end of its "
                "input, which has none; give it one, such as trigger=AfterCount(100)"
            )

        if isinstance(self.window, Sliding):
            sliding = self.window.in_ticks(self.event_time or ARRIVAL)
            panes = sliding.size // sliding.pane
            if panes > _MOST_PANES:
                yield (
                    f"{where} has windows of {panes:,} parts each, as its slide does not divide "
                    "its size; time and memory grow with the parts: take a slide that does"
                )

    def operator(self, task: OperatorTask) -> Operator:
        return AggregateOperator(self, task)


def _emits_changed(emit: Any) -> bool:
    if emit not in ("all", "changed"):
        raise WindowError(f"emit is {emit!r}; it must be 'all' or 'changed'")
    return bool(emit == "changed")
