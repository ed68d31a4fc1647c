"""`topo run` on Spark, killed and started again by whoever attends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(300)]
MOST = 4000
CODE = f"""
from topo import StatefulBasicBolt, StatefulSpout, TopologyBuilder

class Numbers(StatefulSpout):
    outputs = ("n",)
    def next_tuple(self):
        n = self.state.get("n", 0)
        if n < {MOST}:
            self.state["n"] = n + 1
            self.emit([n + 1], msg_id=n + 1)

class Sum(StatefulBasicBolt):
    def execute(self, tup):
        self.state["sum"] = self.state.get("sum", 0) + tup.n
        if tup.n % 100 == 0:
            print("sum", tup.n, self.state["sum"])

def topology():
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("sum", Sum()).global_grouping("numbers")
    return builder, {{"topology.max.spout.pending": 50, "topology.workers": 1}}
"""


def started(place: Path, checkpoint: Path | None) -> subprocess.Popen[str]:
    (place / "sums.py").write_text(CODE)
    kept = ["--checkpoint", str(checkpoint)] if checkpoint else []
    command = [sys.executable, "-m", "topo.cli", "run", "sums.py", "--master", "local[1]", *kept]
    return subprocess.Popen(
        command, cwd=place, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )


def sums(process: subprocess.Popen[str]) -> Iterator[tuple[int, int]]:
    """Yield what the bolt prints, which is in the log: a number, and the sum up to it."""
    assert process.stderr is not None
    for text in process.stderr:
        line = json.loads(text)
        if line.get("logger") == "stdout":
            _, n, total = line["message"].split()
            yield int(n), int(total)


def is_exact(n: int, total: int) -> bool:
    return total == n * (n + 1) // 2


@pytest.mark.parametrize("kept", [True, False], ids=["a checkpoint", "none"])
def test_after_a_kill_it_goes_on_from_its_checkpoint(tmp_path: Path, kept: bool) -> None:
    checkpoint = tmp_path / "state" if kept else None
    with started(tmp_path, checkpoint) as first:
        seen = next((n, total) for n, total in sums(first) if n >= 500)
        first.send_signal(signal.SIGKILL)
    assert is_exact(*seen)
    with started(tmp_path, checkpoint) as second:
        after = []
        for n, total in sums(second):
            after.append((n, total))
            if n == MOST:
                second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 0
    assert after[-1] == (MOST, MOST * (MOST + 1) // 2)
    assert all(is_exact(n, total) for n, total in after)
    assert (after[0][0] > 100) == kept, "only a checkpoint keeps the first batches"
