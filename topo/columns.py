"""The contract of basic bolts whose work is written into the loop over the columns of a frame.

An ordinary basic bolt costs, for each tuple, a tuple object and a call of `execute`, and for each
emit a list, a call and the way back from rows to columns. That is most of what a small operator
takes. A bolt that derives from `ByColumns` gives the text of its work instead: the runtime puts it
into a loop over the values of the columns that it reads, and what it emits is appended to columns.
The user's functions are called with the same values, and what is emitted, anchored, counted and
reported is the same; `tests/property/test_column_laws.py` compares the two ways.

Tuples of several streams in the order of their emits go through a loop of the same text, which
reads the values from the tuples. So such a bolt has no `execute`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class EmitText(Protocol):
    """The text that emits rows, and the names that it uses."""

    names: dict[str, Any]

    def emit(self, stream: str, values: Sequence[str]) -> list[str]:
        """Return the lines that emit a row; a value that is "None" is none in every row."""

    def emit_each(self, stream: str, values: Sequence[str], one: str, each: str) -> str | None:
        """Return the line that emits a row for each `one` of the expression `each`, if one can."""


@dataclass(eq=False)
class LoopText:
    """The text of the work on one input; the runtime puts it into a loop (`topo.runtime.loops`)."""

    lines: Sequence[str]
    names: dict[str, Any] = field(default_factory=dict)
    reads: Sequence[int] = ()
    """The positions of the fields that it reads: the value at position 0 is the variable f0."""
    makes_tuple: bool = False
    """It needs the tuple itself, `tup`."""
    reads_link: bool = False
    """It needs the place of the input among those in work, `link`."""
    start: Sequence[str] = ()
    """Lines in front of the loop, which runs over a few thousand inputs at most."""


def field_name(position: int) -> str:
    """Return the variable of the value at a position."""
    return f"f{position}"


class TakesColumns:
    """A mixin for basic bolts of topo's own that take columns as they are in the frame.

    `process_batch` would get them as Arrow's: a guess of types changes some values, and refuses
    those of mixed types. It is called where `process_batch` would be, if the bolt's `hook` says so.
    """

    takes_tuples = False
    """True if `execute` does the same with a tuple, as those of streams that alternate come."""

    def process_columns(
        self, fields: Sequence[str], columns: Sequence[Sequence[Any]], count: int
    ) -> None:
        """Process `count` tuples of one stream, by the column: lists, or Arrow if it stayed so.

        The columns may be kept, but not changed: other tasks may have the same ones.
        """
        raise NotImplementedError


class ByColumns:
    """A mixin for basic bolts of topo's own that work on columns; they hear of no ticks."""

    def on_tick(self, tup: Any) -> None:
        """Let a tick pass: it is no input."""

    def loop_text(self, emits: EmitText) -> LoopText:
        """Return the work on one input; `prepare` and `restored` have run."""
        raise NotImplementedError

    def times_in(self) -> Mapping[str, str]:
        """Return, by stream, the field of what it reads with the time of what it emits there."""
        return {}

    def failed(self, error: BaseException, line: int) -> None:
        """Add to an error what is known of the line of the text that raised it."""
