"""Slots and servers die under callers: every call ends once, and what it changed counts once.

TOPO_KILLS=300 kills 300 times instead of a few times.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fault.spark_processes import ROOT, kill_a_slot, pause, wait_until
from topo import BasicBolt, LocalCluster, StatefulBasicBolt, Topology, Tuple
from topo.drpc import DrpcError, LinearDrpcBuilder
from topo.drpc.client import DrpcClient

pytestmark = [pytest.mark.spark, pytest.mark.fault]
KILLS = int(os.environ.get("TOPO_KILLS", "0")) or 2
A_KILL_SECS = 60
CALLERS = 50
LONGEST_SECS = 300.0


class PassOn(BasicBolt):
    outputs = ("id", "args")
    stateless = True

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.id, tup.args])


class CountCalls(StatefulBasicBolt):
    """Answers how often it was called with an argument."""

    outputs = ("id", "count")

    def execute(self, tup: Tuple) -> None:
        self.state[tup.args] = self.state.get(tup.args, 0) + 1
        self.emit([tup.id, self.state[tup.args]])


def counting() -> Topology:
    builder = LinearDrpcBuilder("count")
    builder.add_bolt(PassOn(), 2).shuffle_grouping()
    builder.add_bolt(CountCalls(), 2).fields_grouping("args")
    return builder.create_topology()


class Callers:
    """Threads that call with a new argument each time, and note how each call ended."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self.ends: dict[str, str] = {}
        self.errors: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(CALLERS)
        ]

    def _run(self, number: int) -> None:
        turn = 0
        while not self._is_over.is_set():
            args = f"{number}-{turn}"
            turn += 1
            try:
                end = self._call(args)
            except DrpcError as error:
                end = error.code
                self.reasons[str(error)] += 1
                pause(0.05)
            with self._lock:
                assert args not in self.ends
                self.ends[args] = end
                self.errors[end] += 1

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def await_answers(self, more: int) -> None:
        """Wait until so many more calls were answered."""
        goal = self.errors["1"] + more
        wait_until(lambda: self.errors["1"] >= goal, f"{goal} answers: {self.errors}")


@pytest.mark.timeout(300 + A_KILL_SECS * KILLS)
@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_slots_are_killed_under_callers(mode: str) -> None:
    conf = {
        "topology.workers": 2,
        "topology.mode": mode,
        "topology.message.timeout.secs": 600,
        "topology.restart.max": 1_000,
    }
    with LocalCluster() as cluster:
        run = cluster.submit_topology("count", counting(), conf)
        assert run.call("count", "first", LONGEST_SECS) == "1"
        with Callers(lambda args: run.call("count", args, LONGEST_SECS)) as callers:
            for _ in range(KILLS):
                callers.await_answers(CALLERS)
                pause(random.random() / 4)
                wait_until(kill_a_slot, "a slot's process")
            callers.await_answers(CALLERS)
        assert callers.errors == Counter({"1": len(callers.ends)}), callers.reasons
        answered = random.sample(sorted(callers.ends), min(200, len(callers.ends)))
        with ThreadPoolExecutor(CALLERS) as pool:  # what was answered is in the state, once
            counts = pool.map(lambda args: run.call("count", args, LONGEST_SECS), answered)
            assert set(counts) == {"2"}
    print(f"{KILLS} kills of slots under {CALLERS} callers: {len(callers.ends)} answered once")


@contextmanager
def server(port: int, token: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "topo.cli", "drpc", "--grpc", f"127.0.0.1:{port}"]
    process = subprocess.Popen(
        [*command, "--token-file", str(token)], stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        assert b"calls at" in process.stdout.readline()
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def test_a_server_is_killed_under_callers(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    conf = {
        "topology.workers": 2,
        "topology.mode": "real-time",
        "topology.drpc.addresses": [f"127.0.0.1:{port}"],
        "topology.drpc.token.file": str(token),
    }
    with LocalCluster() as cluster, DrpcClient(f"127.0.0.1:{port}", token="secret") as client:

        def call(args: str) -> str:
            return client.call("count", args, 60)

        def is_served() -> bool:
            try:
                return client.call("count", f"probe {random.random()}", 5) == "1"
            except DrpcError:
                return False

        with server(port, token) as first:
            run = cluster.submit_topology("count", counting(), conf)
            wait_until(is_served, "the topology serves")
            with Callers(call) as callers:
                callers.await_answers(CALLERS)
                first.kill()
                first.wait()
                wait_until(lambda: callers.errors["UNREACHABLE"] > 0, "callers hear of it")
                with server(port, token):
                    wait_until(is_served, "the topology serves the next server")
                    callers.await_answers(CALLERS)
                    assert run.status == "ACTIVE"
                    callers.__exit__()
            assert set(callers.errors) <= {"1", "UNREACHABLE", "SERVER_SHUTDOWN",
                                           "UNKNOWN_FUNCTION"}  # fmt: skip
        run.kill()
