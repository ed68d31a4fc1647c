"""The programs of `examples/ten_programs.py`: live, whatever the batches, to the end, on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from examples.ten_programs import DATA, PROGRAMS, SECOND, streams, topology
from tests.property.scale import scaled
from topo import Spout, Topology
from topo.streams import StreamBuilder
from topo.testing import FeederSpout, TestCluster, complete_topology, elements, laws_of_batches

Found = dict[str, list[Any]]

LIVE: dict[str, Found] = {
    "early_sessions": {
        "sessions": [("ann", "early", 2), ("bob", "on_time", 1), ("ann", "on_time", 3)]
    },
    "top_pages": {"top": [(0, [("home", 3), ("help", 2)]), (10_000, [("news", 1)])]},
    "trending_hashtags": {"trending": [("#rain", 60_000, 3)]},
    "unpaid_orders": {"paid": [1, 3], "unpaid": [2], "unasked": [9]},
    "in_euros": {"euros": [(1, 5.0), (2, 7.5), (3, None)]},
    "silences": {"silent": [("ann", 2), ("bob", 2)]},
    "without_duplicates": {"unique": ["one", "two", "one anew"]},
}
"""What comes while the input goes on."""

AT_END: dict[str, Found] = {
    **LIVE,
    "hopping_average": {
        "means": [(-10_000, 2.0, 1), (0, 3.0, 2), (10_000, 5.0, 2), (20_000, 6.0, 1),
                  (30_000, 8.0, 1), (40_000, 8.0, 1)],
        "late": [],
    },
    "early_sessions": {"sessions": [*LIVE["early_sessions"]["sessions"], ("zoe", "on_time", 1)]},
    "top_pages": {"top": [*LIVE["top_pages"]["top"], (20_000, [("home", 1)])]},
    "unpaid_orders": {"paid": [1, 3], "unpaid": [2], "unasked": [7, 9]},
    "in_euros": {"euros": [*LIVE["in_euros"]["euros"], (4, 0.75)]},
    "silences": {"silent": [*LIVE["silences"]["silent"], ("zoe", 1)]},
}  # fmt: skip
"""What has come at its end."""

TABLES: dict[str, Found] = {
    "spent_by_country": {"countries": [("de", 6)]},
    "orders_with_names": {
        "named": [(1, ("pen", "Bob")), (2, ("ink", "Anna")), (3, ("book", "Bob"))]
    },
}
"""What a table has last; which changes there are before depends on batches."""

ON_SPARK = (
    [*AT_END, *TABLES]
    if scaled(3) == 3
    else ["top_pages", "unpaid_orders", "in_euros", "trending_hashtags", "orders_with_names"]
)


def program(name: str, sources: Any = None, seen: Path | None = None) -> Topology:
    """Return a program whose results are components, and which notes each result in a file."""
    s = StreamBuilder()
    for stream, result in streams(s, name, sources).items():
        shown = result.named(stream)
        if seen is None:
            shown.print()
        else:
            shown.for_each(partial(note, seen))
    return s.build()


def note(seen: Path, result: Any) -> None:
    with seen.open("a") as file:
        file.write(f"{result!r}\n")


class UntilSeen(Spout):
    """Emits its rows, and ends when so many results have come: none of them waits for the end."""

    def __init__(self, fields: Sequence[str], rows: Sequence[Any], seen: Path, count: int) -> None:
        self.outputs = tuple(fields)
        self.rows = [*rows]
        self.seen = seen
        self.count = count
        self.sent = 0

    def next_tuple(self) -> None:
        if self.sent < len(self.rows):
            self.emit([*self.rows[self.sent]])
            self.sent += 1

    def is_exhausted(self) -> bool:
        if self.sent < len(self.rows):
            return False
        return self.count == 0 or len(self.seen.read_text().splitlines()) >= self.count


def in_order(results: Found) -> Found:
    return {stream: sorted(several, key=repr) for stream, several in results.items()}


def without_late_rows(name: str) -> Any:
    """Return the mock sources of a program; which row is late depends on batches."""
    rows = {source: list(of_source) for source, (_, of_source) in DATA[name].items()}
    if name == "hopping_average":
        rows["readings"].remove(("s", 9.0, 2 * SECOND))
    return rows


def test_all_programs_are_tried() -> None:
    assert {*AT_END, *TABLES} == set(PROGRAMS) == set(DATA)


@pytest.mark.parametrize("name", LIVE)
def test_results_come_when_they_are_complete_whatever_the_batches(name: str) -> None:
    results = laws_of_batches(
        program(name), without_late_rows(name), results=list(LIVE[name]), most=4
    )
    of_pairs = name == "silences"
    values = {
        stream: [tuple(row[:2]) if of_pairs else row[0] for row in rows]
        for stream, rows in results.items()
    }
    assert in_order(values) == in_order(LIVE[name])


def test_what_is_late_goes_aside() -> None:
    fields, rows = DATA["hopping_average"]["readings"]
    feeder = FeederSpout(fields)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", program("hopping_average", {"readings": feeder}))
        for row in rows:
            feeder.feed(row)
            run.settle()
            run.restart()
        assert elements(run, "means") == AT_END["hopping_average"]["means"][:4]
        assert elements(run, "late") == [9.0]


@pytest.mark.parametrize("name", AT_END)
def test_everything_comes_by_the_end(name: str) -> None:
    run = complete_topology(program(name), without_late_rows(name))
    found = {stream: elements(run, stream) for stream in AT_END[name]}
    assert in_order(found) == in_order(AT_END[name])


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("restarts", [False, True])
def test_tables_end_up_the_same(name: str, restarts: bool) -> None:
    ((stream, last),) = TABLES[name].items()
    run = complete_topology(program(name))
    assert last_of(run, stream) == last
    feeders = {source: FeederSpout(fields) for source, (fields, _) in DATA[name].items()}
    with TestCluster() as cluster:
        stepped = cluster.submit_topology("t", program(name, feeders))
        for source, (_, rows) in reversed(DATA[name].items()):
            for row in rows:
                feeders[source].feed(row)
                stepped.settle()
                if restarts:
                    stepped.restart()
        assert last_of(stepped, stream) == last


def last_of(run: Any, stream: str) -> list[Any]:
    """Return what a table's changes make of it; None deletes a row."""
    rows = dict(elements(run, stream)).items()
    return sorted((key, value) for key, value in rows if value is not None)


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
@pytest.mark.parametrize("name", ON_SPARK)
def test_spark_gives_the_same_live_and_to_the_end(name: str, mode: str, tmp_path: Path) -> None:
    wanted = AT_END.get(name) or TABLES[name]
    seen = tmp_path / "seen"
    seen.touch()
    live = sum(map(len, LIVE.get(name, {}).values()))
    rows = without_late_rows(name)
    sources = {
        source: UntilSeen(fields, rows[source], seen, live)
        for source, (fields, _) in DATA[name].items()
    }
    run = complete_topology(program(name, sources, seen), engine="spark", mode=mode)
    if name in TABLES:
        ((stream, last),) = TABLES[name].items()
        assert last_of(run, stream) == last
        return
    assert in_order({stream: elements(run, stream) for stream in wanted}) == in_order(wanted)


def test_the_example_runs_each_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    complete_topology(topology("top_pages"))
    assert "top (0, [('home', 3), ('help', 2)])" in capsys.readouterr().out
    with pytest.raises(ValueError, match="there is no program 'top'; there are hopping_average"):
        topology("top")
