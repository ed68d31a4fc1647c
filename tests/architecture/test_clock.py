"""Time comes from the clock (`tracking/clock.py`), which no set or woken machine makes leap.

What reads the machine's clock itself times out by mistake when that is set, and cannot be tested
without waiting. `time.perf_counter` measures, and may stand anywhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

import pytest

from tests.architecture.exceptions import Offenders, check
from tests.architecture.source import Source, topo_sources

CLOCK = "tracking/clock.py"
_READS = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}


def clock_readers(sources: Iterable[Source]) -> Offenders:
    """Return how often a module reads the machine's clock."""
    counts = {s.place: len(reads_of(s)) for s in sources if s.place != CLOCK}
    return {place: count for place, count in counts.items() if count}


def reads_of(source: Source) -> list[str]:
    """Return each reference to a function that reads the clock."""
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in source.every(ast.ImportFrom)
        if node.module == "time"
        for alias in node.names
        if alias.name in _READS["time"]
    }
    reads = [
        f"{_last(node.value)}.{node.attr}"
        for node in source.every(ast.Attribute)
        if node.attr in _READS.get(_last(node.value), ())
    ]
    names = (node for node in source.every(ast.Name) if isinstance(node.ctx, ast.Load))
    return reads + [imported[node.id] for node in names if node.id in imported]


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


OFFENDERS = {"clock": lambda: clock_readers(topo_sources())}


def test_the_time_comes_from_the_clock() -> None:
    check("clock", OFFENDERS["clock"]())


@pytest.mark.parametrize(
    "code",
    [
        "now = time.monotonic()",
        "def f(now=time.time): ...",
        "from time import monotonic as steady\nat = steady()",
        "import datetime\nat = datetime.datetime.now(datetime.UTC)",
        "from datetime import datetime\nat = datetime.now()",
    ],
)
def test_a_read_of_the_clock_is_seen_however_it_is_written(code: str) -> None:
    assert len(reads_of(Source("a.py", code))) == 1


def test_a_measurement_and_a_time_that_is_given_are_none() -> None:
    code = "import time\ntime.perf_counter()\nself.time()\ndatetime.fromtimestamp(3)\nclock.now()"
    assert reads_of(Source("a.py", code)) == []
