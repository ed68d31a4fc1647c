"""Frames: tuples on their way from one task to another, column by column.

A frame holds up to a few thousand tuples. It has one section for each stream, since the columns of
two streams differ; if a bolt reads several streams of one component, `order` keeps the order in
which they were emitted. The tuple trees travel beside the values: for each tuple its roots and, for
each root, its edge.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topo.errors import EmitError, TopoError
from topo.wire.arrow import ArrowColumn, listed
from topo.wire.column import decode_column, encode_column
from topo.wire.payload import FRAME, check_frame

U64: TypeAlias = NDArray[np.uint64]
I64: TypeAlias = NDArray[np.int64]
Column: TypeAlias = list[Any] | tuple[Any, ...] | ArrowColumn
Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_TUPLES = 4096
MAX_ROWS = 1 << 14
"""The same for tuples that came as Arrow columns: nothing is done to each of them."""
MAX_BYTES = 1 << 20
MAX_COLUMN_BYTES = (1 << 32) - 1
SEQUENCE_STEP = 1 << 16  # between frames, so that the parts of one that is split have their own
LOOPED = 1 << 63
"""The sequences of frames that have gone over a loop begin here: of an earlier batch."""
_HEAD = struct.Struct("<BIIQHI")
_SECTION = struct.Struct("<HIHBI")
_LENGTH = struct.Struct("<I")

NO_TREES, ONE_ROOT_EACH, ANY_ROOTS = 0, 1, 2


@dataclass
class Trees:
    """The trees of a run of tuples: `roots` and `edges` run over all of the tuples.

    `counts` is the number of roots of each tuple; None means one each, the ordinary case.
    """

    roots: U64
    edges: U64
    counts: I64 | None = None

    def select(self, selector: slice | I64) -> Trees | None:
        """Return the trees of some of the tuples, or None if these have no roots."""
        if self.counts is None:
            return Trees(self.roots[selector], self.edges[selector])
        starts = (np.cumsum(self.counts) - self.counts)[selector]
        counts = self.counts[selector]
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        if total == 0:
            return None
        entries = np.repeat(starts - (ends - counts), counts) + np.arange(total)
        return Trees(self.roots[entries], self.edges[entries], counts)


def join_trees(parts: Sequence[tuple[int, Trees | None]]) -> Trees | None:
    """Join the trees of several runs of tuples, each given with its number of tuples."""
    if all(trees is None for _, trees in parts):
        return None
    if len(parts) == 1:
        return parts[0][1]
    given = [trees for _, trees in parts if trees is not None]
    roots = np.concatenate([trees.roots for trees in given])
    edges = np.concatenate([trees.edges for trees in given])
    if all(trees is not None and trees.counts is None for _, trees in parts):
        return Trees(roots, edges)
    counts = [
        np.zeros(count, np.int64)
        if trees is None
        else np.ones(count, np.int64)
        if trees.counts is None
        else trees.counts
        for count, trees in parts
    ]
    return Trees(roots, edges, np.concatenate(counts))


@dataclass
class Section:
    """The tuples of one stream in a frame."""

    stream: str
    count: int
    columns: list[Column]
    trees: Trees | None = None

    def cut(self, start: int, stop: int) -> Section:
        if start == 0 and stop == self.count:
            return self
        trees = self.trees.select(slice(start, stop)) if self.trees is not None else None
        columns = [column[start:stop] for column in self.columns]
        return Section(self.stream, stop - start, columns, trees)


class ColumnTooLong(Exception):
    """A column of more bytes than a frame has room for; fewer tuples may fit."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


