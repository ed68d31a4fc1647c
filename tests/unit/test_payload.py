"""The first bytes of what travels between slots: one table, in which a number never changes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import topo
from topo import TopoError
from topo.engine.spark.worker.header import BatchHeader
from topo.engine.spark.worker.spool import Spool, each_frame
from topo.runtime.slot import Batch
from topo.tracking.plan import Mode
from topo.wire import payload
from topo.wire.frame import Frame, PackedFrame, Section
from topo.wire.payload import FRAME, HEADER, REFERENCE, PayloadKind


def frame() -> bytes:
    return Frame(1, 2, 3, [Section("default", 1, [["x"]])]).encode()


def test_numbers_never_change_their_meaning() -> None:
    """Checkpoints hold them: add a line at the end, and here."""
    assert [(kind.value, kind.name) for kind in PayloadKind] == [
        (0, "HEADER_1"),
        (1, "FRAME_1"),
        (2, "REFERENCE_1"),
        (3, "MARKS_1"),
        (4, "ROWS_1"),
        (5, "TAKEN_1"),
    ]


def test_each_payload_begins_with_its_kind(tmp_path: Path) -> None:
    assert BatchHeader(Batch(7, 1.0, 0.5), Mode.ACTIVE).pack()[0] == HEADER
    assert frame()[0] == FRAME
    bundle = Spool(str(tmp_path), 0, most_in_rows=0).begin(7)
    with bundle:
        bundle.add(1, 1, frame())
    ((_, _, reference),) = bundle.sends()
    assert reference[0] == REFERENCE
    (found,) = each_frame([reference])
    assert bytes(found) == frame()


@pytest.mark.parametrize(
    ("first", "words"), [(0, "header_1"), (2, "reference_1"), (200, "number 200")]
)
def test_what_is_no_frame_is_named(first: int, words: str) -> None:
    other = bytes([first]) + frame()[1:]
    for decode in (Frame.decode, PackedFrame.of):
        with pytest.raises(TopoError, match=f"payload {words} .this topo reads frame_1."):
            decode(other)


def test_first_bytes_are_compared_with_the_table_alone() -> None:
    """A number written elsewhere would clash with the next version of another payload."""
    found = []
    for path in sorted(Path(topo.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare) and ast.unparse(node.left) == "payload[0]":
                found += [(path.name, ast.unparse(other)) for other in node.comparators]
    assert found
    assert all(hasattr(payload, name) for _, name in found), found
