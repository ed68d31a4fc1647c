"""conformance.md, "Where topo means to be better than Storm".

That `fail` before an `init` of zero fails is in test_ledger; that a stall shows is in
test_simulated_time.
"""

from __future__ import annotations

import pytest

from tests.conformance.doubles import Branch, Failing, Sink, ToNamedStreams, Total, Words
from topo import BasicBolt, InvalidTopologyError, TopologyBuilder, Tuple
from topo.testing import FeederSpout, TestCluster


class TwoStreams(BasicBolt):
    outputs = {"default": ("word",), "counts": ("word", "count")}

    def execute(self, tup: Tuple) -> None:
        self.emit([tup[0]])


def test_fields_are_checked_against_the_stream_that_is_read() -> None:
    builder = TopologyBuilder()
    builder.set_spout("1", Words())
    builder.set_bolt("2", TwoStreams()).shuffle_grouping("1")
    builder.set_bolt("3", Sink()).fields_grouping("2", "count")
    with pytest.raises(InvalidTopologyError) as refused:
        builder.create_topology()
    (problem,) = refused.value.problems
    assert problem.code == "unknown-field"
    assert "'2' stream 'default' by field 'count', which has 'word'" in problem.message


def test_metrics_count_the_users_tuples_and_a_failure_carries_its_reason() -> None:
    feeder = FeederSpout(["num"])
    builder = TopologyBuilder()
    builder.set_spout("1", feeder)
    builder.set_bolt("2", Branch(2)).shuffle_grouping("1")
    builder.set_bolt("3", Failing(1)).shuffle_grouping("2")
    builder.set_bolt("4", ToNamedStreams()).shuffle_grouping("1")
    builder.set_bolt("5", Total()).shuffle_grouping("4", stream="other")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        feeder.feed([7], msg_id="seven")
        run.settle()
        assert feeder.failed == ["seven"]
        assert feeder.reasons == {"seven": "failed by '3' task 3: not wanted"}
        figures = run.stats().components
        assert (figures["1"].emitted, figures["1"].transferred) == (1, 2)
        assert (figures["1"].acked, figures["1"].failed) == (0, 1)
        assert figures["1"].failed_by == {"failed": 1}
        assert (figures["2"].executed, figures["2"].emitted, figures["2"].acked) == (1, 2, 1)
        assert (figures["3"].executed, figures["3"].acked, figures["3"].failed) == (2, 1, 1)
        assert (figures["4"].emitted, figures["4"].transferred) == (2, 1)
        (error,) = run.errors()
        assert (error.kind, error.component) == ("failed", "1")
        assert error.message == "failed by '3' task 3: not wanted"
