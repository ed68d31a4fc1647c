"""How the driver of a submitted topology starts it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from topo.control.registry import Submission
from topo.control.sources import SOURCES
from topo.engine.spark.run import SparkRun
from topo.graph.model import Topology


def spark(submission: Submission, topology: Topology, active: bool) -> SparkRun:
    """A run on Spark, in this process or on a cluster."""
    run = SparkRun(
        submission.name,
        topology,
        {**submission.conf, **_shipping(submission)},
        master=submission.master,
        active=active,
        log_file=Path(submission.directory) / "log" / "spark.log",
    )
    return run.start()


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
