"""Slot processes, one per slot, for runs on this machine.

A slot process that dies is restarted at the same address. Its batch is lost with it and is run
again from committed state, by Spark or by a restart of the query.
"""

from __future__ import annotations

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
        for watcher in self._watchers:
            watcher.join()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _watch(self, slot: int, factory: bytes) -> None:
        pause = 0.0
        while not self._closed.wait(pause):
            started = monotonic()
            try:
                process = self._start(slot, factory)
            except OSError as error:  # of memory or processes there may be enough again
                log.warning("the process of slot %d could not be started: %s", slot, error)
                pause = _longer(pause)
                continue
            process.wait()
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
            process = self._processes[slot] = SlotProcess(_MODULE)
            if self._closed.is_set():
                process.let_go()
                return process
        path = self.path(slot)
        process.place(path, pack_setup(path, list(sys.path), factory))
        return process


def _longer(pause: float) -> float:
    return min(max(pause * 2, 0.1), _LONGEST_PAUSE_SECS)
