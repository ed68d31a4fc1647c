"""The checkpoints that submitted topologies have left, or work on: finding, listing, deleting them.

What a topology was promised to find again is found by its run in the registry, which is kept as
long as its checkpoint is, and beyond that by looking into the directories where topo puts them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from topo.errors import CheckpointError
from topo.manage.records import RunRecord
from topo.manage.registry import Registry
from topo.storage.checkpoints import (
    PLAN_FILE,
    Generation,
    foreign_names,
    generation_in,
    holds_checkpoint,
    is_half_removed,
    local_path,
    remove_checkpoint,
)
from topo.storage.ownership import Ownership
from topo.storage.trust import TO_DELETE


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint that is known, by a run or by where it lies."""

    place: str
    name: str
    """Of the topology."""
    run: RunRecord | None
    """The last one that had it; None: it is forgotten."""

    @property
    def path(self) -> Path | None:
        return local_path(self.place)

    @property
    def is_used(self) -> bool:
        return self.run is not None and not self.run.over

    @property
    def _generation(self) -> Generation:
        try:
            return generation_in(((self.path or Path()) / PLAN_FILE).read_bytes())
        except OSError:
            return Generation()

    @property
    def last_batch(self) -> int | None:
        """The last batch that was committed, as the directory says."""
        if self.path is None:
            return None
        first = self._generation.first_batch
        entries = _entries(self.path / self._generation.place / "commits")
        commits = [first + int(p.name) for p in entries if p.name.isdigit()]
        return max(commits, default=first - 1 if first else None)

    @property
    def changed_at(self) -> float | None:
        """Return the time of the last commit."""
        if self.path is None:
            return None
        seen = [self.path, self.path / self._generation.place / "commits"]
        return max((p.stat().st_mtime for p in seen if p.exists()), default=None)

    def size(self) -> int | None:
        """Return the bytes it takes; it looks at every file."""
        if self.path is None:
            return None
        return sum(p.lstat().st_size for p in self.path.rglob("*") if not p.is_dir())


def known_checkpoints(registry: Registry, base: str | None) -> list[Checkpoint]:
    """Return every checkpoint that is still there, the latest last.

    `base` is the environment's own directory for checkpoints. One that is not in this machine's
    file system counts as there as long as its run is known.
    """
    found: dict[str, Checkpoint] = {}
    for run in registry.runs():
        place = run.submission.checkpoint
        path = local_path(place)
        if path is None or holds_checkpoint(path):
            found[_key(place)] = Checkpoint(place, run.name, run)
    for name, path in _managed(registry, base):
        found.setdefault(_key(str(path)), Checkpoint(str(path), name, None))
    return sorted(found.values(), key=lambda each: each.changed_at or 0.0)


def left_checkpoint(registry: Registry, base: str | None, name: str) -> Checkpoint | None:
    """Return the latest checkpoint of a topology that no run is known of."""
    own = [each for each in known_checkpoints(registry, base) if each.name == name]
    forgotten = [each for each in own if each.run is None]
    return forgotten[-1] if forgotten else None


def live_user(registry: Registry, checkpoint: str) -> RunRecord | None:
    """Return the run that is not over and has this checkpoint."""
    key = _key(checkpoint)
    users = (run for run in registry.runs(all_of_them=False))
    return next((run for run in users if _key(run.submission.checkpoint) == key), None)


def remove(checkpoint: str) -> list[str] | None:
    """Delete what topo and Spark wrote there; return the names of what else is in the directory.

    None: it is not in this machine's file system. Raises CheckpointError while a driver has it.
    """
    path = local_path(checkpoint)
    if path is None:
        return None
    if not (holds_checkpoint(path) or is_half_removed(path)):
        return foreign_names(path)
    run = f"removal-{secrets.token_hex(4)}"
    remover = Ownership(checkpoint, "topo", run, directory=path, forbidden=TO_DELETE)
    with closing(remover.claim()):
        return remove_checkpoint(path)


def check_usable(checkpoint: str) -> None:
    """Raise a CheckpointError for a directory that holds something else."""
    path = local_path(checkpoint)
    if path is None or holds_checkpoint(path):
        return
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"{checkpoint} is no directory", at=checkpoint)
    if foreign := foreign_names(path):
        some = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise CheckpointError(
            f"{checkpoint} is not empty and holds no checkpoint of topo's ({some})",
            at=checkpoint,
            hint="name a new directory for topology.checkpoint.dir, such as one in it",
        )


def _managed(registry: Registry, base: str | None) -> Iterator[tuple[str, Path]]:
    """Yield the checkpoints in the directories where topo puts them, by their topology's name."""
    places = [registry.home / "checkpoints"]
    own = local_path(base) if base else None
    if own is not None:
        places.append(own)
    for place in places:
        for directory in _entries(place):
            yield from ((directory.name, p) for p in _entries(directory) if holds_checkpoint(p))


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:  # not there, a file, another user's
        return []


def _key(checkpoint: str) -> str:
    """Return what two names of one directory have in common."""
    path = local_path(checkpoint)
    return checkpoint.rstrip("/") if path is None else str(path.resolve())
