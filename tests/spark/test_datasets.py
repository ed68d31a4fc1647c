"""Spark's own sources and sinks: every row counts once, whatever fails in between."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from tests.spark.doubles import LONGEST_SECS, WORKERS, wait_until
from topo import (
    BasicBolt,
    CheckpointError,
    ComponentError,
    ConfigError,
    LocalCluster,
    StatefulBasicBolt,
    Topology,
    TopologyBuilder,
    Tuple,
)
from topo.connectors.spark import SparkSink, SparkSource

pytestmark = pytest.mark.spark

NUMBER = "value as number"
FORMATS = ("csv", "json", "parquet")


class Seen(StatefulBasicBolt):
    """Counts how often each number has come, and emits it."""

    outputs = ("number", "format", "times")

    def execute(self, tup: Tuple) -> None:
        times = self.state.get(tup.number, 0) + 1
        self.state[tup.number] = times
        self.emit([tup.number, tup.source_component, times])


def write_file(directory: Path, form: str, numbers: Iterable[int]) -> None:
    """Put a file of numbers under its name, whole at once."""
    listed = list(numbers)
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = directory / f".{listed[0]}"
    if form == "parquet":
        pa.parquet.write_table(pa.table({"number": pa.array(listed, pa.int64())}), unfinished)
    else:
        lines = map(str, listed) if form == "csv" else (json.dumps({"number": n}) for n in listed)
        unfinished.write_text("\n".join(lines) + "\n")
    unfinished.rename(directory / f"{listed[0]}.{form}")


def copying(root: Path, formats: Iterable[str] = FORMATS) -> Topology:
    """Return a topology that reads three directories, counts, and writes what it counted."""
    builder = TopologyBuilder()
    seen = builder.set_bolt("seen", Seen(), parallelism=2)
    for form in formats:
        source = SparkSource(
            form, {"path": str(root / form)}, schema="number bigint", fields=("number",)
        )
        builder.set_spout(form, source, parallelism=2)
        seen.fields_grouping(form, "number")
    schema = "number bigint, format string, times int"
    sink = SparkSink("parquet", path=str(root / "out"), schema=schema, partition_by="format")
    builder.set_bolt("out", sink, parallelism=2).local_or_shuffle_grouping("seen")
    few = SparkSink("json", path=str(root / "few"), schema="number int", map=_number)
    builder.set_bolt("few", few).shuffle_grouping("seen")
    return builder.create_topology()


def _number(tup: Tuple) -> dict[str, Any]:
    return {"number": tup.number}


def written(directory: Path) -> Counter[int]:
    if not directory.is_dir():
        return Counter()
    form = "json" if directory.name == "few" else "parquet"
    found = pa.dataset.dataset(str(directory), format=form, partitioning="hive").to_table()
    return Counter(found.column("number").to_pylist())


def test_every_row_of_every_file_counts_once(cluster: LocalCluster, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    conf = {**WORKERS, "topology.checkpoint.dir": checkpoint, "topology.batch.source.ms": 100}
    for at, form in enumerate(FORMATS):
        write_file(tmp_path / form, form, range(at, 3000, 3))
    out = tmp_path / "out"
    out.write_text("in the way")
    run = cluster.submit_topology("t", copying(tmp_path), conf, capture=["seen"])
    wait_until(lambda: run.status == "STALLED" and "'out'" in run.reason, "the sink fails")
    reason = run.reason
    assert "bolt 'out': Spark cannot write batch 0 as parquet" in reason
    assert str(out) in reason
    out.unlink()
    wait_until(lambda: len(run.tuples("seen")) == 3000, "the batch has run again")
    for at, form in enumerate(FORMATS):
        write_file(tmp_path / form, form, range(3000 + at, 3300, 3))
    wait_until(lambda: len(run.tuples("seen")) == 3300, "the next files")
    run.stop()
    assert {times for _, _, times in run.tuples("seen")} == {1}
    assert all(number % 3 == FORMATS.index(form) for number, form, _ in run.tuples("seen"))
    # As if the driver had died between the last write and Spark's commit of it.
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    for begun in (tmp_path / "checkpoint" / "offsets").iterdir():  # of a batch that run.stop ended
        number = begun.name.strip(".").removesuffix(".crc")
        if number.isdigit() and int(number) > last:
            begun.unlink()
    (place,) = (tmp_path / "few").glob("topo_checkpoint=*")
    stale = place / f"topo_batch={last}"
    if not stale.exists():  # nothing was written in it, but an attempt could have had rows
        stale.mkdir()
        (stale / "part-0.json").write_text('{"number": 5}\n')
    for at, form in enumerate(FORMATS):
        write_file(tmp_path / form, form, range(3300 + at, 3600, 3))
    run = cluster.submit_topology("t", copying(tmp_path), conf)
    everything = Counter(range(3600))

    def is_written() -> bool:
        try:
            return written(tmp_path / "few") == everything
        except FileNotFoundError:  # what the attempt before has left is just removed
            return False

    wait_until(is_written, "the rest")
    run.kill()
    assert written(out) == written(tmp_path / "few") == everything
    run = cluster.submit_topology("t", copying(tmp_path, ("csv", "json")), conf)
    assert run.wait(LONGEST_SECS)
    with pytest.raises(CheckpointError, match="spout 'parquet' is gone"):
        run.raise_error()


def rates(source: SparkSource) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("rates", source)
    builder.set_bolt("seen", Seen()).fields_grouping("rates", "number")
    return builder.create_topology()


def test_rows_that_come_while_it_is_inactive_wait(cluster: LocalCluster, tmp_path: Path) -> None:
    options = {"rowsPerBatch": 10, "numPartitions": 2}
    topology = rates(SparkSource("rate-micro-batch", options, select=NUMBER))
    checkpoint = str(tmp_path / "checkpoint")
    conf = {**WORKERS, "topology.checkpoint.dir": checkpoint, "topology.batch.idle.ms": 50}
    numbers: list[int] = []
    for _ in range(2):
        run = cluster.submit_topology("t", topology, conf, active=False, capture=["seen"])
        wait_until(lambda run=run: run.stats().batch.count > 2, "batches")  # type: ignore[misc]
        assert run.tuples("seen") == []
        run.activate()
        wait_until(lambda run=run: len(run.tuples("seen")) > 50, "tuples")  # type: ignore[misc]
        run.deactivate()
        wait_until(lambda run=run: run.status == "INACTIVE", "inactive")  # type: ignore[misc]
        run.kill()
        numbers += [number for number, _, times in run.tuples("seen")]
        assert {times for _, _, times in run.tuples("seen")} == {1}
    # The last rows are in the checkpoint: Spark has handed them over.
    assert sorted(numbers) == list(range(len(numbers)))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (SparkSource("jsn", {"path": "/"}, fields="number"), "Spark cannot read its jsn source"),
        (
            SparkSource("rate", select="valeu as number"),
            r"spout 'rates': Spark cannot read its rate source: .*valeu",
        ),
        (SparkSource("rate", fields="number", select="*"), "gives the columns timestamp, value"),
    ],
)
def test_a_source_that_cannot_be_is_named(
    cluster: LocalCluster, source: SparkSource, said: str
) -> None:
    run = cluster.submit_topology("t", rates(source), WORKERS)
    assert run.wait(LONGEST_SECS)
    with pytest.raises(ComponentError, match=said):
        run.raise_error()


def test_real_time_mode_refuses_them(cluster: LocalCluster) -> None:
    topology = rates(SparkSource("rate", select=NUMBER))
    with pytest.raises(ConfigError, match=r"spout 'rates' is a SparkSource: .* in micro-batches"):
        cluster.submit_topology("t", topology, {"topology.mode": "real-time"})


class Fails(BasicBolt):
    """Hands its input on, but not the number 7."""

    outputs = ("number",)

    def execute(self, tup: Tuple) -> None:
        if tup.number == 7:
            raise ValueError("no sevens")
        self.emit([tup.number])


def test_what_user_code_raises_is_told_beside_a_sink(cluster: LocalCluster, tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("rates", SparkSource("rate-micro-batch", {"rowsPerBatch": 10}, select=NUMBER))
    builder.set_bolt("fails", Fails()).shuffle_grouping("rates")
    sink = SparkSink("json", path=str(tmp_path / "out"), schema="number bigint")
    builder.set_bolt("out", sink).shuffle_grouping("fails")
    run = cluster.submit_topology("t", builder.create_topology(), WORKERS)
    assert run.wait(LONGEST_SECS)
    with pytest.raises(ValueError, match=r"bolt 'fails' task \d+, .*no sevens"):
        run.raise_error()
