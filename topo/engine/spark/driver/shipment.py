"""The files that a cluster's workers get from the driver: topo itself, and a script for Python.

topo is not installed on the workers. It travels as an archive, by Spark's own distribution of
files: Spark puts it into the directory that an executor runs in, where a Python path of one
relative name resolves.
"""

from __future__ import annotations

import os
import shlex
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
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
_DAEMON_SOURCE = "engine/spark/worker/cluster_daemon.py"


def pack_topo(directory: Path) -> Path:
    """Pack the running topo into an archive from which Python can import; return its path.

    The running one may have been imported from an archive itself: `spark-submit --py-files`.
    """
    archive = directory / ARCHIVE
    package = files("topo")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(f"{DAEMON}.py", package.joinpath(_DAEMON_SOURCE).read_bytes())
        for name, content in sorted(_files_of(package, "topo")):
            packed.writestr(name, content)
    return archive


def _files_of(directory: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the modules of a package, by their names in an archive."""
    for entry in directory.iterdir():
        path = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from _files_of(entry, path)
        elif path.endswith((".py", ".typed")):
            yield path, entry.read_bytes()


def workers_python(conf: Mapping[str, Any]) -> str:
    """Return the Python that a cluster's workers are to run."""
    named = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    return str(named or sys.executable)


class Shipment:
    """The files for the workers of one Spark; they are made in `directory`.

    `is_there`: the driver's JVM runs already, and finds that Python as the workers do.
    """

    def __init__(self, python: str, directory: Path, *, is_there: bool = False) -> None:
        self.directory = directory
        self._python = python
        # Spark runs the workers' Python on the driver's machine as well, which may not have it.
        has_it = os.path.isabs(python) and os.access(python, os.X_OK)
        self._by_script = not (has_it or is_there)
        if self._by_script:
            self._write_script(directory / PYTHON, sys.executable)

    @property
    def python(self) -> str:
        """The Python command that Spark runs on the driver and on the workers."""
        return f"./{PYTHON}" if self._by_script else self._python

    @property
    def jvm_options(self) -> dict[str, Any]:
        """The start options of the driver's JVM with which it resolves that Python."""
        return {"cwd": str(self.directory)} if self._by_script else {}

    def send(self, context: SparkContext) -> None:
        """Add the files to Spark, for every present and future executor."""
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
