"""The base of the acker's tests: calls without a network, a clock to move, a small plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from topo.errors import AckerError
from topo.tracking.client import AckerClient, AckerControl, BatchStart
from topo.tracking.direct import DirectTransport
from topo.tracking.ids import U64, Updates, root_ids
from topo.tracking.plan import TrackingPlan
from topo.tracking.service import AckerService, Limits
from topo.tracking.transport import AckerTarget, PendingCall

PLAN = TrackingPlan(
    levels=2,
    slots=2,
    spout_tasks=(1, 2, 3),
    components={"lines": (1, 3), "count": (4, 2)},
    timeout_secs=30.0,
    tick_secs=(60.0,),
)


def u64(*numbers: int) -> U64:
    return np.array(numbers, np.uint64)


def emitted(task: int, first: int, count: int, value: int = 5) -> Updates:
    roots = root_ids(task, np.arange(first, first + count, dtype=np.uint64))
    return Updates(init_roots=roots, init_values=np.full(count, value, np.uint64))


def acked(updates: Updates) -> Updates:
    return Updates(ack_roots=updates.init_roots, ack_values=updates.init_values)


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Ackers:
    """Services without a network, and a client of them; a transport that reaches them."""

    count: int = 1
    limits: Limits = field(default_factory=Limits)
    token: str = "secret"
    admission: str | None = None

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.services = [
            AckerService(self.limits, self.clock, self.admission) for _ in range(self.count)
        ]
        addresses = tuple(f"acker-{n}" for n in range(self.count))
        self.target = AckerTarget("words", self.token, addresses, admission=self.admission)
        self.control = AckerControl(self.target, self)

    def start(self, shard: int, method: str, request: bytes, timeout: float) -> PendingCall:
        return DirectTransport(self.target, self.services).start(shard, method, request, timeout)

    def register(self, first_batch: int = 0, plan: TrackingPlan = PLAN) -> AckerClient:
        return AckerClient(self.control.register(plan, first_batch, "checkpoint"), self)


def run_batch(client: AckerClient, batch: int, *said: Updates, busy: bool = True) -> BatchStart:
    """Every execution of a batch begins and stages; the first ones say what is given."""
    start = client.begin(batch, 0)
    plan, left = client.lease.plan, list(said)
    for level in range(plan.levels):
        for slot in range(plan.slots):
            updates = left.pop(0) if left else Updates()
            nonce = batch * 1000 + level * 10 + slot
            client.stage(start.clock, batch, level, slot, nonce, updates, b"", busy)
    return start


def refused(code: str, call: Callable[[], object]) -> str:
    """Make a call that has to be refused with this code; what it said."""
    with pytest.raises(AckerError) as caught:
        call()
    assert caught.value.code == code
    return str(caught.value)
