"""Event time: where a tuple's time is found, and how far its input is complete.

A time is an int inside topo, in *ticks* of the clock that `unit` names: milliseconds stay as they
are, seconds and datetimes become microseconds. Ints are compared and subtracted exactly, which
floats are not; so every duration must be a whole number of ticks.

The watermark W of a bolt says "no tuple with a time before W is expected any more". It is the
lowest, over the bolt's inputs, of the highest time seen less the lag. An input is one task of a
component whose stream the bolt reads. A stateful operator (windows, joins, processes with timers)
declares an `EventTime`; everything else about watermarks is the runtime's (`topo.timed`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from topo.errors import TimestampError, WindowError

Duration: TypeAlias = "timedelta | int"
"""A length of time: a timedelta, or an int in the unit of the time field."""

TICKS_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "s": 1_000_000, "datetime": 1_000_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INTS = {int}

BEFORE_ALL = -(1 << 62)
"""The watermark before every input has spoken."""
AFTER_ALL = 1 << 62
"""The watermark at the end of a finite input."""
FURTHEST = 1 << 60
"""The highest time, and less it the lowest, in ticks: 36,000 years in microseconds."""


@dataclass(frozen=True)
class EventTime:
    """The place of the time in a bolt's inputs, and the rule for when they count as complete.

    `field` names the field of the time, one for all inputs or by component; None stands for the
    time of the results of a window before this one. Instead, `extractor` computes the time of a
    tuple. `lag` is how much later than the highest time a tuple may come, for all inputs or by
    component. An input whose source had nothing for `idle` is left out until it is back; None
    waits for ever, as Storm does. With `when_idle="clock"` an input's watermark follows the
    clock instead. A time more than `max_ahead` beyond the clock does not move the watermark. With
    `on_bad="late"` a tuple whose time cannot be read is late; otherwise it is an error. `untimed`
    names the components whose inputs carry no time. `merge="max"` takes the fastest input's
    watermark, once every input has had a tuple or is idle. With `hold_pending` the watermark stays
    at the lowest time of the messages that are not acked, so that a message that is replayed is
    never late; where a spout emits the time in another field than this bolt reads it, it takes the
    name of that field, or one by spout.
    """

    field: str | Mapping[str, str] | None = None
    lag: Duration | Mapping[str, Duration] = 0
    idle: timedelta | None = timedelta(seconds=5)
    max_ahead: timedelta | None = None
    when_idle: str = "leave"
    on_bad: str = "error"
    unit: str = "ms"
    untimed: Sequence[str] = ()
    extractor: Callable[[Any], Any] | None = None
    merge: str = "min"
    hold_pending: bool | str | Mapping[str, str] = False

    def __post_init__(self) -> None:
        _choose("unit", self.unit, TICKS_PER_SECOND)
        _choose("when_idle", self.when_idle, ("leave", "clock"))
        _choose("on_bad", self.on_bad, ("error", "late"))
        _choose("merge", self.merge, ("min", "max"))
        if isinstance(self.untimed, str):
            raise WindowError(
                f"EventTime: untimed is {self.untimed!r}; it takes a list of components",
                hint=f"write untimed=[{self.untimed!r}]",
            )
        if not isinstance(self.hold_pending, bool | str | Mapping):
            raise WindowError(
                f"EventTime: hold_pending is {self.hold_pending!r}; it takes True, or the name of "
                "the field in which spouts emit the time",
            )
        lags = self.lag.values() if isinstance(self.lag, Mapping) else [self.lag]
        for lag in lags:
            self.ticks(lag, "lag", at_least=0)
        for name, value in (("idle", self.idle), ("max_ahead", self.max_ahead)):
            if value is not None and not isinstance(value, timedelta):
                raise WindowError(
                    f"EventTime: {name} is {value!r}; it takes a timedelta or None",
                    hint=f"write {name}=timedelta(seconds=...)",
                )
            if value is not None and value <= timedelta(0):
                raise WindowError(f"EventTime: {name} is {value!r}; it must be above zero")

    @property
    def per_second(self) -> int:
        """The ticks of a second."""
        return TICKS_PER_SECOND[self.unit]

    def ticks(self, duration: Duration, what: str, at_least: int = 1) -> int:
        """Return a duration in ticks; raise if it is none, too short or no whole number."""
        return duration_ticks(duration, self.unit, what, at_least)

    def lag_of(self, component: str) -> int:
        """Return the lag of the inputs from a component, in ticks."""
        if isinstance(self.lag, Mapping):
            return self.ticks(self.lag.get(component, 0), "lag", at_least=0)
        return self.ticks(self.lag, "lag", at_least=0)

    def field_of(self, component: str) -> str | None:
        """Return the name of the time field in what comes from a component."""
        if isinstance(self.field, Mapping):
            return self.field.get(component)
        return self.field

    def held_field_of(self, spout: str) -> str | None:
        """Return the name of the field with the time of a spout's messages, which are held."""
        if isinstance(self.hold_pending, Mapping):
            return self.hold_pending.get(spout)
        return self.hold_pending if isinstance(self.hold_pending, str) else self.field_of(spout)

    def clock_ticks(self, seconds: float) -> int:
        """Return a clock reading in ticks."""
        return math.floor(seconds * self.per_second)

    def clock_at(self, ticks: int) -> float:
        """Return the earliest clock reading, in seconds, that is not before a time."""
        found = ticks / self.per_second
        while self.clock_ticks(found) < ticks:
            found = math.nextafter(found, math.inf)
        return found

    def wakes_at(self, event: int | None) -> float | None:
        """Return when, by the clock, an event by arrival is due; None if none ever is."""
        return None if event is None or event >= AFTER_ALL else self.clock_at(event)

    @property
    def shows_ticks(self) -> bool:
        """True iff a time is shown as it is, in ticks."""
        return self.unit in ("ms", "us")

    def shown(self, ticks: int) -> Any:
        """Return a time in the unit of the field: what `start` and `end` of a window are."""
        if not BEFORE_ALL < ticks < AFTER_ALL:
            return None
        if self.unit == "datetime":
            return _EPOCH + timedelta(microseconds=ticks)
        if self.unit == "s":
            whole, rest = divmod(ticks, 1_000_000)
            return ticks / 1_000_000 if rest else whole
        return ticks

    def read(self, value: Any) -> int:
        """Return one value of a time field in ticks; raise a TimestampError if it is no time."""
        ticks = self._read(value)
        if not -FURTHEST <= ticks <= FURTHEST:
            hint = f"the unit is {self.unit!r}; is that of the field another one?"
            raise _bad(value, "too far away to be a time", hint)
        return ticks

    def _read(self, value: Any) -> int:
        if self.unit == "datetime":
            if isinstance(value, datetime):
                if value.tzinfo is None:
                    raise _bad(value, "a naive datetime", "give it a time zone: tzinfo=UTC")
                return (value - _EPOCH) // _MICROSECOND
            raise _bad(value, _kind(value), "with unit='datetime' the field holds datetimes")
        if type(value) is int:
            return value if self.unit != "s" else value * 1_000_000
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            if isinstance(value, float) and math.isfinite(value):
                return self._read_float(value)
            raise _bad(value, _kind(value), self._hint(value))
        return self._read(int(value))

    def _read_float(self, value: float) -> int:
        if self.unit == "s":
            return round(value * 1_000_000)
        if value.is_integer():
            return int(value)
        raise _bad(value, "a float", "unit='s' takes float seconds; other units take ints")

    def _hint(self, value: Any) -> str:
        if isinstance(value, datetime):
            return "EventTime(..., unit='datetime') reads datetimes"
        return "emit an int, or EventTime(..., on_bad='late') to set such tuples aside"


