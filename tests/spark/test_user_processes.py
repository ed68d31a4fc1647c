"""User code that forks, leaves by the side door, or acks from threads, on a real Spark."""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.doubles import Numbers
from tests.spark.doubles import LONGEST_SECS, WORKERS
from tests.wiring import line
from topo import BasicBolt, Bolt, EngineError, LocalCluster, Tuple
from topo.testing import complete_topology

pytestmark = pytest.mark.spark


class Leaves(BasicBolt):
    def execute(self, tup: Tuple) -> None:
        if tup[0] == 2:
            os._exit(7)


def test_code_that_ends_its_process_is_named_and_not_tried_for_ever(cluster: LocalCluster) -> None:
    run = cluster.submit_topology("t", line(Numbers(5), Leaves()), WORKERS)
    with pytest.raises(EngineError, match="exit code 7 while bolt 'b1' task 1 was executed"):
        run.await_completion(LONGEST_SECS)
    assert run.status == "FAILED"


class HangsOnce(BasicBolt):
    """Waits for ever for what never comes, the first time."""

    outputs = ("num",)

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def execute(self, tup: Tuple) -> None:
        if tup[0] == 2 and not os.path.exists(self.mark):
            open(self.mark, "w").close()
            threading.Event().wait()
        self.emit([tup[0]])


@pytest.mark.of_batches
def test_a_bolt_that_hangs_is_ended_if_there_is_a_limit(
    cluster: LocalCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conf = {"topology.workers": 1, "topology.hang.secs": 3}
    topology = line(Numbers(5), HangsOnce(str(tmp_path / "mark")))
    run = cluster.submit_topology("t", topology, conf, capture=["b1"])
    run.await_completion(LONGEST_SECS)
    assert run.tuples("b1") == [[number] for number in range(5)]
    assert "ended after more than 3 s (topology.hang.secs) while bolt 'b1' task 1" in caplog.text


class Forks(Bolt):
    """Works in another process, and acks in another thread."""

    outputs = ("num",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.pool = multiprocessing.get_context("fork").Pool(1)

    def execute(self, tup: Tuple) -> None:
        (number,) = self.pool.map(abs, [-tup[0]])

        def settle() -> None:
            self.emit([number], anchors=tup)
            self.ack(tup)

        thread = threading.Thread(target=settle)
        thread.start()
        thread.join()

    def cleanup(self) -> None:
        self.pool.terminate()


def test_a_bolt_works_in_a_pool_and_acks_in_a_thread() -> None:
    result = complete_topology(line(Numbers(20), Forks()), conf=WORKERS, engine="spark")
    assert sorted(result.tuples("b1")) == [[number] for number in range(20)]
    assert len(result.acked["s"]) == 20
