"""`topo doctor --spark`: a Spark session, what its workers have, and one topology through it."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo import BasicBolt, Spout, Topology, TopologyBuilder, Tuple
from topo.cli.checks import Check
from topo.engine.spark.run import SparkRun
from topo.engine.spark.session import start_session, stop_session
from topo.errors import TopoError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGES = ("pyspark", "cloudpickle", "grpcio", "numpy", "pandas", "protobuf", "pyarrow")
_BATCH_SECS = 120.0


class One(Spout):
    """Says one thing and is done."""

    outputs = ("n",)

    def __init__(self) -> None:
        self.said = False

    def next_tuple(self) -> None:
        if not self.said:
            self.said = True
            self.emit([1], msg_id=1)

    def is_exhausted(self) -> bool:
        return self.said


class Keep(BasicBolt):
    """Keeps the last it heard."""

    def execute(self, tup: Tuple) -> None:
        self.last = tup.n


def check_spark(master: str) -> Iterator[Check]:
    with tempfile.TemporaryDirectory() as directory:
        conf: dict[str, Any] = {"topology.workers": 1}
        log = Path(directory) / "spark.log"
        try:
            session = start_session(master, conf, log)
        except Exception as error:
            yield _failed("spark", f"Spark did not start on {master}", error)
            return
        try:
            yield Check("spark", "ok", f"spark {session.version} on {master}")
            yield from _workers(session)
            yield _batch(master, conf, log)
        finally:
            stop_session()


def _workers(session: SparkSession) -> Iterator[Check]:
    """The packages the workers have, beside the driver's."""
    packages = _PACKAGES

    def look(_: Any) -> Iterator[tuple[str, str, dict[str, str]]]:
        # Travels by value, and must not need topo: what is missing there is what is asked.
        import platform
        import socket
        from importlib.metadata import PackageNotFoundError, version

        found = {}
        for name in packages:
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                found[name] = ""
        yield socket.gethostname(), platform.python_version(), found

    count = session.sparkContext.defaultParallelism
    try:
        seen = session.sparkContext.parallelize(range(count), count).mapPartitions(look).collect()
    except Exception as error:
        yield _failed("workers", "the workers' Python does not run the driver's code", error)
        return
    for host, python, found in sorted({host: (host, p, f) for host, p, f in seen}.values()):
        wrong = [
            f"{name} {theirs or 'missing'} (the driver has {version(name)})"
            for name, theirs in found.items()
            if theirs != version(name)
        ]
        if wrong:
            fix = "install them there, or ship an environment: --archives env.tar.gz#env"
            yield Check("workers", "FAIL", f"workers on {host}: {', '.join(wrong)}", fix)
        else:
            ours = platform.python_version()
            status = "ok" if python == ours else "warn"
            yield Check("workers", status, f"workers on {host}: Python {python}, same packages")


def _batch(master: str, conf: dict[str, Any], log: Path) -> Check:
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
    builder.set_spout("one", One())
    builder.set_bolt("keep", Keep()).shuffle_grouping("one")
    return builder.create_topology()


def _failed(name: str, what: str, error: Exception) -> Check:
    words = error.message if isinstance(error, TopoError) else str(error).strip().partition("\n")[0]
    fix = error.hint if isinstance(error, TopoError) else ""
    return Check(name, "FAIL", f"{what}: {words}", fix)
