"""The owner of a checkpoint: one driver at a time, on one machine or on storage that many share.

Two drivers on one checkpoint would run the same batches twice and take each other's state. A
driver therefore claims its checkpoint before it reads or changes anything in it, and writes down
who it is: its run, the number of the claim (the generation), and a beat that it renews while it
lives.

- **In a local directory** it holds a record lock on a file as well, which the kernel drops with the
  process: another driver is refused while it lives, and need not wait once it is dead. The lock of
  another host's driver counts as long as that one beats: a file system's server may keep it for
  minutes after that host has lost its power. Two containers of one machine are not two hosts.
- **On shared storage** no lock reaches all machines. Whoever finds another's record watches it for
  LEASE_SECS: a beat that goes on refuses the newcomer, one that has stopped gives the checkpoint
  free. No clock of another machine is asked for that. A driver of the same run on another host
  watches for less: whoever moved the run there has waited for that host (`topo up --standby`). If
  that one beats again, its driver is given time to see that the run is no longer its own, and ends.
- **The fence**: a driver that was only suspended finds a higher generation in the record when it
  comes back, and stops for good. Until it looks, Spark itself keeps it from committing a batch that
  the new owner has written down. In real-time mode it looks behind the write of each epoch, before
  it tells anybody (`topo/engine/spark/realtime/store.py`). A record that was on its way when it
  stood still may lie over the new owner's until that one beats, so in a directory each claim has a
  file as well, which the next owner removes (`claims`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from topo.errors import CheckpointError, TopoError, words_of
from topo.storage.checkpoints import LOCK_FILE, OWNER_FILE, local_path
from topo.storage.claims import Claims
from topo.storage.trust import ON_ONE_MACHINE, check_trusted, make_place, writing

log = logging.getLogger("topo.storage")

BEAT_SECS = 5.0
LEASE_SECS = 30.0
"""How long a record without a new beat counts as that of a living driver."""
SAME_RUN_SECS = 12.0
"""The same where the run has been moved here; a living owner beats twice in it."""
_LEAVING_SECS = 60.0
"""How long a driver whose run was moved may take to see that, and to end."""
_LOOK_SECS = 0.5
_LOOKS = 24
"""How often a record that cannot be read is looked at: its owner writes it anew meanwhile."""
_SETTLE_SECS = 1.0
"""Two drivers that claim at the same moment see each other after that, where there is no lock."""


class StillHeld(TopoError):
    """A checkpoint that another driver of the same run has; another try may find it free."""

    code = "checkpoint-in-use"


@dataclass(frozen=True)
class OwnerRecord:
    """The record that the owner of a checkpoint writes."""

    run: str
    topology: str
    host: str
    pid: int
    machine: str
    """Where `pid` means something: one start of one machine, and its namespace of processes."""
    started: str
    """When that process was started: pids come again."""
    generation: int
    claim: str
    """Drawn for each claim."""
    beat: int = 0
    released: bool = False
    committed: int = -1
    """The last batch of which any owner knew, when this was written, that it was committed."""

    @property
    def words(self) -> str:
        return f"{self.topology!r} (run {self.run}, process {self.pid} on {self.host})"


@dataclass(frozen=True)
class Sighting:
    """A look at a local checkpoint's owner, by a driver that claims it once Spark has started."""

    record: OwnerRecord | None
    at: float
    monotonic: Callable[[], float]

    @classmethod
    def of(cls, checkpoint: str, monotonic: Callable[[], float]) -> Sighting | None:
        """Look now; None if there is no checkpoint that can be looked at without Spark."""
        directory = local_path(checkpoint) if checkpoint else None
        try:
            return None if directory is None else cls(owner_of(directory), monotonic(), monotonic)
        except OSError:  # the claim will say it
            return None

    def secs(self, record: OwnerRecord) -> float:
        """Return for how long the record has been as it is."""
        return self.monotonic() - self.at if record == self.record else 0.0


