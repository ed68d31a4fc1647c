"""An archive of Spark's classes, which halves the processor time of the JVM's start.

Loading and verifying 17,000 classes takes the JVM some seven of the 15 s of processor time until
the first batch has committed. Java can map them, ready for use, from a file ("class data sharing").
A JVM that records such a file takes 9 s longer to start and 8 s to end, so no run of a user's does:
`training` runs a topology of its own for it, once for each Java, set of jars and class path, in the
background. A static archive, from a list of classes, took 46 s of processor time to dump and
helped less.

Java refuses an archive that does not fit, and runs without; that is so, too, if an entry of the
class path with which it was recorded is there no more. Only a directory of this user's own will do,
since whoever writes the file decides what the JVM runs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from topo.engine.spark.jvm.java import Java

log = logging.getLogger("topo.spark")
CACHE = "TOPO_CACHE"
_CLASS_PATHS = ("spark.driver.extraClassPath", "spark.jars", "spark.jars.packages")
_UNUSED_SECS = 30 * 24 * 3600.0
_RETRY_SECS = 24 * 3600.0
_LEAST_FREE_BYTES = 3 << 30
TRAINING = "topo.engine.spark.training"


def cache_directory(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return a directory that only this user writes to, or None.

    `TOPO_CACHE` names it; an empty value stands for none.
    """
    environ = os.environ if environ is None else environ
    named = environ.get(CACHE)
    if named is not None and not named.strip():
        return None
    usual = Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "topo"
    try:
        directory = (Path(named) if named else usual).expanduser()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except (OSError, RuntimeError):  # the latter where there is no home
        return None
    own = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return directory if own and os.access(directory, os.W_OK | os.X_OK) else None


class ClassArchive:
    """The archive for one Java and one class path: a file in the cache, once it was made."""

    def __init__(self, directory: Path, java: Java, settings: Mapping[str, str]) -> None:
        self._java = java
        self._class_path = {key: settings.get(key, "") for key in _CLASS_PATHS}
        self.path = directory / f"spark-{_key(java, settings)}.jsa"
        self.draft = self.path.with_suffix(".new")
        self.attempt = self.path.with_suffix(".attempt")
        self._has_base = (java.home / "lib" / "server" / "classes.jsa").exists()

    @property
    def exists(self) -> bool:
        return self.path.exists()

    @property
    def is_wanted(self) -> bool:
        """True iff nobody has made it, or tried to lately, and Java has one to base it on."""
        return self._has_base and not self.exists and _age_secs(self.attempt) > _RETRY_SECS

    @property
    def options(self) -> list[str]:
        """The options of a JVM that uses it."""
        return [f"-XX:SharedArchiveFile={self.path}"] if self.exists else []

    @property
    def making_options(self) -> list[str]:
        """The options of a JVM that writes the draft when it ends."""
        return [f"-XX:ArchiveClassesAtExit={self.draft}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]

    def train(self) -> None:
        """Have it made in the background, if it is wanted and memory is not short."""
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if not self.is_wanted or free < _LEAST_FREE_BYTES:
            return
        log.info("Spark starts faster from the next time on: its classes are recorded meanwhile")
        path = [os.environ.get("PYTHONPATH"), str(Path(__file__).parents[4])]
        variables = {
            "JAVA_HOME": str(self._java.home),
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
        }
        with suppress(OSError):
            subprocess.Popen(
                [sys.executable, "-P", "-m", TRAINING, json.dumps(self._class_path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is not meant for it
                env={**os.environ, **variables},
            )

    def adopt_draft(self) -> bool:
        """Let others use the draft, which its JVM has finished; return False if there is none."""
        remove_unused(self.path.parent)
        if not self.draft.exists():
            return False
        self.draft.rename(self.path)
        return True

    def discard(self) -> None:
        """Remove an archive with which the JVM did not start."""
        with suppress(OSError):
            self.attempt.touch()
            self.path.unlink()


def find_archive(java: Java, settings: Mapping[str, str]) -> ClassArchive | None:
    """Return the archive for a JVM, whether it exists or not; None if there is no place for one."""
    directory = cache_directory()
    if directory is None:
        return None
    try:
        return ClassArchive(directory, java, settings)
    except OSError:
        return None


def remove_unused(directory: Path) -> None:
    """Remove what nobody has used for long: archives of other Javas and Sparks, mostly."""
    for pattern in ("spark-*.jsa", "spark-*.new", "spark-*.attempt", "classes-*"):
        for file in directory.glob(pattern):
            with suppress(OSError):
                status = file.stat()
                if time.time() - max(status.st_atime, status.st_mtime) > _UNUSED_SECS:
                    file.unlink()


def _key(java: Java, settings: Mapping[str, str]) -> str:
    """Return a name for what an archive depends on."""
    from pyspark.find_spark_home import _find_spark_home

    jars = Path(_find_spark_home()) / "jars"
    digest = hashlib.blake2b(f"2 {java.home} {java.version} {jars}".encode(), digest_size=8)
    with os.scandir(jars) as entries:
        seen = sorted((one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in entries)
    digest.update(repr([seen, *(settings.get(key, "") for key in _CLASS_PATHS)]).encode())
    return digest.hexdigest()


def _age_secs(file: Path) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except OSError:
        return float("inf")
