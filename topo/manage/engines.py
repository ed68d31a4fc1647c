"""How the driver of a submitted topology starts it, and ends what it ran on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from topo.engine.spark.driver.run import SparkRun
from topo.engine.spark.jvm.session import stop_session
from topo.manage.registry import Submission
from topo.shipping.sources import SOURCES
from topo.topology.model import Topology

log = logging.getLogger("topo.manage")
_STOP_SECS = 15.0


class SubmittedSparkRun(SparkRun):
    """Alone in its process, whose Spark ends with it."""

    def end_engine(self) -> None:
        """Let Spark remove what it made, as it does if it is not killed; in bounded time."""
        stopping = threading.Thread(target=_stop_session, name="stop-spark", daemon=True)
        stopping.start()
        stopping.join(_STOP_SECS)
        if stopping.is_alive():
            log.warning("Spark did not end in %g s", _STOP_SECS)


def _stop_session() -> None:
    try:
        stop_session()
    except Exception as error:  # its JVM may have died before
        log.warning("Spark did not end in order: %s", error)


def spark(submission: Submission, topology: Topology, active: bool) -> SubmittedSparkRun:
    """A run on Spark, in this process or on a cluster."""
    run = SubmittedSparkRun(
        submission.name,
        topology,
        {**submission.conf, **_shipping(submission)},
        master=submission.master,
        active=active,
        log_file=Path(submission.directory) / "log" / "spark.log",
    )
    run.start()
    return run


def _shipping(submission: Submission) -> dict[str, Any]:
    """The settings by which Spark brings the user's own files to the workers."""
    sources = Path(submission.directory) / SOURCES
    py_files = [*submission.py_files, *([str(sources)] if sources.exists() else [])]
    settings = shipping(py_files, submission.archives)
    # Beside what the user's own settings bring.
    given = submission.conf
    return {key: ",".join(filter(None, [given.get(key), text])) for key, text in settings.items()}


def shipping(py_files: Sequence[str], archives: Sequence[str]) -> dict[str, str]:
    """Spark distributes `spark.files`; what of it are Python's is told by another setting."""
    settings = {key: ",".join(py_files) for key in ("spark.files", "spark.submit.pyFiles")}
    settings["spark.archives"] = ",".join(archives)
    return {key: text for key, text in settings.items() if text}
