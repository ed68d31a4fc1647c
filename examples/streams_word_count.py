"""Counts words with the Streams API, all of them and the long ones, and prints both at the end.

    topo local examples/streams_word_count.py

The operators become three bolts: one function that splits, filters and gives keys, in the stage of
the spout, and one bolt with state for each count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from topo import Topology
from topo.streams import StreamBuilder

LINES = (
    "the cow jumped over the moon",
    "an apple a day keeps the doctor away",
    "four score and seven years ago",
    "snow white and the seven dwarfs",
)


def words(line: str) -> Iterator[str]:
    yield from re.findall(r"\w+", line.lower())


def topology() -> Topology:
    program = StreamBuilder()
    spoken = program.stream(LINES, name="lines").flat_map(words)
    spoken.key_by().count().at_end().print("word")
    spoken.filter(lambda word: len(word) > 4).key_by(len).count().at_end().print("length")
    return program.build()
