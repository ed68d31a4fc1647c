"""Counts words: a spout that ends, a function as a bolt, a bolt with plain attributes.

    topo local examples/word_count.py                 a built-in text
    topo local examples/word_count.py -- FILE         a file of your own
    python examples/word_count.py [FILE]              the same, through LocalCluster

The report prints the counts when the topology has ended.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from topo import (
    BasicBolt,
    Spout,
    SpoutOutputCollector,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    bolt,
)

TEXT = b"""\
the cow jumped over the moon
an apple a day keeps the doctor away
four score and seven years ago
snow white and the seven dwarfs
i am at two with nature
"""


class Lines(Spout):
    """Reads a file line by line; after a restart it goes on where the last commit was."""

    outputs = ("line",)

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.position = 0
        self.at_end = False

    def open(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutOutputCollector
    ) -> None:
        self.file = open(self.path, "rb") if self.path else io.BytesIO(TEXT)  # noqa: SIM115

    def restored(self) -> None:
        self.file.seek(self.position)  # position was saved, the file was opened anew

    def next_tuple(self) -> None:
        line = self.file.readline()
        if not line:
            self.at_end = True
            return
        self.emit([line.decode()], msg_id=self.position)
        self.position += len(line)

    def is_exhausted(self) -> bool:
        return self.at_end

    def close(self) -> None:
        self.file.close()


@bolt(outputs=("word",))
def split(tup: Tuple) -> Iterator[list[str]]:
    for word in re.findall(r"\w+", tup.line.lower()):
        yield [word]


class Count(BasicBolt):
    """Counts each word. `counts` is saved with every batch, since it changes."""

    outputs = ("word", "count")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        count = self.counts.get(tup.word, 0) + 1
        self.counts[tup.word] = count
        self.emit([tup.word, count])


class Report(BasicBolt):
    """Keeps the last count of each word, and prints them when the topology ends."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        self.totals[tup.word] = tup.count

    def cleanup(self) -> None:
        for word, count in sorted(self.totals.items(), key=lambda item: (-item[1], item[0])):
            print(f"{count:8,}  {word}")


def topology(path: str = "") -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("lines", Lines(str(Path(path).resolve()) if path else ""))
    builder.set_bolt("split", split, parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", ["word"])
    builder.set_bolt("report", Report()).global_grouping("count")
    return builder.create_topology()


def main() -> None:
    from topo import LocalCluster

    with LocalCluster() as cluster:
        run = cluster.submit_topology("word-count", topology(*sys.argv[1:]))
        run.await_completion(timeout=600)


if __name__ == "__main__":
    main()
