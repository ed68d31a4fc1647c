"""Slot processes, one per slot, for runs on this machine.

A slot process that dies is restarted at the same address. Its batch is lost with it and is run
again from committed state, by Spark or by a restart of the query.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

from topo.engine.spark.driver.scratch import make_slots_directory
from topo.engine.spark.worker.doing import note_end
from topo.engine.spark.worker.slot_process import write_setup
from topo.systems import wait_for_group

log = logging.getLogger("topo.spark")
_QUICK_SECS = 2.0
_LONGEST_PAUSE_SECS = 5.0
_START = (
    # Not by PYTHONPATH: Python itself imports modules at its start, and a `types.py` of the user's
    # would come before its own.
    "import sys; sys.path.extend(sys.argv[1:]); "
    "from topo.engine.spark.worker.slot_process import main; main()"
)


class SlotProcesses:
    """The slot processes of one run; `factory(slot)` is the pickle that makes a slot's runner."""

    def __init__(self, factories: Mapping[int, bytes]) -> None:
        self.directory = make_slots_directory()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
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
                _let_go(process)
        for watcher in self._watchers:
            watcher.join()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _watch(self, slot: int, factory: bytes) -> None:
        pause = 0.0
        while not self._closed.wait(pause):
            started = time.monotonic()
            try:
                process = self._start(slot, factory)
            except OSError as error:  # of memory or processes there may be enough again
                log.warning("the process of slot %d could not be started: %s", slot, error)
                pause = _longer(pause)
                continue
            code = wait_for_group(process)
            _close_input(process)
            if self._closed.is_set():
                return
            with self._lock:
                why = self._reasons.pop(slot, "")
            text = note_end(self.path(slot), code, why)
            log.warning("slot %d: %s; starting another", slot, text)
            quick = time.monotonic() - started < _QUICK_SECS
            pause = _longer(pause) if quick else 0.0

    def _start(self, slot: int, factory: bytes) -> subprocess.Popen[bytes]:
        with self._lock:
            # The mask is inherited: a Ctrl-C before the process ignores the signal would end it.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, *filter(None, sys.path)],
                stdin=subprocess.PIPE,
                process_group=0,  # ended as a whole, with the children that user code forks
            )
            self._processes[slot] = process
            if self._closed.is_set():
                _let_go(process)
                return process
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # gone already: the watcher will see
            write_setup(process.stdin, self.path(slot), list(sys.path), factory)
        return process


def _longer(pause: float) -> float:
    return min(max(pause * 2, 0.1), _LONGEST_PAUSE_SECS)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Close the slot process's standard input, which tells it to end."""
    _close_input(process)
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()


def _close_input(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):  # nobody reads it any more
            process.stdin.close()
