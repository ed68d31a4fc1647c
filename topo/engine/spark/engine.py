"""The Spark engine as the seam has it.

`plan` and `check` need neither Spark nor gRPC, so that `topo explain` and `topo doctor` work where
only the core is installed; what runs topologies is imported when it is called.
"""

from __future__ import annotations

import logging
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.config.masters import is_local, local_cores
from topo.distribution import install_command, require
from topo.engine.base import Conf, Launch
from topo.engine.elastic import StatefulLaunch
from topo.engine.shapes import Check
from topo.engine.spark.driver.scratch import SLOT_SOCKET_BYTES, socket_parent
from topo.engine.spark.jvm.java import find_java
from topo.engine.spark.jvm.submitted import is_submitted, submitted_master, users_settings
from topo.engine.spark.plan import Plan, make_plan
from topo.errors import TopoError, words_of
from topo.runtime.describing import ways_of
from topo.runtime.task import full_conf
from topo.storage.savepoints import summary_of

if TYPE_CHECKING:
    from topo.engine.spark.driver.run import SparkRun

log = logging.getLogger("topo.spark")
_ENGINE = "the Spark engine"
_STOP_SECS = 15.0


class SparkEngine:
    """Runs topologies on Spark, in this process or on a cluster."""

    def launch(self, launch: Launch) -> SparkRun:
        require("spark", _ENGINE)
        from topo.engine.spark.driver.run import SparkRun

        conf = {**users_settings(), **launch.conf} if is_submitted() else launch.conf
        return SparkRun(
            launch.name,
            launch.topology,
            with_files(conf, launch.files, launch.archives),
            master=launch.master or (submitted_master() if is_submitted() else "local[*]"),
            active=launch.active,
            capture=launch.capture,
            conclusions=launch.conclusions,
            log_file=launch.log_file,
            listener=launch.listener,
            run_id=launch.run_id,
            fate=launch.fate if isinstance(launch, StatefulLaunch) else "",
            begin=launch.begin if isinstance(launch, StatefulLaunch) else {},
        )

    def stop(self) -> None:
        """Let Spark remove what it made, as it does if it is not killed; in bounded time."""
        stopping = threading.Thread(target=_stop_session, name="stop-spark", daemon=True)
        stopping.start()
        stopping.join(_STOP_SECS)
        if stopping.is_alive():
            log.warning("Spark did not end in %g s", _STOP_SECS)

    def plan(self, launch: Launch) -> Plan:
        cores = local_cores(launch.master if is_local(launch.master) else "local[*]")
        conf = full_conf(launch.conf)
        return make_plan(launch.topology, conf["topology.workers"] or cores, conf)

    def ways(self, launch: Launch) -> Mapping[str, str]:
        return ways_of(launch.topology, full_conf(launch.conf))

    def explain(self, launch: Launch) -> str:
        """Return Spark's physical plan; starts Spark, runs nothing."""
        require("spark", _ENGINE)
        from topo.engine.spark.driver.explain import spark_plan

        conf = full_conf(launch.conf)
        return spark_plan(launch.topology, self.plan(launch), conf, launch.master)

    def save(self, place: str, directory: Path, name: str) -> dict[str, Any]:
        """Write the last commit of a checkpoint that no run has; starts Spark."""
        require("spark", "the state of micro-batches")
        from topo.engine.spark.driver.savepoints import save_checkpoint

        return summary_of(save_checkpoint(place, directory, name))

    def differences(self, launch: StatefulLaunch) -> list[str]:
        from topo.engine.spark.driver.savepoints import differences_from

        return differences_from(launch.begin, self.plan(launch))

    def check(self) -> Iterator[Check]:
        yield from _java()
        yield from _pandas()
        yield from _unix_sockets()

    def try_out(self, master: str, conf: Conf, archives: Sequence[str]) -> Iterator[Check]:
        require("spark", _ENGINE)
        from topo.engine.spark.trial import check_spark

        yield from check_spark(master, with_files(conf, (), archives))

    def warm(self, conf: Conf) -> Iterator[Check]:
        require("spark", _ENGINE)
        from topo.engine.spark.training import warm

        yield from warm(conf)


def _stop_session() -> None:
    from topo.engine.spark.jvm.session import stop_session

    try:
        stop_session()
    except Exception as error:  # its JVM may have died before
        log.warning("Spark did not end in order: %s", error)


def with_files(
    conf: Mapping[str, Any], files: Sequence[str], archives: Sequence[str]
) -> dict[str, Any]:
    """Add the settings by which Spark brings files to the workers, beside those the user set.

    Spark distributes `spark.files`; another setting says which of them Python imports from.
    """
    both = {key: ",".join(files) for key in ("spark.files", "spark.submit.pyFiles")}
    both["spark.archives"] = ",".join(archives)
    added = {
        key: ",".join(filter(None, [conf.get(key), text])) for key, text in both.items() if text
    }
    return {**conf, **added}


def _java() -> Iterator[Check]:
    try:
        yield Check("java", "ok", str(find_java()))
    except TopoError as error:
        yield Check("java", "FAIL", error.message, error.hint)


def _pandas() -> Iterator[Check]:
    try:
        found = version("pandas")
    except PackageNotFoundError:
        yield Check("pandas", "FAIL", "pandas is not installed", install_command("spark"))
        return
    if int(found.partition(".")[0]) >= 3:
        yield Check(
            "pandas", "warn", f"pandas {found}: pyspark warns with it", "pip install 'pandas<3'"
        )


def _unix_sockets() -> Iterator[Check]:
    fix = "set TMPDIR to a short path on a local disk"
    try:
        directory = socket_parent(SLOT_SOCKET_BYTES)
    except TopoError as error:
        yield Check("unix sockets", "FAIL", f"unix sockets: {error.message}", error.hint)
        return
    private = tempfile.TemporaryDirectory(dir=directory)
    with private as path, socket.socket(socket.AF_UNIX) as server:
        try:
            server.bind(f"{path}/socket")
        except OSError as error:
            words = words_of(error)
            yield Check("unix sockets", "FAIL", f"unix sockets in {directory}: {words}", fix)
            return
    yield Check("unix sockets", "ok", f"unix sockets in {directory}")
