"""The base of bolts that put the rows of several inputs together by their keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from topo.components import OutputFieldsDeclarer
from topo.errors import JoinError, Problem
from topo.event_time import EventTime
from topo.operators.inputs import StreamName, check_widths, input_problems, parse_inputs
from topo.operators.time import check_time
from topo.timed import InputFields, TimedBolt
from topo.tuples import Fields


class KeyedJoin(TimedBolt):
    """The inputs of a join and their keys, its time, and that of its results."""

    def __init__(
        self,
        inputs: Mapping[str, StreamName],
        on: Any,
        time: EventTime | None,
        result_ts: str | None,
        late_stream: str | None,
    ) -> None:
        self.sides = parse_inputs(inputs, on)
        check_widths(self.sides)
        check_time(time, JoinError)
        self.event_time = time
        self.result_ts = result_ts
        self.late_stream = late_stream

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        declarer.declare(Fields(*self.result_fields()))
        if self.late_stream is not None:
            declarer.declare_stream(self.late_stream, "late_tuple")

    def result_fields(self) -> Sequence[str]:
        """Return the fields of a result."""
        raise NotImplementedError

    def result_time(self, stream: str) -> tuple[str, int] | None:
        if stream == "default" and self.result_ts is not None:
            return self.result_ts, 0
        return None

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterator[Problem]:
        yield from input_problems(self.sides, where, inputs, tasks)
