"""Submission of a topology: its name, its checkpoint, the start of its supervisor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from pathlib import Path
from typing import Any

from topo.config import Config
from topo.config.masters import is_local
from topo.config.slot_range import with_first_slots
from topo.distribution import require
from topo.errors import CheckpointError, RunError
from topo.manage import supervisor
from topo.manage.checkpoints import check_usable, left_checkpoint, live_user, remove
from topo.manage.records import RunRecord, Submission
from topo.manage.registry import NameTaken, Registry
from topo.shipping.sources import pack_sources
from topo.storage.checkpoints import holds_checkpoint, is_half_removed, local_path, slots_at
from topo.topology.layout import TaskLayout
from topo.topology.model import Topology

SPARK = "spark"
POLL_SECS = 0.1


class Resume(IntEnum):
    """The fate of the state that a name has left; what nothing was said of is never deleted."""

    REFUSE = 0
    """The submission is refused if there is any."""
    RESUME = 1
    FRESH = 2
    """It is left behind; in a directory that the user named, it is deleted."""


@dataclass(frozen=True)
class Request:
    """The options of `topo submit`."""

    name: str
    topology: Topology
    conf: Config
    master: str
    code_directory: Path
    active: bool = True
    resume: Resume = Resume.REFUSE
    checkpoint_base: str | None = None
    py_files: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    env: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)
    engine: str = SPARK
    begin: Mapping[str, Any] = field(default_factory=dict)
    """The savepoint it begins with, as `Launch` has it."""


def submit(
    registry: Registry, request: Request, *, spawn: Callable[[Path], None] | None = None
) -> RunRecord:
    """Register the run and start its supervisor; the run is STARTING when this returns."""
    if request.engine == SPARK:
        require(SPARK, "a topology on Spark")  # the driver would say it after some seconds
    with registry.exclusive():
        previous = registry.latest(request.name)
        if previous and not previous.over:
            raise name_in_use(previous)
        run_id = registry.new_id(request.name)
        place = _place(registry, request, run_id, previous)
        try:
            run = registry.create(
                _submission(registry, request, run_id, place), request.topology.to_bytes()
            )
        except NameTaken as taken:  # by one that came to life again meanwhile
            raise name_in_use(taken.run) from None
        with _forgotten_on_failure(registry, run):
            if place.is_to_be_cleared:
                remove(place.checkpoint)
    with _forgotten_on_failure(registry, run):
        if not is_local(request.master):
            pack_sources(run.directory)
        (spawn or supervisor.spawn)(run.directory)
    return run


@contextmanager
def _forgotten_on_failure(registry: Registry, run: RunRecord) -> Iterator[None]:
    """Release the name of a run whose start fails."""
    try:
        yield
    except BaseException:
        registry.forget(run)
        raise


def _submission(registry: Registry, request: Request, run_id: str, place: _Place) -> Submission:
    settings = {Config.checkpoint_dir.key: place.checkpoint, Config.name.key: request.name}
    present = slots_at(place.checkpoint) if place.is_resumed else None
    conf = with_first_slots({**request.conf, **settings}, present)
    return Submission(
        id=run_id,
        directory=str(registry.directory_of(run_id)),
        name=request.name,
        engine=request.engine,
        master=request.master,
        conf=conf,
        checkpoint=place.checkpoint,
        resumed=place.is_resumed,
        active=request.active,
        workers=conf.get(Config.workers.key),
        tasks=TaskLayout(request.topology, request.conf).count,
        code_directory=str(request.code_directory),
        py_files=request.py_files,
        archives=request.archives,
        env=request.env,
        origins=request.origins,
        submitted_at=time.time(),
        begin=request.begin,
        fate=place.fate,
    )


def await_start(registry: Registry, run: RunRecord, secs: float) -> RunRecord:
    """Wait until the run works or is over, and return it; raise TimeoutError after `secs`."""
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


@dataclass(frozen=True)
class _Place:
    """The place of a run's state."""

    checkpoint: str
    is_resumed: bool = False
    is_to_be_cleared: bool = False
    fate: str = ""
    """What the driver is to do with what it finds, where only it can look."""


def _place(registry: Registry, request: Request, run_id: str, previous: RunRecord | None) -> _Place:
    """Decide where the state is to be, and whether what is there is resumed."""
    fixed = request.conf.checkpoint_dir
    if fixed and ":" not in fixed:
        fixed = str(Path(fixed).resolve())  # the driver may be elsewhere
    left = fixed or _left_by(registry, request, previous)
    if left and (user := live_user(registry, left)):
        raise CheckpointError(
            f"{left} is the checkpoint of {user.name}, which is {user.status} ({user.id})",
            hint=f"another {Config.checkpoint_dir.key}, or topo kill {user.name} first",
        )
    if fixed:
        check_usable(fixed)
    path = local_path(left) if left else None
    if left and path is None and (fixed or request.resume != Resume.FRESH):
        return _remote_place(request, left, previous)
    exists = path is not None and holds_checkpoint(path)
    if exists and request.resume == Resume.REFUSE:
        raise _has_checkpoint(request, left, previous)
    if exists and request.resume == Resume.RESUME:
        return _Place(left, is_resumed=True)
    if request.resume == Resume.RESUME:
        raise CheckpointError(
            f"{request.name} left no checkpoint to resume", hint="submit it without --resume"
        )
    if fixed:
        return _Place(
            fixed, is_to_be_cleared=exists or (path is not None and is_half_removed(path))
        )
    return _Place(f"{_parent(registry, request)}/{run_id}")


def _remote_place(request: Request, left: str, previous: RunRecord | None) -> _Place:
    """Decide as far as can be seen from here; the driver looks what is there."""
    was_there = previous is not None and previous.submission.checkpoint == left
    if was_there and request.resume == Resume.REFUSE:
        raise _has_checkpoint(request, left, previous)
    is_resumed = request.resume == Resume.RESUME
    return _Place(left, is_resumed, fate=request.resume.name.lower())


def _parent(registry: Registry, request: Request) -> str:
    base = request.checkpoint_base
    return f"{base}/{request.name}" if base else str(registry.checkpoint_base(request.name))


def _has_checkpoint(request: Request, left: str, previous: RunRecord | None) -> CheckpointError:
    return CheckpointError(
        f"{request.name} has a checkpoint of {_age(left, previous)}: continue it or start again?",
        hint="--resume or --fresh",
    )


def _left_by(registry: Registry, request: Request, previous: RunRecord | None) -> str:
    """Return the checkpoint that the last run of this name left, "" if there is none."""
    if previous is None:  # or it is forgotten: its checkpoint is not
        found = left_checkpoint(registry, request.checkpoint_base, request.name)
        return found.place if found else ""
    # The state of a completed run is useless for another: its spouts are exhausted.
    is_done = previous.status == "COMPLETED" and request.resume == Resume.REFUSE
    return "" if is_done else previous.submission.checkpoint


def _age(left: str, previous: RunRecord | None) -> str:
    if previous and previous.submission.checkpoint == left:
        day = datetime.fromtimestamp(previous.state.since or previous.submission.submitted_at)
        batch = f" (batch {previous.state.batch})" if previous.state.batch else ""
        return f"{day:%Y-%m-%d}{batch}"
    path = local_path(left)
    if path is None:
        return left
    return f"{datetime.fromtimestamp(path.stat().st_mtime):%Y-%m-%d}"
