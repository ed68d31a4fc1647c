"""Thread dumps of a slot that runs on Spark, by the way of the pages; nothing is killed here."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.homes import Home, until
from topo.errors import RunError
from topo.manage.api import Management
from topo.manage.submit import SPARK
from topo.manage.views import StacksView

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
TOPOLOGY = """
import time
from pathlib import Path
from topo.builder import TopologyBuilder
from topo.components import Spout
from topo.functions import bolt

class Numbers(Spout):
    outputs = ("n",)
    def next_tuple(self):
        self.collector.emit([1])

def held_up():
    while Path(PLACE).exists():
        time.sleep(0.001)

@bolt()
def waits(n):
    held_up()

conf = {"topology.name": "words", "topology.mode": MODE, "topology.workers": 1}

def topology():
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("waits", waits).shuffle_grouping("numbers")
    return builder
"""


@pytest.fixture(params=["micro-batch", "real-time"])
def held(
    request: pytest.FixtureRequest, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Home]:
    """A topology on Spark whose bolt returns no more, until the test ends."""
    monkeypatch.setattr("topo.cli.submit.ENGINE", SPARK)
    holds = tmp_path / "holds"
    code = TOPOLOGY.replace("PLACE", repr(str(holds))).replace("MODE", repr(request.param))
    (tmp_path / "held_topology.py").write_text(code)
    home.topo("submit", "held_topology.py", "--master", "local[2]")
    holds.touch()
    yield home
    holds.unlink()
    sys.modules.pop("held_topology", None)


def test_a_dump_shows_the_line_of_the_users_code_at_which_a_slot_is(held: Home) -> None:
    management = Management(held.registry)

    def dumped() -> StacksView | None:
        """Return a dump in which the bolt is, once its slot listens and has got a tuple."""
        try:
            stacks = management.stacks("words", 0, 0.0)
        except RunError:  # its process does not listen yet
            return None
        return stacks if "held_up" in str(stacks.threads) else None

    dump = until(dumped, secs=120)
    (thread,) = [each for each in dump.threads if "held_up" in str(each.frames)]
    callers = [frame.partition(" ")[0] for frame in thread.frames]
    assert callers[-2:] == ["waits", "held_up"]
    assert re.search(r"/held_topology.py:1[45]\)$", thread.frames[-1]), "one of its loop's lines"
    assert dump.pid not in (None, held.run.driver_pid)
    sampled = management.stacks("words", 0, 0.5)
    held_up = sum(stack.count for stack in sampled.stacks if "held_up" in str(stack.frames))
    assert held_up >= 1
    assert sampled.samples > 1
    (slot,) = management.workers("words").slots
    assert slot.pid == dump.pid
