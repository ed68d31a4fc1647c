"""`topo bench word-peers`: the word count of topo, bytewax and Spark alone, in turn in one process.

What is measured is processor time, of this process and all below it: words a second are those of
one core that does nothing else, so that other work on the machine counts little. Starting and
stopping is left out. What is not installed is left out with a note; all counts have to agree.

    topo       one slot on one core with each hop encoded and decoded, without Spark
    bytewax    one worker; a keyed stream straight from the split, batches of 1,000 sentences
    spark      Structured Streaming over text files, `explode(split(...))`, then `groupBy("word")`;
               20 times as many sentences, since each of its batches has a fixed cost
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from time import process_time
from typing import Any

from benchmarks.inline import count_with_topo
from benchmarks.model import BenchOptions, Measurement
from benchmarks.processes import cpu_seconds
from benchmarks.words import WORDS_A_SENTENCE, count_in_a_loop, sentences

_SENTENCES_A_SECOND = 60_000  # a guess that turns --seconds into an amount of work
_FILES, _SPARK_SHARE = 4, 20
_BATCH = 1_000

Counted = tuple[dict[str, int], float]
"""What was counted, and the processor seconds that it took."""


def run(options: BenchOptions) -> list[Measurement]:
    total = _BATCH * max(1, int(options.seconds * _SENTENCES_A_SECOND) // _BATCH)
    sides: dict[tuple[str, bool], Callable[[int], Counted]] = {
        (f"topo by {way}", tracked): partial(
            count_with_topo, tracked=tracked, way=way, clock=process_time
        )
        for way in ("values", "batch")
        for tracked in (False, True)
    }
    for name, package in _PACKAGES.items():
        if importlib.util.find_spec(package) is None:
            options.progress(f"word-peers {name}: left out, {package} is not installed")
        else:
            sides[name, False] = with_bytewax if name == "bytewax" else with_spark
    rates: dict[tuple[str, bool], list[float]] = {side: [] for side in sides}
    right = dict.fromkeys(sides, True)
    loop_rates: list[float] = []
    words = total * WORDS_A_SENTENCE
    for repeat in range(options.repeat):
        given = sentences()
        started = process_time()
        expected, _ = count_in_a_loop(given, total)
        loop_rates.append(words / (process_time() - started))
        for key, side in sides.items():
            options.progress(f"word-peers {key[0]}: {repeat + 1} of {options.repeat}")
            share = _SPARK_SHARE if key[0] == "spark" else 1
            counts, seconds = side(total * share)
            rates[key].append(words * share / seconds)
            wanted = expected if share == 1 else count_in_a_loop(given, total * share)[0]
            right[key] = right[key] and counts == wanted
    return [
        Measurement.of(
            "word-peers",
            {"system": name, "tracked": tracked},
            "words",
            rates[name, tracked],
            verified=right[name, tracked],
            loop_rates=loop_rates,
        )
        for name, tracked in sides
    ]


_PACKAGES = {"bytewax": "bytewax", "spark": "pyspark"}


def with_bytewax(total: int) -> Counted:
    """Count the words of so many sentences in one worker of bytewax."""
    op: Any = importlib.import_module("bytewax.operators")
    inputs: Any = importlib.import_module("bytewax.inputs")
    outputs: Any = importlib.import_module("bytewax.outputs")
    given = cycle(sentences())
    counts: dict[str, int] = {}

    class Part(inputs.StatelessSourcePartition):  # type: ignore[misc]
        left = total

        def next_batch(self) -> list[str]:
            if not self.left:
                raise StopIteration
            self.left -= _BATCH
            return list(islice(given, _BATCH))

    class Source(inputs.DynamicSource):  # type: ignore[misc]
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Any:
            return Part()

    class SinkPart(outputs.StatelessSinkPartition):  # type: ignore[misc]
        def write_batch(self, items: list[tuple[str, int]]) -> None:
            counts.update(items)  # the last count of a word is its count

    class Sink(outputs.DynamicSink):  # type: ignore[misc]
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Any:
            return SinkPart()

    def split(sentence: str) -> list[tuple[str, None]]:
        return [(word, None) for word in sentence.split()]

    def count(state: int | None, _: None) -> tuple[int, int]:
        number = (state or 0) + 1
        return number, number

    flow = importlib.import_module("bytewax.dataflow").Dataflow("words")
    stream = op.flat_map("split", op.input("sentences", flow, Source()), split)
    op.output("out", op.stateful_map("count", stream, count), Sink())
    testing = importlib.import_module("bytewax.testing")
    started = process_time()
    testing.run_main(flow)
    return counts, process_time() - started


def with_spark(total: int) -> Counted:
    """Count the words of so many sentences in a stream of Spark's, from as many files as batches.

    A first stream over one of the files warms the JVM up.
    """
    sql: Any = importlib.import_module("pyspark.sql")
    functions: Any = importlib.import_module("pyspark.sql.functions")
    builder = sql.SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    try:
        with tempfile.TemporaryDirectory(prefix="topo-bench-") as scratch:
            all_of_them = list(islice(cycle(sentences()), total))
            share = total // _FILES
            for number in range(_FILES):
                part = all_of_them[number * share : (number + 1) * share]
                for name in ("all", "warm") if number == 0 else ("all",):
                    place = Path(scratch, name)
                    place.mkdir(exist_ok=True)
                    (place / f"{number}.txt").write_text("\n".join(part) + "\n")

            def count(name: str) -> dict[str, int]:
                lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"{scratch}/{name}")
                words = lines.select(functions.explode(functions.split("value", " ")).alias("word"))
                counts = words.groupBy("word").count()
                stream = counts.writeStream.outputMode("complete").format("memory")
                stream = stream.option("checkpointLocation", f"{scratch}/of-{name}")
                stream.queryName(name).trigger(availableNow=True).start().awaitTermination()
                return {row["word"]: row["count"] for row in spark.table(name).collect()}

            count("warm")
            before = sum((cpu_seconds() or {}).values())
            found = count("all")
            return found, sum((cpu_seconds() or {}).values()) - before
    finally:
        spark.stop()
