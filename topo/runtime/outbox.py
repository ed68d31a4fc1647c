"""The tuples that are ready for each target task, and their packing into frames.

A frame is encoded as soon as there are enough tuples for a target, while their values are still in
the cache; a batch then takes a few bytes of memory per tuple instead of Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from sys import getsizeof
from typing import Any, TypeAlias

import numpy as np

from topo.errors import EmitError
from topo.routing.groupers import Rows, Selector
from topo.wire.arrow import ArrowColumn, joined
from topo.wire.column import decode_column, dump_emitted, encode_column
from topo.wire.frame import (
    I64,
    MAX_BYTES,
    MAX_ROWS,
    MAX_TUPLES,
    SEQUENCE_STEP,
    AnyFrame,
    Column,
    Frame,
    Section,
    Trees,
    join_trees,
)

_UNCHANGEABLE = frozenset(
    {int, str, float, bool, bytes, type(None), complex, datetime, date, Decimal}
)
_TEXT = frozenset({str})
_FILLED = MAX_BYTES - (MAX_BYTES >> 4)
"""Of a frame: the rest is for names and types, and for rows that are longer than others."""


@dataclass
class Piece:
    """The rows of one flush for one target; `positions` says when each was emitted."""

    section: Section
    positions: I64 | None


Refusing: TypeAlias = Callable[[str, list[Any], list[int], EmitError], None]
"""A function that is told of a row that cannot travel: stream, values, its roots, the error."""


def refuse_all(stream: str, values: list[Any], roots: list[int], error: EmitError) -> None:
    raise error


class Outbox:
    """The outbox of one task.

    Frames for `unpacked_for`, tasks that run in the same turn, stay decoded. So do those for
    `near_for`, tasks of the same process, unless a value can be changed: such frames wait in
    memory, and what they take is told by their bytes.
    """

    def __init__(self, task: int, refuse: Refusing = refuse_all) -> None:
        self._task = task
        self.unpacked_for: frozenset[int] = frozenset()
        self.near_for: frozenset[int] = frozenset()
        self._refuse = refuse
        self._pieces: dict[int, list[Piece]] = {}
        self._counts: dict[int, int] = {}
        self._full: dict[int, None] = {}
        self._packed: list[AnyFrame] = []
        self._sequence = 0

    def start_batch(self) -> None:
        self._sequence = 0

    def number_from(self, sequence: int) -> None:
        """Give the next frame this sequence."""
        self._sequence = sequence

    def add(self, task: int, piece: Piece) -> None:
        self._pieces.setdefault(task, []).append(piece)
        count = self._counts[task] = self._counts.get(task, 0) + piece.section.count
        if count >= MAX_TUPLES and count >= _most_in_a_frame(piece.section):
            self._full[task] = None

    def pack_full(self) -> None:
        """Make frames for targets with enough tuples; after a flush, when the order is known."""
        for task in self._full:
            self._pack(task)
        self._full.clear()

    def take(self) -> Iterator[AnyFrame]:
        """Return all frames, and leave the outbox empty."""
        for task in list(self._pieces):
            self._pack(task)
        packed, self._packed = self._packed, []
        return iter(packed)

    def _pack(self, task: int) -> None:
        pieces = self._pieces.pop(task)
        del self._counts[task]
        streams = list(dict.fromkeys(piece.section.stream for piece in pieces))
        made = (
            self._one_stream(task, pieces)
            if len(streams) == 1
            else self._several_streams(task, pieces, streams)
        )
        for frame in made:
            frame.sequence = self._sequence
            self._sequence += SEQUENCE_STEP
            try:
                self._packed.extend(self._ready(frame))
            except EmitError:  # one of many rows: those that can go still go
                if len(rest := self._without_refused(frame)):
                    self._packed.extend(self._ready(rest))

    def _ready(self, frame: Frame) -> list[AnyFrame]:
        target = frame.target_task
        if target in self.unpacked_for:
            for section in frame.sections:
                section.columns = list(map(_own, section.columns))
            return [frame]
        if target in self.near_for and (nbytes := _flat_bytes(frame)) is not None:
            for section in frame.sections:
                section.columns = [c.own() if isinstance(c, ArrowColumn) else c
                                   for c in section.columns]  # fmt: skip
            frame.nbytes = nbytes
            return [frame]
        return list(frame.pack())

    def _without_refused(self, frame: Frame) -> Frame:
        """Return the frame without the rows that do not pickle, after `refuse` was told of them."""
        sections = []
        order = None if frame.order is None else frame.order.copy()
        for number, section in enumerate(frame.sections):
            stays = []
            for row in range(section.count):
                values = [column[row] for column in section.columns]
                try:
                    dump_emitted(values)
                except EmitError as error:
                    trees = section.cut(row, row + 1).trees
                    roots = [] if trees is None else trees.roots.tolist()
                    self._refuse(section.stream, values, roots, error)
                else:
                    stays.append(row)
            places = np.array(stays, np.int64)
            if order is not None:
                own = np.flatnonzero(order == number)
                order = np.delete(order, np.delete(own, places))
            columns: list[Column] = [[column[row] for row in stays] for column in section.columns]
            trees = section.trees.select(places) if section.trees is not None else None
            sections.append(Section(section.stream, len(stays), columns, trees))
        return Frame(frame.source_task, frame.target_task, frame.sequence, sections, order)

    def _one_stream(self, task: int, pieces: list[Piece]) -> Iterator[Frame]:
        whole = _joined([piece.section for piece in pieces])
        for start, stop in _even_cuts(whole.count, _most_in_a_frame(whole)):
            yield Frame(self._task, task, 0, [whole.cut(start, stop)])

    def _several_streams(
        self, task: int, pieces: list[Piece], streams: list[str]
    ) -> Iterator[Frame]:
        of_stream = [[p for p in pieces if p.section.stream == name] for name in streams]
        sections = [_joined([piece.section for piece in own]) for own in of_stream]
        positions = [np.concatenate([_known(p.positions) for p in own]) for own in of_stream]
        numbers = np.repeat(np.arange(len(sections)), [len(own) for own in positions])
        order = numbers[np.argsort(np.concatenate(positions), kind="stable")].astype(np.uint8)
        done = [0] * len(sections)
        for start, stop in _even_cuts(len(order), MAX_TUPLES):
            part = order[start:stop]
            counts = np.bincount(part, minlength=len(sections)).tolist()
            cut = [s.cut(at, at + n) for s, at, n in zip(sections, done, counts, strict=True)]
            done = [at + n for at, n in zip(done, counts, strict=True)]
            yield Frame(self._task, task, 0, cut, part)


def piece_of(
    stream: str,
    emitted: Rows,
    rows: I64 | None,
    selector: Selector,
    trees: Trees | None,
    positions: I64 | None,
) -> Piece:
    """Return one part of a deal that covers `rows`."""
    columns, count = emitted.columns, emitted.count
    chosen: Selector = selector
    if rows is not None:
        chosen = rows if selector is None else rows[selector]
    if chosen is None:
        return Piece(Section(stream, count, columns, trees), positions)
    gathered = [_gather(column, chosen) for column in columns]
    size = len(range(count)[chosen]) if isinstance(chosen, slice) else len(chosen)
    own = trees.select(selector) if trees is not None and selector is not None else trees
    where = positions[chosen] if positions is not None else None
    return Piece(Section(stream, size, gathered, own), where)


def _gather(column: Column, chosen: slice | I64) -> Column:
    if isinstance(chosen, slice):
        sliced: Column = column[chosen]
        return sliced
    if isinstance(column, ArrowColumn):
        return column.take(chosen)
    if len(chosen) == 1:
        return [column[int(chosen[0])]]
    gathered: tuple[Any, ...] = itemgetter(*chosen.tolist())(column)
    return gathered


def _joined(sections: list[Section]) -> Section:
    if len(sections) == 1:
        return sections[0]
    columns = [
        _joined_columns([section.columns[i] for section in sections])
        for i in range(len(sections[0].columns))
    ]
    trees = join_trees([(section.count, section.trees) for section in sections])
    return Section(sections[0].stream, sum(s.count for s in sections), columns, trees)


def _joined_columns(columns: list[Column]) -> Column:
    of_arrow = joined(columns)
    return list(chain.from_iterable(columns)) if of_arrow is None else of_arrow


def _own(column: Column) -> Column:
    """Return a column that its reader may change the values of, as if it had travelled."""
    if isinstance(column, ArrowColumn):
        return column.own()
    if _UNCHANGEABLE.issuperset(map(type, column)):
        return column
    return decode_column(encode_column(column))


def _flat_bytes(frame: Frame) -> int | None:
    """Return about how many bytes the values take, or None if one of them can be changed."""
    found = 0
    for section in frame.sections:
        found += section.count
        if section.trees is not None:
            found += 16 * len(section.trees.roots)
        for column in section.columns:
            if isinstance(column, ArrowColumn):
                found += column.nbytes
                continue
            kinds = set(map(type, column))
            if kinds == _TEXT:
                found += sum(map(len, column))
            elif kinds <= _UNCHANGEABLE:
                found += sum(map(getsizeof, column))
            else:
                return None
    return found


def _most_in_a_frame(section: Section) -> int:
    """Return how many tuples like these make a full frame."""
    if not section.columns:
        return MAX_TUPLES
    size = 0 if section.trees is None else 16 * len(section.trees.roots)
    for column in section.columns:
        if not isinstance(column, ArrowColumn):
            return MAX_TUPLES
        size += column.nbytes
    fitting = section.count * _FILLED // max(size, 1)
    return min(MAX_ROWS, max(MAX_TUPLES, fitting))


def _even_cuts(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield cuts of about the same size, none over a frame's maximum."""
    parts = -(-count // most)
    for part in range(parts):
        yield part * count // parts, (part + 1) * count // parts


def _known(positions: I64 | None) -> I64:
    assert positions is not None, "two streams to one bolt are emitted in order"
    return positions
