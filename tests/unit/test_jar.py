"""The jar of topo's own Java is what its sources give."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from hashlib import blake2b
from pathlib import Path

import pytest

from topo.engine.spark.jvm.classes import JAR

ROOT = Path(__file__).parents[2]
SOURCES = JAR.with_name("java") / "topo"


def entries(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as jar:
        return {name: jar.read(name) for name in jar.namelist()}


def manifest() -> dict[str, str]:
    lines = entries(JAR)["META-INF/MANIFEST.MF"].decode().splitlines()
    return dict(line.split(": ", 1) for line in lines if line)


def test_the_jar_was_built_of_these_sources() -> None:
    digest = blake2b(digest_size=16)
    for path in sorted(SOURCES.glob("*.java")):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    assert manifest()["Topo-Sources"] == digest.hexdigest(), "the sources were changed: run .ci/jar"


@pytest.mark.spark  # it takes seconds, and only those who change the Java need it
def test_its_compiler_gives_the_same_jar_again(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    if shutil.which("javac") is None:
        pytest.skip("needs a JDK")
    version = subprocess.run(["javac", "-version"], capture_output=True, text=True).stdout.strip()
    if version.split(".")[0] != manifest()["Topo-Compiler"].split(".")[0]:
        pytest.skip(f"the jar is of {manifest()['Topo-Compiler']}, this is {version}")
    environ = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([ROOT / ".ci" / "jar", tmp_path], check=True, env=environ)
    built, kept = entries(tmp_path / "topo.jar"), entries(JAR)
    assert built.keys() == kept.keys()
    name = "META-INF/MANIFEST.MF"  # has the compiler's last number
    assert {**built, name: b""} == {**kept, name: b""}