def _choose(name: str, value: Any, words: Iterable[str]) -> None:
    words = tuple(words)
    if value not in words:
        known = " or ".join(map(repr, words))
        raise WindowError(f"EventTime: {name} is {value!r}; it must be {known}")


def _kind(value: Any) -> str:
    if value is None:
        return "no time"
    if isinstance(value, float):
        return "no finite number"
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def _bad(value: Any, what: str, hint: str) -> TimestampError:
    text = repr(value)
    shown = text if len(text) <= 80 else text[:77] + "..."
    return TimestampError(f"the time is {shown}, which is {what}", hint=hint)


def duration_ticks(duration: Any, unit: str, what: str, at_least: int = 1) -> int:
    """Return a duration in ticks of a unit; raise a WindowError if it is none."""
    if isinstance(duration, timedelta):
        micros = duration // _MICROSECOND
        ticks, rest = divmod(micros * TICKS_PER_SECOND[unit], 1_000_000)
        if rest:
            raise WindowError(
                f"{what} is {duration!r}, which is no whole number of {unit}",
                hint="use EventTime(..., unit='us'), or a longer duration",
            )
    elif isinstance(duration, int) and not isinstance(duration, bool):
        ticks = duration * (1_000_000 if unit == "s" else 1)
    else:
        raise WindowError(
            f"{what} is {duration!r}; a duration is a timedelta",
            hint="write timedelta(seconds=...): a float is not exact",
        )
    if ticks < at_least:
        least = "above zero" if at_least == 1 else "zero or more"
        raise WindowError(f"{what} is {duration!r}; it must be {least}")
    return ticks