class OwnerFile(Protocol):
    """The file of the record."""

    def read(self) -> str | None:
        """Return its text; None if there is none."""
        ...

    def write(self, text: str) -> None: ...


class LocalOwnerFile:
    """The record in a local directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / OWNER_FILE

    def read(self) -> str | None:
        try:
            return self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def write(self, text: str) -> None:
        unfinished = self._path.with_name(f".{OWNER_FILE}.{uuid.uuid4().hex}")
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(unfinished, self._path)


class Ownership:
    """One driver's claim to a checkpoint. `check` may be called from any thread."""

    def __init__(
        self,
        path: str,
        topology: str,
        run: str,
        *,
        directory: Path | None = None,
        file: OwnerFile | None = None,
        forbidden: int = ON_ONE_MACHINE,
        sleep: Callable[[float], None] = time.sleep,
        sighting: Sighting | None = None,
    ) -> None:
        self._path = path
        self._sighting = sighting
        self._directory = directory
        assert directory or file
        self._file = file or LocalOwnerFile(directory or Path())
        self._claims = Claims(directory) if directory else None
        self._forbidden = forbidden
        self._sleep = sleep
        self._lock: DirectoryLock | None = None
        self._fenced: CheckpointError | None = None
        self._guard = threading.Lock()  # of the record, between the beat and a release
        self._committed = -1
        self._closing = threading.Event()
        self._beats = threading.Thread(target=self._keep_beating, name="owner", daemon=True)
        self._record = OwnerRecord(
            run=run,
            topology=topology,
            host=socket.gethostname(),
            pid=os.getpid(),
            machine=_machine(),
            started=_start_of(os.getpid()),
            generation=1,
            claim=uuid.uuid4().hex,
        )

    def claim(self) -> Ownership:
        """Take the checkpoint.

        Raises CheckpointError if another driver lives that has it, or others may write into it,
        StillHeld if that one is of this run, and UnwritablePlace if this one cannot write there.
        """
        with writing("the checkpoint", self._path):
            self._take()
        self._beats.start()
        return self

    def _take(self) -> None:
        silent: OwnerRecord | None = None
        if self._directory is not None:
            make_place(self._directory, self._forbidden)
            self._lock = DirectoryLock.take(self._directory)
            if self._lock is None:
                silent = self._silent_owner()
                self._lock = DirectoryLock.take(self._directory, anew=True)
            if self._lock is None:
                raise self._in_use(self._read())
        try:
            before = self._read()
            if before is not None and before != silent and not self._is_free(before):
                before = self._watch(before)
            if before is not None:
                self._committed = before.committed
            latest = max(before.generation if before else 0, self._latest_claim())
            self._record = replace(self._record, generation=latest + 1)
            self._write()
            if self._claims is not None and not self._claims.make(*self._claim):
                self._fence("was taken at the same moment by another driver")
                self.check()
            if self._lock is None or silent is not None:
                self._sleep(_SETTLE_SECS)
                self.confirm()
            if self._directory is not None:
                user = (self._directory / OWNER_FILE).stat().st_uid
                check_trusted(self._directory, user, self._forbidden)
        except BaseException:
            self._unlock()
            raise

    @property
    def committed(self) -> int:
        """The last batch that is known to have been committed here; -1: none is."""
        return self._committed

    def note_committed(self, batch: int) -> None:
        """Note that a batch is committed; the next beat writes it down.

        It does not wait for a beat that the storage holds up.
        """
        self._committed = batch

    def check(self) -> None:
        """Raise a CheckpointError if another driver was seen to have taken the checkpoint."""
        if self._fenced is not None:
            raise self._fenced

    def confirm(self) -> None:
        """Look whether the checkpoint is still this driver's; raise a CheckpointError if not.

        It looks for a while at what cannot be read, and may then raise an OSError as well.
        """
        for left in reversed(range(_LOOKS)):
            self.check()
            try:
                with self._guard:
                    is_read = self._look()
            except OSError:
                if not left:
                    raise
            else:
                self.check()
                if is_read:
                    return
            self._sleep(_LOOK_SECS / 2)
        raise CheckpointError(
            f"the owner's record of {self._path} is damaged, so nobody knows whose it is",
            at=self._path,
            hint="its file system loses what is written; see to that, and submit with --resume",
            code="checkpoint-fenced",
        )

    def close(self) -> None:
        """Give the checkpoint free."""
        self._closing.set()
        if self._beats.is_alive():
            self._beats.join(BEAT_SECS)
        if self._beats.is_alive():  # the file system does not answer: the lease will run out
            self._unlock()
            return
        with suppress(Exception), self._guard:  # or the next one waits for the lease
            self._look()
            if self._fenced is None:
                self._record = replace(self._record, released=True)
                self._write()
                if self._claims is not None:
                    self._claims.remove(*self._claim)
        self._unlock()

    def _keep_beating(self) -> None:
        while not self._closing.wait(BEAT_SECS) and self._fenced is None:
            try:
                self.beat()
            except Exception as error:  # the storage may be away for a while; nobody commits then
                log.debug("cannot renew the claim to %s: %s", self._path, error)

    def beat(self) -> None:
        """Say that this driver lives, unless the checkpoint is another's by now."""
        with self._guard:
            self._look()
            if self._fenced is None:
                self._record = replace(self._record, beat=self._record.beat + 1)
                self._write()

    def _look(self) -> bool:
        """Find out whether this driver is the owner; return True if the record could be read."""
        text = self._file.read()
        if text is None:
            self._fence("has been deleted, or replaced, under the topology that runs on it")
            return True
        found = _parsed(text)  # None: it is being written
        if found is not None and (found.generation, found.claim) > self._claim:
            self._fence(f"was taken over by {found.words}")
        elif self._claims is not None and not self._claims.holds(*self._claim):
            self._fence("was taken over by another driver")
        # An older owner's, which wrote once more before it looked: ours goes over it.
        return found is not None

    @property
    def _claim(self) -> tuple[int, str]:
        return self._record.generation, self._record.claim

    def _latest_claim(self) -> int:
        return 0 if self._claims is None else self._claims.latest()

    def _fence(self, what: str) -> None:
        self._fenced = CheckpointError(
            f"{self._path} {what}",
            at=self._path,
            hint="this run has ended; topo list shows who runs; one checkpoint is one topology's",
            code="checkpoint-fenced",
        )

    def _silent_owner(self) -> OwnerRecord:
        """Return the owner on another host that has a lock and no beat; else raise an error."""
        before = self._read()
        if before is None or before.host == self._record.host or self._is_beside(before):
            raise self._in_use(before)
        return self._watch(before)

    def _is_free(self, before: OwnerRecord) -> bool:
        """Return True if the owner is known to live no more."""
        if before.generation < self._latest_claim():
            return False  # a former one's, over that of an owner who may live
        if before.released:
            return True
        if before.run == self._record.run and before.host == self._record.host:
            return True  # a run has one driver at a time here: its registry sees to that
        if self._lock is not None and before.host == self._record.host:
            return True  # the kernel would not have given the lock, unless the machine was reset
        if not before.machine or before.machine != self._record.machine:
            return False
        return self._lock is not None or _start_of(before.pid) != before.started

    def _is_beside(self, before: OwnerRecord) -> bool:
        """True if one kernel knows both processes, as of two containers: its locks are true."""
        boot, own = (record.machine.partition(" ")[0] for record in (before, self._record))
        return bool(own) and boot == own

    def _watch(self, before: OwnerRecord) -> OwnerRecord:
        """Wait until the owner's lease is over; raise an error if it is renewed.

        An owner of the same run may renew it for a while: it ends once it sees its registry again.
        """
        log.info("%s was %s's: looking whether it lives", self._path, before.words)
        waited = self._sighting.secs(before) if self._sighting is not None else 0.0
        is_same = before.run == self._record.run
        lease, left = (SAME_RUN_SECS, _LEAVING_SECS) if is_same else (LEASE_SECS, 0.0)
        while waited < lease:
            self._sleep(_LOOK_SECS)
            waited += _LOOK_SECS
            left -= _LOOK_SECS
            now = self._read()
            if now is not None and now.released and self._is_free(now):
                return now
            if now is not None and now != before:
                if left <= 0 or now.run != before.run:
                    raise self._in_use(now)
                before, waited = now, 0.0
        return before

    def _in_use(self, owner: OwnerRecord | None) -> TopoError:
        """Return the error for a checkpoint that another driver has."""
        if owner is not None and owner.run == self._record.run:
            return StillHeld(
                f"{self._path} is still held by process {owner.pid} on {owner.host}, "
                "which had this run before",
                at=self._path,
                hint=f"end that process, if {owner.host} does not see this registry any more",
            )
        whose = f"of {owner.words}, which runs" if owner else "of a topology that runs"
        return CheckpointError(
            f"{self._path} is the checkpoint {whose}",
            at=self._path,
            hint="choose another topology.checkpoint.dir, or kill that one first",
            code="checkpoint-in-use",
        )

    def _read(self) -> OwnerRecord | None:
        """Return the record, None if there is none that can be read: a power cut may tear one."""
        for _ in range(3):
            text = self._file.read()
            if text is None:
                return None
            if (found := _parsed(text)) is not None:
                return found
            self._sleep(_LOOK_SECS / 2)  # it may be in the middle of being written
        return None

    def _write(self) -> None:
        self._record = replace(self._record, committed=self._committed)
        self._file.write(json.dumps(asdict(self._record), indent=1) + "\n")

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class DirectoryLock:
    """A lock on a checkpoint's directory for as long as this process lives.

    A record lock: the kernel drops it when the process ends, however it ends, and children do not
    inherit it. It does not hold between two runs of one process, which a set of paths does.
    """

    _held: set[Path] = set()
    _guard = threading.Lock()

    def __init__(self, handle: int, path: Path) -> None:
        self._handle = handle
        self._path = path

    @classmethod
    def take(cls, directory: Path, *, anew: bool = False) -> DirectoryLock | None:
        """Lock the directory; None if another run has locked it.

        `anew`: by another file than the one that is locked, which counts no more.
        """
        path = directory.resolve() / LOCK_FILE
        with cls._guard:
            if anew:
                path.unlink(missing_ok=True)
            if path in cls._held:
                return None
            while True:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    is_current = path.exists() and os.path.samestat(os.fstat(handle), path.stat())
                except OSError as error:
                    os.close(handle)
                    if error.errno in (errno.EACCES, errno.EAGAIN):
                        return None
                    raise CheckpointError(
                        f"{directory} cannot be locked: {words_of(error)}",
                        at=str(directory),
                        hint="mount its file system with locks, or choose another directory",
                    ) from None
                if is_current:
                    cls._held.add(path)
                    return cls(handle, path)
                os.close(handle)  # of a checkpoint that was deleted meanwhile

    def release(self) -> None:
        with self._guard:
            os.close(self._handle)
            self._held.discard(self._path)


def owner_of(directory: Path) -> OwnerRecord | None:
    """Return who has written down that a local checkpoint is its own; it may be dead by now."""
    text = LocalOwnerFile(directory).read()
    return None if text is None else _parsed(text)


def _parsed(text: str) -> OwnerRecord | None:
    try:
        return OwnerRecord(**json.loads(text))
    except (ValueError, TypeError):
        return None


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # no Linux: nothing is known of other processes
        return ""


def _start_of(pid: int) -> str:
    """Return when a process of this machine was started, "" if there is none with this id."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
