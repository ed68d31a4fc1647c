"""Slot processes and their coordinator as in real-time mode, with this process in Spark's place.

It does what the relays and Spark's shuffle do: a row that comes out of a level goes to the slot of
its key, on the next level. So the processes can be killed, stopped and timed without a JVM.
"""

from __future__ import annotations

import secrets
import selectors
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.fault.spark_processes import wait_until
from topo.engine.spark.driver.lifecycle import Lifecycle
from topo.engine.spark.driver.run_resources import tracking_plan
from topo.engine.spark.driver.scratch import make_slots_directory
from topo.engine.spark.plan import Plan, make_plan
from topo.engine.spark.process.spawn import SlotProcess
from topo.engine.spark.realtime.coordinator import Coordinator
from topo.engine.spark.realtime.epochs import Committed
from topo.engine.spark.realtime.messages import Place, SlotSetup
from topo.engine.spark.realtime.start import SLOT
from topo.engine.spark.realtime.store import EpochStore
from topo.engine.spark.realtime.stream import MessageStream, connect
from topo.engine.spark.worker.report import Report
from topo.engine.spark.worker.run_spec import RunSpec
from topo.runtime.slot import full_conf
from topo.topology.model import Topology
from topo.tracking.clock import SteadyClock
from topo.tracking.plan import Mode


class Shuffle(threading.Thread):
    """Takes rows from each level of each slot to the next one."""

    def __init__(self, plan: Plan, sockets: str, token: str) -> None:
        super().__init__(daemon=True)
        self._plan = plan
        self._sockets = sockets
        self._token = token
        self._selector = selectors.DefaultSelector()
        self._streams: dict[tuple[int, int], MessageStream] = {}
        self.is_over = False

    def run(self) -> None:
        levels = range(len(self._plan.levels))
        for slot in range(self._plan.slots):
            for level in levels:
                stream = self._connect(slot, level)
                if stream is None:
                    return
                self._streams[level, slot] = stream
                stream.listen(partial(self._pass_on, level, stream))
        while not self.is_over and all(stream.is_open for stream in self._streams.values()):
            for key, mask in self._selector.select(0.1):
                key.data.event(mask)
            for stream in self._streams.values():
                stream.flush()
        for stream in self._streams.values():  # as Spark does, whose stages fail together
            stream.close()
        self._selector.close()

    def _connect(self, slot: int, level: int) -> MessageStream | None:
        while not self.is_over:
            with suppress(OSError):
                path = f"{self._sockets}/slot-{slot}"
                return connect(path, self._token, level, self._selector)
            time.sleep(0.005)
        return None

    def _pass_on(self, level: int, stream: MessageStream) -> None:
        for key, row in stream.receive():
            slot = self._plan.keys.index(key)
            self._streams[level + 1, slot].send(key, row)


class Slots:
    """A topology over slot processes, from the log in a directory; `start` again after a death."""

    def __init__(self, topology: Topology, directory: Path, slots: int = 2, **conf: Any) -> None:
        self.conf: Mapping[str, Any] = full_conf(conf)
        self.plan = make_plan(topology, slots, self.conf)
        self.tracking = tracking_plan(topology, self.plan, self.conf)
        self._topology = topology
        self._spec = RunSpec("slots", topology.to_bytes(), self.conf, self.plan)
        self.store = EpochStore(directory)
        self._clock = SteadyClock()
        self.committed = self.store.recover(Committed(self.tracking))
        self._at_once = not self.conf["topology.epoch.ms"]

    def start(self, mode: Mode = Mode.ACTIVE) -> None:
        token = secrets.token_hex(16)
        self._sockets = make_slots_directory()
        self.failed = threading.Event()
        self.coordinator = Coordinator(
            self.plan,
            self.tracking,
            self.committed,
            None if self._at_once else self.store,
            mode=mode,
            period_secs=(self.conf["topology.epoch.ms"] or 200) / 1000,
            incarnation="slots",
            address=f"{self._sockets}/coordinator",
            token=token,
            setup=self._setup,
            clock=self._clock,
            notify=self._look,
        )
        self.coordinator.start()
        slots = range(self.plan.slots)
        self.processes = [SlotProcess(SLOT) for _ in slots]
        for slot, process in enumerate(self.processes):
            place = Place(f"{self._sockets}/coordinator", token, slot, self._path(slot))
            process.place(place.path, place.pack())
        self._shuffle = Shuffle(self.plan, self._sockets, token)
        self._shuffle.start()

    def _path(self, slot: int) -> str:
        return f"{self._sockets}/slot-{slot}"

    def _setup(self, slot: int) -> SlotSetup:
        levels = tuple(range(len(self.plan.levels)))
        return SlotSetup(self._spec, slot, levels, self._at_once, tuple(sys.path))

    def await_epochs(self, count: int = 1) -> None:
        """Wait until so many more epochs have committed."""
        goal = self.committed.epoch + count
        wait_until(lambda: self.committed.epoch >= goal or self.failed.is_set(), f"epoch {goal}")

    def is_staging(self) -> bool:
        """Return True if some levels of some slots have staged the epoch in work, and not all."""
        missing = self.coordinator._epochs.missing
        return 0 < len(missing) < len(self.plan.levels) * self.plan.slots

    def finish(self) -> None:
        """Lead the run to its end, as the driver does; its spouts have nothing more."""
        ending, reports, last = Lifecycle(self._topology, True), {}, 0
        ending.registered(Mode.ACTIVE)

        def is_over() -> bool:
            nonlocal last
            assert not self.failed.is_set(), self.coordinator.failure
            status = self.coordinator.status(last)
            for payload in status.payloads:
                last = payload.number
                if payload.level == 0:
                    reports[payload.slot] = Report.unpack(payload.payload)
            command = ending.next_command(status, reports, time.monotonic())
            if command is not None:
                ending.commanded(self.coordinator.command(command), command)
            return ending.is_over

        wait_until(is_over, "the end")

    def _look(self) -> None:
        if self.coordinator.failure is not None:
            self.failed.set()

    def stop(self) -> None:
        """Kill what runs; what is committed stays."""
        for process in self.processes:
            process.kill()
            process.wait()
        self._shuffle.is_over = True
        self._shuffle.join()
        self.coordinator.close()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def close(self) -> None:
        self.stop()
        self.store.close()
