"""How the driver of a submitted topology starts it."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import topo
from topo.control.registry import Submission
from topo.engine.spark.run import SparkRun
from topo.engine.spark.session import is_local
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
    settings = shipping(submission.master, submission.py_files, Path(submission.directory))
    if submission.archives:
        settings["spark.archives"] = ",".join(submission.archives)
    # Beside what the user's own settings bring.
    given = submission.conf
    return {key: ",".join(filter(None, [given.get(key), text])) for key, text in settings.items()}


def shipping(master: str, py_files: Sequence[str], directory: Path) -> dict[str, str]:
    """The settings by which Spark brings Python files to the workers; on a cluster, topo too.

    `directory` is where topo is packed.
    """
    found = list(py_files)
    if not is_local(master):
        found.append(str(pack_topo(directory)))
    # Spark distributes `spark.files`; what of it are Python's is told by the other.
    return {key: ",".join(found) for key in ("spark.files", "spark.submit.pyFiles") if found}


def pack_topo(directory: Path) -> Path:
    """The topo that runs here, as an archive that Python imports from."""
    package = Path(topo.__file__).parent
    archive = directory / "topo.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(package.rglob("*")):
            if file.suffix in (".py", ".typed"):
                packed.write(file, Path("topo") / file.relative_to(package))
    return archive
