"""Bolts with an instance for each key or request, on Spark in both modes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from examples import exclaim, reach
from tests.spark.doubles import LONGEST_SECS, WORKERS
from topo import FromList, KeyedBolt, LocalCluster, TopologyBuilder, Tuple
from topo.drpc import DrpcError

pytestmark = pytest.mark.spark

MODES = ("micro-batch", "real-time")
PAGES = {"foo.com/blog/1": "16", "engineering.twitter.com/blog/5": "14", "notaurl.com": "0"}


class Limited(KeyedBolt):
    outputs = ("key", "count", "why")

    def created(self) -> None:
        self.count = 0

    def execute(self, tup: Tuple) -> None:
        self.count += 1
        if self.count == 3:
            self.forget()

    def removed(self, why: str) -> None:
        self.emit([self.key, self.count, why])


@pytest.mark.parametrize("topology_mode", MODES)
def test_each_key_has_an_instance_in_one_task(cluster: LocalCluster, topology_mode: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", FromList([[f"k{n % 40}"] for n in range(40 * 6)], "key"))
    builder.set_bolt("b", Limited(), 3).fields_grouping("s", "key")
    conf = {**WORKERS, "topology.mode": topology_mode}
    run = cluster.submit_topology("t", builder.create_topology(), conf, capture=["b"])
    run.await_completion(LONGEST_SECS)
    wanted = [[f"k{n}", 3, "forgotten"] for n in range(40) for _ in range(2)]
    assert sorted(run.tuples("b")) == sorted(wanted)
    assert run.stats().components["b"].counters == {'keys_removed{why="forgotten"}': 80}


@pytest.mark.parametrize("topology_mode", MODES)
def test_calls_at_once_get_their_own_answers(cluster: LocalCluster, topology_mode: str) -> None:
    conf = {**WORKERS, "topology.mode": topology_mode}
    run = cluster.submit_topology("t", reach.topology(), conf)
    assert run.drpc is None or run.drpc[0]
    pages = list(PAGES) * 8
    with ThreadPoolExecutor(len(pages)) as pool:
        answers = list(pool.map(lambda page: run.call("reach", page, LONGEST_SECS), pages))
    assert answers == [PAGES[page] for page in pages]
    with pytest.raises(DrpcError, match="did you mean 'reach'"):
        run.call("reech", "")
    run.kill()
    with pytest.raises(DrpcError) as raised:
        run.call("reach", "")
    assert raised.value.code == "SERVER_SHUTDOWN"


def test_an_answer_may_come_at_once(cluster: LocalCluster) -> None:
    conf = {**WORKERS, "topology.mode": "real-time"}
    run = cluster.submit_topology("t", exclaim.by_hand(), conf)
    assert run.call("exclaim", "hello", LONGEST_SECS) == "hello!!!"
