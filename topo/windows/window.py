"""The argument of a windowed bolt's `execute`, and the words of its settings, checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeAlias

from topo.errors import WindowError
from topo.event_time import EventTime, duration_ticks
from topo.tuples import Tuple
from topo.windows.records import MODES, UNBOUNDED, Pane
from topo.windows.rows import Unread
from topo.windows.storm import Extent

STORMS_SETTINGS = "topology.bolts."
"""The beginning of the names of Storm's settings of windows."""

Tuples: TypeAlias = "list[Tuple] | Unread"


class Window:
    """The argument of `execute`: the tuples of one window, in the order of their arrival.

    `new` are those that were in no window before, `expired` those that left since the last one.
    `start` and `end` are in the unit of the time field, or in milliseconds of the clock; `start` is
    None where the length is a count. `pane` tells, of windows that may report several times, which
    report it is.
    """

    __slots__ = ("_expired", "_new", "_tuples", "end", "key", "pane", "start")

    def __init__(
        self,
        tuples: Tuples,
        new: Tuples,
        expired: Tuples,
        start: Any,
        end: Any,
        key: Any = None,
        pane: Pane | None = None,
    ) -> None:
        self._tuples = tuples
        self._new = new
        self._expired = expired
        self.start = start
        self.end = end
        self.key = key
        self.pane = pane

    # Tuples are made when somebody looks at them.

    @property
    def tuples(self) -> list[Tuple]:
        """The tuples of the window."""
        found = self._tuples
        if isinstance(found, Unread):
            found = self._tuples = found.read()
        return found

    @property
    def new(self) -> list[Tuple]:
        """The tuples that were in no window before."""
        found = self._new
        if isinstance(found, Unread):
            found = self._new = found.read()
        return found

    @property
    def expired(self) -> list[Tuple]:
        """The tuples that have left since the last window."""
        found = self._expired
        if isinstance(found, Unread):
            found = self._expired = found.read()
        return found

    def __reduce__(self) -> tuple[object, ...]:
        own = (self.tuples, self.new, self.expired, self.start, self.end, self.key, self.pane)
        return Window, own

    def __iter__(self) -> Iterator[Tuple]:
        return iter(self.tuples)

    def __len__(self) -> int:
        return len(self._tuples)

    def __repr__(self) -> str:
        return f"<Window {self.start!r}..{self.end!r} of {len(self)} tuples>"


def lateness_ticks(lateness: Any, time: EventTime) -> int | None:
    """Return an allowed lateness in ticks; None if unbounded."""
    return None if lateness == UNBOUNDED else time.ticks(lateness, "allowed_lateness", at_least=0)


def check_lateness(lateness: Any) -> None:
    """Raise a WindowError if this is no allowed lateness."""
    if lateness != UNBOUNDED:
        duration_ticks(lateness, "us", "allowed_lateness", at_least=0)


def check_mode(mode: Any) -> None:
    """Raise a WindowError if a windowed bolt has no such mode."""
    if mode not in MODES or mode == "retract":
        raise WindowError(
            f"mode is {mode!r}; a WindowedBolt takes 'accumulate' or 'discard'",
            hint="a WindowAggregate takes back its reports: mode='retract'",
        )


def check_ack(mode: Any) -> None:
    """Raise a WindowError if inputs are not acked so."""
    if mode not in ("state", "expiry"):
        raise WindowError(f"inputs are acked by 'state' or by 'expiry'; got {mode!r}")


def interval_secs(interval: Any) -> float:
    """Return the seconds of an interval; raise a WindowError if it is none."""
    if not isinstance(interval, timedelta) or interval < timedelta(0):
        raise WindowError(
            f"a watermark interval is {interval!r}; it takes a timedelta",
            hint="write timedelta(seconds=...)",
        )
    return interval.total_seconds()


def check_extent(value: Any, what: str) -> None:
    """Raise a WindowError if this is no length or slide."""
    if isinstance(value, timedelta):
        if value <= timedelta(0):
            raise WindowError(f"{what} is {value!r}; it must be above zero")
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise WindowError(
            f"{what} is {value!r}; it takes an int, a count, or a timedelta",
            hint="write timedelta(seconds=...)" if isinstance(value, float) else "",
        )
    if value < 1:
        raise WindowError(f"{what} is {value!r}; a count is 1 or more")


def extent_in_ticks(value: int | timedelta, time: EventTime) -> Extent:
    """Return a length or slide, in ticks where it is a time."""
    if isinstance(value, timedelta):
        return Extent(time.ticks(value, "a window's length or slide"), by_time=True)
    return Extent(value, by_time=False)


def extent_of(conf: Mapping[str, Any], count: str, millis: str) -> int | timedelta | None:
    """Return a length or slide from Storm's settings; None if they have none."""
    if conf.get(STORMS_SETTINGS + count) is not None:
        return int(conf[STORMS_SETTINGS + count])
    if conf.get(STORMS_SETTINGS + millis) is not None:
        return timedelta(milliseconds=conf[STORMS_SETTINGS + millis])
    return None
