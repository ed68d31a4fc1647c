"""Savepoints that are made without a place of their own, and the keyed state that is in them.

They lie beside the registry, by topology and number. State is read by `topo state` in a process of
its own: to load it means to import the topology's modules and to unpickle their objects.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topo.errors import CheckpointError, RunError
from topo.manage.commands import CommandFailed, answer_of
from topo.manage.records import RunRecord
from topo.manage.views import SavepointList, SavepointView, StateView
from topo.storage.savepoints import read_savepoint, summary_of

MOST_ENTRIES = 500
_STATE_SECS = 120.0


def next_place(home: Path, name: str) -> Path:
    """Return a new directory for a savepoint of a topology beside the registry."""
    numbers = [int(path.name) for path in _places(home, name)]
    return home / "savepoints" / name / str(1 + max(numbers, default=0))


def savepoints_of(home: Path, name: str) -> SavepointList:
    """Return the savepoints of a topology beside the registry, the latest first."""
    views, damaged = [], []
    for place in sorted(_places(home, name), key=lambda path: int(path.name), reverse=True):
        try:
            views.append(savepoint_view(summary_of(read_savepoint(place))))
        except (CheckpointError, OSError, ValueError, TypeError, KeyError):
            damaged.append(str(place))
    return SavepointList(views, damaged)


def savepoint_view(summary: Mapping[str, Any]) -> SavepointView:
    """Return what there is to tell of a savepoint as a view."""
    return SavepointView(
        directory=str(summary["directory"]),
        batch=int(summary["batch"]),
        mode=str(summary["mode"]),
        made_at=float(summary["made_at"]),
        pending=int(summary["pending"]),
        bytes=int(summary["bytes"]),
        components=dict(summary["components"]),
    )


def state_of(
    run: RunRecord, home: Path, component: str, key: str, like: str, limit: int
) -> StateView:
    """Return entries of a component's keyed state, as it was committed last."""
    options = ["--limit", str(limit), *(["--like", like] if like else [])]
    command = ["state", *options, "--", run.id, component, *([key] if key else [])]
    with tempfile.TemporaryDirectory(prefix="topo-state-") as directory:
        try:
            entries = answer_of(command, home, Path(directory), _STATE_SECS)
        except subprocess.TimeoutExpired:
            raise RunError(
                f"the state of {component!r} was not read in {_STATE_SECS:g} s",
                hint=f"topo state {run.name} {component}",
            ) from None
        except CommandFailed as failure:
            if failure.reason:
                raise
            words = failure.message
            raise RunError(f"the state of {component!r} cannot be read: {words}") from None
    return StateView(run.name, component, entries)


def _places(home: Path, name: str) -> list[Path]:
    return [path for path in (home / "savepoints" / name).glob("*") if path.name.isdigit()]
