"""The facts of every submitted topology, on disk: one directory per run.

    <home>/runs/<id>/   submission.json   what was asked for; never changes
                        topology.pb       the topology
                        wanted.json       what its owner last asked of it
                        state.json        the driver's word: status, reason, address
                        supervisor.json   the supervisor's word: starts, failures, why it gave up
                        stats.json errors.json    the driver's figures, every few seconds
                        driver.lock supervisor.lock   held by the processes while they live
                        token             for the control service
                        log/              driver.log, and what the tasks logged
    <home>/checkpoints/<name>/<id>/       state and progress, unless it was sent elsewhere
    <home>/names.lock                     held while a name is taken

A run's directory appears whole (it is renamed into place), and every file in it is replaced as a
whole, so that a crash at any point leaves all of it readable. Who is alive is asked of the kernel,
by the locks, never of a file: a process that was killed cannot say so.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from topo.errors import TopoError, words_of
from topo.manage.files import (
    ProcessLock,
    lock_holder,
    read_json,
    sync_directory,
    write_atomically,
    write_json,
)
from topo.storage.checkpoints import holds_checkpoint, local_path, remove_checkpoint

T = TypeVar("T")
KEPT_SECS = 7 * 24 * 3600
START_SECS = 30
"""How long a supervisor may take to come up before the run counts as failed."""
LIVE = ("STARTING", "ACTIVE", "INACTIVE", "STALLED")
FINAL = ("KILLED", "COMPLETED", "FAILED")


class RegistryError(TopoError):
    """The error of a registry that cannot be read or written."""

    code = "registry"


@dataclass(frozen=True)
class Submission:
    """The options with which a topology was submitted."""

    id: str
    directory: str
    """Of the run."""
    name: str
    engine: str
    """"MODULE:FUNCTION" that starts a run of it."""
    master: str
    conf: Mapping[str, Any]
    checkpoint: str
    resumed: bool
    active: bool
    workers: int | None
    tasks: int
    code_directory: str
    py_files: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    env: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)
    """The place that decided each key of `conf`."""
    submitted_at: float = 0.0
    host: str = field(default_factory=socket.gethostname)
    number: int = 0
    """Of all that were submitted here; the clock may be set back between two."""


@dataclass(frozen=True)
class State:
    """The last state that the driver wrote."""

    status: str
    reason: str = ""
    since: float = 0.0
    """When this status began."""
    address: str = ""
    """Of its control service."""
    batch: int = 0
    """The last committed batch; 0 if none was seen."""
    has_committed: bool = False
    """A batch was committed, by this driver or one before."""
    ui: str = ""
    code: str = ""
    """The code of the error that a FAILED run ended with."""
    hint: str = ""
    traceback: str = ""
    """The user's traceback of an uncaught error."""
    may_restart: bool = True
    """True if restarting a FAILED run from its checkpoint may help."""


@dataclass(frozen=True)
class Supervision:
    """The last state that the supervisor wrote."""

    starts: int = 0
    failures: int = 0
    """Failures in a row, without a committed batch between."""
    waiting_until: float = 0.0
    last_failure: str = ""
    gave_up: bool = False


