"""The start of Spark leaves nothing behind in the process, and tells of its own failure."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from topo import EngineError
from topo.engine.spark.jvm.launch import environment
from topo.engine.spark.jvm.session import _check_python, _first_error, _locale
from topo.logs.rotation import cut_down


def test_what_spark_is_started_with_is_not_the_usersenvironment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/mine")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    with environment({"JAVA_HOME": "/j", "PYSPARK_PYTHON": "p"}):
        assert (os.environ["JAVA_HOME"], os.environ["PYSPARK_PYTHON"]) == ("/j", "p")
    assert os.environ["JAVA_HOME"] == "/mine"
    assert "PYSPARK_PYTHON" not in os.environ


def test_the_error_of_an_earlier_start_is_not_told_of_this_one(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("java.net.BindException: of yesterday\n")
    begun = log.stat().st_size
    assert _first_error(log, begun) == ""
    with log.open("a") as file:
        file.write("starting\njava.lang.Exception: of today\nError: what follows\n")
    assert _first_error(log, begun) == "java.lang.Exception: of today"
    assert _first_error(tmp_path / "none", 0) == ""


def test_a_log_that_others_write_is_bounded_while_they_write(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    with log.open("ab", buffering=0) as writer:
        for number in range(30):
            writer.write(b"%098d\n\n" % number)
            cut_down(log, 1000)
            assert log.stat().st_size <= 1000
    numbers = [int(line) for line in log.read_bytes().split()]
    assert numbers[-1] == 29
    assert numbers == list(range(numbers[0], 30))
    kept = (tmp_path / "spark.log.1").read_bytes().split()
    assert int(kept[-1]) == numbers[0] - 1
    cut_down(tmp_path / "none", 1000)


@pytest.mark.parametrize(
    ("environ", "locale"),
    [
        ({}, "C.UTF-8"),
        ({"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, "C.UTF-8"),
        ({"LC_ALL": "", "LC_CTYPE": "POSIX"}, "C.UTF-8"),
        ({"LANG": "de_DE.UTF-8"}, None),
        ({"LC_ALL": "en_US.UTF-8", "LANG": "C"}, None),
    ],
)
def test_the_jvm_can_name_every_file(environ: dict[str, str], locale: str | None) -> None:
    assert _locale(environ).get("LC_ALL") == locale


def test_a_spark_of_ones_own_with_another_python_is_refused_by_name(tmp_path: Path) -> None:
    _check_python(sys.executable)
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho /elsewhere\n")
    other.chmod(0o755)
    for path in (other, tmp_path / "none"):
        with pytest.raises(EngineError, match=f"its workers run {path}") as refused:
            _check_python(str(path))
        assert f"PYSPARK_PYTHON={sys.executable}" in refused.value.hint
