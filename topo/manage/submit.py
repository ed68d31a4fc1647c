"""Submitting a topology: taking its name, deciding on its checkpoint, starting its supervisor."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from topo.config import Config
from topo.config.masters import is_local
from topo.errors import CheckpointError, RunError
from topo.manage import supervisor
from topo.manage.registry import FINAL, NameTaken, Registry, RunRecord, Submission
from topo.shipping.sources import pack_sources
from topo.storage.checkpoints import PLAN_FILE, local_path
from topo.topology.layout import TaskLayout
from topo.topology.model import Topology

SPARK = "spark"
POLL_SECS = 0.1


@dataclass(frozen=True)
class Request:
    """What `topo submit` was asked for."""

    name: str
    topology: Topology
    conf: Config
    master: str
    code_directory: Path
    active: bool = True
    resume: bool | None = None
    """None: neither was asked for, which is fine unless there is something to resume."""
    checkpoint_base: str | None = None
    py_files: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    env: str = ""
    engine: str = SPARK


def submit(
    registry: Registry, request: Request, *, spawn: Callable[[Path], None] | None = None
) -> RunRecord:
    """Write the run down and start its supervisor; the run is STARTING when this returns."""
    previous = registry.latest(request.name)
    if previous and not previous.over:
        raise name_in_use(previous)
    run_id = registry.new_id(request.name)
    checkpoint, resumed = _checkpoint(registry, request, run_id, previous)
    submission = Submission(
        id=run_id,
        directory=str(registry.directory_of(run_id)),
        name=request.name,
        engine=request.engine,
        master=request.master,
        conf={**request.conf, Config.checkpoint_dir.key: checkpoint, Config.name.key: request.name},
        checkpoint=checkpoint,
        resumed=resumed,
        active=request.active,
        workers=request.conf.workers,
        tasks=TaskLayout(request.topology, request.conf).count,
        code_directory=str(request.code_directory),
        py_files=request.py_files,
        archives=request.archives,
        env=request.env,
        submitted_at=time.time(),
    )
    try:
        run = registry.create(submission, request.topology.to_bytes())
    except NameTaken as taken:
        raise name_in_use(taken.run) from None
    if not is_local(request.master):
        pack_sources(run.directory)
    (spawn or supervisor.spawn)(run.directory)
    return run


def await_start(registry: Registry, run: RunRecord, secs: float) -> RunRecord:
    """The run once it works, or is over, or the time has passed (TimeoutError)."""
    deadline = time.monotonic() + secs
    while True:
        run = registry.reload(run)
        if run.over or run.status != "STARTING":
            return run
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{run.name} is still STARTING after {secs:g} s")
        time.sleep(POLL_SECS)


def name_in_use(run: RunRecord) -> RunError:
    since = datetime.fromtimestamp(run.state.since or run.submission.submitted_at)
    return RunError(
        f"{run.name} is {run.status} since {since:%H:%M} ({run.id})",
        hint=f"topo kill {run.name}, or -n another",
    )


def _checkpoint(
    registry: Registry, request: Request, run_id: str, previous: RunRecord | None
) -> tuple[str, bool]:
    """Where the state is to be, and whether there is some that is to be continued."""
    fixed = request.conf.checkpoint_dir
    if fixed and ":" not in fixed:
        fixed = str(Path(fixed).resolve())  # the driver may be elsewhere
    left = fixed or (previous.submission.checkpoint if previous else "")
    # What a completed run left is of no use to another: its spouts have nothing more to say.
    exists = bool(left) and _holds_something(left) and not _completed(previous, left)
    if exists and request.resume is None:
        raise CheckpointError(
            f"{request.name} has a checkpoint of {_age(left, previous)}: "
            "continue it or start again?",
            hint="--resume or --fresh",
        )
    if exists and request.resume:
        return left, True
    if request.resume:
        raise CheckpointError(
            f"{request.name} left no checkpoint to resume", hint="submit it without --resume"
        )
    if fixed:
        if exists:
            _clear(fixed)
        return fixed, False
    base = request.checkpoint_base
    parent = f"{base}/{request.name}" if base else str(registry.checkpoint_base(request.name))
    return f"{parent}/{run_id}", False


def _clear(checkpoint: str) -> None:
    """Delete what is in a directory that the user named, if it is a checkpoint of topo's."""
    path = local_path(checkpoint)
    if path is None or not (path / PLAN_FILE).is_file():
        raise CheckpointError(
            f"{checkpoint} is not empty and holds no checkpoint of topo's that could be deleted",
            hint=f"empty it yourself, or choose another {Config.checkpoint_dir.key}",
        )
    purge(checkpoint)


def purge(checkpoint: str) -> bool:
    """Delete a checkpoint; False if it is not on this machine's file system."""
    path = local_path(checkpoint)
    if path is None:
        return False
    shutil.rmtree(path, ignore_errors=True)
    return True


def _holds_something(checkpoint: str) -> bool:
    path = local_path(checkpoint)
    return path is None or (path.is_dir() and any(path.iterdir()))


def _completed(previous: RunRecord | None, left: str) -> bool:
    if previous is None or previous.submission.checkpoint != left:
        return False
    return previous.status in FINAL and previous.status == "COMPLETED"


def _age(left: str, previous: RunRecord | None) -> str:
    if previous and previous.submission.checkpoint == left:
        day = datetime.fromtimestamp(previous.state.since or previous.submission.submitted_at)
        batch = f" (batch {previous.state.batch})" if previous.state.batch else ""
        return f"{day:%Y-%m-%d}{batch}"
    path = local_path(left)
    if path is None:
        return left
    return f"{datetime.fromtimestamp(path.stat().st_mtime):%Y-%m-%d}"
