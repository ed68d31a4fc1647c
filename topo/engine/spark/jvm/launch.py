"""The start of the JVM, with what starts beside it: the nursery, and the archive of its classes.

Callers hold the lock of `session`: one process has one JVM.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
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
PYTHON_VARIABLE = "PYSPARK_PYTHON"
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_ODD = re.compile(r"[^A-Za-z0-9._-]")


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
        if is_local(settings["spark.master"]):
            self._archive = find_archive(java, settings)

    def launch(self, log: Path, shipment: Shipment | None, *, records: bool = False) -> Any:
        """Start the JVM; return its gateway. `records`: it writes the archive when it ends."""
        archive = self._archive
        if archive is None:
            return self._gateway([], log, shipment)
        if records:
            return self._gateway(archive.making_options, log, shipment)
        try:
            return self._gateway(archive.options, log, shipment)
        except Exception:
            if not archive.options:
                raise
            archive.discard()  # it may be why
            return self._gateway([], log, shipment)

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

    def close(self) -> None:
        """End what was started beside the JVM."""
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None

    def _gateway(self, options: Sequence[str], log: Path, shipment: Shipment | None) -> Any:
        """Start a JVM that removes its directory when it ends, even if this process is killed."""
        from pyspark.java_gateway import launch_gateway

        there = shipment.jvm_options if shipment else {}
        with log.open("ab") as sink, self._submit_arguments(options):
            gateway = launch_gateway(None, {"stdout": sink, "stderr": sink, **there})
        with suppress(Exception):  # Spark's own affair: without it the next run removes it
            hooks = gateway.jvm.org.apache.spark.util.ShutdownHookManager
            hooks.registerShutdownDeleteDir(gateway.jvm.java.io.File(self.directory))
        return gateway

    @contextmanager
    def _submit_arguments(self, options: Sequence[str]) -> Iterator[None]:
        """Hand over the settings in a file of this user's, as long as a JVM may start in this.

        A setting may be a secret, and every user of the machine can read a command line.
        """
        path = os.path.join(self.directory, "spark.properties")
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(as_properties(dict(self.conf(options).getAll())))
        own = f"--properties-file {shlex.quote(path)} --load-spark-defaults"
        theirs = os.environ.get(_SUBMIT_ARGUMENTS, "pyspark-shell")
        try:
            with environment({_SUBMIT_ARGUMENTS: f"{own} {theirs}"}):
                yield
        finally:
            os.unlink(path)


def as_properties(settings: Mapping[str, str]) -> str:
    """Return settings as a file of Java's properties; every odd character by its UTF-16 units."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(text: str) -> str:
    return _ODD.sub(_by_units, text)


def _by_units(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


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
