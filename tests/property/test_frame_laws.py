"""Frames come back from bytes as they were, in one piece or in several."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.property.scale import examples
from tests.property.values import any_text, described, values
from topo.errors import TopoError
from topo.wire import frame as module
from topo.wire.column import decode_column, encode_column
from topo.wire.frame import Frame, PackedFrame, Section, Trees, join_trees

u64 = st.integers(0, 2**64 - 1)


def array(numbers: list[int]) -> Any:
    return np.array(numbers, np.uint64)


@st.composite
def trees(draw: st.DrawFn, count: int) -> Trees | None:
    kind = draw(st.sampled_from(["none", "one each", "any"]))
    if kind == "none":
        return None
    counts = [1] * count
    if kind == "any":
        counts = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    total = sum(counts)
    roots, edges = (draw(st.lists(u64, min_size=total, max_size=total)) for _ in range(2))
    own = None if kind == "one each" else np.array(counts, np.int64)
    return Trees(array(roots), array(edges), own)


@st.composite
def sections(draw: st.DrawFn, stream: str) -> Section:
    count = draw(st.integers(0, 12))
    column = st.lists(st.one_of(values, any_text), min_size=count, max_size=count)
    texts = st.lists(any_text, min_size=count, max_size=count)
    columns = draw(st.lists(st.one_of(column, texts), max_size=3))
    return Section(stream, count, columns, draw(trees(count)))


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    names = draw(st.lists(any_encodable, min_size=1, max_size=3, unique=True))
    made = [draw(sections(name)) for name in names]
    order = None
    if len(made) > 1:
        numbers = [number for number, section in enumerate(made) for _ in range(section.count)]
        order = np.array(draw(st.permutations(numbers)), np.uint8)
    return Frame(draw(st.integers(1, 65535)), draw(st.integers(1, 65535)), 65536, made, order)


any_encodable = st.text(max_size=8)


def tuples_of(frame: Frame) -> list[tuple[str, str, list[tuple[int, int]]]]:
    """Each tuple in order: its stream, its values, its roots with their edges."""
    found = []
    order = [0] * len(frame) if frame.order is None else frame.order.tolist()
    done = [0] * len(frame.sections)
    taken = [0] * len(frame.sections)
    for number in order:
        section = frame.sections[number]
        row = done[number]
        done[number] += 1
        roots: list[tuple[int, int]] = []
        if section.trees is not None:
            tree = section.trees
            count = 1 if tree.counts is None else int(tree.counts[row])
            span = slice(taken[number], taken[number] + count)
            taken[number] += count
            roots = list(zip(tree.roots[span].tolist(), tree.edges[span].tolist(), strict=True))
        shown = described([column[row] for column in section.columns])
        found.append((section.stream, shown, roots))
    return found


@given(column=st.one_of(st.lists(any_text), st.lists(values)))
@example(column=[])
@example(column=[""])
@example(column=["", ""])
@example(column=["\0"])
@example(column=["a", "b\0c", ""])
@example(column=["\ud800", "x"])
@example(column=["text", b"bytes", None])
@examples(100)
def test_a_column_comes_back(column: list[Any]) -> None:
    assert described(decode_column(encode_column(column))) == described(column)
    assert described(decode_column(encode_column(tuple(column)))) == described(column)


@given(frame=frames())
@examples(60)
def test_a_frame_comes_back(frame: Frame) -> None:
    again = Frame.decode(frame.encode())
    assert (again.source_task, again.target_task, again.sequence) == (
        frame.source_task,
        frame.target_task,
        frame.sequence,
    )
    assert len(again) == len(frame)
    assert [len(s.columns) for s in again.sections] == [len(s.columns) for s in frame.sections]
    assert tuples_of(again) == tuples_of(frame)


@given(frame=frames(), limit=st.integers(40, 500))
@examples(60)
def test_a_frame_that_is_too_large_comes_back_from_its_pieces(frame: Frame, limit: int) -> None:
    with mock.patch.object(module, "MAX_BYTES", limit):
        pieces = list(frame.pack())
    decoded = [piece.unpack() for piece in pieces]
    assert [found for piece in decoded for found in tuples_of(piece)] == tuples_of(frame)
    assert [PackedFrame.of(piece.data) for piece in pieces] == pieces
    sequences = [piece.sequence for piece in pieces]
    assert sequences == sorted(set(sequences))
    assert sequences[0] == frame.sequence
    assert sequences[-1] < frame.sequence + module.SEQUENCE_STEP
    for piece, frame in zip(pieces, decoded, strict=True):
        assert len(piece.data) <= limit or len(frame) <= 1


@pytest.mark.parametrize("streams", [1, 2])
def test_frames_are_split_at_a_megabyte(streams: int) -> None:
    made = [Section(f"s{n}", 40, [["x" * 60_000] * 40]) for n in range(streams)]
    order = None if streams == 1 else np.array([0, 1] * 40, np.uint8)
    pieces = list(Frame(1, 2, 0, made, order).pack())
    assert 1 < len(pieces) <= 8 * streams
    assert all(len(piece.data) <= module.MAX_BYTES for piece in pieces)
    assert sum(len(piece.unpack()) for piece in pieces) == 40 * streams


@given(data=st.data(), counts=st.lists(st.integers(0, 6), min_size=1, max_size=5))
@examples(50)
def test_trees_join_and_select(data: st.DataObject, counts: list[int]) -> None:
    parts = [(count, data.draw(trees(count))) for count in counts]
    joined = join_trees(parts)
    whole = tuples_of(Frame(1, 2, 0, [Section("s", sum(counts), [], joined)]))
    singly = [tuples_of(Frame(1, 2, 0, [Section("s", n, [], own)])) for n, own in parts]
    assert whole == [found for part in singly for found in part]
    if joined is not None and whole:
        chosen = data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=8))
        selected = joined.select(np.array(chosen, np.int64))
        section = Section("s", len(chosen), [], selected)
        assert tuples_of(Frame(1, 2, 0, [section])) == [whole[index] for index in chosen]


@given(data=st.binary(max_size=60))
@examples(50)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(TopoError, match=r"invalid frame|unsupported frame format"):
        Frame.decode(b"\x09" + data)
