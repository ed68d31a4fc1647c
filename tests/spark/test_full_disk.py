"""A disk that is full when a batch saves its state is what the run ends with, not what follows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.doubles import Numbers
from tests.disks import small_disk
from tests.spark.doubles import LONGEST_SECS
from tests.wiring import line
from topo import BasicBolt, EngineError, LocalCluster, Tuple

pytestmark = pytest.mark.spark


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 2) as path:
        yield path


class Keeps(BasicBolt):
    transient = ()

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[bytes] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(os.urandom(100_000))


@pytest.mark.filterwarnings("ignore:.*bytes of plain attributes:UserWarning")
def test_a_checkpoint_whose_disk_is_full_is_named(cluster: LocalCluster, disk: Path) -> None:
    conf = {
        "topology.workers": 1,
        "topology.batch.max.tuples": 10,
        "topology.restart.max": 1,
        "topology.checkpoint.dir": str(disk / "checkpoint"),
    }
    run = cluster.submit_topology("t", line(Numbers(60), Keeps()), conf)
    with pytest.raises(EngineError, match=r"No space left on device.*free some space"):
        run.await_completion(2 * LONGEST_SECS)
    assert "executed twice" not in run.reason
