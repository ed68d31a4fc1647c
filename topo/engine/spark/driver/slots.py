"""Slot processes, one per slot, for runs on this machine.

A slot process that dies is restarted at the same address. Its batch is lost with it and is run
again from committed state, by Spark or by a restart of the query.

Two thirds of the time from a death to the next commit are the imports of the process that follows.
So a run in which one has died keeps another that has its imports behind it, and waits to be told
which slot it is; a run in which none dies pays nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading
from collections.abc import Mapping

from topo.engine.spark.driver.scratch import make_slots_directory
from topo.engine.spark.process.spawn import SlotProcess
from topo.engine.spark.worker.slot_process import pack_setup
from topo.tracking.clock import monotonic

log = logging.getLogger("topo.spark")
_QUICK_SECS = 2.0
_LONGEST_PAUSE_SECS = 5.0
_MODULE = "topo.engine.spark.worker.slot_process"


class SlotProcesses:
    """The slot processes of one run; `factory(slot)` is the pickle that makes a slot's runner."""

    def __init__(self, factories: Mapping[int, bytes]) -> None:
        self.directory = make_slots_directory()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._processes: dict[int, SlotProcess] = {}
        self._reasons: dict[int, str] = {}  # why the driver has ended one
        self._spare: SlotProcess | None = None
        self._watchers = [
            threading.Thread(
                target=self._watch, args=(slot, factory), name=f"slot-{slot}", daemon=True
            )
            for slot, factory in factories.items()
        ]
        for watcher in self._watchers:
            watcher.start()

    def path(self, slot: int) -> str:
        """Return the address at which workers reach the slot's process."""
        return os.path.join(self.directory, f"slot-{slot}")

    def pids(self) -> dict[int, int]:
        with self._lock:
            return {slot: process.pid for slot, process in self._processes.items()}

    @property
    def waiting(self) -> int | None:
        """The number of the process that waits for a slot; None without one."""
        with self._lock:
            return self._spare.pid if self._spare else None

    def end(self, slot: int, why: str) -> None:
        """End the slot's process, whatever it does; another one follows."""
        with self._lock:
            if slot in self._processes and slot not in self._reasons:
                self._reasons[slot] = why
                self._processes[slot].kill()

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            for process in self._processes.values():
                process.let_go()
            if self._spare is not None:  # which has nothing to finish
                self._spare.kill()
                self._spare.wait()
        for watcher in self._watchers:
            watcher.join()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _watch(self, slot: int, factory: bytes) -> None:
        pause, has_died = 0.0, False
        while not self._closed.wait(pause):
            started = monotonic()
            try:
                process = self._start(slot, factory)
            except OSError as error:  # of memory or processes there may be enough again
                log.warning("the process of slot %d could not be started: %s", slot, error)
                pause = _longer(pause)
                continue
            if has_died and not process.ends_within(_QUICK_SECS):
                self._keep_spare()
            process.wait()
            has_died = True
            if self._closed.is_set():
                return
            with self._lock:
                why = self._reasons.pop(slot, "")
            text = process.note_end(why)
            log.warning("slot %d: %s; starting another", slot, text)
            quick = monotonic() - started < _QUICK_SECS
            pause = _longer(pause) if quick else 0.0

    def _start(self, slot: int, factory: bytes) -> SlotProcess:
        with self._lock:
            spare, self._spare = self._spare, None
            if spare is None or spare.poll() is not None:
                spare = SlotProcess(_MODULE)
            process = self._processes[slot] = spare
            if self._closed.is_set():
                process.let_go()
                return process
        path = self.path(slot)
        process.place(path, pack_setup(path, list(sys.path), factory))
        return process

    def _keep_spare(self) -> None:
        """Start a process for the next death, unless there is one, or there are no more deaths."""
        with self._lock:
            if self._closed.is_set() or self._spare is not None:
                return
            with contextlib.suppress(OSError):  # of memory or processes: it was worth a try
                self._spare = SlotProcess(_MODULE)


def _longer(pause: float) -> float:
    return min(max(pause * 2, 0.1), _LONGEST_PAUSE_SECS)