@dataclass(frozen=True)
class RunRecord:
    """One run, from the registry's files and the kernel's locks; the driver may know more."""

    directory: Path
    submission: Submission
    state: State
    supervision: Supervision | None
    driver_pid: int | None
    """Of the process that lives now."""
    supervisor_pid: int | None

    @property
    def driver_alive(self) -> bool:
        return self.driver_pid is not None

    @property
    def supervisor_alive(self) -> bool:
        return self.supervisor_pid is not None

    @property
    def id(self) -> str:
        return self.submission.id

    @property
    def name(self) -> str:
        return self.submission.name

    @property
    def over(self) -> bool:
        return self.status in FINAL

    @property
    def status(self) -> str:
        if self.state.status in FINAL and not (self._retrying and self.supervisor_alive):
            return self.state.status
        if self.driver_alive:
            return self.state.status if self.state.status not in FINAL else "STARTING"
        return "STARTING" if self.supervisor_alive or self._just_submitted else "FAILED"

    @property
    def _just_submitted(self) -> bool:
        age = time.time() - self.submission.submitted_at
        return self.supervision is None and age < START_SECS

    @property
    def _retrying(self) -> bool:
        gave_up = self.supervision is not None and self.supervision.gave_up
        return self.state.status == "FAILED" and self.state.may_restart and not gave_up

    @property
    def reason(self) -> str:
        supervised = self.supervision
        if self.status == "FAILED" and supervised and supervised.gave_up:
            return f"{supervised.last_failure}; {supervised.failures} failures in a row"
        if self.status in FINAL and self.state.status in FINAL:
            return self.state.reason
        if self.driver_alive:
            if not self.supervisor_alive:
                note = "its supervisor is gone: it will not be started again if it dies"
                return f"{self.state.reason}; {note}" if self.state.reason else note
            if self.status == "STARTING" and supervised and supervised.failures:
                return f"{self.state.reason or 'starting'}, after: {supervised.last_failure}"
            return self.state.reason
        if self._just_submitted:
            return ""
        if not self.supervisor_alive:
            return "its driver and its supervisor died"
        if supervised and supervised.last_failure:
            left = supervised.waiting_until - time.time()
            when = f" in {left:.0f} s" if left > 0 else ""
            return f"{supervised.last_failure}; start {supervised.starts + 1} follows{when}"
        return ""

    @property
    def waits_to_start(self) -> bool:
        """True iff the supervisor pauses before it restarts the driver."""
        return self.supervision is not None and self.supervision.waiting_until > 0

    @property
    def ended_at(self) -> float:
        return self.last_seen if self.over else 0.0

    @property
    def last_seen(self) -> float:
        """The time of the run's last sign of life; `since` may be months ago for a long status."""
        if self.state.status in FINAL and self.state.since:
            return self.state.since
        seen = [self.submission.submitted_at]
        for name in ("state.json", "stats.json", "supervisor.json"):
            with suppress(OSError):
                seen.append((self.directory / name).stat().st_mtime)
        return max(seen)

    @property
    def log(self) -> Path:
        return self.directory / "log" / "driver.log"


