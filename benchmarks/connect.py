"""`topo bench connect`: connectors beside the bare client that does the same, on one core.

    kafka-in       JSON messages, parsed and counted by user
    kafka-out      records into a topic, exactly once beside at least once
    kafka-through  JSON messages, counted by user, each count into a topic, exactly once
    parquet-in     a file, summed up by a vectorised consumer beside a plain loop
    json-files     JSON lines to Parquet, exactly once, beside a loop with the same reader of JSON
    csv-files      CSV to Parquet, exactly once, beside a loop with the module csv
    postgres-out   rows into a table by COPY, beside COPY by the bare client

Each side runs in one slot, or in one loop, of this process, and the results are compared. A case
whose server or package is not installed is left out with a note. The servers are the tests' own
(`.ci/servers` installs them).
"""

from __future__ import annotations

import csv
import importlib
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import pytest

from benchmarks.model import BenchOptions, Measurement
from benchmarks.slots import OneSlot
from topo import BasicBolt, Spout, StatefulBasicBolt, Topology, TopologyBuilder, Tuple
from topo.connectors.files import FileBolt, FileSpout
from topo.connectors.formats import decoder

_BATCH = 40_000
_CHUNK = 4_000
_ROWS_A_SECOND = 100_000  # a guess that turns --seconds into an amount of work
_USERS = 1000

Sides: TypeAlias = "tuple[float, float, bool]"
"""Rows a second, those of the other side, and whether the results are right."""


class Rows(Spout):
    """Emits rows of a number and a user, in chunks."""

    outputs = ("n", "user")

    def __init__(self, total: int) -> None:
        self.total = total
        self.sent = 0

    def next_tuple(self) -> None:
        if self.sent < self.total:
            numbers = range(self.sent, min(self.sent + _CHUNK, self.total))
            self.sent = numbers.stop
            columns: dict[str, list[Any]] = {"n": list(numbers)}
            columns["user"] = [f"u{n % _USERS}" for n in numbers]
            self.collector.emit_many(columns)

    def is_exhausted(self) -> bool:
        return self.sent >= self.total


