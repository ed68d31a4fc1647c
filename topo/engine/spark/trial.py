"""`topo doctor --spark`: checks of a Spark session, its workers, and one topology on them."""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.builder import TopologyBuilder
from topo.components import BasicBolt
from topo.config.masters import is_local
from topo.engine.shapes import Check
from topo.engine.spark.driver.executors import executors_of
from topo.engine.spark.driver.run import SparkRun
from topo.engine.spark.driver.worker_check import SHIP, look_at_workers
from topo.engine.spark.jvm.session import start_session, stop_session
from topo.errors import EngineError, TopoError
from topo.lists import FromList
from topo.topology.model import Topology
from topo.tuples import Tuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_SECS = 120.0
_EXECUTORS_SECS = 30.0


class Keep(BasicBolt):
    """A bolt that stores its last input."""

    def execute(self, tup: Tuple) -> None:
        self.last = tup.n


def check_spark(master: str, given: Mapping[str, Any]) -> Iterator[Check]:
    """Check Spark with these settings; of a topology's settings only the ackers' are used."""
    with tempfile.TemporaryDirectory() as directory:
        conf = {key: given[key] for key in given if key.startswith(("spark.", "topology.acker."))}
        log = Path(directory) / "spark.log"
        try:
            session = start_session(master, conf, log)
        except Exception as error:
            yield _failed("spark", f"Spark did not start on {master}", error)
            return
        try:
            yield Check("spark", "ok", f"spark {session.version} on {master}")
            well = True
            for check in _workers(session, master, log):
                yield check
                well &= check.status != "FAIL"
            if well:
                yield _batch(master, conf, log)
        finally:
            stop_session()


def _workers(session: SparkSession, master: str, log: Path) -> Iterator[Check]:
    """Compare the workers' packages with the driver's."""
    try:
        tasks = _executors(session, master, log)
        seen = look_at_workers(session, tasks)
    except TopoError as error:
        yield Check("workers", "FAIL", error.message, error.hint)
        return
    for found in seen:
        host = f"workers on {found.host}"
        if found.wrong:
            fix = f"install them there, or {SHIP}"
            yield Check("workers", "FAIL", f"{host}: {'; '.join(found.wrong)}", fix)
        elif found.differs or found.python != platform.python_version():
            python = f"Python {found.python} (the driver has {platform.python_version()})"
            differs = [python] if found.python != platform.python_version() else []
            told = ", ".join([*differs, *found.differs])
            yield Check("workers", "warn", f"{host}: {told}", "the same release, so it may do")
        else:
            yield Check("workers", "ok", f"{host}: Python {found.python}, same packages")


def _executors(session: SparkSession, master: str, log: Path) -> int:
    """Wait for executors; return the number of tasks that reaches them all."""
    if is_local(master):
        return 1
    executors = executors_of(session, None, log)
    late = time.monotonic() + _EXECUTORS_SECS
    executors.wait_for_cores(lambda: time.monotonic() > late, time.sleep)
    if not executors.cores:
        raise EngineError(
            f"{master} gave no executor within {_EXECUTORS_SECS:.0f} s",
            hint=executors.why_none,
        )
    return executors.cores


def _batch(master: str, conf: dict[str, Any], log: Path) -> Check:
    conf = {**conf, "topology.workers": 1, "topology.acker.executors": 1}
    run = SparkRun("topo-doctor", _topology(), conf, master=master, log_file=log)
    try:
        run.start().await_completion(_BATCH_SECS)
    except Exception as error:
        run.kill()
        return _failed("batch", "a topology does not run", error)
    return Check(
        "batch", "ok", f"a topology ran to its end; last batch {run.stats().batch.ms:.0f} ms"
    )


def _topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("one", FromList([1], "n"))
    builder.set_bolt("keep", Keep()).shuffle_grouping("one")
    return builder.create_topology()


def _failed(name: str, what: str, error: Exception) -> Check:
    words = error.message if isinstance(error, TopoError) else str(error).strip().partition("\n")[0]
    fix = error.hint if isinstance(error, TopoError) else ""
    return Check(name, "FAIL", f"{what}: {words}", fix)
