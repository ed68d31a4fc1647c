"""The end of a cluster in which some runs cannot be ended in order."""

from __future__ import annotations

import pytest

from tests.wiring import line
from topo import BasicBolt, Tuple
from topo.testing import FeederSpout, TestCluster


class Pass(BasicBolt):
    outputs = ("x",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup[0]])


def test_a_run_that_cannot_be_killed_keeps_no_other_alive() -> None:
    class Closes(Pass):
        def cleanup(self) -> None:
            raise ValueError("cannot close")

    runs = []

    def fails(text: str) -> None:
        with TestCluster() as cluster:
            for name in ("a", "b", "c"):
                feeder = FeederSpout(["x"])
                feeder.feed([1])
                runs.append(cluster.submit_topology(name, line(feeder, Closes())))
                runs[-1].settle()
            if text:
                raise KeyError(text)

    with pytest.raises(ValueError, match="cannot close"):
        fails("")
    assert {run.status for run in runs} == {"FAILED"}
    runs.clear()
    with pytest.raises(KeyError, match="the test's own"):
        fails("the test's own")
    assert {run.status for run in runs} == {"FAILED"}
