"""What a cluster's workers get from the driver: topo itself, and the way to their Python.

Nothing of topo is installed there. It travels as an archive, with Spark's own means of handing out
files: Spark puts it into the directory an executor runs in, which is where a Python path of one
relative name finds it.
"""

from __future__ import annotations

import os
import shlex
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

ARCHIVE = "topo.zip"
DAEMON = "topo_daemon"
PYTHON = "topo-python"
NO_PYTHON = "there is no Python at"
_SCRIPT = f"""#!/bin/sh
command -v {{python}} > /dev/null || {{{{ echo "{NO_PYTHON} "{{python}} >&2; exit 127; }}}}
exec {{python}} "$@"
"""
_PACKAGE = Path(__file__).parents[1]
_DAEMON_SOURCE = _PACKAGE / "engine" / "spark" / "worker" / "cluster_daemon.py"


def pack_topo(directory: Path) -> Path:
    """The topo that runs here, as an archive that Python imports from."""
    archive = directory / ARCHIVE
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(_DAEMON_SOURCE, f"{DAEMON}.py")
        for file in sorted(_PACKAGE.rglob("*")):
            if file.suffix in (".py", ".typed"):
                packed.write(file, Path("topo") / file.relative_to(_PACKAGE))
    return archive


def workers_python(conf: Mapping[str, Any]) -> str:
    """The Python that a cluster's workers are to run."""
    named = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    return str(named or sys.executable)


class Shipment:
    """What the workers of one Spark get; `directory` is where it is made."""

    def __init__(self, python: str, directory: Path) -> None:
        self.directory = directory
        self._python = python
        # Spark runs the workers' Python on the driver's machine as well, where it may not be.
        self._by_script = not (os.path.isabs(python) and os.access(python, os.X_OK))
        if self._by_script:
            self._write_script(directory / PYTHON, sys.executable)

    @property
    def python(self) -> str:
        """What Spark is told to run as Python, here and there."""
        return f"./{PYTHON}" if self._by_script else self._python

    @property
    def jvm_options(self) -> dict[str, Any]:
        """How the driver's JVM is started so that it finds that Python."""
        return {"cwd": str(self.directory)} if self._by_script else {}

    def send(self, context: SparkContext) -> None:
        """Hand it to Spark, for every executor there is and will be."""
        path = list(sys.path)
        context.addPyFile(str(pack_topo(self.directory)))
        sys.path[:] = path  # it is for the workers; here topo is what it was
        environment = context.environment
        before = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [ARCHIVE, before]))
        if self._by_script:
            theirs = self.directory / "theirs"
            theirs.mkdir(exist_ok=True)
            context.addFile(str(self._write_script(theirs / PYTHON, self._python)))

    @staticmethod
    def _write_script(path: Path, python: str) -> Path:
        path.write_text(_SCRIPT.format(python=shlex.quote(python)), encoding="utf-8")
        path.chmod(0o755)
        return path
