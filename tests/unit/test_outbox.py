"""Frames are filled by what is done to their tuples: many of them if they came as columns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from topo.runtime.outbox import Outbox, Piece
from topo.wire.arrow import ArrowColumn
from topo.wire.frame import MAX_BYTES, MAX_ROWS, MAX_TUPLES, SEQUENCE_STEP, Section, Trees

pa = pytest.importorskip("pyarrow")
TASK, TARGET = 1, 2


def piece(*columns: Any, tracked: bool = False) -> Piece:
    count = len(columns[0])
    ids = np.arange(1, count + 1, dtype=np.uint64)
    trees = Trees(ids, ids) if tracked else None
    return Piece(Section("default", count, list(columns), trees), None)


def frames(*pieces: Piece) -> list[Any]:
    """Return the frames that are made of pieces, flushed one after the other."""
    outbox = Outbox(TASK)
    for each in pieces:
        outbox.add(TARGET, each)
        outbox.pack_full()
    return [packed.unpack() for packed in outbox.take()]


def values(made: list[Any]) -> list[Any]:
    return [value for frame in made for value in frame.sections[0].columns[0]]


def numbers(count: int, first: int = 0) -> ArrowColumn:
    return ArrowColumn(pa.array(range(first, first + count)))


def test_columns_wait_for_each_other_until_a_frame_is_full() -> None:
    pieces = [piece(numbers(1_000, first)) for first in range(0, MAX_ROWS + 2_000, 1_000)]
    made = frames(*pieces)
    assert len(made) == 3  # as soon as there are too many for one, they are cut in half
    assert max(map(len, made)) <= MAX_ROWS
    assert len(made[0]) > MAX_TUPLES
    assert values(made) == [*range(sum(map(len, made)))]


def test_tuples_that_came_one_by_one_fill_a_frame_sooner() -> None:
    made = frames(*(piece([*range(1_000)]) for _ in range(8)))
    assert [len(frame) for frame in made] == [2_500, 2_500, 3_000]
    assert MAX_TUPLES < 5_000


def test_a_column_that_is_a_list_makes_it_a_frame_of_tuples() -> None:
    made = frames(piece(numbers(10_000), [0] * 10_000), piece(numbers(100), [0] * 100))
    assert max(map(len, made)) <= MAX_TUPLES
    assert values(made) == [*range(10_000), *range(100)]


def test_long_values_fill_a_frame_by_their_bytes() -> None:
    text = ArrowColumn(pa.array(["x" * 150] * 2_000))
    made = frames(*(piece(text) for _ in range(10)))
    assert sum(map(len, made)) == 20_000
    assert max(map(len, made)) < MAX_ROWS // 2
    assert all(len(frame.encode()) <= MAX_BYTES for frame in made)
    assert all(frame.sequence % SEQUENCE_STEP == 0 for frame in made)  # none was split once more


def test_trees_count_for_what_a_frame_holds() -> None:
    columns = [numbers(MAX_ROWS) for _ in range(6)]
    assert len(frames(piece(*columns))) == 1
    made = frames(piece(*columns, tracked=True))
    assert len(made) == 2
    assert [number for frame in made for number in frame.sections[0].trees.roots.tolist()] == [
        *range(1, MAX_ROWS + 1)
    ]


def test_parts_of_a_frame_that_is_split_have_sequences_of_their_own() -> None:
    assert MAX_ROWS < SEQUENCE_STEP
    uneven = ArrowColumn(pa.array(["x"] * 10_000 + ["y" * 400] * 6_000))
    made = frames(piece(uneven))
    sequences = [frame.sequence for frame in made]
    assert len(made) > 1
    assert all(before < after for before, after in pairwise(sequences))
    assert values(made) == uneven.tolist()
