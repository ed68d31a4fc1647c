"""Registries with topologies in every state, whose drivers are parts of this process.

A live run's driver is a control service that answers with the documents of the test; the kernel's
locks, by which the registry knows who lives, are replaced by a list.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from topo.builder import TopologyBuilder
from topo.components import Bolt, Spout
from topo.config import Config
from topo.errors import RunError
from topo.manage.control import DriverStatus
from topo.manage.files import write_json
from topo.manage.records import RunRecord, State
from topo.manage.registry import Registry
from topo.manage.service import DriverServer
from topo.manage.submit import Request, Resume, submit
from topo.runtime.input_seconds import key_of_stream
from topo.storage.savepoints import Component, Savepoint, summary_of, write_savepoint
from topo.storage.saving import Changes, SavedMapping
from topo.topology.model import ComponentDef, Topology
from topo.tuples import Tuple

HOSTILE = '<img src=x onerror="window.broken=1">'


class Words(Spout):
    """A spout that is only drawn."""

    outputs = ("word",)

    def next_tuple(self) -> None: ...


class Count(Bolt):
    """A bolt that is only drawn."""

    outputs = ("word", "count")

    def execute(self, tup: Tuple) -> None: ...


def word_count(bolts: int = 2, spout: str = "words") -> Topology:
    """A spout and a chain of bolts."""
    builder = TopologyBuilder()
    builder.set_spout(spout, Words(), parallelism=2)
    before = spout
    for number in range(bolts):
        name = ("split", "count")[number] if bolts == 2 else f"bolt-{number:03}"
        builder.set_bolt(name, Count(), parallelism=2).fields_grouping(before, ["word"])
        before = name
    return builder.create_topology()


def fan(bolts: int) -> Topology:
    """A spout, many bolts that read it, and one that reads them all."""
    builder = TopologyBuilder()
    builder.set_spout("words", Words(), parallelism=2)
    names = [f"parse-{number:03}" for number in range(bolts)]
    for name in names:
        builder.set_bolt(name, Count()).shuffle_grouping("words")
    last = builder.set_bolt("join", Count())
    for name in names:
        last.shuffle_grouping(name)
    return builder.create_topology()


_EVENLY: Mapping[str, float] = defaultdict(lambda: 1000.0)


def component(kind: str, tasks: int = 2, **figures: Any) -> dict[str, Any]:
    """The figures of a component, with as many tasks."""
    one: dict[str, Any] = {
        "kind": kind, "tasks": 1, "executors": 1, "emitted": 500, "emitted_by": {"default": 500},
        "transferred": 500, "executed": 0 if kind == "spout" else 500,
        "settled": 0 if kind == "spout" else 500, "acked": 480, "failed": 6,
        "failed_by": {"timeout": 6} if kind == "spout" else {}, "unanchored": 0, "pending": 7,
        "held": 0, "oldest_held_secs": 0.0, "execute_ms": None if kind == "spout" else 0.75,
        "process_ms": None if kind == "spout" else 0.75,
        "complete_ms": 411.0 if kind == "spout" else None,
        "capacity": None if kind == "spout" else 0.41, "saved_bytes": 2048, "by_task": {},
    }  # fmt: skip
    one |= figures
    whole = {key: value * tasks if type(value) is int else value for key, value in one.items()}
    for name in {"emitted_by", "failed_by", "complete_by"} & one.keys():
        whole[name] = {key: count * tasks for key, count in one[name].items()}
    return {**whole, "by_task": {str(task + 1): dict(one) for task in range(tasks)}}


def by_input(placed: ComponentDef, flows: Mapping[str, float], ms: float = 0.75) -> dict[str, Any]:
    """The figures of each stream that a bolt reads, by how much comes of its component.

    They have the mean `ms`; what is read after the first takes longer.
    """
    reads = {key_of_stream(r.component, r.stream): flows[r.component] for r in placed.inputs}
    longer = {key: 1.0 + place for place, key in enumerate(reads)}
    total = sum(longer[key] * flow for key, flow in reads.items())
    each = ms * sum(reads.values()) / total if total else 0.0
    times = {key: each * longer[key] for key in reads}
    executed = {key: int(flow) for key, flow in reads.items()}
    return {
        "executed_by_input": executed,
        "settled_by_input": executed,
        "execute_ms_by_input": times,
        "process_ms_by_input": {**times},
    }


def error_of(component: str, message: str, at: float, **more: Any) -> dict[str, Any]:
    """An error that came once, as a driver tells it."""
    return {
        "component": component, "task": 3, "host": "h", "kind": "reported", "type": "ValueError",
        "message": message, "at": "words.py:12", "traceback": f"Traceback: {message}", "count": 1,
        "first": at, "last": at, **more,
    }  # fmt: skip


def decision(**others: Any) -> dict[str, Any]:
    """A decision on slots, as a driver tells it."""
    figures = {"rate": 100.0, "demand": 201.0, "busy": 1.0, "slot_rate": 100.0, "lag": 500.0}
    return {
        "at": 1000.0, "until": 1060.0, "verdict": "up", "reason": "the load is more", "slots": 1,
        "to": 3, "needed": 3, "figures": figures, "is_dry": False, **others,
    }  # fmt: skip


def figures_of(topology: Topology, status: str = "ACTIVE") -> dict[str, Any]:
    """A document as `Run.stats()` makes it."""
    return {
        "name": "words", "status": status, "reason": "", "uptime_secs": 500.0, "window": "all",
        "batch": {
            "id": 812, "ms": 640.0, "rows": 1200, "waited_ms": 100.0, "p50_ms": 540.0,
            "p99_ms": 910.0, "rows_per_sec": 1875.0, "count": 812, "worked_secs": 438.0,
            "wait_secs": 81.0, "by_seconds": [0, 0, 0, 0, 10, 300, *[812] * 9],
        },
        "components": {
            name: component(of.kind) | by_input(of, _EVENLY)
            for name, of in topology.components.items()
        },
        "acker": {
            "executors": 1, "pending": 14, "lag_secs": 1.5, "quiet_secs": 0.2, "unheard": 0,
            "updates": 9000, "updates_per_sec": 3100.0, "held_bytes": 4096,
        },
    }  # fmt: skip


class StagedDriver:
    """A driver that says what the test put into it, and obeys."""

    def __init__(self, topology: Topology, directory: Path) -> None:
        self.figures = figures_of(topology)
        self.errors_found: list[dict[str, Any]] = []
        self.status_now = "ACTIVE"
        self.killed_after: float | None = None
        self.workers_now = 2
        self.tasks_now: dict[str, int] = {}
        self.decisions: list[dict[str, Any]] = []
        self.executors_now: list[dict[str, Any]] = []
        self.saved: dict[Any, Any] = {"cow": 3, "cat": HOSTILE}
        self.ends_at: float | None = None
        """Of the history; None: now."""
        self._directory = directory

    def status(self) -> DriverStatus:
        return DriverStatus(
            id="words", status=self.status_now, pending=14, batch=812, slots=self.workers_now
        )

    def stats(self, window_secs: float | None) -> dict[str, Any]:
        return {**self.figures, "status": self.status_now}

    def errors(self) -> list[dict[str, Any]]:
        return self.errors_found

    def history(self, window_secs: float) -> dict[str, Any]:
        now, count = self.ends_at or time.time(), 60
        wave = [1500.0 + 300 * ((index * 7) % 10) / 10 for index in range(count)]
        levels = {
            "emitted_per_sec": wave, "executed_per_sec": [2 * one for one in wave],
            "acked_per_sec": [0.96 * one for one in wave], "failed_per_sec": [3.0] * count,
            "batch_ms": [640.0] * count, "waited_ms": [100.0] * count, "p50_ms": [540.0] * count,
            "p99_ms": [910.0] * count, "pending": [14.0] * count, "held": [0.0] * count,
            "lag_secs": [1.5] * count, "saved_bytes": [4096.0 * i for i in range(count)],
            "batch": [float(i) for i in range(count)],
            "errors_per_sec": [0.1 * (i % 20 == 7) for i in range(count)],
        }  # fmt: skip
        return {"times": [now - 3 * (count - index) for index in range(count)], **levels}

    def batches(self, before: int | None, limit: int) -> list[dict[str, Any]]:
        """Return batches 513 to 812."""
        end = 813 if before is None else max(513, min(before, 813))
        return [
            {
                "id": number, "ended_at": time.time() - (812 - number) * 0.64, "waited_ms": 100.0,
                "ms": 640.0 + number % 7 * 20, "rows": 1200,
                "phases": {"addBatch": 580.0, "commitOffsets": 12.0, "walCommit": 9.0},
            }
            for number in range(max(513, end - limit), end)
        ]  # fmt: skip

    def scale(self) -> dict[str, Any]:
        return {"is_dry": False, "decisions": self.decisions, "next": None}

    def activate(self) -> str:
        return self._change("ACTIVE")

    def executors(self) -> list[dict[str, Any]]:
        return self.executors_now

    def deactivate(self) -> str:
        return self._change("INACTIVE")

    def begin_rebalance(
        self, workers: int | None, tasks: Mapping[str, int], *, explain: bool = False
    ) -> str:
        self.workers_now, self.tasks_now = workers or 0, dict(tasks)
        return self._change("REBALANCING")

    def save(self, directory: str) -> dict[str, Any]:
        place = Path(directory)
        saved = Savepoint(
            "words", "c0ffee", 812, "micro-batch", time.time(), "0.2.0", "3.11",
            {"count": Component("bolt", 2, 2, True)}, 14, directory=place,
        )  # fmt: skip
        changes = Changes()
        SavedMapping("state", "count").save(self.saved, set(self.saved), changes)
        return summary_of(write_savepoint(saved, [("count", 0, changes.puts)]))

    def begin_kill(self, wait_secs: float) -> str:
        self.killed_after = wait_secs
        return self._change("KILLED")

    def _change(self, status: str) -> str:
        if self.status_now == "KILLED":
            raise RunError("words is KILLED")
        was, self.status_now = self.status_now, status
        path = self._directory / "state.json"
        write_json(path, {**json.loads(path.read_bytes()), "status": status})
        return was


class World:
    """A registry, and the drivers that live in it."""

    def __init__(self, home: Path) -> None:
        self.registry = Registry(home)
        self.drivers: dict[str, StagedDriver] = {}
        self._servers: dict[str, DriverServer] = {}
        self.alive: dict[Path, int] = {}

    def holder(self, path: Path) -> int | None:
        """Return who holds a lock, as the kernel would."""
        return self.alive.get(path.parent)

    def add(
        self,
        name: str,
        status: str = "ACTIVE",
        *,
        topology: Topology | None = None,
        conf: dict[str, Any] | None = None,
        driver: type[StagedDriver] = StagedDriver,
        **said: Any,
    ) -> RunRecord:
        """A run that says of itself what the test wants; a live one has a driver."""
        built = topology or word_count()
        request = Request(
            name=name,
            topology=built,
            conf=Config({"topology.workers": 2, **(conf or {})}),
            master="local[2]",
            code_directory=self.registry.home.parent,
            resume=Resume.FRESH,
        )
        run = submit(self.registry, request, spawn=lambda directory: None)
        state = State(status, since=time.time() - 60, batch=812, **said)
        if status in ("STARTING", "ACTIVE", "INACTIVE", "STALLED"):
            self.alive[run.directory] = os.getpid()
        if status in ("ACTIVE", "INACTIVE", "STALLED"):
            staged = driver(built, run.directory)
            staged.status_now = status
            token = (run.directory / "token").read_text()
            self._servers[name] = DriverServer(staged, token)
            self.drivers[name] = staged
            state = replace(state, address=self._servers[name].address)
        write_json(run.directory / "state.json", asdict(state))
        write_json(run.directory / "stats.json", figures_of(built, status))
        write_json(run.directory / "supervisor.json", {"starts": 1})
        return self.registry.reload(run)

    def end(self, name: str) -> None:
        """The driver of a run is gone, as if by SIGKILL."""
        self._servers.pop(name).stop()
        run = self.registry.latest(name)
        assert run is not None
        del self.alive[run.directory]

    def log(self, run: RunRecord, *messages: str, level: str = "INFO") -> None:
        """Something that the tasks of a run have logged."""
        with (run.directory / "log" / "slot-0.jsonl").open("a") as file:
            for message in messages:
                line = {
                    "time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level,
                    "logger": "user", "component": "split", "task": 3, "message": message,
                }  # fmt: skip
                file.write(json.dumps(line) + "\n")

    def stop(self) -> None:
        """End every driver."""
        for server in self._servers.values():
            server.stop()


@contextmanager
def world_in(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A registry under `home` for as long as the context lasts."""
    made = World(home)
    monkeypatch.setattr("topo.manage.registry.lock_holder", made.holder)
    try:
        yield made
    finally:
        made.stop()
