"""Real ackers, killed and stopped: errors and failures are as promised."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from random import Random

import pytest

from tests.acker_calls import PLAN, acked, emitted, run_batch
from tests.fault.acker_process import ROOT, AckerProcess, Processes
from tests.property.scale import scaled
from tests.property.small_world import LEVELS, SLOTS, World
from topo.errors import AckerError
from topo.tracking.client import AckerClient, AckerControl, can_restart
from topo.tracking.exchange import Cursor
from topo.tracking.plan import Mode
from topo.tracking.transport import AckerTarget, GrpcTransport, PendingCall

pytestmark = pytest.mark.fault


def target_of(*ackers: AckerProcess, call_secs: float = 5.0, give_up: float = 30.0) -> AckerTarget:
    addresses = tuple(acker.address for acker in ackers)
    return AckerTarget("words", "secret", addresses, call_secs=call_secs, give_up_secs=give_up)


@pytest.mark.parametrize("count", [1, 3])
def test_a_small_world_over_real_calls_with_ackers_killed(count: int) -> None:
    rng = Random(count)
    turns = scaled(60, least=60)
    with Processes(count) as processes:
        world = World(processes, seed=count)
        for turn in range(turns):
            if turn % 12 == 5:
                world.lose_memory(rng.randrange(count))
            world.run_batch(
                emits=3,
                dies=rng.choice(["", "", "before", "between", "after", "late"]),
                dies_at=(rng.randrange(LEVELS), rng.randrange(SLOTS)),
                commits=rng.random() < 0.9,
                crashes=rng.random() < 0.2,
                forgets=rng.randrange(count) if turn % 20 == 11 else None,
            )
            world.late_call(rng.randrange(60))
        world.check_end()
    heard = list(world.truth.heard.values())
    assert heard.count(None) > turns / 3
    assert "acker lost" in heard


def test_a_killed_acker_is_an_error_and_what_was_pending_belongs_to_another_incarnation() -> None:
    with AckerProcess() as first, AckerProcess() as second:
        target = target_of(first, second, give_up=1.0)
        control = AckerControl(target)
        client = AckerClient(control.register(PLAN, 0, "checkpoint"))
        run_batch(client, 0, emitted(1, 1, 10))
        second.kill()
        with pytest.raises(AckerError) as caught:
            client.begin(1, 0, [Cursor(1, 0, 0), Cursor(2, 0, 0)])
        assert caught.value.code == "acker-unreachable"
        assert f"{second.address} (shard 1 of 2) has not answered since" in str(caught.value)
        second.start()
        with pytest.raises(AckerError) as caught:
            client.begin(1, 0, [Cursor(1, 0, 0), Cursor(2, 0, 0)])
        assert caught.value.code == "acker-lost"
        assert can_restart(caught.value)
        lease = control.register(PLAN, 1, "checkpoint")
        before, after = client.lease.incarnations, lease.incarnations
        assert (before[0] == after[0], before[1] == after[1]) == (True, False)
        start = AckerClient(lease).begin(1, 0, [Cursor(1, after[0], 0), Cursor(2, before[1], 0)])
        assert start.incarnations == {1: before[0], 2: after[1]}


class Counted:
    """A transport that tells how often calls were tried."""

    def __init__(self, target: AckerTarget) -> None:
        self._transport = GrpcTransport(target)
        self.tries = 0
        self.again = threading.Event()

    def start(self, shard: int, method: str, request: bytes, timeout: float) -> PendingCall:
        self.tries += 1
        if self.tries >= 3:
            self.again.set()
        return self._transport.start(shard, method, request, timeout)


def test_a_stopped_acker_is_waited_for_and_goes_on_with_what_it_knew() -> None:
    with AckerProcess() as acker:
        target = target_of(acker, call_secs=0.2)
        lease = AckerControl(target).register(PLAN, 0, "checkpoint")
        run_batch(AckerClient(lease), 0, emitted(1, 1, 10, value=0))
        transport = Counted(target)
        client = AckerClient(lease, transport)
        acker.signal(signal.SIGSTOP)
        begun = []
        slot = threading.Thread(target=lambda: begun.append(client.begin(1, 0, [Cursor(1, 0, 0)])))
        slot.start()
        assert transport.again.wait(30)
        acker.signal(signal.SIGCONT)
        slot.join()
        assert begun[0].verdicts[1].reasons == [None] * 10
        assert begun[0].incarnations[1] == lease.incarnations[0]


def test_an_acker_that_stays_stopped_is_given_up() -> None:
    with AckerProcess() as acker:
        lease = AckerControl(target_of(acker)).register(PLAN, 0, "checkpoint")
        acker.signal(signal.SIGSTOP)
        impatient = target_of(acker, call_secs=0.2, give_up=0.5)
        with pytest.raises(AckerError, match="has not answered since") as caught:
            AckerClient(replace(lease, target=impatient)).begin(0, 0)
        assert caught.value.code == "acker-unreachable"
        with pytest.raises(AckerError, match="has not answered since"):
            AckerControl(impatient).status()  # whether it waits for a connection or for an answer
        acker.signal(signal.SIGCONT)
        assert AckerControl(target_of(acker)).status().incarnations == lease.incarnations


def test_workers_of_other_processes_use_the_lease_they_are_sent() -> None:
    program = (
        "import pickle, sys\n"
        "from tests.acker_calls import *\n"
        "client = AckerClient(pickle.loads(sys.stdin.buffer.read()))\n"
        "out = emitted(1, 1, 1000)\n"
        "run_batch(client, 0, out, acked(out))\n"
    )
    with AckerProcess() as acker:
        control = AckerControl(target_of(acker))
        lease = control.register(PLAN, 0, "checkpoint")
        worker = [sys.executable, "-c", program]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(worker, input=pickle.dumps(lease), check=True, timeout=60, env=env, cwd=ROOT)
        start = AckerClient(lease).begin(1, 0, [Cursor(1, 0, 0)])
        assert start.verdicts[1].reasons == [None] * 1000


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_an_acker_stops_when_it_is_told_to(number: signal.Signals, code: int) -> None:
    with AckerProcess("--metrics", "127.0.0.1:0") as acker:
        assert acker.announced["metrics"].startswith("127.0.0.1:")
        assert (acker.announced["tls"], acker.announced["pid"]) == (False, acker.process.pid)
        control = AckerControl(target_of(acker))
        client = AckerClient(control.register(PLAN, 0, "checkpoint"))
        out = emitted(1, 1, 10)
        run_batch(client, 0, out, acked(out))
        control.command(Mode.DRAIN)
        acker.signal(number)
        assert acker.end() == (code, "stopping\n")
