"""An engine for the driver that runs nothing: its run does as the topology's settings say.

`script.pending` is what is in flight, which `script.drained_per_poll` lets go of; a file named by
`script.commands` makes a started run complete, raise, stall, or advance to a batch.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topo.engine.base import Launch
from topo.errors import EngineError, RunError, UncaughtError
from topo.running import (
    ACTIVE,
    COMPLETED,
    FAILED,
    INACTIVE,
    KILLED,
    BatchRecord,
    BatchStats,
    ComponentStats,
    ErrorEntry,
    RunStats,
)
from topo.storage.savepoints import Component, Savepoint, summary_of, write_savepoint
from topo.storage.saving import Changes, SavedMapping


class ScriptedRun:
    ui = ""
    drpc: tuple[str, str] | None = None

    def __init__(self, launch: Launch) -> None:
        self._conf = launch.conf
        self._commands = Path(self._conf["script.commands"])
        self.name = launch.name
        self._status = ACTIVE if launch.active else INACTIVE
        self._killed = threading.Event()
        self._pending = self._conf.get("script.pending", 0)
        self._started = time.time()
        self.slots = self._conf.get("topology.workers") or 2
        self.is_rebalancing, self.rebalance_failure = False, ""
        self._ids = self._conf.get("topology.task.ids")
        checkpoint = Path(self._conf["topology.checkpoint.dir"])
        checkpoint.mkdir(parents=True, exist_ok=True)
        self._plan = checkpoint / "topo-plan.json"
        self._write_plan()

    def _write_plan(self) -> None:
        self._plan.write_text(json.dumps({"plan": {"slots": self.slots}}))

    def save(self, directory: Path) -> dict[str, Any]:
        if self._said().get("full"):
            raise EngineError("the disk is full")
        components = {"sink": Component("bolt", 2, 2, True)}
        saved = Savepoint(
            self.name, "c0ffee", 7, "micro-batch", 1.0, "0.3.0", "3.12", components, 3,
            directory=directory,
        )  # fmt: skip
        changes = Changes()
        SavedMapping("state", "sink").save({"cow": 3}, {"cow"}, changes)
        return summary_of(write_savepoint(saved, [("sink", 0, changes.puts)]))

    @property
    def task_ids(self) -> Any:
        return self._ids

    def rebalance(
        self, workers: int | None, tasks: Mapping[str, int] | None = None, *, explain: bool = False
    ) -> dict[str, Any]:
        if workers == self.slots:
            raise RunError(f"it has {workers} slots already")
        if "numbers" in (tasks or {}):
            raise RunError("spout 'numbers' cannot have another number of tasks")
        changed: dict[str, Any] = {"topology.workers": workers or self.slots}
        if tasks:
            changed["topology.task.ids"] = {name: [9, n] for name, n in tasks.items()}
        if explain:
            return changed
        self.is_rebalancing = True
        threading.Thread(target=self._rebalance, args=(changed,), daemon=True).start()
        return changed

    def _rebalance(self, changed: dict[str, Any]) -> None:
        while self._said().get("hold"):
            time.sleep(0.02)
        self.rebalance_failure = self._said().get("rebalance_failure", "")
        if not self.rebalance_failure:
            self.slots = changed["topology.workers"]
        if not self.rebalance_failure or self._said().get("dealt"):
            self._ids = changed.get("topology.task.ids", self._ids)
            self._write_plan()
        self.is_rebalancing = False

    def _said(self) -> dict[str, Any]:
        try:
            said: dict[str, Any] = json.loads(self._commands.read_text())
        except FileNotFoundError:
            return {}
        return said

    @property
    def status(self) -> str:
        if self._killed.is_set():
            return KILLED
        if self.error:
            return FAILED
        if self._said().get("complete"):
            return COMPLETED
        return str(self._said().get("status", self._status))

    @property
    def reason(self) -> str:
        return str(self._said().get("reason", ""))

    @property
    def error(self) -> Exception | None:
        kind = self._said().get("raise")
        if kind == "engine":
            return EngineError("Spark went away")
        if kind == "user":
            return UncaughtError(
                "bolt 'count' task 2, tuple ['cow'] of 'split': KeyError: 'cow'",
                component="count",
                task=2,
                user_traceback="Traceback (most recent call last):\n  ...\nKeyError: 'cow'",
            )
        return None

    def stats(self) -> RunStats:
        return RunStats(
            name=self.name,
            status=self.status,
            reason=self.reason,
            uptime_secs=time.time() - self._started,
            window="all",
            batch=BatchStats(batch := self._said().get("batch", 0), 640.0, 10, count=batch),
            components={
                "numbers": ComponentStats(
                    "spout",
                    1,
                    emitted=1000,
                    acked=988,
                    failed=12,
                    failed_by={"timeout": 12},
                    pending=self._pending,
                    complete_ms=411.0,
                ),
                "sink": ComponentStats(
                    "bolt", 2, executed=1000, acked=1000, execute_ms=0.002, process_ms=0.002
                ),
            },
        )

    def batches(self) -> list[BatchRecord]:
        last = self._said().get("batch", 0)
        phases = {"addBatch": 600.0, "commitOffsets": 20.0, "walCommit": 20.0}
        return [
            BatchRecord(number, self._started + number, 640.0, 100.0, 10, phases)
            for number in range(max(1, last - 99), last + 1)
        ]

    def errors(self) -> list[ErrorEntry]:
        if not self._said().get("errors"):
            return []
        now = time.time()
        return [
            ErrorEntry(
                "sink",
                2,
                "host",
                "reported",
                "OperationalError",
                "database is locked",
                "sink.py:31",
                "Traceback\nOperationalError: database is locked",
                312,
                now - 60,
                now,
            )
        ]

    def activate(self) -> None:
        self._status = ACTIVE

    def deactivate(self) -> None:
        self._status = INACTIVE

    def kill(self, wait_secs: float = 0) -> None:
        self._status = INACTIVE
        deadline = time.monotonic() + wait_secs
        while self._pending and time.monotonic() < deadline:
            time.sleep(0.05)
            self._pending = max(0, self._pending - self._conf.get("script.drained", 100))
        self._killed.set()

    def stop(self) -> None:
        self._killed.set()

    def start(self) -> ScriptedRun:
        return self


class ScriptedEngine:
    def launch(self, launch: Launch) -> ScriptedRun:
        if launch.conf.get("script.fail_start"):
            raise EngineError(str(launch.conf["script.fail_start"]))
        return ScriptedRun(launch)

    def stop(self) -> None:
        pass
