"""Loops over columns, made of the text of a bolt's work (`topo.columns`).

`loops` makes them of it. They append to the columns of the output streams; a column that is None in
every row is filled in by the flush.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from topo.columns import ByColumns
from topo.errors import TopoError
from topo.runtime.emitter import Emitter
from topo.runtime.loops import (
    Loop,
    Values,
    compiled_loop,
    compiled_loop_over_tuples,
    values_of,
)
from topo.runtime.out_streams import OutStream
from topo.traces import GENERATED
from topo.tuples import Tuple
from topo.wire.column import dump_emitted
from topo.wire.frame import Section


class ColumnEmits:
    """The text that appends emitted values to the columns of the streams of a task."""

    def __init__(self, outlet: Emitter) -> None:
        self.names: dict[str, Any] = {}
        self.start: list[str] = []
        """The lines in front of the loop."""
        self.order = ["order"] if outlet.keeps_order else []
        """The name of what notes which stream an emit was on, if there are several."""
        self._outlet = outlet
        self._written: set[str] = set()
        if outlet.keeps_order:
            self.start.append("order = emits.append")

    def emit(self, stream: str, values: Sequence[str]) -> list[str]:
        out = self._prepared(stream, values)
        lines = []
        for place, value in enumerate(values):
            if place not in out.blank:
                lines.append(f"{_append(out, place)}({value})")
        if self._outlet.keeps_order:
            lines.append(f"order({out.index})")
        return lines

    def appends(self, stream: str) -> list[str]:
        """Return the names of what appends to the columns of a stream."""
        out = self._prepared(stream, ["value"] * self._outlet.streams[stream].width)
        return [_append(out, place) for place in range(out.width)]

    def parents(self, stream: str) -> str:
        """Return the name of what appends to the parents of a stream's rows."""
        out = self._outlet.streams[stream]
        self.start.append(f"parent{out.index} = {_stream(out)}.parents.append")
        return f"parent{out.index}"

    def emit_each(self, stream: str, values: Sequence[str], one: str, each: str) -> str | None:
        varying = [place for place, value in enumerate(values) if value != "None"]
        if self._outlet.keeps_order or len(varying) != 1 or values[varying[0]] != one:
            return None
        out = self._prepared(stream, values)
        name = f"extend{out.index}_{varying[0]}"
        extend = f"{_stream(out)}.columns[{varying[0]}].extend"
        if self._outlet.strict:
            extend = f"each({_append(out, varying[0])})"
        self.start.append(f"{name} = {extend}")
        return f"{name}({each})"

    def _prepared(self, stream: str, values: Sequence[str]) -> OutStream:
        out = self._outlet.streams[stream]
        if stream in self._written or len(values) != out.width or values[0] == "None":
            raise TopoError(
                f"internal error: the work of {self._outlet.owner} emits {list(values)} on stream "
                f"{stream!r}; please report this"
            )
        self._written.add(stream)
        self.names[_stream(out)] = out
        out.blank = frozenset(place for place, value in enumerate(values) if value == "None")
        if not out.lasts:
            out.columns = [[] for _ in range(out.width)]
        places = [place for place in range(out.width) if place not in out.blank]
        for place in places:
            append = f"{_stream(out)}.columns[{place}].append"
            if self._outlet.strict and place == places[-1]:
                append = f"checking({_stream(out)}, {place})"
            self.start.append(f"{_append(out, place)} = {append}")
        self.names |= {"checking": _checking, "each": _each}
        return out


def _stream(out: OutStream) -> str:
    return f"out{out.index}"


def _append(out: OutStream, place: int) -> str:
    return f"emit{out.index}_{place}"


def _checking(out: OutStream, last: int) -> Callable[[Any], None]:
    """Return what appends the last value of a row, and keeps a copy to compare the row with."""
    columns = [None if place in out.blank else out.columns[place] for place in range(out.width)]
    before = [column for column in columns[:last] if column is not None]
    append = out.columns[last].append

    def append_and_copy(value: Any) -> None:
        row = [None if column is None else column[-1] for column in columns[:last]]
        rest = [None] * (out.width - last - 1)
        try:
            copy = dump_emitted([*row, value, *rest])
        except BaseException:  # it is refused, and none of the row was emitted
            for column in before:
                column.pop()
            raise
        out.copies.append(copy)
        append(value)

    return append_and_copy


def _each(append: Callable[[Any], None]) -> Callable[[Iterable[Any]], None]:
    def extend(values: Iterable[Any]) -> None:
        for value in values:
            append(value)

    return extend


class ColumnLoops:
    """The loops of one task over the columns of its inputs."""

    def __init__(self, bolt: ByColumns, outlet: Emitter) -> None:
        self._bolt = bolt
        emits = ColumnEmits(outlet)
        text = bolt.loop_text(emits)
        self._text = replace(
            text, names={**emits.names, **text.names}, start=[*emits.start, *text.start]
        )
        self._first_line = 0
        self._loops: dict[tuple[Any, bool], tuple[Loop, int]] = {}

    def values(self, section: Section, links: Iterable[int] | None = None) -> Values:
        """Return the values that a loop runs over."""
        if not self._text.makes_tuple:
            columns = [section.columns[place] for place in self._text.reads]
            section = Section(section.stream, section.count, columns, None)
        made = values_of(section, links if self._text.reads_link else None)
        assert made is not None, "a frame without columns is no plain one"
        return made

    def loop(self, cls: Any, marks: bool) -> Loop:
        """Return the loop for inputs of a class; `marks` notes the emits at each one's end."""
        key = (cls if self._text.makes_tuple else None, marks)
        if key not in self._loops:
            self._loops[key] = compiled_loop(self._text, cls, linked=False, marks=marks)
        loop, self._first_line = self._loops[key]
        return loop

    def loop_over_tuples(self, marks: bool) -> Loop:
        """Return the loop for inputs that are tuples already, such as those of several streams."""
        key = (Tuple, marks)
        if key not in self._loops:
            self._loops[key] = compiled_loop_over_tuples(self._text, marks)
        loop, self._first_line = self._loops[key]
        return loop

    def explain(self, error: BaseException) -> None:
        """Let the bolt add what it knows of the line that an error came of."""
        trace = error.__traceback__
        if trace is not None and trace.tb_frame.f_code.co_filename == GENERATED:
            self._bolt.failed(error, trace.tb_lineno - self._first_line)
