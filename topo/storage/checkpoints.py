"""The directory of a checkpoint: what belongs in it, and how it is deleted.

Users name these directories themselves, and may name one that holds other things. A topology
therefore begins only in a directory that is empty, and only what topo and Spark have written is
ever deleted, by name.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

PLAN_FILE = "topo-plan.json"
"""Written first: a directory without one holds no checkpoint."""
OWNER_FILE = "topo-owner.json"
LOCK_FILE = "topo-owner.lock"
REPORTS = "topo-reports"
FAILURES = "topo-failures"
EPOCHS = "topo-epochs"
REMOVED = "topo-plan.removed"
"""The plan of a checkpoint that is being deleted: nobody can resume the half that is left of it."""
_TOPOS = (REPORTS, FAILURES, EPOCHS, PLAN_FILE, OWNER_FILE, LOCK_FILE, REMOVED)
_SPARKS = ("commits", "offsets", "state", "sources", "metadata")
_MOUNTS = {"lost+found"}
"""Of a file system whose root the directory is."""


def local_path(checkpoint: str) -> Path | None:
    """Return where a checkpoint lies in this machine's file system, or None for hdfs:, s3a: etc."""
    if checkpoint.startswith("file:"):
        return Path(checkpoint.removeprefix("file:").removeprefix("//"))
    return None if "://" in checkpoint else Path(checkpoint)


def slots_in(plan: str | bytes) -> int | None:
    """Return the number of slots in the text of a checkpoint's plan; None if it cannot be read."""
    try:
        slots = json.loads(plan)["plan"]["slots"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return slots if isinstance(slots, int) and slots > 0 else None


def checkpoint_id_in(path: Path) -> str | None:
    """Return the id of the checkpoint in a directory; None if there is none that can be read."""
    try:
        return str(json.loads((path / PLAN_FILE).read_bytes())["id"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def holds_checkpoint(path: Path) -> bool:
    """Return True if topo has begun a checkpoint there."""
    return (path / PLAN_FILE).is_file()


def is_half_removed(path: Path) -> bool:
    """Return True if somebody began to delete the checkpoint there."""
    return (path / REMOVED).is_file()


def foreign_names(path: Path) -> list[str]:
    """Return the names in a directory that are neither topo's nor Spark's, nor hidden."""
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except FileNotFoundError:
        return []
    return [name for name in names if not is_known(name)]


def is_known(name: str) -> bool:
    """Return True for what topo or Spark writes into a checkpoint, and for what says nothing."""
    return name in _TOPOS or name in _SPARKS or name in _MOUNTS or name.startswith(".")


def remove_checkpoint(path: Path) -> list[str]:
    """Delete what topo and Spark wrote there; return the names of what is left.

    The plan goes under another name first, and that file last: a deletion that was cut short leaves
    nothing that could be resumed, and can be finished.
    """
    if holds_checkpoint(path):
        os.replace(path / PLAN_FILE, path / REMOVED)
    elif not is_half_removed(path):
        return foreign_names(path)
    for name in (*_SPARKS, *_TOPOS):
        _delete(path / f".{name}.crc")  # Hadoop's checksum of a file
        if name != REMOVED:
            _delete(path / name)
    for unfinished in (*path.glob(".topo-*"), *path.glob(".metadata.*")):
        _delete(unfinished)
    _delete(path / REMOVED)
    with suppress(OSError):  # something else is in it
        path.rmdir()
    return foreign_names(path)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
