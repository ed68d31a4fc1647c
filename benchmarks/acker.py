"""The acker: updates a second, alone and over loop-back, and what a pending message costs.

The load is that of two bolts after a spout: each message is one init and two acks, 5,000 messages
a call. The ledger is measured alone, then one and two services, each a process of its own, with one
client that sends a batch's calls one after the other, as the levels of a batch do. The plain loop
does the same sums in a dictionary. Every message has to be acked in the end.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.model import BenchOptions, Measurement, Param
from benchmarks.report import show_params
from topo.errors import AckerError
from topo.tracking.client import AckerClient, AckerControl
from topo.tracking.exchange import Cursor
from topo.tracking.figures import AckerStatus
from topo.tracking.ids import U64, EdgeIds, Updates, fresh_nonce, root_ids
from topo.tracking.ledger import Ledger
from topo.tracking.plan import TrackingPlan
from topo.tracking.security import fresh_token
from topo.tracking.transport import AckerTarget

ROOTS = 5_000
SPOUT_TASKS = (1, 2, 3, 4)
UPDATES = 3 * ROOTS
PENDING = 1_000_000

_PLAN = TrackingPlan(levels=3, slots=1, spout_tasks=SPOUT_TASKS, timeout_secs=None)


@dataclass(frozen=True)
class Measured:
    """One measurement: how much in how long, and whether it was right."""

    updates: int
    secs: float
    right: bool

    @property
    def rate(self) -> float:
        return self.updates / self.secs


class Load:
    """Batches of 5,000 messages: for each level, its updates."""

    def __init__(self) -> None:
        self._each = ROOTS // len(SPOUT_TASKS)
        first = np.arange(1, self._each + 1, dtype=np.uint64)
        self._roots = np.concatenate([root_ids(task, first) for task in SPOUT_TASKS])
        ids = EdgeIds(1)
        self._out, self._on = ids.take(ROOTS), ids.take(ROOTS)
        # As four tasks of a fields grouping see it: each in order, but of all spout tasks.
        self._mixed = np.argsort(np.random.default_rng(1).integers(0, 4, ROOTS), kind="stable")

    def batch(self, number: int) -> list[Updates]:
        roots: U64 = self._roots + np.uint64(number * self._each)
        mixed = roots[self._mixed]
        return [
            Updates(init_roots=roots, init_values=self._out),
            Updates(ack_roots=roots, ack_values=self._out ^ self._on),
            Updates(ack_roots=mixed, ack_values=self._on[self._mixed]),
        ]


def run(options: BenchOptions) -> list[Measurement]:
    """The ledger alone, one service, two services."""
    return [
        _measure(options, {"part": "ledger"}, _ledger),
        _measure(options, {"part": "service", "services": 1}, partial(_services, 1), _one_service),
        _measure(options, {"part": "service", "services": 2}, partial(_services, 2)),
    ]


def _measure(
    options: BenchOptions,
    params: dict[str, Param],
    measure: Callable[[float], Measured],
    detail: Callable[[], dict[str, Param]] = dict,
) -> Measurement:
    rates, loops, right = [], [], True
    for repeat in range(options.repeat):
        loop = _plain_loop(min(1.0, options.seconds / 4))
        measured = measure(options.seconds)
        done = f"{repeat + 1} of {options.repeat}"
        options.progress(f"acker {show_params(params)}: {measured.rate:,.0f} updates/s ({done})")
        rates.append(measured.rate)
        loops.append(loop.rate)
        right = right and measured.right and loop.right
    return Measurement.of(
        "acker",
        {**params, "batch_roots": ROOTS},
        "updates",
        rates,
        verified=right,
        loop_rates=loops,
        detail=detail(),
    )


def _ledger(secs: float) -> Measured:
    load, ledger, updates = Load(), Ledger(30.0), 0
    began = time.perf_counter()
    for number in count():
        now = time.perf_counter() - began
        if now >= secs:
            break
        ledger.apply(load.batch(number), now)
        for task in SPOUT_TASKS:
            ledger.forget(task, ledger.last_verdict(task))
        updates += UPDATES
    return Measured(updates, now, ledger.counts(now).acked * 3 == updates)


def _services(services: int, secs: float) -> Measured:
    with acker_processes(services) as (target, _):
        lease = AckerControl(target).register(_PLAN, 0, "bench")
        client, load, updates = AckerClient(lease), Load(), 0
        cursors = [Cursor(task, 0, 0) for task in SPOUT_TASKS]
        began = time.perf_counter()
        for number in count():
            now = time.perf_counter() - began
            start = client.begin(number, 0, cursors)
            cursors = [
                Cursor(task, start.incarnations[task], verdicts.last)
                for task, verdicts in start.verdicts.items()
            ]
            if now >= secs:
                break
            nonce = fresh_nonce()
            for level, said in enumerate(load.batch(number)):
                client.stage(start.clock, number, level, 0, nonce, said)
            updates += UPDATES
        heard = sum(cursor.number for cursor in cursors)
        return Measured(updates, now, heard * 3 == updates)


def _plain_loop(secs: float) -> Measured:
    """The same sums, one by one in a dictionary."""
    load, updates, acked = Load(), 0, 0
    sums: dict[int, int] = {}
    spent = 0.0
    for number in count():
        if spent >= secs:
            break
        batch = load.batch(number)
        inits = list(zip(batch[0].init_roots.tolist(), batch[0].init_values.tolist(), strict=True))
        acks = [
            list(zip(said.ack_roots.tolist(), said.ack_values.tolist(), strict=True))
            for said in batch[1:]
        ]
        began = time.perf_counter()
        for root, value in inits:
            sums[root] = value
        for level in acks:
            for root, value in level:
                left = sums[root] ^ value
                if left:
                    sums[root] = left
                else:
                    del sums[root]
                    acked += 1
        spent += time.perf_counter() - began
        updates += UPDATES
    return Measured(updates, spent, acked * 3 == updates)


def _one_service() -> dict[str, Param]:
    """Measure an empty call, and the memory of a million pending messages."""
    with acker_processes(1) as (target, pids):
        control = AckerControl(target)
        client = AckerClient(control.register(_PLAN, 0, "bench"))
        calls = []
        for _ in range(200):
            began = time.perf_counter()
            client.begin(0, 0)
            calls.append(time.perf_counter() - began)
        resident = _resident(pids[0])
        status = _fill(client, control)
        detail: dict[str, Param] = {
            "call_ms_p50": round(1000 * statistics.median(calls), 3),
            "pending_roots": status.pending,
            "held_bytes_per_root": round(status.held_bytes / status.pending, 1),
        }
        if resident is not None and (after := _resident(pids[0])) is not None:
            detail["resident_bytes_per_root"] = round((after - resident) / status.pending, 1)
        return detail


def _fill(client: AckerClient, control: AckerControl) -> AckerStatus:
    """Emit a million messages that nobody acks."""
    each, ids = 50_000, EdgeIds(2)
    batches = PENDING // (each * len(SPOUT_TASKS))
    for number in range(batches):
        start = client.begin(number, 0)
        first = np.arange(1, each + 1, dtype=np.uint64) + np.uint64(number * each)
        roots = np.concatenate([root_ids(task, first) for task in SPOUT_TASKS])
        inits = Updates(init_roots=roots, init_values=ids.take(len(roots)))
        for level, said in enumerate((inits, Updates(), Updates())):
            client.stage(start.clock, number, level, 0, 1, said)
    client.begin(batches, 0)
    return control.status()


def _resident(pid: int) -> int | None:
    """The resident memory of a process, where /proc tells."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return None
    for line in status.read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return None


@contextmanager
def acker_processes(services: int) -> Iterator[tuple[AckerTarget, list[int]]]:
    """Start ackers as processes of their own; end them afterwards."""
    command = [sys.executable, "-m", "topo.cli", "acker", "--bind", "127.0.0.1:0", "--json"]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(services)
    ]
    try:
        addresses = []
        for process in processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise AckerError("an acker to measure did not start", hint="try topo acker")
            addresses.append(json.loads(line)["address"])
        target = AckerTarget("bench", fresh_token(), tuple(addresses))
        yield target, [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