@dataclass
class Frame:
    """Tuples from one task to another, in the order they were emitted.

    `order` has the section number of each tuple; it is None if there is one section.
    """

    source_task: int
    target_task: int
    sequence: int
    sections: list[Section]
    order: NDArray[np.uint8] | None = field(default=None)
    nbytes: int = field(default=0, compare=False)
    """About how many bytes the values take, if whoever made it has counted them."""

    def __len__(self) -> int:
        return sum(section.count for section in self.sections)

    def encode(self) -> bytes:
        order = b"" if self.order is None else self.order.tobytes()
        parts = [
            _HEAD.pack(
                FRAME,
                self.source_task,
                self.target_task,
                self.sequence,
                len(self.sections),
                len(order),
            ),
            order,
        ]
        for section in self.sections:
            _encode_section(section, parts)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: Buffer, *, values: bool = True) -> Frame:
        view = memoryview(data)
        try:
            first, source, target, sequence, sections, ordered = _HEAD.unpack_from(view)
            check_frame(first)
            at = _HEAD.size
            order = np.frombuffer(view[at : at + ordered], np.uint8) if ordered else None
            at += ordered
            found = []
            for _ in range(sections):
                section, at = _decode_section(view, at, values)
                found.append(section)
        except (struct.error, ValueError, IndexError) as error:
            raise TopoError(f"invalid frame ({len(data)} bytes): {error}") from error
        return cls(source, target, sequence, found, order)

    def unpack(self) -> Frame:
        return self

    def listed(self) -> Frame:
        """Return the frame with Python values in all columns."""
        if not any(
            isinstance(c, ArrowColumn) for section in self.sections for c in section.columns
        ):
            return self
        sections = [
            Section(
                section.stream, section.count, list(map(listed, section.columns)), section.trees
            )
            for section in self.sections
        ]
        return Frame(
            self.source_task, self.target_task, self.sequence, sections, self.order, self.nbytes
        )

    def pack(self) -> Iterator[PackedFrame]:
        """Encode the tuples as one frame, or as several if one would be too large."""
        try:
            data = self.encode()
        except ColumnTooLong as error:
            if len(self) <= 1:
                raise EmitError(f"a value of {error.size:,} bytes was emitted") from None
            parts = 2
        else:
            if len(data) <= MAX_BYTES or len(self) <= 1:
                yield PackedFrame(self.source_task, self.target_task, self.sequence, data)
                return
            # At once, and without the whole: each halving would encode everything again.
            parts = min(len(self), -(-len(data) // MAX_BYTES))
            del data
        for part in self._parts(parts):
            yield from part.pack()

    def cut(self, count: int) -> tuple[Frame, Frame]:
        """Return the first `count` tuples, and the others."""
        first, rest = self._at([0, count, len(self)])
        return first, rest

    def _parts(self, parts: int) -> Iterator[Frame]:
        """Yield the frame in so many parts of about the same number of tuples."""
        return self._at([part * len(self) // parts for part in range(parts + 1)])

    def _at(self, bounds: Sequence[int]) -> Iterator[Frame]:
        several = self.order is not None
        order = np.zeros(len(self), np.uint8) if self.order is None else self.order
        done = [0] * len(self.sections)
        for start, stop in pairwise(bounds):
            counts = np.bincount(order[start:stop], minlength=len(self.sections)).tolist()
            sections = [
                section.cut(at, at + count)
                for section, at, count in zip(self.sections, done, counts, strict=True)
            ]
            done = [at + count for at, count in zip(done, counts, strict=True)]
            yield Frame(
                self.source_task,
                self.target_task,
                self.sequence + start,
                sections,
                order[start:stop] if several else None,
            )


@dataclass
class PackedFrame:
    """A frame as bytes, whose values have not been decoded."""

    source_task: int
    target_task: int
    sequence: int
    data: Buffer

    @property
    def nbytes(self) -> int:
        """The number of its bytes."""
        return len(self.data)

    @classmethod
    def of(cls, data: Buffer) -> PackedFrame:
        """Read the head of a frame from `data`."""
        try:
            first, source, target, sequence, _, _ = _HEAD.unpack_from(data)
        except struct.error as error:
            raise TopoError(f"invalid frame ({len(data)} bytes): {error}") from error
        check_frame(first)
        return cls(source, target, sequence, data)

    def unpack(self) -> Frame:
        return Frame.decode(self.data)

    def without_values(self) -> Frame:
        """Return the frame with its tuples' trees alone."""
        return Frame.decode(self.data, values=False)


AnyFrame: TypeAlias = Frame | PackedFrame


def _encode_section(section: Section, parts: list[bytes]) -> None:
    name = section.stream.encode()
    trees = section.trees
    kind = NO_TREES if trees is None else ONE_ROOT_EACH if trees.counts is None else ANY_ROOTS
    roots = 0 if trees is None else len(trees.roots)
    parts.append(_SECTION.pack(len(name), section.count, len(section.columns), kind, roots))
    parts.append(name)
    if trees is not None:
        parts += (trees.roots.tobytes(), trees.edges.tobytes())
        if trees.counts is not None:
            parts.append(trees.counts.astype(np.uint32).tobytes())
    for column in section.columns:
        data = encode_column(column)
        if len(data) > MAX_COLUMN_BYTES:
            raise ColumnTooLong(len(data))
        parts += (_LENGTH.pack(len(data)), data)


def _decode_section(view: memoryview, at: int, values: bool) -> tuple[Section, int]:
    name_length, count, columns, kind, roots = _SECTION.unpack_from(view, at)
    at += _SECTION.size
    name = str(view[at : at + name_length], "utf-8")
    at += name_length
    trees = None
    if kind != NO_TREES:
        # Copied, for the bytes of a frame are not aligned.
        both = np.frombuffer(view[at : at + 16 * roots], np.uint64).copy()
        at += 16 * roots
        trees = Trees(both[:roots], both[roots:])
        if kind == ANY_ROOTS:
            counts = np.frombuffer(view[at : at + 4 * count], np.uint32)
            trees.counts = counts.astype(np.int64)
            at += 4 * count
    found: list[Column] = []
    for _ in range(columns):
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if values:
            column = decode_column(view[at : at + length])
            if len(column) != count:
                raise ValueError(f"a column of {len(column)} values for {count} tuples")
            found.append(column)
        at += length
    return Section(name, count, found, trees), at
