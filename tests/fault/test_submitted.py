"""`topo.main` in a file that spark-submit runs, as pip installs it: client mode."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(300)]
MOST = 300
CODE = """
import sys
import topo
from topo import BasicBolt, StatefulBasicBolt, StatefulSpout, TopologyBuilder

class Numbers(StatefulSpout):
    outputs = ("n",)
    def next_tuple(self):
        n = self.state.get("n", 0) + 1
        self.state["n"] = n
        self.emit([n], msg_id=n)

class Sum(StatefulBasicBolt):
    def execute(self, tup):
        self.state["sum"] = self.state.get("sum", 0) + tup.n
        if tup.n % 100 == 0:
            print("sum", tup.n, self.state["sum"])

class Broken(BasicBolt):
    def execute(self, tup): return {}[tup.n]

if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    bolt = Broken() if sys.argv[2:] else Sum()
    builder.set_bolt("sum", bolt).global_grouping("numbers")
    topo.main(builder, {
        "topology.checkpoint.dir": sys.argv[1],
        "topology.workers": 1,
        "topology.max.spout.pending": 50,
    })
"""


@contextmanager
def submitted(place: Path, *argv: str) -> Iterator[subprocess.Popen[str]]:
    (place / "sums.py").write_text(CODE)
    beside = Path(sys.executable).with_name("spark-submit")
    command = [str(beside), "--master", "local[2]", *argv]
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(
        command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ
    )
    with process:
        try:
            yield process
        finally:
            process.kill()  # of one that has ended nothing is left to kill


def python_of(process: subprocess.Popen[str]) -> psutil.Process:
    """Return the process of the file, which Java has started."""
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            if any(word.endswith("sums.py") for word in child.cmdline()):
                return child
    raise AssertionError("spark-submit runs no Python")


def test_it_drains_resumes_and_tells_how_it_ended(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    last = (0, 0)
    for _ in range(2):
        lines, before = [], last
        with submitted(tmp_path, "sums.py", state) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if line.startswith("sum "):
                    last = (int(line.split()[1]), int(line.split()[2]))
                    assert last[1] == last[0] * (last[0] + 1) // 2
                    if before[0] + MOST <= last[0] < before[0] + MOST + 100:
                        python_of(process).send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, "".join(lines)
        text = "".join(lines)
        assert "sums: stopped by SIGTERM; " in text
        assert "started by spark-submit" in text
    assert last[0] > before[0] > 0


def test_a_failure_is_the_exit_code_of_spark_submit(tmp_path: Path) -> None:
    with submitted(tmp_path, "sums.py", str(tmp_path / "state"), "broken") as process:
        text, _ = process.communicate(timeout=120)
        assert process.returncode == 1, text
    assert "KeyError: 1" in text


def test_what_exactly_once_rests_on_is_refused(tmp_path: Path) -> None:
    argv = ("--conf", "spark.speculation=true", "sums.py", str(tmp_path / "state"))
    with submitted(tmp_path, *argv) as process:
        text, _ = process.communicate(timeout=120)
        assert process.returncode not in (0, None), text
    assert "spark.speculation has to be false" in text
