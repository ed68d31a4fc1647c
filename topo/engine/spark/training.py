"""The runs that make the archive of Spark's classes (`jvm/class_archive.py` says what it gains).

A small topology runs in both modes, so that the JVM has loaded what any topology needs. It is
`topo doctor --warm` that calls this: nothing is started behind a user's back.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from topo.builder import TopologyBuilder
from topo.components import StatefulBasicBolt
from topo.engine.shapes import Check
from topo.engine.spark.driver.run import SparkRun
from topo.engine.spark.jvm.class_archive import CACHE, ClassArchive, find_archive
from topo.engine.spark.jvm.java import find_java
from topo.engine.spark.jvm.session import record_classes, spark_settings, stop_session
from topo.errors import TopoError
from topo.functions import bolt
from topo.lists import FromList
from topo.topology.model import Topology
from topo.tuples import Tuple

_RUN_SECS = 180.0
_ENDS_SECS = 120.0
_NAME = "class archive"
_NO_PLACE = f"set {CACHE} to a directory of your own"


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
    builder.set_spout("numbers", FromList(range(20), "n"))
    builder.set_bolt("double", double).shuffle_grouping("numbers")
    builder.set_bolt("count", Count()).fields_grouping("double", "n")
    return builder.create_topology()


def warm(conf: Mapping[str, Any]) -> Iterator[Check]:
    """Record the classes for these settings, unless they are; stops this process's Spark."""
    archive = find_archive(find_java(), spark_settings(conf))
    if archive is None:
        yield Check(_NAME, "warn", "there is no directory for an archive of classes", _NO_PLACE)
        return
    if not archive.is_possible:
        yield Check(_NAME, "skip", "this Java has no archive of its own to add Spark's classes to")
        return
    if archive.exists:
        yield Check(_NAME, "ok", f"Spark's classes are in {archive.path}")
        return
    yield _recorded(conf, archive)


def _recorded(conf: Mapping[str, Any], archive: ClassArchive) -> Check:
    try:
        with _recording(), tempfile.TemporaryDirectory() as directory:
            _record(conf, Path(directory))
    except TopoError as error:
        return Check(_NAME, "FAIL", f"Spark did not record its classes: {error}", error.hint)
    if not archive.adopt_draft():
        return Check(
            _NAME, "FAIL", "Java wrote no archive of Spark's classes", "topo doctor --spark"
        )
    size = archive.path.stat().st_size / 1e6
    return Check(_NAME, "ok", f"Spark's classes: {size:.0f} MB in {archive.path}")


@contextmanager
def _recording() -> Iterator[None]:
    stop_session()  # a JVM that runs already records nothing
    logging.disable()
    record_classes(True)
    try:
        yield
    finally:
        record_classes(False)
        logging.disable(logging.NOTSET)


def _record(conf: Mapping[str, Any], directory: Path) -> None:
    settings: dict[str, Any] = {key: conf[key] for key in conf if key.startswith("spark.")}
    settings["topology.workers"] = 1
    for mode in ("micro-batch", "real-time"):
        settings["topology.mode"] = mode
        settings["topology.checkpoint.dir"] = str(directory / mode)
        run = SparkRun(f"training-{mode}", topology(), settings, master="local[4]")
        with suppress(TimeoutError):  # what was loaded until then is worth recording
            run.start().await_completion(_RUN_SECS)
    stop_session(_ENDS_SECS)
