"""The things that topologies leave outside, such as replication slots: found, and dropped.

A component says as data what it leaves (`Component.leaves`), with the module that knows such
things; nothing of the topology is unpickled for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from topo.errors import TopoError
from topo.manage.records import RunRecord
from topo.storage.checkpoints import checkpoint_id_in, local_path
from topo.topology.model import Topology


@dataclass
class Outside:
    """The things that a component has left, a line each, or the reason why nobody knows."""

    component: str
    lines: list[str] = field(default_factory=list)
    error: str = ""


def left_by(run: RunRecord) -> list[Outside]:
    """Return what a run's components have left outside."""
    return list(_asked(run, "left"))


def drop(run: RunRecord) -> list[Outside]:
    """Drop what a run's components have left outside, before its checkpoint is deleted."""
    return list(_asked(run, "drop"))


def _asked(run: RunRecord, function: str) -> Iterator[Outside]:
    try:
        topology = Topology.from_bytes((run.directory / "topology.pb").read_bytes())
    except Exception:  # damaged, or written by another topo
        return
    path = local_path(run.submission.checkpoint)
    checkpoint_id = None if path is None else checkpoint_id_in(path)
    for component in topology.components.values():
        if not component.leaves:
            continue
        outside = Outside(component.id)
        if checkpoint_id is None:
            if path is None:
                outside.error = f"{run.submission.checkpoint} is not on this machine"
                yield outside
            continue  # nothing was begun there
        try:
            module = importlib.import_module(component.leaves["by"])
            outside.lines = getattr(module, function)(component.leaves, checkpoint_id, component.id)
        except (TopoError, ImportError) as error:
            outside.error = error.message if isinstance(error, TopoError) else str(error)
        yield outside