class TimeReader:
    """Reads the times of one stream's tuples, a column at a time.

    `offset` is added to each: the results of a window are at its end less one tick.
    """

    def __init__(
        self,
        time: EventTime,
        where: str,
        fields: Sequence[str],
        *,
        name: str | None = None,
        offset: int = 0,
        make: Callable[..., Any] | None = None,
    ) -> None:
        self.time = time
        self._where = where
        self._position = None if name is None else list(fields).index(name)
        self._name = name or "extractor"
        self._offset = offset
        self._make = make
        self._plain = time.shows_ticks and not offset
        self.span: tuple[int, int] | None = None
        """The lowest and the highest of the times that were read last, where it is known."""

    def times(self, columns: Sequence[Sequence[Any]], count: int) -> list[int | None]:
        """Return the times in ticks; None for a bad one, if those are late."""
        column = self._column(columns, count)
        self.span = None
        if self._plain and set(map(type, column)) == _INTS:
            low, high = self.span = min(column), max(column)
            if low >= -FURTHEST and high <= FURTHEST:
                return column if type(column) is list else list(column)
        read, offset = self.time.read, self._offset
        try:
            return [read(value) + offset for value in column]
        except TimestampError as error:
            if self.time.on_bad == "late":
                return [self._or_none(value, offset) for value in column]
            named = "extractor" if self._position is None else f"field {self._name!r}"
            raise TimestampError(
                f"{self._where}, {named}: {error.message}", hint=error.hint
            ) from None

    def highest(
        self, columns: Sequence[Sequence[Any]], count: int, limit: int | None
    ) -> int | None:
        """Return the highest time that is no higher than the limit; bad ones do not count."""
        return self.highest_of(self._column(columns, count), limit, self._offset)

    def highest_of(self, values: Sequence[Any], limit: int | None, offset: int) -> int | None:
        """Return the highest of times that were read already; `offset` is added to each."""
        most = FURTHEST if limit is None else min(limit, FURTHEST)
        found = _highest(values)
        if type(found) is int or type(found) is float:  # datetimes of one zone compare by the wall
            ticks = self._or_none(found, offset)
            if ticks is not None and ticks <= most:
                return ticks  # whatever else is in the column
        times = (self._or_none(value, offset) for value in values)
        kept = (t for t in times if t is not None and (limit is None or t <= limit))
        return max(kept, default=None)

    def _column(self, columns: Sequence[Sequence[Any]], count: int) -> Sequence[Any]:
        if self._position is not None:
            return columns[self._position]
        rows = zip(*columns, strict=True) if columns else iter([()] * count)
        return list(map(self._extracted, rows))

    def _extracted(self, values: tuple[Any, ...]) -> Any:
        assert self.time.extractor is not None
        assert self._make is not None
        try:
            return self.time.extractor(self._make(*values))
        except Exception as error:
            if self.time.on_bad == "late":
                return None
            raise TimestampError(
                f"{self._where}: the extractor raised {type(error).__name__}: {error}",
                hint="EventTime(extractor=..., on_bad='late') sets such tuples aside",
            ) from error

    def _or_none(self, value: Any, offset: int) -> int | None:
        try:
            return self.time.read(value) + offset
        except TimestampError:
            return None


def _highest(column: Sequence[Any]) -> Any:
    """Return the highest value; None if some cannot be compared."""
    try:
        return max(column)
    except Exception:
        return None
