"""The start of Spark leaves nothing behind in the process, and tells of its own failure."""

from __future__ import annotations

import os
import resource
import shlex
import socket
import stat
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
from topo.engine.spark.jvm.java import Java
from topo.engine.spark.jvm.launch import JvmStart, as_properties, environment
from topo.engine.spark.jvm.session import (
    _check_python,
    _few_files,
    _first_error,
    _locale,
    _ui_at_loop_back,
    core_settings,
)
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


def test_the_cause_of_a_start_that_failed_is_told(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    cause = "java.net.UnknownHostException: box: Name or service not known"
    log.write_text(
        'Exception in thread "main" java.lang.ExceptionInInitializerError\n'
        "\tat org.apache.spark.Utils\n"
        "Caused by: java.lang.RuntimeException: of the middle\n\tat x\n"
        f"Caused by: {cause}\n\tat y\n"
    )
    first = 'Exception in thread "main" java.lang.ExceptionInInitializerError'
    assert _first_error(log, 0) == f"{first}; caused by {cause}"


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


HOST, BIND = "spark.driver.host", "spark.driver.bindAddress"


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_sparks_ports_are_for_this_machine_and_this_spark(master: str, mode: str) -> None:
    settings = core_settings(master, {"topology.mode": mode})
    assert (settings[HOST], settings[BIND]) == ("127.0.0.1", "127.0.0.1")
    assert settings["spark.authenticate"] == "true"


def test_where_spark_listens_can_be_said() -> None:
    named = core_settings("local[2]", {HOST: "10.1.2.3"})
    assert named[HOST] == "10.1.2.3"
    assert BIND not in named, "or nothing would listen where it says that it does"
    bound = core_settings("local[2]", {BIND: "0.0.0.0"})
    assert (bound[HOST], bound[BIND]) == ("127.0.0.1", "0.0.0.0")
    assert core_settings("local[2]", {"spark.authenticate": False})["spark.authenticate"] == "false"
    assert _ui_at_loop_back({}) == {"SPARK_LOCAL_IP": "127.0.0.1"}
    assert _ui_at_loop_back({"SPARK_LOCAL_IP": "10.1.2.3"}) == {}


@pytest.mark.parametrize(
    ("master", "conf", "authenticated"),
    [
        ("yarn", {}, True),
        ("k8s://https://h:6443", {}, True),
        ("yarn", {"spark.shuffle.service.enabled": True}, False),
        ("spark://h:7077", {}, False),
    ],
)
def test_a_cluster_that_can_hand_out_a_secret_has_one(
    master: str, conf: dict[str, object], *, authenticated: bool
) -> None:
    settings = core_settings(master, {"topology.workers": 2, **conf})
    assert ("spark.authenticate" in settings) is authenticated
    assert BIND not in settings


OVERHEAD = "spark.executor.memoryOverheadFactor"


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_a_container_has_room_for_the_python_that_holds_the_state(mode: str) -> None:
    for master in ("yarn", "k8s://https://h:6443"):
        settings = core_settings(master, {"topology.mode": mode})
        assert settings[OVERHEAD] == "0.4"
        assert core_settings(master, {OVERHEAD: 0.6})[OVERHEAD] == "0.6"
    for master in ("spark://h:7077", "local[2]"):
        assert OVERHEAD not in core_settings(master, {"topology.mode": mode})


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
@pytest.mark.parametrize("master", ["yarn", "k8s://https://h:6443", "spark://h:7077"])
def test_a_clusters_sockets_are_short_and_its_silent_hosts_are_noticed(
    master: str, mode: str
) -> None:
    settings = core_settings(master, {"topology.mode": mode})
    assert settings["spark.python.unix.domain.socket.dir"] == "/tmp"
    assert settings["spark.network.timeout"] == "20s"
    own = core_settings(master, {"topology.mode": mode, "spark.network.timeout": "90s"})
    assert own["spark.network.timeout"] == "90s"
    own = core_settings(master, {"topology.mode": mode, "spark.executor.heartbeatInterval": "30s"})
    assert "spark.network.timeout" not in own  # which has to be longer: Spark's own is


def unescaped(line: str) -> list[str]:
    """The key and the value of a line of Java's properties."""
    return [part.encode().decode("unicode_escape") for part in line.split("=")]


def test_settings_are_properties_whatever_is_in_them() -> None:
    settings = {"spark.a": "b", "spark.wörd": " a\\b=c:d#!\n\r\t", "spark.empty": ""}
    lines = as_properties(settings).splitlines()
    assert dict(map(unescaped, lines)) == settings
    assert as_properties({"a": "\U0001f600"}) == "a=\\ud83d\\ude00\n"


def test_no_setting_is_in_a_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = {"spark.hadoop.fs.s3a.secret.key": "SESAME-4711"}
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name mine pyspark-shell")
    seen: list[Path] = []

    def launch_gateway(conf: object, popen_kwargs: dict[str, object]) -> None:
        assert conf is None, "what is in it becomes arguments"
        arguments = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        assert arguments[2:] == ["--load-spark-defaults", "--name", "mine", "pyspark-shell"]
        seen.append(Path(arguments[1]))
        assert stat.S_IMODE(seen[0].stat().st_mode) == 0o600
        assert "SESAME-4711" in seen[0].read_text()
        assert "SESAME-4711" not in str(popen_kwargs)
        raise OSError("enough")

    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", launch_gateway)
    java = Java(Path("/j"), "17.0.1", "PATH", has_vector=True)
    start = JvmStart({"spark.master": "yarn", **secret}, java, forks=False)
    with pytest.raises(OSError, match="enough"):
        start.launch(tmp_path / "spark.log", None)
    assert not seen[0].exists()
    start.abandon()
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--name mine pyspark-shell"


def test_a_limit_of_files_is_named_if_it_may_be_why() -> None:
    assert "may open 256 files here" in _few_files(256)
    assert _few_files(256).endswith("ulimit -n 4096")
    assert _few_files(4096) == _few_files(resource.RLIM_INFINITY) == ""
