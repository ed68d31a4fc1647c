"""`topo.main` on the inline engine: the program that a file is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from topo.engine.spark.jvm.submitted import is_submitted, too_late

CODE = """
import sys
import topo
import topo.cli.submitted
from topo import BasicBolt, FromList, Spout, TopologyBuilder

topo.cli.submitted.ENGINE = "inline"

class Numbers(Spout):
    outputs = ("n",)
    def next_tuple(self):
        self.emit([1], msg_id=1)

class Sink(BasicBolt):
    def execute(self, tup): pass

class Broken(BasicBolt):
    def execute(self, tup): return {}[tup.n]

def wired(spout, sink):
    builder = TopologyBuilder()
    builder.set_spout("numbers", spout)
    builder.set_bolt("sink", sink).shuffle_grouping("numbers")
    return builder

kinds = {
    "endless": (lambda: wired(Numbers(), Sink()).create_topology()),
    "few": (lambda: wired(FromList([[1], [2]], fields=("n",)), Sink())),
    "broken": (lambda: wired(Numbers(), Broken())),
}
if __name__ == "__main__":
    conf = dict(pair.split("=") for pair in sys.argv[2:])
    topo.main(kinds[sys.argv[1]](), {"topology.max.spout.pending": 10, **conf})
"""


@contextmanager
def started(place: Path, *argv: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    (place / "words.py").write_text(CODE)
    command = [sys.executable, "words.py", *argv]
    process = subprocess.Popen(
        command, cwd=place, stderr=subprocess.PIPE, text=True, env={**os.environ, **environ}
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def ended(place: Path, *argv: str, **environ: str) -> tuple[int, str]:
    with started(place, *argv, **environ) as process:
        assert process.stderr is not None
        text = process.stderr.read()
        return process.wait(60), text


def test_the_file_names_it_and_its_end_is_the_processes(tmp_path: Path) -> None:
    code, text = ended(tmp_path, "few")
    assert code == 0
    assert "INFO topo.run: words: completed; 2 acked, 0 failed, 0 pending" in text


def test_the_settings_of_the_project_lie_below_those_of_the_code(tmp_path: Path) -> None:
    (tmp_path / "topo.toml").write_text(
        '[env.prod]\nmaster = "local[3]"\ncheckpoint_dir = "/states"\n'
        'conf = {"topology.name" = "other"}\n'
    )
    _, text = ended(tmp_path, "few", TOPO_ENV="prod")
    assert "starting other on local[3] in process" in text
    assert "no checkpoint" not in text
    _, text = ended(tmp_path, "few", "topology.name=third", TOPO_ENV="prod")
    assert "starting third on local[3]" in text


def test_a_failure_is_told_and_is_an_exit_code(tmp_path: Path) -> None:
    code, text = ended(tmp_path, "broken")
    assert code == 1
    assert "return {}[tup.n]" in text
    assert "error: bolt 'sink' task 2, tuple [1] of 'numbers': KeyError: 1" in text


def test_wrong_settings_are_told(tmp_path: Path) -> None:
    code, text = ended(tmp_path, "few", "topology.worker=1")
    assert code == 2
    assert "no key 'topology.worker'" in text


def test_sigterm_drains(tmp_path: Path) -> None:
    with started(tmp_path, "endless") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("INFO topo.run: ACTIVE"):
                process.send_signal(signal.SIGTERM)
            if "stopped by SIGTERM" in line:
                assert line.endswith("0 failed, 0 pending\n")
        assert process.wait(60) == 0


# What spark-submit decides of


SETTINGS = {
    "spark.master": "yarn",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xmn256m",
    "spark.authenticate": "true",
    "spark.ui.enabled": "false",
}


def test_what_java_takes_at_its_start_alone_is_named() -> None:
    assert too_late(SETTINGS, {"spark.driver.memory": "4g"}) == [
        "--conf 'spark.driver.extraJavaOptions=-XX:+UseSerialGC -Xmn256m'"
    ]


def test_in_cluster_mode_the_secret_is_the_clusters() -> None:
    cluster = {"spark.submit.deployMode": "cluster"}
    named = too_late(SETTINGS, {**cluster, "spark.driver.memory": "4g"})
    assert named[-1] == "--conf spark.authenticate=true"
    assert "--conf spark.authenticate=true" not in too_late(
        SETTINGS, {**cluster, "spark.authenticate": "false"}
    )


def test_only_spark_submit_has_started_a_process_with_its_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert not is_submitted()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert is_submitted()
