"""The start of the JVM, with what starts beside it: the nursery, and the archive of its classes.

Callers hold the lock of `session`: one process has one JVM.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.config.masters import is_local
from topo.engine.spark.driver.nursery import NurseryProcess
from topo.engine.spark.driver.scratch import make_jvm_directory
from topo.engine.spark.driver.shipment import Shipment
from topo.engine.spark.jvm.class_archive import ClassArchive, find_archive
from topo.engine.spark.jvm.java import Java

if TYPE_CHECKING:
    from pyspark import SparkConf

_JVM_DEFAULTS = "spark.driver.defaultJavaOptions"
_TRAINING_AFTER_SECS = 60.0
PYTHON_VARIABLE = "PYSPARK_PYTHON"


class JvmStart:
    """One start of the JVM: its settings, its directory, and the processes that belong to it."""

    def __init__(self, settings: Mapping[str, str], java: Java, *, forks: bool) -> None:
        self.directory = make_jvm_directory()
        self._nursery: NurseryProcess | None = None
        if forks:
            with suppress(OSError):  # then Spark starts Python itself
                self._nursery = NurseryProcess(self.directory)
        if self._nursery is not None:
            os.environ[PYTHON_VARIABLE] = self._nursery.command
            settings = {**settings, "spark.pyspark.python": self._nursery.command}
        self._settings = settings
        self._archive: ClassArchive | None = None
        self._training: threading.Timer | None = None
        if is_local(settings["spark.master"]):
            self._archive = find_archive(java, settings)

    def launch(self, log: Path, shipment: Shipment | None, *, records: bool = False) -> Any:
        """Start the JVM; return its gateway. `records`: it writes the archive when it ends."""
        archive = self._archive
        if archive is None:
            return self._gateway([], log, shipment)
        if records:
            self._archive = None
            return self._gateway(archive.making_options, log, shipment)
        try:
            gateway = self._gateway(archive.options, log, shipment)
        except Exception:
            if not archive.options:
                raise
            archive.discard()  # it may be why
            gateway = self._gateway([], log, shipment)
        self._training = threading.Timer(_TRAINING_AFTER_SECS, archive.train)
        self._training.daemon = True
        self._training.start()
        return gateway

    def conf(self, options: Sequence[str] = ()) -> SparkConf:
        from pyspark import SparkConf

        conf = SparkConf(loadDefaults=False)
        there = f"-Djava.io.tmpdir={self.directory}"
        conf.setAll(list(with_jvm_options(self._settings, [there, *options]).items()))
        return conf

    def abandon(self) -> None:
        """Remove everything after a start that failed."""
        self.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def ended(self) -> None:
        """End the rest after the JVM, and let the next one start faster."""
        self.close()
        if self._archive is not None:
            self._archive.train()

    def close(self) -> None:
        """End what was started beside the JVM."""
        if self._training is not None:
            self._training.cancel()
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None

    def _gateway(self, options: Sequence[str], log: Path, shipment: Shipment | None) -> Any:
        """Start a JVM that removes its directory when it ends, even if this process is killed."""
        from pyspark.java_gateway import launch_gateway

        with log.open("ab") as sink:
            there = shipment.jvm_options if shipment else {}
            gateway = launch_gateway(self.conf(options), {"stdout": sink, "stderr": sink, **there})
        with suppress(Exception):  # Spark's own affair: without it the next run removes it
            hooks = gateway.jvm.org.apache.spark.util.ShutdownHookManager
            hooks.registerShutdownDeleteDir(gateway.jvm.java.io.File(self.directory))
        return gateway


def with_jvm_options(settings: Mapping[str, str], options: Sequence[str]) -> dict[str, str]:
    """Add options of the JVM before the user's, since of two that disagree it takes the last.

    So `spark.local.dir`, which follows the JVM's temporary directory, is only set if the user did
    not set it.
    """
    quoted = [_quoted(option) for option in options]
    theirs = settings.get(_JVM_DEFAULTS, "")
    return {**settings, _JVM_DEFAULTS: " ".join(filter(None, [*quoted, theirs]))}


def _quoted(option: str) -> str:
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the processes that are started in this; then undo it."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
