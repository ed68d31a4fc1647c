"""`topo doctor --warm` makes the archive with which Java starts Spark from then on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from topo.engine.spark.jvm.class_archive import CACHE
from topo.engine.spark.jvm.java import find_java

pytestmark = pytest.mark.spark


def test_spark_starts_from_the_archive_that_doctor_made(tmp_path: Path) -> None:
    if not (find_java().home / "lib" / "server" / "classes.jsa").exists():
        pytest.skip("this Java has no archive of its own")
    environ = {**os.environ, CACHE: str(tmp_path / "cache")}
    doctor = [sys.executable, "-m", "topo.cli", "doctor", "--warm", "--json"]
    for _ in range(2):  # the second time it is there
        done = subprocess.run(doctor, env=environ, capture_output=True, text=True)
        checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
        assert checks["class archive"]["status"] == "ok", done.stdout
    (archive,) = (tmp_path / "cache").iterdir()
    code = (
        "from topo.engine.spark.jvm.session import start_session, stop_session\n"
        "java = start_session('local[1]', {})._jvm.java.lang.management.ManagementFactory\n"
        "print(java.getRuntimeMXBean().getInputArguments().toString())\n"
        "stop_session()\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True
    )
    assert f"-XX:SharedArchiveFile={archive}" in shown.stdout, shown.stderr
