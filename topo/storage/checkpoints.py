"""The directory of a checkpoint: what belongs in it, and how it is deleted.

Users name these directories themselves, and may name one that holds other things. A topology
therefore begins only in a directory that is empty, and only what topo and Spark have written is
ever deleted, by name.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PLAN_FILE = "topo-plan.json"
"""Written first: a directory without one holds no checkpoint."""
OWNER_FILE = "topo-owner.json"
LOCK_FILE = "topo-owner.lock"
CLAIM = ".topo-owner.claim."
"""Before the generation and the claim of an owner: a file that says that it is one."""
REPORTS = "topo-reports"
FAILURES = "topo-failures"
EPOCHS = "topo-epochs"
ACKER_TOKEN = "topo-acker.token"
"""The topology's token at ackers that outlive its drivers; nobody but its owner may read it."""
SAVEPOINT_FILE = "savepoint.json"
KEPT_IDS = "task_ids"
"""In the plan: the ids of tasks, once a component has got another number of them."""
REMOVED = "topo-plan.removed"
"""The plan of a checkpoint that is being deleted: nobody can resume the half that is left of it."""
GENERATIONS = "topo-gen-"
"""Before the number of a generation: its directory, where the query is from the first one on."""
INITIAL = "initial"
_TOPOS = (
    REPORTS, FAILURES, EPOCHS, PLAN_FILE, OWNER_FILE, LOCK_FILE, ACKER_TOKEN, REMOVED,
)  # fmt: skip
_SPARKS = ("commits", "offsets", "state", "sources", "metadata")
_UNFINISHED = (".topo-", ".metadata.")
"""The beginnings of the names of files that were being written."""
_MOUNTS = {"lost+found"}
"""Of a file system whose root the directory is."""


@dataclass(frozen=True)
class Generation:
    """A query of a checkpoint, with its number of slots, and the batch that it begins with."""

    number: int = 0
    first_batch: int = 0

    @property
    def place(self) -> str:
        """The directory of its query in the checkpoint; "" is the checkpoint's own."""
        return f"{GENERATIONS}{self.number}" if self.number else ""

    @property
    def initial(self) -> str:
        """The directory of the records that it begins with."""
        return f"{self.place}/{INITIAL}".removeprefix("/")


def generation_in(plan: str | bytes) -> Generation:
    """Return the generation that the text of a checkpoint's plan names."""
    try:
        document = json.loads(plan)
        return Generation(int(document["generation"]), int(document["first_batch"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return Generation()  # the first one; a damaged plan is refused elsewhere


def task_ids_in(plan: str | bytes) -> dict[str, list[int]] | None:
    """Return the ids of tasks that a checkpoint's plan keeps; None if they are the topology's."""
    try:
        ids = json.loads(plan)[KEPT_IDS]
        return {str(name): [int(first), int(count)] for name, (first, count) in ids.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def kept_task_ids(checkpoint: str) -> dict[str, list[int]] | None:
    """Return the ids of tasks that a checkpoint on this machine keeps, if there is such a one."""
    path = local_path(checkpoint)
    try:
        return None if path is None else task_ids_in((path / PLAN_FILE).read_bytes())
    except OSError:
        return None


def local_path(checkpoint: str) -> Path | None:
    """Return where a checkpoint lies in this machine's file system, or None for hdfs:, s3a: etc."""
    if checkpoint.startswith("file:"):
        return Path(checkpoint.removeprefix("file:").removeprefix("//"))
    return None if "://" in checkpoint else Path(checkpoint)


def located(checkpoint: str) -> str:
    """Return a checkpoint's place with its file system.

    A bare path is this machine's: Hadoop would take it for one of `fs.defaultFS`, where
    HADOOP_CONF_DIR names that, while all that is done without a JVM looks here.
    """
    path = local_path(checkpoint)
    return checkpoint if path is None else f"file://{path.absolute()}"


def names_to_remove(names: Iterable[str]) -> list[str]:
    """Return what is deleted with a checkpoint of these names, between its plan and REMOVED."""
    ours = [name for name in names if is_topos(name) or name.startswith(_UNFINISHED)]
    return [name for name in ours if name not in (PLAN_FILE, REMOVED)]


def names_of_others(names: Iterable[str], generation: Generation) -> list[str]:
    """Return which of these names are of other generations than this one."""
    queries = [name for name in names if name.startswith(GENERATIONS) and name != generation.place]
    first = [name for name in names if name in _SPARKS] if generation.number else []
    return [*queries, *first]


def slots_in(plan: str | bytes) -> int | None:
    """Return the number of slots in the text of a checkpoint's plan; None if it cannot be read."""
    try:
        slots = json.loads(plan)["plan"]["slots"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return slots if isinstance(slots, int) and slots > 0 else None


def slots_at(checkpoint: str) -> int | None:
    """Return the number of slots of a checkpoint; None if there is none that can be read here."""
    path = local_path(checkpoint)
    if path is None:
        return None
    try:
        return slots_in((path / PLAN_FILE).read_bytes())
    except OSError:
        return None


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
    return is_topos(name) or name in _MOUNTS or name.startswith(".")


def is_topos(name: str) -> bool:
    """Return True for what topo or Spark makes in the directory of a checkpoint."""
    return name in _TOPOS or name in _SPARKS or name.startswith(GENERATIONS)


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
    for name in names_to_remove(sorted(entry.name for entry in path.iterdir())):
        _delete(path / name)
    _delete(path / REMOVED)
    with suppress(OSError):  # something else is in it
        path.rmdir()
    return foreign_names(path)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
