"""Bytes of earlier days: a payload and a journal are read as long as their number stands."""

from __future__ import annotations

from pathlib import Path

from topo.engine.spark.worker.header import BatchHeader
from topo.engine.spark.worker.messages import Payload
from topo.runtime.slot import Batch
from topo.tracking.journal import unpack_failures
from topo.tracking.plan import Mode
from topo.wire.frame import Frame
from topo.wire.rows import unpack_rows

GOLDEN = Path(__file__).parent / "golden"

HEADER = BatchHeader(Batch(12, 100.5, 99.25), Mode.ACTIVE)
FAILURES = {5: "timeout after 30 s", 6: "no 3", 2**63 + 1: "no 3"}


def test_a_golden_frame_is_read() -> None:
    frame = Frame.decode(GOLDEN.joinpath("frame-1.bin").read_bytes())
    assert (frame.source_task, frame.target_task, frame.sequence) == (3, 7, 40)
    assert frame.order is not None
    assert frame.order.tolist() == [0, 1, 0]
    first, second = frame.sections
    assert (first.stream, first.columns, first.trees) == (
        "default",
        [["cow", "mo\u00f6n"], [1, 2.5]],
        None,
    )
    assert (second.stream, second.count, second.columns) == ("odd", 1, [[None]])
    assert second.trees is not None
    assert second.trees.counts is not None
    assert second.trees.roots.tolist() == [5, 6]
    assert second.trees.edges.tolist() == [8, 9]
    assert second.trees.counts.tolist() == [2]


def test_a_golden_header_is_read() -> None:
    payloads: list[Payload] = [GOLDEN.joinpath("header-1.bin").read_bytes()]
    assert BatchHeader.find(payloads) == HEADER
    assert payloads == []


def test_golden_rows_are_read() -> None:
    assert unpack_rows(GOLDEN.joinpath("rows-1.bin").read_bytes()) == (9, b"an Arrow stream")


def test_a_golden_journal_of_failures_is_read() -> None:
    text = GOLDEN.joinpath("failures.json").read_text(encoding="utf-8")
    assert unpack_failures(text) == FAILURES
