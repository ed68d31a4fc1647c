"""The results of windows, as elements of a stream: what they are, and the names of their parts.

A window with one aggregate gives pairs, as every stream with keys does: the key is (key, window),
so that results of the same window meet in a join or an aggregate. Such a pair is a `WindowResult`,
whose parts have names. A window with several aggregates gives a `Record` whose fields are the key,
the bounds and the aggregates. Both are read alike: `r.key`, `r.start`, `r.end`, and the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from topo.errors import StreamError
from topo.operators.aggregates.combiners import Combiner
from topo.streams.graph import users_place

K = TypeVar("K")
V = TypeVar("V")

BOUNDS = ("start", "end")
PANE = ("change", "timing", "pane")
"""The fields that tell the reports of a window apart, if it may report several times."""
_TAKEN = {"key", "value", "ts", *BOUNDS, *PANE}


class _Bounds(NamedTuple):
    start: Any
    end: Any


class Window(_Bounds):
    """The bounds of a window, beside the key of its result, and which of its reports that is.

    Windows with the same bounds are equal, whatever the report.
    """

    timing: str = "on_time"
    """"early", "on_time" or "late"."""
    pane: int = 0
    """The number of the report."""
    change: str = "+"
    """"-" takes a report back, in mode "retract"."""

    def __repr__(self) -> str:
        parts = {**self._asdict(), **vars(self)}
        return f"Window({', '.join(f'{name}={part!r}' for name, part in parts.items())})"


def reported(start: Any, end: Any, **pane: Any) -> Window:
    """Return the window of a report, which is one of several."""
    window = Window(start, end)
    vars(window).update(pane)
    return window


class WindowResult(tuple[tuple[K, Window], V], Generic[K, V]):
    """The result of a window: the pair ((key, window), value), whose parts have names."""

    __slots__ = ()

    @property
    def key(self) -> K:
        """The key of the values."""
        return self[0][0]

    @property
    def window(self) -> Window:
        """The window, which has `start`, `end`, `timing`, `pane` and `change`."""
        return self[0][1]

    @property
    def start(self) -> Any:
        """The start of the window, in the unit of the event time."""
        return self[0][1].start

    @property
    def end(self) -> Any:
        """The end of the window; the first time that is no more in it."""
        return self[0][1].end

    @property
    def value(self) -> V:
        """The aggregate."""
        return self[1]

    @property
    def timing(self) -> str:
        """Whether the report came "early", "on_time" or "late"."""
        return self[0][1].timing

    @property
    def pane(self) -> int:
        """The number of the report of this window."""
        return self[0][1].pane

    @property
    def change(self) -> str:
        """ "+", or "-" for a report that is taken back, in mode "retract"."""
        return self[0][1].change

    def __repr__(self) -> str:
        window = "".join(f", {name}={part!r}" for name, part in vars(self.window).items())
        return (
            f"WindowResult(key={self.key!r}, start={self.start!r}, end={self.end!r}, "
            f"value={self.value!r}{window})"
        )


def check_names(aggregates: Mapping[str, Combiner]) -> None:
    """Raise a StreamError if results cannot have aggregates of these names."""
    tasks = aggregates.get("parallelism")
    if isinstance(tasks, int):
        raise StreamError(
            "aggregate() takes no parallelism: the tasks are those of the window",
            hint=f"write .window(..., parallelism={tasks})",
            at=users_place(),
        )
    for name in aggregates:
        if name in _TAKEN or name.startswith("_"):
            raise StreamError(
                f"an aggregate is named {name!r}, which the record of a window "
                + ("has already" if name in _TAKEN else "cannot have"),
                hint=f"write .aggregate({name.strip('_') or 'n'}_of_window=...)",
                at=users_place(),
            )
