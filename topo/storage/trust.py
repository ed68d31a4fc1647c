"""The trust in a checkpoint's directory: restoring state runs what is in it.

State is pickles, so whoever can write into a checkpoint runs code as its owner, and whoever can
read it sees what the topology keeps. On one machine nobody else needs it: topo makes the directory
for its user alone, and restores nothing out of one that others may write, as it may have been made
before, by another program, or under a umask of 0. The workers of a cluster may be another user's
processes, in the same group: there the group may write.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from topo.errors import CheckpointError, TopoError, words_of
from topo.storage.checkpoints import PLAN_FILE, SAVEPOINT_FILE, is_topos

ON_ONE_MACHINE = stat.S_IWGRP | stat.S_IWOTH
"""The bits of a mode under which no state is restored."""
ON_A_CLUSTER = stat.S_IWOTH
TO_DELETE = 0


class UnwritablePlace(TopoError):
    """A directory that cannot be made or written to; another try may find that it can."""

    code = "os"


@contextmanager
def writing(what: str, place: str) -> Iterator[None]:
    """Tell what keeps something from being written to a place."""
    try:
        yield
    except OSError as error:
        raise UnwritablePlace(
            f"{what} cannot be written: {words_of(error)}",
            at=place,
            hint="name a directory that this user can make and write to, on a disk with room",
        ) from error


def make_place(directory: Path, forbidden: int) -> None:
    """Make the directory of a checkpoint, if it is not there."""
    mode = stat.S_IRWXU if forbidden & stat.S_IWGRP else 0o777 & ~forbidden
    directory.mkdir(mode=mode, parents=True, exist_ok=True)


def check_trusted(directory: Path, user: int, forbidden: int) -> None:
    """Raise a CheckpointError for state that somebody else wrote, or could have written.

    `user` is who this process is there: over NFS that may be another user than it is here.
    """
    for path in _looked_at(directory, forbidden):
        status = path.stat()
        counts = path != directory or forbidden == ON_ONE_MACHINE  # or an administrator made it
        mode = stat.S_IMODE(status.st_mode)
        if counts and status.st_uid not in (user, 0):
            raise CheckpointError(
                f"{path} was written by another user (id {status.st_uid}, this one is {user}), "
                "and restoring state runs what that user left in it",
                at=str(directory),
                hint=f"if you trust it, make its files yours: chown -R, then chmod -R go-rwx "
                f"{directory}",
                code="checkpoint-untrusted",
            )
        if mode & forbidden:
            raise CheckpointError(
                f"others may write {path} (its mode is {mode:o}), and restoring state runs what "
                "is in it",
                at=str(directory),
                hint=f"if nobody has: chmod -R go-rwx {directory}; or name a new directory for "
                "topology.checkpoint.dir, which topo makes for you alone",
                code="checkpoint-untrusted",
            )


def _looked_at(directory: Path, forbidden: int) -> list[Path]:
    """Return the paths whose owner and mode count; on a cluster, workers own much of the rest."""
    plan = directory / PLAN_FILE
    if forbidden != ON_ONE_MACHINE:
        return [directory, plan] if plan.exists() else [directory]
    paths = (path for path in directory.iterdir() if path.exists())
    own = (path for path in paths if is_topos(path.name) or path.name == SAVEPOINT_FILE)
    return [directory, *sorted(own)]
