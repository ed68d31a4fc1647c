"""The records of a run in the registry: what was asked for, and what its processes said last.

Each is one JSON file of the run's directory. A damaged one counts as a missing one, except what was
asked for, without which there is no run."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from topo.errors import TopoError
from topo.manage.files import (
    read_json,
)

T = TypeVar("T")


START_SECS = 30
"""How long a supervisor may take to come up before the run counts as failed."""


LIVE = ("STARTING", "ACTIVE", "INACTIVE", "STALLED", "REBALANCING")


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
    begin: Mapping[str, Any] = field(default_factory=dict)
    """The savepoint it begins with ("from"), and what is renamed and dropped; or nothing."""
    fate: str = ""
    """Of the state at `checkpoint`, if only the driver can look: "refuse", "resume" or "fresh"."""


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
    drpc: str = ""
    """The address of its server of calls, and the file with the token for it."""
    drpc_token_file: str = ""
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

    @property
    def restarts(self) -> int:
        """How often the driver was started again."""
        return max(0, self.starts - 1)


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
        # From now in either direction: a clock may have been set back since.
        apart = abs(time.time() - self.submission.submitted_at)
        return self.supervision is None and apart < START_SECS

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


def read_submission(directory: Path) -> Submission:
    document = read_json(directory / "submission.json")
    if document is None:
        raise RegistryError(f"{directory} holds no submission")
    return submission_of(document)


def is_of(directory: Path, host: str) -> bool:
    """True unless another host has taken the run over: what is written then is that one's."""
    try:
        document = read_json(directory / "submission.json")
    except (OSError, *DAMAGED):  # the storage is away for a while
        return True
    return not isinstance(document, dict) or document.get("host", host) == host


def read_wanted(directory: Path) -> str:
    """Return the status that was last asked for, or ""; a damaged file counts as a missing one."""
    try:
        document = read_json(directory / "wanted.json")
    except DAMAGED:
        return ""
    return str(document.get("status", "")) if isinstance(document, dict) else ""


def read_state(directory: Path) -> State:
    """Read the driver's last state; a damaged file counts as a missing one."""
    try:
        return _made(State, read_json(directory / "state.json") or {"status": "STARTING"})
    except DAMAGED:
        return State("STARTING")


def read_supervision(directory: Path) -> Supervision | None:
    try:
        document = read_json(directory / "supervisor.json")
        return _made(Supervision, document) if document else None
    except DAMAGED:
        return Supervision()


def submission_of(document: dict[str, Any]) -> Submission:
    for key in ("py_files", "archives"):
        document[key] = tuple(document[key])
    return _made(Submission, document)


DAMAGED = (ValueError, TypeError, KeyError, RecursionError)


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
