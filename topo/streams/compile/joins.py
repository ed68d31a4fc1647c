"""Joins of streams by key: what the operators compile to.

A join reads keys and values and gives pairs (key, (left, right)); the time of a result goes along
unseen, as everywhere in a program of streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from topo.bolts.cogroup import CoGroup
from topo.bolts.interval_join import IntervalJoin
from topo.bolts.pair_join import PairJoin
from topo.bolts.window_join import WindowJoin
from topo.components import OutputFieldsDeclarer
from topo.errors import JoinError, StreamError
from topo.event_time import EventTime
from topo.operators.selection import Own, Shape, pairing
from topo.streams.combiners import of_values
from topo.streams.graph import KEY, TIME, VALUE, Node
from topo.timed import InputFields


class _StreamPairs(PairJoin):
    """The results of a join as a stream's elements: a key, and a pair or what a function makes."""

    function: Any = None

    def read_inputs(self, inputs: Sequence[InputFields]) -> None:
        """Learn nothing: the fields of streams are known."""

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        declarer.declare((KEY, VALUE, TIME) if self.result_ts else (KEY, VALUE))
        if self.late_stream is not None:
            declarer.declare_stream(self.late_stream, "late_tuple")

    def shape(self, owner: str, own: Mapping[str, str], names: Mapping[str, Any]) -> Shape:
        return pairing(self.function, Own(own, names, self.own_appended()))

    def own_appended(self) -> tuple[str, ...]:
        return () if self.result_ts is None else (self.result_ts,)


class StreamIntervalJoin(_StreamPairs, IntervalJoin):
    """An interval join of keyed streams."""


class StreamWindowJoin(_StreamPairs, WindowJoin):
    """A window join of keyed streams."""


def join_bolt(
    node: Node, streams: Sequence[tuple[str, str]], time: EventTime | None, late: str | None
) -> StreamIntervalJoin | StreamWindowJoin:
    """Return the bolt of a join; raise a StreamError if there can be none."""
    left, right = streams
    result_ts = None if time is None else TIME
    within, window, how = (node.options[name] for name in ("within", "window", "how"))
    window = of_values(window)
    made: StreamIntervalJoin | StreamWindowJoin
    if within is not None and time is None:
        raise StreamError(
            "join(within=...) needs the event time of both streams",
            hint='write builder.stream(spout, time=EventTime("ts"))',
            at=node.place,
        )
    try:
        if within is not None:
            made = StreamIntervalJoin(
                left=left, right=right, on=KEY, within=within, how=how, time=time,
                result_ts=result_ts,
            )  # fmt: skip
        else:
            made = StreamWindowJoin(
                left=left, right=right, on=KEY, window=window, how=how, time=time,
                result_ts=result_ts,
            )  # fmt: skip
    except JoinError as error:
        raise StreamError(error.message, hint=error.hint, at=node.place) from None
    made.late_stream = late
    made.function = node.function
    return made


def cogroup_bolt(
    node: Node, streams: Sequence[tuple[str, str]], time: EventTime | None, late: str | None
) -> CoGroup:
    """Return the bolt of a cogroup; raise a StreamError if there can be none."""
    try:
        return CoGroup(
            list(streams),
            on=KEY,
            window=of_values(node.options["window"]),
            time=time,
            keep=node.options["keep"],
            emit=node.options["emit"],
            values=VALUE,
            together=VALUE,
            result_ts=None if time is None else TIME,
            late_stream=late,
        )
    except JoinError as error:
        raise StreamError(error.message, hint=error.hint, at=node.place) from None


def common_time(
    node: Node, components: Sequence[str], times: Sequence[EventTime | None]
) -> EventTime | None:
    """Return the event time of several streams together: only their lags may differ."""
    known = [time for time in times if time is not None]
    if not known:
        return None
    if len(known) < len(times) or len({_but_for_lag(time) for time in known}) > 1:
        raise StreamError(
            f"{node.kind}: the streams have different event times",
            hint="give all of them the same EventTime but for the lag, or none",
            at=node.place,
        )
    lags: dict[str, Any] = {}
    for component, time in zip(components, known, strict=True):
        lags[component] = duration(max(lag_of(time), _ticks(time, lags.get(component, 0))), time)
    return replace(known[0], lag=lags)


def with_highest_lag(time: EventTime) -> EventTime:
    """Return the event time with the highest of its lags, for what comes of all its inputs."""
    return replace(time, lag=duration(lag_of(time), time))


def lag_of(time: EventTime) -> int:
    """Return the highest lag of a time, in ticks."""
    lags = time.lag.values() if isinstance(time.lag, Mapping) else [time.lag]
    return max((_ticks(time, lag) for lag in lags), default=0)


def duration(ticks: int, time: EventTime) -> timedelta | int:
    """Return ticks as a duration in the unit of the time field."""
    return ticks if time.unit in ("ms", "us") else timedelta(microseconds=ticks)


def _ticks(time: EventTime, lag: Any) -> int:
    return time.ticks(lag, "lag", at_least=0)


def _but_for_lag(time: EventTime) -> Any:
    rest = replace(time, lag=0, untimed=())
    held = str(rest.hold_pending)
    return (rest.unit, rest.idle, rest.max_ahead, rest.when_idle, rest.on_bad, rest.merge, held)
