"""The facts of every submitted topology, on disk: one directory per run.

    <home>/runs/<id>/   submission.json   what was asked for, and the host that runs it
                        topology.pb       the topology
                        wanted.json       what its owner last asked of it
                        state.json        the driver's word: status, reason, address
                        supervisor.json   the supervisor's word: starts, failures, why it gave up
                        stats.json errors.json    the driver's figures, every few seconds
                        driver.lock supervisor.lock   held by the processes while they live
                        token             for the control service of the latest driver
                        log/              driver.log, and what the tasks logged
    <home>/checkpoints/<name>/<id>/       state and progress, unless it was sent elsewhere
    <home>/hosts/<host>.json              the beats of hosts that run `topo up`
    <home>/uploads/                       code that came by `topo ui`, while it is used
    <home>/names.lock                     held while a name is taken

A run's directory appears whole (it is renamed into place), and every file in it is replaced as a
whole, so that a crash at any point leaves all of it readable. Who is alive is asked of the kernel,
by the locks, never of a file: a process that was killed cannot say so.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

from topo.errors import words_of
from topo.manage.control import BOUND
from topo.manage.files import (
    ProcessLock,
    lock_holder,
    read_json,
    sync_directory,
    write_atomically,
    write_json,
)
from topo.manage.records import (
    DAMAGED,
    RegistryError,
    RunRecord,
    State,
    Submission,
    is_of,
    read_state,
    read_submission,
    read_supervision,
    submission_of,
)
from topo.storage.checkpoints import holds_checkpoint, local_path, remove_checkpoint

KEPT_SECS = 7 * 24 * 3600
_LOCKS = ("driver.lock", "supervisor.lock")


def draw_token(directory: Path) -> None:
    """Give a run another token, which its next driver alone takes."""
    write_atomically(directory / "token", f"{BOUND}{secrets.token_hex(32)}".encode())


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
            except (*DAMAGED, RegistryError):
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

    def move(self, run: RunRecord, host: str) -> bool:
        """Make a run that of another host; return False if somebody else has done so.

        The processes that it had on the former one write no more to its directory, and have locks
        on files that nobody looks at.
        """
        with self.exclusive():
            latest = self._load(run.id)  # its driver may have stored other settings meanwhile
            if latest is None or latest.submission.host != run.submission.host:
                return False
            moved = replace(latest.submission, host=host)
            try:
                write_json(run.directory / "submission.json", asdict(moved))
                for lock in _LOCKS:
                    write_atomically(run.directory / lock, b"")
            except OSError as error:
                raise self._unwritable(error) from None
        return True

    def amend(self, submission: Submission) -> bool:
        """Store other options of a run; return False, and store none, if its host has changed."""
        directory = self.directory_of(submission.id)
        with self.exclusive():
            if not is_of(directory, submission.host):
                return False
            try:
                write_json(directory / "submission.json", asdict(submission))
            except OSError as error:
                raise self._unwritable(error) from None
        return True

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
            draw_token(building)
            starting = State("STARTING", since=submission.submitted_at)
            write_json(building / "state.json", asdict(starting))
            for lock in _LOCKS:
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
            asked = submission_of(document)
            # The locks are read first: a driver writes its final state before it dies, so a state
            # that is read after its lock was free is the last one.
            driver_pid = lock_holder(directory / "driver.lock")
            supervisor_pid = lock_holder(directory / "supervisor.lock")
            state = read_state(directory)
            supervision = read_supervision(directory)
        except PermissionError:
            return None  # another user's, in a registry that several share
        except OSError as error:
            raise self._unreadable(error) from None
        except DAMAGED:
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
