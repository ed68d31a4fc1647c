"""Slots that take data in by HTTP are killed at every point of a batch.

Clients send again what was not answered, under the same key: everything that was answered with 200
counts once, and so does what was not. TOPO_KILLS=100 kills a hundred times, dealt over the points.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import httpx
import pytest

from tests.connectors.dying import (
    A_KILL_SECS,
    KILLS,
    OF_SPOUTS,
    DyingSpout,
    await_kills,
    killed,
    kills_at_each,
    told,
)
from tests.fault.spark_processes import wait_until
from tests.servers.processes import free_port
from topo import LocalCluster, StatefulBasicBolt, TopologyBuilder, Tuple
from topo.connectors.http import HttpSpout

pytestmark = [
    pytest.mark.spark,
    pytest.mark.fault,
    pytest.mark.timeout(300 + A_KILL_SECS * KILLS),
]


class DyingHttpSpout(DyingSpout, HttpSpout):
    pass


class Count(StatefulBasicBolt):
    """Counts the numbers that it gets."""

    outputs = ("number", "count")

    def execute(self, tup: Tuple) -> None:
        self.state[tup.number] = self.state.get(tup.number, 0) + 1
        self.emit([tup.number, self.state[tup.number]])


class Client:
    """A thread that posts numbers, each until it is answered with 200."""

    def __init__(self, url: str, first: int, stop: threading.Event) -> None:
        self.url, self.stop, self.answered = url, stop, 0
        self._first = first
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        pause = threading.Event()
        with httpx.Client(trust_env=False, timeout=60) as client:
            while not self.stop.is_set():
                number = self._first + self.answered
                with contextlib.suppress(httpx.HTTPError):
                    headers = {"Idempotency-Key": f"k{number}"}
                    response = client.post(self.url, json={"number": number}, headers=headers)
                    if response.status_code == 200:
                        self.answered += 1
                        continue
                pause.wait(0.05)

    def join(self) -> set[int]:
        self._thread.join()
        return set(range(self._first, self._first + self.answered))


def test_every_request_counts_once_wherever_slots_die(tmp_path: Path) -> None:
    port = free_port()
    spout = DyingHttpSpout(f"127.0.0.1:{port}", fields="number").dying_at(OF_SPOUTS, tmp_path)
    builder = TopologyBuilder()
    builder.set_spout("requests", spout)
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("requests", ["number"])
    stop, deaths = threading.Event(), len(OF_SPOUTS) * kills_at_each(OF_SPOUTS)
    conf = {"topology.workers": 2, "topology.restart.max": 20}
    with LocalCluster("local[2]") as cluster:
        run = cluster.submit_topology("ingest", builder.create_topology(), conf, capture=["count"])
        url = f"http://127.0.0.1:{port}/"
        clients = [Client(url, first, stop) for first in range(0, 400_000, 100_000)]
        try:
            await_kills(run, [tmp_path], deaths)
            before = [client.answered for client in clients]
            wait_until(
                lambda: (
                    run.wait(0)
                    or all(c.answered > old for c, old in zip(clients, before, strict=True))
                ),
                "answers after them",
            )
        finally:
            stop.set()
            answered = set().union(*(client.join() for client in clients))
        (tmp_path / "stop").touch()
        run.await_completion(120)
        counts = run.tuples("count")
    print(f"{told([tmp_path])}; {len(answered)} requests answered, {len(counts)} counted")
    assert killed([tmp_path]) == deaths
    assert {count for _, count in counts} == {1}
    assert {number for number, _ in counts} >= answered
    assert len(answered) > len(clients)
