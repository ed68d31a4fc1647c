"""The first byte of each payload in Spark's rows, which says what it is and in which version.

Headers, frames and references to frames travel in the same column, so they share one table of
numbers. A new version of one of them takes the next number that no payload ever had: held frames
stand in checkpoints, and a number that changed its meaning would be misread. A number is never
given back.
"""

from __future__ import annotations

from enum import IntEnum, unique

from topo.errors import TopoError


@unique
class PayloadKind(IntEnum):
    """A payload's kind and version; the current version of each kind is named below."""

    HEADER_1 = 0  # the batch's number, clock and mode, for one slot
    FRAME_1 = 1
    REFERENCE_1 = 2  # the name of a file with frames, and their places in it
    MARKS_1 = 3  # the times that the tasks of a slot have seen in this batch
    ROWS_1 = 4  # rows of a source or sink of the engine's own, as an Arrow stream
    TAKEN_1 = 5  # what level 0 has taken of the tuples that another level has on loops


HEADER, FRAME, REFERENCE, MARKS, ROWS, TAKEN = (
    PayloadKind.HEADER_1,
    PayloadKind.FRAME_1,
    PayloadKind.REFERENCE_1,
    PayloadKind.MARKS_1,
    PayloadKind.ROWS_1,
    PayloadKind.TAKEN_1,
)


@unique
class ColumnKind(IntEnum):
    """The first byte of a column in a frame: how its values are written."""

    PICKLE = ord("p")
    TEXT = ord("t")
    ARROW = ord("a")


def check_frame(first: int) -> None:
    """Raise an error unless a payload with this first byte is a frame that this topo reads."""
    if first == FRAME:
        return
    kind = PayloadKind(first).name.lower() if first in set(PayloadKind) else f"number {first}"
    raise TopoError(
        f"unsupported frame format: payload {kind} (this topo reads {FRAME.name.lower()})",
        hint="was the checkpoint made by a later topo?",
    )
