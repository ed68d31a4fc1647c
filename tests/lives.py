"""A bolt in a host of its own, whose saved state goes on into its next life."""

from __future__ import annotations

from typing import Any

from tests.conformance.doubles import Numbers
from tests.wiring import line
from topo.runtime.slot import Batch, SlotTasks, TaskEnvironment, full_conf
from topo.topology.layout import TaskLayout
from topo.wire.frame import Frame, Section

Saved = dict[int, dict[str, bytes]]


class Life:
    """A bolt as task 1 of a host of its own; `saved` goes on into its next life."""

    def __init__(self, bolt: Any, saved: Saved | None = None, **conf: Any) -> None:
        topology = line(Numbers(1), bolt)
        settings = full_conf(conf)
        layout = TaskLayout(topology, settings)
        setting = TaskEnvironment(topology, layout, settings, "t", lambda: 0.0, frozenset())
        self.saved: Saved = saved or {}
        self.host = SlotTasks(setting, [1])
        self.host.open(self.saved)
        self.bolt: Any = self.host.tasks[1].component
        self.batch = 0

    def execute(self, *values: Any) -> Life:
        """One batch."""
        self.host.begin(Batch(self.batch, 0.0, 0.0))
        self.batch += 1
        section = Section("default", len(values), [list(values)])
        for _ in self.host.work([Frame(2, 1, 0, [section])] if values else []):
            raise AssertionError("nobody reads this bolt")
        changes = self.host.save()
        self.written = bool(changes)
        for task, changed in changes.items():
            changed.apply_to(self.saved.setdefault(task, {}))
        return self