class Registry:
    """The runs under one home directory."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._runs = home / "runs"

    def runs(self, *, all_of_them: bool = True) -> list[RunRecord]:
        """Return all runs, the oldest first."""
        try:
            names = sorted(os.listdir(self._runs))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unreadable(error) from None
        found = [run for name in names if not name.startswith(".") and (run := self._load(name))]
        found = found if all_of_them else [run for run in found if not run.over]
        return sorted(found, key=lambda run: (run.submission.number, run.submission.submitted_at))

    def damaged(self) -> list[Path]:
        """Return the directories of runs whose submission is unreadable."""
        found = []
        for path in sorted(self._runs.glob("[!.]*/submission.json")):
            try:
                read_submission(path.parent)
            except OSError:  # another user's, or just forgotten
                continue
            except (*_DAMAGED, RegistryError):
                found.append(path.parent)
        return found

    def latest(self, name: str) -> RunRecord | None:
        """Return the live run of that name or id, else the one that was submitted last."""
        mine = [run for run in self.runs() if name in (run.name, run.id)]
        return next((run for run in mine if not run.over), mine[-1] if mine else None)

    def reload(self, run: RunRecord) -> RunRecord:
        again = self._load(run.id)
        if again is None:
            raise RegistryError(f"{run.name} ({run.id}) has been forgotten")
        return again

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other submits out between the look at what is there and the run that is written."""
        try:
            for directory in (self.home, self._runs):
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = ProcessLock(self.home / "names.lock")
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            yield
        finally:
            lock.release()

    def create(self, submission: Submission, topology: bytes) -> RunRecord:
        """Take the name and write the run's directory; raise NameTaken if another run has it.

        To be called while `exclusive`.
        """
        try:
            runs = self.runs()
            taken = self.latest(submission.name)
            if taken and not taken.over:
                raise NameTaken(taken)
            number = 1 + max((run.submission.number for run in runs), default=0)
            self._write(replace(submission, number=number), topology)
        except OSError as error:
            raise self._unwritable(error) from None
        self._prune()
        created = self._load(submission.id)
        assert created is not None
        return created

    def new_id(self, name: str) -> str:
        while True:
            candidate = f"{name}-{secrets.token_hex(2)}"
            if not (self._runs / candidate).exists():
                return candidate

    def directory_of(self, run_id: str) -> Path:
        return self._runs / run_id

    def checkpoint_base(self, name: str) -> Path:
        return self.home / "checkpoints" / name

    def forget(self, run: RunRecord) -> None:
        shutil.rmtree(run.directory, ignore_errors=True)

    def _write(self, submission: Submission, topology: bytes) -> None:
        building = self._runs / f".{submission.id}"
        building.mkdir(mode=0o700)
        try:
            (building / "log").mkdir(mode=0o700)
            write_json(building / "submission.json", asdict(submission))
            write_atomically(building / "topology.pb", topology)
            write_atomically(building / "token", secrets.token_hex(32).encode())
            starting = State("STARTING", since=submission.submitted_at)
            write_json(building / "state.json", asdict(starting))
            for lock in ("driver.lock", "supervisor.lock"):
                write_atomically(building / lock, b"")
            building.rename(self._runs / submission.id)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        sync_directory(self._runs)

    def _load(self, name: str) -> RunRecord | None:
        directory = self._runs / name
        try:
            document = read_json(directory / "submission.json")
            if document is None:
                return None
            asked = _submission(document)
            # The locks are read first: a driver writes its final state before it dies, so a state
            # that is read after its lock was free is the last one.
            driver_pid = lock_holder(directory / "driver.lock")
            supervisor_pid = lock_holder(directory / "supervisor.lock")
            state = read_state(directory)
            supervision = _read_supervision(directory)
        except PermissionError:
            return None  # another user's, in a registry that several share
        except OSError as error:
            raise self._unreadable(error) from None
        except _DAMAGED:
            return None  # the others are not to suffer; `damaged` names it
        return RunRecord(
            directory,
            asked,
            state,
            supervision,
            driver_pid,
            supervisor_pid,
        )

    def _prune(self) -> None:
        """Forget runs that were seen last long ago, but none whose state is still to be found.

        What a completed run left is of no use to another: it goes with its run, where topo chose
        the place.
        """
        runs = self.runs()
        later = {run.submission.checkpoint: run.id for run in runs}  # the last one that has it
        for run in runs:
            if not run.over or run.last_seen > time.time() - KEPT_SECS:
                continue
            path = local_path(run.submission.checkpoint)
            keeps = path is None or holds_checkpoint(path)
            if keeps and later[run.submission.checkpoint] == run.id:
                is_ours = path is not None and self.checkpoint_base(run.name) in path.parents
                if run.status != "COMPLETED" or not is_ours or path is None:
                    self._clear_logs(run)
                    continue
                remove_checkpoint(path)
            self.forget(run)

    def _clear_logs(self, run: RunRecord) -> None:
        """Delete the only part of an old run that may be large."""
        for file in (run.directory / "log").glob("*"):
            with suppress(OSError):
                file.unlink()

    def _unreadable(self, error: Exception) -> RegistryError:
        return RegistryError(
            f"cannot read registry {self.home}: {words_of(error)}", hint="topo doctor"
        )

    def _unwritable(self, error: OSError) -> RegistryError:
        return RegistryError(
            f"cannot write to registry {self.home}: {words_of(error)}",
            hint="set TOPO_HOME to a directory of yours, or free some space; topo doctor",
        )


class NameTaken(Exception):
    """The error of a name whose run is not over."""

    def __init__(self, run: RunRecord) -> None:
        super().__init__(run.name)
        self.run = run


def read_submission(directory: Path) -> Submission:
    document = read_json(directory / "submission.json")
    if document is None:
        raise RegistryError(f"{directory} holds no submission")
    return _submission(document)


def read_state(directory: Path) -> State:
    """Read the driver's last state; a damaged file counts as a missing one."""
    try:
        return _made(State, read_json(directory / "state.json") or {"status": "STARTING"})
    except _DAMAGED:
        return State("STARTING")


def _read_supervision(directory: Path) -> Supervision | None:
    try:
        document = read_json(directory / "supervisor.json")
        return _made(Supervision, document) if document else None
    except _DAMAGED:
        return Supervision()


def _submission(document: dict[str, Any]) -> Submission:
    for key in ("py_files", "archives"):
        document[key] = tuple(document[key])
    return _made(Submission, document)


_DAMAGED = (ValueError, TypeError, KeyError, RecursionError)
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "int | None": (int, type(None)),
    "tuple[str, ...]": (tuple,),
    "Mapping[str, Any]": (dict,),
    "Mapping[str, str]": (dict,),
}


def _made(cls: type[T], document: Mapping[str, Any]) -> T:
    """Make a dataclass of a document; raises TypeError if a value is of another type."""
    made = cls(**document)
    for field_ in fields(cls):  # type: ignore[arg-type]
        value = getattr(made, field_.name)
        if not isinstance(value, _TYPES[str(field_.type)]):
            raise TypeError(f"{field_.name} is a {type(value).__name__}, not {field_.type}")
    return made
