"""Polling of spouts: the budget of a batch, and waiting when no spout has data.

The budget of a slot follows the duration of its batches: a batch that used up its budget and ended
early raises it, a batch that took longer than the target lowers it. So the target is the length of
a batch under load, when throughput counts: each batch has a fixed cost of 0.1 to 0.2 s. With less
load, spouts run dry and batches are as short as possible. A slot whose spouts have no data waits at
the coordinator and asks them again meanwhile, until some slot has data.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from topo.runtime.slot import SlotTasks
from topo.tracking.client import AckerClient, BatchStart
from topo.tracking.plan import Mode

_FIRST_BUDGET = 2_000
_SMALLEST_BUDGET = 100
_MOST_GROWTH = 4.0
_LEAST_FOR_TUPLES = 0.5  # of the target time, whatever is fixed in a batch
_POLLING_SHARE = 0.5  # of the target time; the rest is for what follows from the tuples
_MOST_BYTES = 128 << 20  # what a batch may move through a slot
_COLUMNS_SHARE = 1 / 16  # of an untracked tuple that came as Arrow columns in what a batch may have


class Budget:
    """The number of tuples that the spouts of a slot may emit in a batch.

    The budget is bounded by time, the target, and by bytes, Spark's memory: bolts with large
    outputs make the next batch smaller.
    """

    def __init__(self, target_secs: float, most: int, most_bytes: int = _MOST_BYTES) -> None:
        self._target = target_secs
        self._most = most
        self._most_bytes = most_bytes
        self.tuples = min(_FIRST_BUDGET, most)
        self._most_now = most
        self._emitted = 0
        self._moved = 0
        self._since = 0.0
        self._worked = 0.0

    @property
    def polling_secs(self) -> float:
        return self._target * _POLLING_SHARE

    def room(self, emitted: int, as_columns: int) -> int:
        """Return how many more tuples may be emitted now, of which so many are there.

        Those that are untracked and came as Arrow columns are a few bytes each, where others are
        objects and messages of a spout: sixteen of them count as one. Were each as much as another,
        what is fixed in a batch would cost ten times what is done to them.
        """
        return min(self.tuples - emitted, int(self._most - _counted(emitted, as_columns)))

    def taken(self, emitted: int, since: float, as_columns: int = 0) -> None:
        """Record that a batch has taken this many tuples, from this time on."""
        self._emitted, self._moved = emitted, 0
        self._since, self._worked = since, 0.0
        self._most_now = int(self._most * emitted / _counted(emitted, as_columns))

    def moved(self, size: int) -> None:
        """Record that the slot, at any of its levels, has sent on this many bytes."""
        self._moved += size

    def worked(self, started: float, ended: float) -> None:
        """Record the execution of one of the slot's levels, without waiting for spouts."""
        self._worked += max(0.0, ended - max(started, self._since))

    def adapt(self, now: float) -> None:
        """Adapt the budget to the previous batch, which is done."""
        emitted, self._emitted = self._emitted, 0
        if not emitted:
            return
        # On a machine so busy that the fixed cost of a batch takes the whole target, batches must
        # not become empty: half of the target is for tuples.
        fixed = now - self._since - self._worked
        for_tuples = max(self._target - fixed, self._target * _LEAST_FOR_TUPLES)
        load = max(self._worked / for_tuples, self._moved / self._most_bytes, 1 / _MOST_GROWTH)
        if load > 1:
            self.tuples = int(max(_SMALLEST_BUDGET, min(self.tuples, emitted / load)))
        elif emitted >= self.tuples:
            self.tuples = int(emitted / load)
        self.tuples = max(1, min(self.tuples, self._most_now))


def _counted(emitted: int, as_columns: int) -> float:
    """Return what emitted tuples count as; columns that Spark has read are none of them."""
    return emitted - min(as_columns, emitted) * (1 - _COLUMNS_SHARE)