class Count(BasicBolt):
    """Counts by user."""

    transient = ("counts",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.counts: Counter[str] = Counter()

    def execute(self, tup: Tuple) -> None:
        self.counts[tup.user] += 1


class CountOut(StatefulBasicBolt):
    """Counts by user, and emits each count."""

    outputs = ("user", "count")

    def execute(self, tup: Tuple) -> None:
        self.state[tup.user] = self.state.get(tup.user, 0) + 1
        self.emit([tup.user, self.state[tup.user]])


class Last(BasicBolt):
    """Adds up the results of each batch's query."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.rows = self.total = 0

    def execute(self, tup: Tuple) -> None:
        self.rows += tup.rows
        self.total += tup.total


def run_slot(topology: Topology) -> tuple[OneSlot, float]:
    """Run a topology to its end, with what each committed batch publishes; return its seconds."""
    slot = OneSlot(topology)
    started = perf_counter()
    while not (slot.host.exhausted and not slot.host.pending):
        slot.batch(_BATCH)
        slot.host.tell_committed()
    slot.batch(_BATCH, last=True)
    slot.host.tell_committed()
    return slot, perf_counter() - started


def component(slot: OneSlot, name: str) -> Any:
    return slot.host.tasks[slot.layout.tasks_of(name)[0]].component


# -- Kafka -----------------------------------------------------------------------------------------


@contextmanager
def kafka_server(directory: Path) -> Iterator[Any]:
    server = importlib.import_module("tests.servers.kafka").KafkaServer(directory)
    try:
        yield server
    finally:
        server.process.stop()


def kafka_in(server: Any, total: int) -> Sides:
    from topo.connectors.kafka import KafkaSpout

    topic = server.topic(1)
    server.write(
        topic, (json.dumps({"user": f"u{n % _USERS}", "n": n}).encode() for n in range(total))
    )
    spout = KafkaSpout(
        server.address, topic, guarantee="exactly_once", value="json", fields="user",
        until="latest",
    )  # fmt: skip
    builder = TopologyBuilder()
    builder.set_spout("clicks", spout)
    builder.set_bolt("count", Count()).fields_grouping("clicks", ["user"])
    slot, seconds = run_slot(builder.create_topology())
    bare, bare_seconds = count_by_client(server.address, topic, total)
    right = component(slot, "count").counts == bare and sum(bare.values()) == total
    return total / seconds, total / bare_seconds, right


def count_by_client(address: str, topic: str, total: int) -> tuple[Counter[str], float]:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": address, "group.id": "bare", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    counts: Counter[str] = Counter()
    done = 0
    started = perf_counter()
    while done < total:
        for message in consumer.consume(10_000, timeout=0.1):
            counts[json.loads(message.value())["user"]] += 1
            done += 1
    seconds = perf_counter() - started
    consumer.close()
    return counts, seconds


def kafka_out(server: Any, total: int) -> Sides:
    from topo.connectors.kafka import KafkaBolt

    rates = []
    right = True
    for guarantee in ("exactly_once", "at_least_once"):
        topic = server.topic(1)
        builder = TopologyBuilder()
        builder.set_spout("rows", Rows(total))
        sink = KafkaBolt(server.address, topic, key="user", guarantee=guarantee)
        builder.set_bolt("sink", sink).global_grouping("rows")
        slot, seconds = run_slot(builder.create_topology())
        slot.host.close()
        rates.append(total / seconds)
        written = sorted(json.loads(message.value())["n"] for message in server.read(topic))
        right = right and written == list(range(total))
    return rates[0], rates[1], right


def kafka_through(server: Any, total: int) -> Sides:
    from topo.connectors.kafka import KafkaBolt, KafkaSpout

    topic, target, bare_target = server.topic(1), server.topic(1), server.topic(1)
    server.write(
        topic, (json.dumps({"user": f"u{n % _USERS}", "n": n}).encode() for n in range(total))
    )
    builder = TopologyBuilder()
    spout = KafkaSpout(
        server.address, topic, guarantee="exactly_once", value="json", fields="user",
        until="latest",
    )  # fmt: skip
    builder.set_spout("clicks", spout)
    builder.set_bolt("count", CountOut()).fields_grouping("clicks", ["user"])
    sink = KafkaBolt(server.address, target, key="user", guarantee="exactly_once")
    builder.set_bolt("sink", sink).global_grouping("count")
    slot, seconds = run_slot(builder.create_topology())
    slot.host.close()
    bare_seconds = counted_by_client(server.address, topic, bare_target, total)
    written, wanted = (
        [(message.key(), json.loads(message.value())) for message in server.read(each)]
        for each in (target, bare_target)
    )
    right = written == wanted and len(written) == total
    return total / seconds, total / bare_seconds, right


def counted_by_client(address: str, topic: str, target: str, total: int) -> float:
    """Count, with a transaction for as many messages as a batch of topo may have."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    settings = {"bootstrap.servers": address, "group.id": target, "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = Producer({"bootstrap.servers": address, "transactional.id": target})
    producer.init_transactions()
    counts: Counter[str] = Counter()
    done = 0
    started = perf_counter()
    while done < total:
        producer.begin_transaction()
        end = min(done + _BATCH, total)
        while done < end:
            for message in consumer.consume(min(10_000, end - done), timeout=0.1):
                user = json.loads(message.value())["user"]
                counts[user] += 1
                value = json.dumps({"user": user, "count": counts[user]})
                producer.produce(target, value.encode(), user)
                done += 1
            producer.poll(0)
        position = consumer.position([TopicPartition(topic, 0)])
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
        producer.commit_transaction()
    seconds = perf_counter() - started
    consumer.close()
    return seconds


# -- files and tables ------------------------------------------------------------------------------


def parquet_in(directory: Path, total: int) -> Sides:
    from topo.connectors.query import QueryBolt

    pa, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    path = directory / "rows.parquet"
    table = pa.table(
        {"n": pa.array(range(total)), "user": [f"u{n % _USERS}" for n in range(total)]}
    )
    parquet.write_table(table, path, row_group_size=_BATCH)
    builder = TopologyBuilder()
    builder.set_spout("rows", FileSpout(str(path), "parquet", fields=("n", "user")))
    query = QueryBolt("select count(*) as rows, sum(n)::bigint as total from input")
    builder.set_bolt("query", query).global_grouping("rows")
    builder.set_bolt("last", Last()).global_grouping("query")
    slot, seconds = run_slot(builder.create_topology())

    started = perf_counter()
    rows = summed = 0
    for batch in parquet.ParquetFile(path).iter_batches(_BATCH):
        for n, _ in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            rows += 1
            summed += n
    plain = perf_counter() - started
    last = component(slot, "last")
    return total / seconds, total / plain, (last.rows, last.total) == (rows, summed)


def json_files(directory: Path, total: int) -> Sides:
    source = directory / "rows.jsonl"
    with source.open("w") as file:
        for n in range(total):
            row = {"n": n, "user": f"u{n % _USERS}", "amount": n * 0.25}
            file.write(json.dumps(row) + "\n")
    loads = decoder("json", "bench", "value")
    return _to_parquet(source, "json", total, lambda: map(loads, source.open("rb")))


def csv_files(directory: Path, total: int) -> Sides:
    source = directory / "rows.csv"
    with source.open("w") as file:
        file.write("n,user,amount\n")
        file.writelines(f"{n},u{n % _USERS},{n * 0.25}\n" for n in range(total))
    return _to_parquet(source, "csv", total, lambda: csv.DictReader(source.open(newline="")))


def _to_parquet(
    source: Path, form: Any, total: int, rows: Callable[[], Iterable[dict[str, Any]]]
) -> Sides:
    """Write records as Parquet by a topology, and by a loop with a group of rows a batch."""
    pa, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    target, plain = source.with_suffix(""), source.with_suffix(".parquet")
    builder = TopologyBuilder()
    builder.set_spout("rows", FileSpout(source, form, fields=("n", "user", "amount")))
    sink = FileBolt(target, "parquet", guarantee="exactly_once")
    builder.set_bolt("sink", sink).global_grouping("rows")
    started = perf_counter()
    slot, _ = run_slot(builder.create_topology())
    slot.host.close()  # the open file gets its name
    seconds = perf_counter() - started

    started = perf_counter()
    writer, given = None, iter(rows())
    while listed := list(islice(given, _BATCH)):
        table = pa.Table.from_pylist(listed)
        writer = writer or parquet.ParquetWriter(plain, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    plain_seconds = perf_counter() - started
    written = parquet.read_table(target)
    right = written.equals(parquet.read_table(plain)) and written.num_rows == total
    shutil.rmtree(target)
    return total / seconds, total / plain_seconds, right


@contextmanager
def postgres_server(directory: Path) -> Iterator[Any]:
    server = importlib.import_module("tests.servers.postgres").start()
    try:
        yield server
    finally:
        server.stop()


def postgres_out(server: Any, total: int) -> Sides:
    from topo.connectors.sql import SqlBolt

    table = server.table('n bigint, "user" text')
    builder = TopologyBuilder()
    builder.set_spout("rows", Rows(total))
    builder.set_bolt("sink", SqlBolt(server.url, table)).global_grouping("rows")
    slot, seconds = run_slot(builder.create_topology())
    slot.host.close()

    bare = server.table('n bigint, "user" text')
    started = perf_counter()
    with server.connect() as connection, connection.cursor() as cursor:
        for start in range(0, total, _BATCH):
            with cursor.copy(f'copy {bare} (n, "user") from stdin') as copy:
                for n in range(start, min(start + _BATCH, total)):
                    copy.write_row((n, f"u{n % _USERS}"))
            connection.commit()
    plain = perf_counter() - started
    counts = [server.rows(f"select count(*), sum(n) from {name}") for name in (table, bare)]
    return total / seconds, total / plain, counts[0] == counts[1]


CASES: dict[str, tuple[Any, Callable[[Any, int], Sides], float]] = {
    "kafka-in": (kafka_server, kafka_in, 2.0),
    "kafka-out": (kafka_server, kafka_out, 1.0),
    "kafka-through": (kafka_server, kafka_through, 1.0),
    "parquet-in": (None, parquet_in, 10.0),
    "json-files": (None, json_files, 6.0),
    "csv-files": (None, csv_files, 3.0),
    "postgres-out": (postgres_server, postgres_out, 2.0),
}
"""The server of each case, its two sides, and its share of the amount of work."""


def run(options: BenchOptions) -> list[Measurement]:
    """Measure every case whose server is installed."""
    found = []
    for name in CASES:
        try:
            found.append(_measure(options, name))
        except (ImportError, FileNotFoundError, pytest.skip.Exception) as missing:
            options.progress(f"connect {name}: left out, {missing}")
    return found


def _measure(options: BenchOptions, name: str) -> Measurement:
    server, sides, share = CASES[name]
    total = max(_BATCH, int(options.seconds * _ROWS_A_SECOND * share / 4))
    rates: list[float] = []
    others: list[float] = []
    right = True
    with tempfile.TemporaryDirectory(prefix="topo-bench-") as scratch:
        directory = Path(scratch)
        with server(directory) if server else _nothing(directory) as target:
            for repeat in range(options.repeat):
                options.progress(f"connect {name}: {repeat + 1} of {options.repeat}")
                rate, other, well = sides(target, total)
                rates.append(rate)
                others.append(other)
                right = right and well
    return Measurement.of(
        "connect", {"case": name}, "rows", rates, verified=right, loop_rates=others
    )


@contextmanager
def _nothing(directory: Path) -> Iterator[Path]:
    yield directory
