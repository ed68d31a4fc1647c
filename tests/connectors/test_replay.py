"""ReplaySpout: tables at a chosen speed, exactly once over restarts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.moving import Collects, Told
from tests.wiring import line
from topo import ComponentError
from topo.connectors.kafka import Backoff
from topo.connectors.replay import ReplaySpout
from topo.testing import TestCluster
from topo.testing.cluster import SteppedRun

ROWS = [{"at": 100 + 10 * n, "n": n} for n in range(5)]


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    Told.fails.clear()
    Collects.counts.clear()
    Collects.rolls_back = False
    with TestCluster() as cluster:
        yield cluster


def started(cluster: TestCluster, spout: Any, bolt: Any = None, **more: Any) -> SteppedRun:
    return cluster.submit_topology("t", line(spout, bolt or Collects()), **more)


def numbers(run: SteppedRun) -> list[Any]:
    return [row[0] for row in run.tuples("s")]


def test_rows_come_with_their_gaps_divided_by_the_speed(cluster: TestCluster) -> None:
    run = started(cluster, ReplaySpout(ROWS, time="at", speed=10, fields="n"))
    seen = [len(numbers(run))]
    for _ in range(4):
        cluster.advance(1)
        seen.append(len(numbers(run)))
    assert seen == [1, 2, 3, 4, 5] or seen == [0, 2, 3, 4, 5]
    cluster.advance(1)
    assert run.status == "COMPLETED"
    assert numbers(run) == list(range(5))


def test_so_many_rows_a_second(cluster: TestCluster) -> None:
    run = started(cluster, ReplaySpout(ROWS, rate=2, fields="n", repeat=2))
    cluster.advance(1)
    assert numbers(run) == [0, 1, 2]
    for _ in range(20):
        cluster.advance(0.5)
    assert numbers(run) == [*range(5), *range(5)]
    assert run.status == "COMPLETED"


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_files_of_each_kind(cluster: TestCluster, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows{kind}"
    if kind == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif kind == ".parquet":
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.Table.from_pylist(ROWS), path)
    else:
        mark = {".csv": ",", ".tsv": "\t"}[kind]
        lines = [mark.join(("at", "n")), *(f"{row['at']}{mark}{row['n']}" for row in ROWS)]
        path.write_text("\n".join(lines))
    types = {"n": int} if kind in (".csv", ".tsv") else None
    run = started(cluster, ReplaySpout(path, time="at", speed=100, fields=("n", "at"), types=types))
    cluster.advance(5)
    assert run.status == "COMPLETED"
    assert numbers(run) == list(range(5))


def test_a_frame_of_pandas(cluster: TestCluster) -> None:
    pd = pytest.importorskip("pandas")
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    times = [begin + timedelta(hours=n) for n in range(3)]
    frame = pd.DataFrame({"at": pd.to_datetime(times), "n": [1, 2, 3], "x": [1.5, None, 2.5]})
    run = started(cluster, ReplaySpout(frame, time="at", speed=3600))
    cluster.advance(0.5)
    assert run.tuples("s") == [[begin, 1, 1.5]]
    cluster.advance(5)
    assert run.tuples("s")[1:] == [[times[1], 2, None], [times[2], 3, 2.5]]
    assert {type(value) for row in run.tuples("s") for value in row[:2]} == {datetime, int}


def test_restarts_and_rolled_back_batches_repeat_nothing(cluster: TestCluster) -> None:
    Collects.rolls_back = True
    rows = [{"n": n} for n in range(200)]
    run = started(cluster, ReplaySpout(rows, rate=10))
    for _ in range(6):
        cluster.advance(1)
        run.restart()
    while run.status in ("ACTIVE", "STALLED"):
        cluster.advance(1)
    assert Collects.counts == dict.fromkeys(range(200), 1)


def test_what_was_due_while_it_was_down_comes_at_its_own_speed(cluster: TestCluster) -> None:
    rows = [{"at": n, "n": n} for n in range(100)]
    run = started(cluster, ReplaySpout(rows, time="at", fields="n"))
    cluster.advance(5)
    run.deactivate()
    cluster.advance(50)
    before = len(numbers(run))
    run.activate()
    cluster.advance(3)
    assert before <= len(numbers(run)) <= before + 5


def test_a_row_that_fails_comes_again(cluster: TestCluster) -> None:
    Told.fails.update({1: 1, 2: 9})
    spout = ReplaySpout([{"n": n} for n in range(4)], retry=Backoff(retries=2))
    run = started(cluster, spout, Told(), conf={"topology.acker.executors": 1})
    cluster.advance(30)
    assert Counter(numbers(run)) == {0: 1, 1: 2, 2: 3, 3: 1}
    assert run.stats().components["s"].counters["dead"] == 1


def test_the_limit_of_what_is_in_flight_holds(cluster: TestCluster) -> None:
    conf = {"topology.acker.executors": 1, "topology.max.spout.pending": 3}
    run = started(cluster, ReplaySpout([{"n": n} for n in range(100)]), Told(), conf=conf)
    cluster.advance(200)
    assert sorted(numbers(run)) == list(range(100))


def test_rows_that_cannot_be_read(cluster: TestCluster) -> None:
    rows = [{"at": 1, "n": "7"}, {"at": "soon", "n": "8"}, {"n": "9"}, {"at": 2, "n": "x"}]
    spout = ReplaySpout(rows, time="at", fields="n", types={"n": int}, on_bad="stream")
    run = started(cluster, spout)
    cluster.advance(5)
    assert numbers(run) == [7]
    told = [(error, where) for _, error, where in run.tuples("s", "bad")]
    assert told == [
        ("ValueError: at='soon' is no time", "row 1 of the list"),
        ("ValueError: at=None is no time", "row 2 of the list"),
        ("ValueError: invalid literal for int() with base 10: 'x'", "row 3 of the list"),
    ]


def test_translate_and_streams(cluster: TestCluster) -> None:
    spout = ReplaySpout(
        ROWS,
        fields="n",
        streams={"odd": "n"},
        translate=lambda row: ("odd", [row.number]) if row.number % 2 else [row.value["n"]],
    )
    run = started(cluster, spout)
    cluster.advance(5)
    assert numbers(run) == [0, 2, 4]
    assert run.tuples("s", "odd") == [[1], [3]]


def test_a_file_that_is_not_there(cluster: TestCluster, tmp_path: Path) -> None:
    run = started(cluster, ReplaySpout(tmp_path / "no.csv", fields="n"))
    with pytest.raises(ComponentError, match=r"no\.csv' cannot be read"):
        run.step()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ReplaySpout("rows.xlsx"), "is none of .csv, .tsv"),
        (lambda: ReplaySpout([]), "data is a list"),
        (lambda: ReplaySpout("rows.csv"), "are not known before it is read"),
        (lambda: ReplaySpout(ROWS, time="when"), "time='when'; the columns are at, n"),
        (lambda: ReplaySpout(ROWS, time="at", rate=3), "either the rows' times"),
        (lambda: ReplaySpout(ROWS, speed=3), "speed=3 of what?"),
        (lambda: ReplaySpout(ROWS, rate=0), "rate=0; it is a number above 0"),
    ],
)
def test_what_cannot_be_meant(make: Any, words: str) -> None:
    with pytest.raises(ComponentError, match=words.replace("?", r"\?")):
        make()
