"""bytewax doing what `topo bench windows` measures, in the same process and over the same events.

Its clock is made to stand, so that its watermark follows the events alone, as topo's does; rows are
prepared before, on both sides.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from time import process_time
from typing import Any

_EPOCH = datetime(2020, 1, 1, tzinfo=UTC)

Chunk = tuple[list[str], list[int], list[str]]
Found = dict[Any, int]


def is_installed() -> bool:
    return importlib.util.find_spec("bytewax") is not None


def with_bytewax(
    kind: str, chunks: Iterable[Chunk], campaigns: Mapping[str, str], gap: int
) -> tuple[Counter[tuple[str, int]], float]:
    """Return how often each (key, count) came out, and the processor seconds that it took."""
    op, win, dataflow, testing = (
        importlib.import_module(f"bytewax.{name}")
        for name in ("operators", "operators.windowing", "dataflow", "testing")
    )
    rows = [
        (key, _EPOCH + timedelta(milliseconds=ts), kind_of)
        for keys, times, kinds in chunks
        for key, ts, kind_of in zip(keys, times, kinds, strict=True)
    ]
    flow = dataflow.Dataflow("bench")
    stream = op.input("in", flow, testing.TestingSource(rows, batch_size=1000))
    if kind == "ysb":
        stream = op.filter("views", stream, lambda row: row[2] == "view")
        stream = op.map("campaign", stream, lambda row: (campaigns[row[0]], row[1]))
    windowers = {
        "sliding": lambda: win.SlidingWindower(
            length=timedelta(seconds=60), offset=timedelta(seconds=1), align_to=_EPOCH
        ),
        "sessions": lambda: win.SessionWindower(gap=timedelta(milliseconds=gap)),
    }
    tumbling = lambda: win.TumblingWindower(length=timedelta(seconds=10), align_to=_EPOCH)  # noqa: E731
    clock = win.EventClock(
        lambda row: row[1],
        wait_for_system_duration=timedelta(0),
        now_getter=lambda: _EPOCH,
        to_system_utc=lambda at: None,
    )
    windower = windowers.get(kind, tumbling)()
    counts = win.count_window("count", stream, clock, windower, lambda row: row[0])
    out: list[Any] = []
    op.output("out", counts.down, testing.TestingSink(out))
    started = process_time()
    testing.run_main(flow)
    seconds = process_time() - started
    return Counter((key, n) for key, (_, n) in out), seconds


def counted(found: Found) -> Counter[tuple[str, int]]:
    """Return how often each (key, count) is among the results of windows."""
    return Counter((key, n) for (key, _, _), n in found.items())