class Polling:
    """One slot's spouts, batch after batch."""

    def __init__(self, conf: Mapping[str, Any], *, asks_spark: bool = False) -> None:
        target_secs = conf["topology.batch.target.ms"] / 1000
        self.budget = Budget(target_secs, conf["topology.batch.max.tuples"])
        self._least_secs = conf["topology.batch.least.ms"] / 1000
        self._idle_secs = conf["topology.batch.idle.ms"] / 1000
        # Spark asks its sources when a batch begins, so that another has to begin soon.
        source_secs = conf["topology.batch.source.ms"] / 1000
        self._active_idle_secs = (
            min(self._idle_secs, source_secs) if asks_spark else self._idle_secs
        )
        self._poll_secs = conf["topology.batch.poll.ms"] / 1000
        self._threads = ThreadPoolExecutor(4, "waiting")
        self._woken = threading.Event()
        self._passed: float | None = None
        self.waited_secs = 0.0
        """How long the last `wait` was."""

    def wake(self) -> None:
        """End a pause between two looks at the spouts; for any thread."""
        self._woken.set()

    def fill(self, host: SlotTasks) -> int:
        """Ask the spouts until the batch is full or they are dry; return how much they emitted."""
        started = time.monotonic()
        emitted = 0
        while (room := self.budget.room(emitted, host.polled_as_columns)) > 0:
            more = host.poll(room, until=started + self.budget.polling_secs)
            emitted += more
            if more < room:  # they are dry, or it is time
                break
        if emitted:
            self.budget.taken(emitted, started, host.polled_as_columns)
        return emitted

    def linger(self, host: SlotTasks, began: float, abandoned: Callable[[], bool]) -> int:
        """Ask the spouts on until the batch is as long as it has to be; return what they emitted.

        A batch costs the same for one tuple as for a thousand, so those of a trickle gather here.
        It ends early if it is full, or if there is nothing more to come.
        """
        emitted = 0
        while emitted < self.budget.tuples and not (host.exhausted or abandoned()):
            left = began + self._least_secs - time.monotonic()
            if left <= 0:
                break
            self._woken.wait(min(self._poll_secs, left))
            self._woken.clear()
            emitted += host.poll(self.budget.tuples - emitted, until=began + self._least_secs)
        return emitted

    def wait(
        self,
        client: AckerClient,
        start: BatchStart,
        slot: int,
        host: SlotTasks | None,
        abandoned: Callable[[], bool],
        has_news: Callable[[], bool] = lambda: False,
        wake_at: float | None = None,
    ) -> int:
        """Wait until a slot has data; meanwhile ask the spouts of `host`, if given.

        Return how much they emitted. `has_news` says, after they were asked, whether the batch is
        to end although they emitted nothing. At `wake_at`, by the batches' clock, it ends: the next
        batch will do what is due then.
        """
        began = time.monotonic()
        idle_secs = self._active_idle_secs if start.mode == Mode.ACTIVE else self._idle_secs
        deadline = began + idle_secs
        wakes = self._wakes(start, wake_at, began)
        waiting = self._submit(client, start, slot, idle_secs)
        pause = self._poll_secs / 8
        while not abandoned():
            if self._is_over(waiting, pause):
                if waiting.result() or time.monotonic() >= deadline:
                    self.waited_secs = time.monotonic() - began
                    return self.fill(host) if host else 0
                left = max(0.01, deadline - time.monotonic())
                waiting = self._submit(client, start, slot, left)
            self.waited_secs = time.monotonic() - began
            emitted = self.fill(host) if host else 0
            if emitted or has_news() or time.monotonic() >= wakes:
                client.wait(start, slot, 0.0, busy=True)
                return emitted
            pause = min(self._poll_secs if host else 0.25, 1.5 * pause)
        return 0

    def _wakes(self, start: BatchStart, wake_at: float | None, began: float) -> float:
        """Return when the wait is to end, by the monotonic clock.

        A batch whose clock has passed the time does what is due, so it does not wait; but only one
        such batch does: what it leaves has another cause.
        """
        if wake_at is None:
            return math.inf
        if wake_at > start.clock:
            return began + wake_at - start.clock
        if wake_at == self._passed:
            return math.inf
        self._passed = wake_at
        return began

    def _submit(
        self, client: AckerClient, start: BatchStart, slot: int, secs: float
    ) -> Future[bool]:
        waiting = self._threads.submit(client.wait, start, slot, secs)
        waiting.add_done_callback(lambda _: self._woken.set())
        return waiting

    def _is_over(self, waiting: Future[bool], pause: float) -> bool:
        """Pause, unless something wakes the slot; return True if the wait has come to its end."""
        if not waiting.done():
            self._woken.wait(pause)
        self._woken.clear()
        return waiting.done()
