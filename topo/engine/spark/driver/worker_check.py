"""A comparison of the Python of a cluster's workers with the driver's.

The check runs before the first batch, as a job that only needs Spark: otherwise a missing package
would come out of Spark as a page about a task that failed four times.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from topo.engine.spark.driver.shipment import NO_PYTHON
from topo.errors import EngineError
from topo.shipping.requirements import check_requirements, parse_requirement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from topo.topology.model import Topology

CODE = "workers"
PACKAGES = {
    "cloudpickle": "cloudpickle",
    "grpcio": "grpc",
    "numpy": "numpy",
    "pandas": "pandas",
    "protobuf": "google.protobuf",
    "pyarrow": "pyarrow",
    "pyspark": "pyspark",
}
"""What tasks need, by the module that is imported."""
SHIP = "ship an environment: --archives env.tar.gz#env -c spark.pyspark.python=./env/bin/python"


@dataclass(frozen=True)
class HostPython:
    """The Python and the packages of one host."""

    host: str
    python: str
    packages: Mapping[str, str]
    """Versions by package; for one that cannot be imported, the reason in brackets."""
    clients: Mapping[str, str] = field(default_factory=dict)
    """Versions of what components require, of those that are there."""

    def client(self, name: str) -> str:
        """Return the release of what a component requires; raise PackageNotFoundError."""
        if name not in self.clients:
            raise PackageNotFoundError(name)
        return self.clients[name]

    @property
    def wrong(self) -> list[str]:
        """Return the packages that are missing, or of another release than the driver's."""
        told = []
        for name, theirs in self.packages.items():
            ours = version(name)
            if theirs.startswith("("):
                told.append(f"no {name} {theirs}")
            elif _release(theirs) != _release(ours):
                told.append(f"{name} {theirs} (the driver has {ours})")
        return told

    @property
    def differs(self) -> list[str]:
        """Return the packages of the same release, but another version."""
        return [
            f"{name} {theirs} (the driver has {version(name)})"
            for name, theirs in self.packages.items()
            if theirs != version(name) and _release(theirs) == _release(version(name))
        ]


def look_at_workers(
    session: SparkSession, tasks: int, requirements: Iterable[str] = ()
) -> list[HostPython]:
    """Ask the workers, with `tasks` tasks at the same time; return one answer per host."""
    packages = PACKAGES
    required = sorted({parse_requirement(text)[0] for text in requirements})

    def look(_: Any) -> Iterator[tuple[str, str, dict[str, str], dict[str, str]]]:
        # The function travels by value and must not need topo, whose dependencies it looks for.
        import contextlib
        import platform
        import socket

        found = {}
        for name, module in packages.items():
            try:
                loaded = import_module(module)
                try:
                    found[name] = version(name)
                except PackageNotFoundError:  # Spark brings its own pyspark, without metadata
                    found[name] = str(getattr(loaded, "__version__", "(its version is not known)"))
            except Exception as error:
                found[name] = f"({type(error).__name__}: {error})"
        clients = {}
        for name in required:
            with contextlib.suppress(PackageNotFoundError):
                clients[name] = version(name)
        yield socket.gethostname(), platform.python_version(), found, clients

    context = session.sparkContext
    try:
        seen = context.parallelize(range(tasks), tasks).mapPartitions(look).collect()
    except Exception as error:
        raise in_words_of_workers(str(error), context.master) or EngineError(
            f"the workers' Python does not run the driver's code: {_last_words(str(error))}",
            code=CODE,
            hint=SHIP,
        ) from error
    return [HostPython(*each) for _, each in sorted({each[0]: each for each in seen}.items())]


def check_workers(session: SparkSession, tasks: int, topology: Topology) -> None:
    """Raise an EngineError if topo cannot run on the workers."""
    requirements = [text for one in topology.components.values() for text in one.requires]
    for found in look_at_workers(session, tasks, requirements):
        if found.wrong:
            raise EngineError(
                f"the workers on {found.host}: {'; '.join(found.wrong)}",
                code=CODE,
                hint=_remedy(session.sparkContext.master),
            )
        check_requirements(topology, found.client, f"worker {found.host}")


def in_words_of_workers(text: str, master: str = "") -> EngineError | None:
    """Return the error that Spark's text is about if it comes from the workers' Python, or None."""
    mismatch = re.search(r"different(?: version)?: (\d+\.\d+) than that in (?:the )?driver", text)
    nowhere = re.search(rf'(?:Cannot run program "|{NO_PYTHON} )([^"\s]+)', text)
    missing = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", text)
    if "PYTHON_VERSION_MISMATCH" in text or mismatch:
        theirs = f"Python {mismatch.group(1)}" if mismatch else "another Python"
        ours = ".".join(platform.python_version_tuple()[:2])
        what = f"the workers run {theirs}, the driver {ours}"
    elif nowhere:
        what = f"the workers have no Python at {nowhere.group(1)}"
    elif missing and missing.group(1).split(".")[0] in _needed():
        what = f"the workers' Python has no module {missing.group(1)!r}"
    else:
        return None
    return EngineError(what, code=CODE, hint=_remedy(master))


def _needed() -> set[str]:
    return {module.split(".")[0] for module in PACKAGES.values()}


def _remedy(master: str) -> str:
    doctor = f"topo doctor --spark --master {master or 'URL'}"
    return f"{doctor} shows all; install what is missing there, or {SHIP}"


def _release(text: str) -> list[str]:
    return text.split(".")[:2]


def _last_words(text: str) -> str:
    """Return the error of a traceback's text."""
    errors = re.findall(r"^\s*(?:\w+\.)*\w*(?:Error|Exception): .+$", text, re.MULTILINE)
    return (errors[0] if errors else text.strip().partition("\n")[0]).strip()[:300]
