"""The run that makes the archive of Spark's classes (`jvm/class_archive.py` says what it gains).

It runs a small topology in both modes, so that the JVM has loaded what any topology needs, in a
process of its own with the lowest priority. A run starts it when it ends, or after a minute, and
does not wait for it. One process of a machine at a time does this, and it gives up after ten
minutes; another try comes a day later.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from topo.builder import TopologyBuilder
from topo.components import Spout, StatefulBasicBolt
from topo.engine.spark.driver.run import SparkRun
from topo.engine.spark.jvm.class_archive import find_archive
from topo.engine.spark.jvm.java import find_java
from topo.engine.spark.jvm.session import record_classes, stop_session
from topo.errors import TopoError
from topo.functions import bolt
from topo.topology.model import Topology
from topo.tuples import Tuple

_LIMIT_SECS = 600
_RUN_SECS = 180.0
_NICE = 19


class Numbers(Spout):
    """A spout that emits a few messages and is exhausted."""

    outputs = ("n",)

    def __init__(self) -> None:
        self.left = 20

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.emit([self.left], msg_id=self.left)

    def is_exhausted(self) -> bool:
        return not self.left


@bolt(outputs=("n",))
def double(tup: Tuple) -> Iterator[list[int]]:
    yield [tup.n * 2]


class Count(StatefulBasicBolt):
    """A bolt that counts by key."""

    def execute(self, tup: Tuple) -> None:
        self.state[tup.n] = self.state.get(tup.n, 0) + 1


def topology() -> Topology:
    """Return a topology with each kind of level: a spout's, one without state, one with."""
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("double", double).shuffle_grouping("numbers")
    builder.set_bolt("count", Count()).fields_grouping("double", "n")
    return builder.create_topology()


def main() -> None:
    settings: dict[str, str] = json.loads(sys.argv[1])
    os.nice(_NICE)
    signal.alarm(_LIMIT_SECS)
    archive = find_archive(find_java(), settings)
    if archive is None:
        return
    with open(archive.path.parent / "training.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # somebody else is at it
        if archive.is_wanted:
            archive.attempt.touch()
            with tempfile.TemporaryDirectory() as directory:
                _record(settings, Path(directory))
            archive.adopt_draft()


def _record(settings: Mapping[str, str], directory: Path) -> None:
    record_classes()
    logging.disable()
    conf: dict[str, Any] = {key: value for key, value in settings.items() if value}
    conf["topology.workers"] = 1
    for mode in ("micro-batch", "real-time"):
        conf["topology.mode"] = mode
        conf["topology.checkpoint.dir"] = str(directory / mode)
        run = SparkRun(f"training-{mode}", topology(), conf, master="local[4]")
        with suppress(TopoError, TimeoutError):  # what was loaded until then is worth recording
            run.start().await_completion(_RUN_SECS)
    stop_session(_LIMIT_SECS)


if __name__ == "__main__":
    main()
