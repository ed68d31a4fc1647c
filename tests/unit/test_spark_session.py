"""The start of Spark leaves nothing behind in the process, and tells of its own failure."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

import pytest
from py4j.java_gateway import (  # type: ignore[import-untyped]
    GatewayClient,
    GatewayParameters,
)
from py4j.protocol import is_error  # type: ignore[import-untyped]

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


def test_calls_that_a_jvm_no_longer_answers_are_raised_and_not_logged_as_well(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def hang_up() -> None:
            for _ in range(2):  # it tries again
                server.accept()[0].close()

        hanging_up = threading.Thread(target=hang_up)
        hanging_up.start()
        client = GatewayClient(gateway_parameters=GatewayParameters(port=port))
        assert is_error(client.send_command("c\no0\nid\ne\n"))[0]
        client.shutdown_gateway()
        hanging_up.join()
    assert not caplog.records
    assert "Traceback" not in capsys.readouterr().err


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
