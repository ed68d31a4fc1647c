"""An archive of Spark's classes, which halves the processor time of the JVM's start.

Loading and verifying 17,000 classes takes the JVM some seven of the 15 s of processor time until
the first batch has committed. Java can map them, ready for use, from a file ("class data sharing").
A JVM that records such a file takes 9 s longer to start and 8 s to end, so no run of a user's does:
`topo doctor --warm` runs a topology of its own for it (`training`), for one Java, set of jars and
class path. A static archive, from a list of classes, took 46 s of processor time to dump and
helped less.

Java refuses an archive that does not fit, and runs without; that is so, too, if an entry of the
class path with which it was recorded is there no more. Only a directory of this user's own will do,
since whoever writes the file decides what the JVM runs.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from topo.engine.spark.jvm.java import Java

CACHE = "TOPO_CACHE"
_CLASS_PATHS = ("spark.driver.extraClassPath", "spark.jars", "spark.jars.packages")
_UNUSED_SECS = 30 * 24 * 3600.0


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
        self.path = directory / f"spark-{_key(java, settings)}.jsa"
        self.draft = self.path.with_suffix(".new")
        self.is_possible = (java.home / "lib" / "server" / "classes.jsa").exists()
        """False if Java has no archive of its own to base this one on."""

    @property
    def exists(self) -> bool:
        return self.path.exists()

    @property
    def options(self) -> list[str]:
        """The options of a JVM that uses it."""
        return [f"-XX:SharedArchiveFile={self.path}"] if self.exists else []

    @property
    def making_options(self) -> list[str]:
        """The options of a JVM that writes the draft when it ends."""
        return [f"-XX:ArchiveClassesAtExit={self.draft}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]

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
    for pattern in ("spark-*.jsa", "spark-*.new"):
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
