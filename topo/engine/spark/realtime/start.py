"""One start of a run's query in real-time mode: its slots' processes, its coordinator, its end.

Whatever ends it, the next start has other processes, sockets and another token, so that nothing of
this one can reach that one.
"""

from __future__ import annotations

import re
import shutil
import signal
import time
from contextlib import suppress
from typing import Any

from topo.engine.spark.driver.query_errors import error_of
from topo.engine.spark.process.spawn import SlotProcess
from topo.engine.spark.realtime.coordinator import Coordinator, SlotLost
from topo.engine.spark.realtime.messages import Place
from topo.engine.spark.worker.relay import SlotDied
from topo.tracking.clock import monotonic

SLOT = "topo.engine.spark.realtime.slot_process"
"""What a slot's process runs in this mode."""
_TOLD_BY_TASK = re.compile(r"topo: (the process of slot \d+ .*?) \[topo\]")
_QUERY_ENDS_SECS = 3.0


class Streaming:
    """One start of the query, with its slots and its coordinator.

    `spares` are processes that wait to be told which slot they are, and outlive it: a start that
    fails begins some for the next one while Spark ends its tasks, as imports take as long.
    """

    def __init__(self, spares: list[SlotProcess] | None = None, directory: str = "") -> None:
        self.spares = [] if spares is None else spares
        self.query: Any = None
        self.coordinator: Coordinator | None = None
        self.processes: list[SlotProcess] = []
        """Of this machine; on a cluster the executors have them."""
        self.directory = directory
        """Of the slots' sockets, on one machine; it goes when this stops."""
        self._found_lost: list[int] = []
        self._words: dict[int, str] = {}

    def attend(self, coordinator: Coordinator) -> None:
        """Take over a coordinator, which is closed with everything else."""
        self.coordinator = coordinator

    def follow(self, query: Any) -> None:
        """Take over the query of Spark's."""
        self.query = query

    def start_slot(self, place: Place) -> None:
        """Have a process run a slot on this machine."""
        process = self.spares.pop() if self.spares else SlotProcess(SLOT)
        self.processes.append(process)
        process.place(place.path, place.pack())

    @property
    def isActive(self) -> bool:
        """True until something has ended it; named as Spark's."""
        assert self.coordinator is not None
        if self.coordinator.failure is not None or self._lost:
            return False
        return bool(self.query.isActive)

    @property
    def _lost(self) -> list[int]:
        """The slots whose process has ended, though nobody told it to."""
        return [at for at, process in enumerate(self.processes) if process.poll() is not None]

    def stop(self) -> None:
        """End the slots, Spark's tasks, and the coordinator."""
        failure = self._failure
        is_loss = failure is not None and _is_loss(failure)
        if is_loss and self.query is not None:
            self._await_words(getattr(failure, "slot", None))
        self._found_lost = self._lost
        for slot in self._found_lost:
            self._note_words(slot)
        for process in self.processes:
            process.kill()
        if is_loss or self._found_lost:  # which another start may get over
            self.spares += [SlotProcess(SLOT) for _ in self.processes[len(self.spares) :]]
        if self.query is not None:
            with suppress(Exception):  # what it failed of is known, or follows from the above
                self.query.stop()
        if self.coordinator is not None:
            self.coordinator.close()
        for process in self.processes:
            process.wait()
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def _failure(self) -> Exception | None:
        return self.coordinator.failure if self.coordinator else None

    def _await_words(self, slot: int | None) -> None:
        """Wait a moment for who knows how a slot's process ended: this process, or Spark's task."""
        if self.processes:
            if slot is not None:
                self.processes[slot].ends_within(1)
            return
        deadline = monotonic() + _QUERY_ENDS_SECS
        while self.query.isActive and monotonic() < deadline:
            time.sleep(0.02)

    def _note_words(self, slot: int) -> None:
        process = self.processes[slot]
        words = process.note_end()
        if process.poll() != -signal.SIGKILL:  # which is the kernel's or somebody else's
            self._words[slot] = words

    @property
    def error(self) -> Exception:
        """The error that ended it."""
        failure = self._failure
        if failure is not None and not _is_loss(failure):
            return failure
        for slot, words in self._words.items():
            return SlotDied(f"slot {slot}: {words}", hint="the code that it executed ends it")
        error = error_of(self.query, "")
        if (match := _TOLD_BY_TASK.search(str(error.__cause__ or error))) is not None:
            return SlotDied(match.group(1), hint="the log of Spark's executor says more")
        if failure is None and self._found_lost:
            slots = ", ".join(map(str, self._found_lost))
            return SlotLost(f"the process of slot {slots} was killed")
        return failure or error


def _is_loss(error: Exception) -> bool:
    """True iff the error says no more than that a slot is gone, or cut off by another's end."""
    return getattr(error, "code", "") == SlotLost.code
