"""Windows that report several times: the record of one, its reports (panes), and their rules.

A record is what is saved of a window, with the trigger's notes in it; `general` keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from topo.errors import WindowError
from topo.event_time import AFTER_ALL, BEFORE_ALL
from topo.storage.saving import with_one_nan

UNBOUNDED = "unbounded"
"""The allowed lateness of windows that are kept for ever."""
MODES = ("accumulate", "discard", "retract")


@dataclass(frozen=True)
class Pane:
    """One report of a window."""

    key: Any
    start: int
    end: int
    results: list[Any]
    change: str
    """"+", or "-" for a pane that is taken back (mode `retract`)."""
    timing: str
    index: int
    non_speculative: int
    """How many panes before it were on time or late; -1 for an early one."""
    first: bool
    last: bool
    ts: int
    new: int
    """How many tuples it has that no pane before had."""


class OpenWindow:
    """One window of one key."""

    __slots__ = ("alive", "cell", "early_ts", "end", "event_base", "finished", "first_now",
                 "index", "key", "late_ts", "new", "non_speculative", "on_time", "sent", "start",
                 "steps")  # fmt: skip

    def __init__(self, key: Any, start: int, end: int, cell: Any) -> None:
        self.key = key
        self.start = start
        self.end = end
        self.cell = cell
        self.alive = True
        self.new = 0
        self.first_now: float | None = None
        self.event_base = BEFORE_ALL
        self.index = 0
        self.non_speculative = 0
        self.on_time = False
        self.finished = False
        self.sent: list[tuple[int, int, list[Any]]] = []  # what `retract` takes back
        self.steps: dict[int, int] = {}
        self.early_ts = AFTER_ALL  # lowest time on time in this pane
        self.late_ts = BEFORE_ALL  # highest time in this pane

    def take_over(self, gone: OpenWindow) -> None:
        """Take over what another session has, which joins this one, apart from its cell."""
        if gone.new and not self.new:
            self.first_now, self.event_base = gone.first_now, gone.event_base
        elif gone.new and gone.first_now is not None and self.first_now is not None:
            self.first_now = min(self.first_now, gone.first_now)
            self.event_base = min(self.event_base, gone.event_base)
        self.new += gone.new
        self.index = max(self.index, gone.index)
        self.non_speculative = max(self.non_speculative, gone.non_speculative)
        self.on_time = self.on_time or gone.on_time
        self.finished = self.finished and gone.finished
        self.sent += gone.sent
        self.early_ts = min(self.early_ts, gone.early_ts)
        self.late_ts = max(self.late_ts, gone.late_ts)
        self.end = max(self.end, gone.end)

    def result_time(self, rule: str) -> int:
        """Return the time of the next pane, by the rule `ReportRules.result_ts`."""
        if rule == "earliest" and self.early_ts < AFTER_ALL:
            return self.early_ts
        if rule == "latest" and self.late_ts > BEFORE_ALL:
            return self.late_ts
        return self.end - 1

    def __reduce__(self) -> tuple[object, ...]:
        names = OpenWindow.__slots__
        return _record, (tuple(getattr(self, name) for name in names),)


def _record(values: tuple[Any, ...]) -> OpenWindow:
    made = OpenWindow.__new__(OpenWindow)
    for name, value in zip(OpenWindow.__slots__, values, strict=True):
        setattr(made, name, value)
    made.key = with_one_nan(made.key)
    return made


@dataclass(frozen=True)
class ReportRules:
    """The settings of a window's reports, beside its trigger."""

    mode: str = "accumulate"
    lateness: int | None = 0
    """In ticks; None: unbounded."""
    on_time: str = "always"
    """Whether the pane at the end is sent without news: "always", or "if_new"."""
    final: str = "if_new"
    """Whether a last pane is sent without news: "if_new", or "always"."""
    result_ts: str = "end"
    """The time of a result: "end", "earliest" or "latest" of its tuples."""

    def __post_init__(self) -> None:
        for name, words in (
            ("mode", MODES),
            ("on_time", ("always", "if_new")),
            ("final", ("if_new", "always")),
            ("result_ts", ("end", "earliest", "latest")),
        ):
            if getattr(self, name) not in words:
                known = " or ".join(map(repr, words))
                raise WindowError(f"{name} is {getattr(self, name)!r}; it must be {known}")
