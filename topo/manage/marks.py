"""Marks in time: what happened to a topology that its charts alone do not explain.

A driver and its supervisor append lines to one file of the run's directory; a line is one write, so
that neither tears the other's. Errors have marks as well, made of what is known of them: when each
came first, and when last. Only the end of the file is read: a topology that stalls again and again
must not make its pages slow.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path

from topo.logs.capture import LineFile
from topo.manage.views import ErrorView, MarkView
from topo.tracking.clock import SteadyClock

FILE = "marks.jsonl"
KINDS = ("restart", "rebalance", "stall", "change", "error")
MOST_MARKS = 200
"""Of one answer; the latest ones."""
_MOST_BYTES = 128 << 10
_MOST_CHARS = 300
_clock = SteadyClock()


def note_mark(directory: Path, kind: str, text: str) -> None:
    """Append a mark to those of a run; a full disk loses it."""
    file = LineFile(directory / FILE)
    try:
        file.write({"at": round(_clock(), 3), "kind": kind, "text": text[:_MOST_CHARS]})
    finally:
        file.close()


def marks_of(directory: Path, errors: Iterable[ErrorView], since: float) -> list[MarkView]:
    """Return the latest marks of a run that are not before `since`, the oldest first."""
    marks = [*_written(directory / FILE), *_of_errors(errors)]
    marks = [mark for mark in marks if mark.at >= since]
    return sorted(marks, key=lambda mark: mark.at)[-MOST_MARKS:]


def _written(path: Path) -> list[MarkView]:
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _MOST_BYTES)
            file.seek(start)
            lines = file.read(_MOST_BYTES).split(b"\n")
    except OSError:
        return []
    marks = [_mark(line) for line in lines[bool(start) :]]
    return [mark for mark in marks if mark is not None]


def _mark(line: bytes) -> MarkView | None:
    """Return the mark of a line; None if it is damaged."""
    try:
        document = json.loads(line)
        mark = MarkView(float(document["at"]), str(document["kind"]), str(document["text"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return mark if mark.kind in KINDS and math.isfinite(mark.at) else None


def _of_errors(errors: Iterable[ErrorView]) -> Iterable[MarkView]:
    for error in errors:
        name = ": ".join(filter(None, (error.type, error.message)))[:_MOST_CHARS]
        yield MarkView(error.first, "error", f"{error.component}: {name}")
        if error.last > error.first:
            yield MarkView(error.last, "error", f"{error.component}: {name} (the latest)")
