"""Asking spouts: how much a batch takes in, and how a slot waits when there is nothing.

The budget of a slot follows what its batches take: one that used up its budget and came back early
may take more the next time, one that took longer than the target takes less. So the target is the
length of a batch while more waits than can be done, when throughput is what counts: a batch costs
some 0.2 s whatever is in it. With less to do, spouts run dry and batches are as short as they can
be. A slot whose spouts
have nothing waits at the coordinator and asks them again meanwhile, until somebody has something.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Elapsed
from typing import Any

from topo.runtime.slot import SlotTasks
from topo.tracking.client import AckerClient, BatchStart

_FIRST_BUDGET = 2_000
_SMALLEST_BUDGET = 100
_MOST_GROWTH = 4.0
_LEAST_FOR_TUPLES = 0.5  # of the target time, whatever is fixed in a batch
_POLLING_SHARE = 0.5  # of the target time; the rest is for what follows from the tuples
_MOST_BYTES = 128 << 20  # what a batch may move through a slot


class Budget:
    """How many tuples the spouts of a slot may emit in a batch.

    It has a share of the target for time, and one of what Spark can hold for bytes: bolts that
    make much of a tuple make the next batch smaller.
    """

    def __init__(self, target_secs: float, most: int, most_bytes: int = _MOST_BYTES) -> None:
        self._target = target_secs
        self._most = most
        self._most_bytes = most_bytes
        self.tuples = min(_FIRST_BUDGET, most)
        self._emitted = 0
        self._moved = 0
        self._since = 0.0
        self._worked = 0.0

    @property
    def polling_secs(self) -> float:
        return self._target * _POLLING_SHARE

    def taken(self, emitted: int, since: float) -> None:
        """A batch has taken this many, from this time on."""
        self._emitted, self._moved = emitted, 0
        self._since, self._worked = since, 0.0

    def moved(self, size: int) -> None:
        """The slot, at any of its levels, has sent on this many bytes."""
        self._moved += size

    def worked(self, started: float, ended: float) -> None:
        """The slot has executed one of its levels; waiting for spouts does not count."""
        self._worked += max(0.0, ended - max(started, self._since))

    def adapt(self, now: float) -> None:
        """The batch before is done: learn from what it took."""
        emitted, self._emitted = self._emitted, 0
        if not emitted:
            return
        # A machine so busy that what is fixed in a batch takes all of the target must not end up
        # with batches of nothing: half of it is for tuples.
        fixed = now - self._since - self._worked
        for_tuples = max(self._target - fixed, self._target * _LEAST_FOR_TUPLES)
        load = max(self._worked / for_tuples, self._moved / self._most_bytes, 1 / _MOST_GROWTH)
        if load > 1:
            self.tuples = int(max(_SMALLEST_BUDGET, min(self.tuples, emitted / load)))
        elif emitted >= self.tuples:
            self.tuples = int(emitted / load)
        self.tuples = max(1, min(self.tuples, self._most))


class Polling:
    """One slot's spouts, batch after batch."""

    def __init__(self, conf: Mapping[str, Any]) -> None:
        target_secs = conf["topology.batch.target.ms"] / 1000
        self.budget = Budget(target_secs, conf["topology.batch.max.tuples"])
        self._idle_secs = conf["topology.batch.idle.ms"] / 1000
        self._poll_secs = conf["topology.batch.poll.ms"] / 1000
        self._threads = ThreadPoolExecutor(4, "waiting")
        self.waited_secs = 0.0
        """How long the last `wait` was."""

    def fill(self, host: SlotTasks) -> int:
        """Ask the spouts until the batch is full or they have nothing; how much they emitted."""
        started = time.monotonic()
        emitted = host.poll(self.budget.tuples, until=started + self.budget.polling_secs)
        if emitted:
            self.budget.taken(emitted, started)
        return emitted

    def wait(
        self,
        client: AckerClient,
        start: BatchStart,
        slot: int,
        host: SlotTasks | None,
        abandoned: Callable[[], bool],
    ) -> int:
        """Wait until a slot has something; asks the host's spouts meanwhile, if given.

        Returns how much they emitted.
        """
        began = time.monotonic()
        deadline = began + self._idle_secs
        waiting: Future[bool] = self._threads.submit(client.wait, start, slot, self._idle_secs)
        pause = self._poll_secs / 8
        while not abandoned():
            try:
                if waiting.result(timeout=pause) or time.monotonic() >= deadline:
                    self.waited_secs = time.monotonic() - began
                    return self.fill(host) if host else 0
                left = max(0.01, deadline - time.monotonic())
                waiting = self._threads.submit(client.wait, start, slot, left)
            except Elapsed:
                pass
            self.waited_secs = time.monotonic() - began
            emitted = self.fill(host) if host else 0
            if emitted:
                client.wait(start, slot, 0.0, busy=True)
                return emitted
            pause = min(self._poll_secs if host else 0.25, 1.5 * pause)
        return 0
