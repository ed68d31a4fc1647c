"""The supervisor of a driver: it starts it, and restarts it from its checkpoint when it dies.

The pause before a start doubles with each failure in a row, up to a minute; a driver that
committed a batch ends the row, and is followed at once. After `topology.restart.max` failures in a
row the topology is FAILED. A driver is not restarted if its state says that a restart cannot help
(the user's code raised), that its work is complete, or that it was killed on purpose; nor if
another host has taken its run over, which a driver that was cut off for a while finds at its end.

A supervisor is told its host by whoever starts it, and tells its drivers: one that read it in the
registry, in the very moment of a takeover, would take itself for the other host's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from socket import gethostname
from typing import Protocol

from topo.config import Config
from topo.errors import ending_of, words_of
from topo.manage.files import ProcessLock, read_json, write_json_if_possible
from topo.manage.marks import note_mark
from topo.manage.records import FINAL, State, Supervision, is_of, read_state, read_wanted

LONGEST_PAUSE_SECS = 60.0
AFTER_PROGRESS_SECS = 0.1


class Process(Protocol):
    """A driver process."""

    def wait(self) -> int: ...
    def stop(self) -> None: ...


class Supervisor:
    """One topology's supervisor; tests replace `start` and `pause`."""

    def __init__(
        self,
        directory: Path,
        host: str = "",
        *,
        start: Callable[[Path, str], Process] | None = None,
        pause: Callable[[float], None] | None = None,
    ) -> None:
        self._directory = directory
        self._start = start or DriverProcess
        self._stopping = threading.Event()
        self._pause = pause or self._wait
        self._process: Process | None = None
        submission = read_json(directory / "submission.json") or {}
        self._restart_max: int = Config(submission["conf"]).restart_max
        self._host = host or str(submission.get("host", ""))
        self._said = Supervision()

    def stop(self) -> None:
        """Stop the driver for good."""
        self._stopping.set()
        if self._process:
            self._process.stop()

    def _wait(self, secs: float) -> None:
        self._stopping.wait(secs)

    def run(self) -> None:
        """Run the driver, again and again; return when the topology is over."""
        self._say(self._said)
        while not self._stopping.is_set() and self._is_ours():
            before = self._state()
            if self._wanted() == "KILLED":  # by force, before this process could be seen
                self._say_killed(before)
                return
            # Otherwise the last driver's state would pass for the new one's until it writes.
            starting = replace(before, status="STARTING", since=time.time(), address="")
            self._say_state(starting)
            self._say(replace(self._said, starts=self._said.starts + 1, waiting_until=0.0))
            if self._said.restarts:
                why = self._said.last_failure
                note_mark(self._directory, "restart", f"start {self._said.starts}, after: {why}")
            try:
                self._process = self._start(self._directory, self._host)
            except OSError as error:  # of memory or processes there may be enough again
                why = f"its driver could not be started: {words_of(error)}"
                self._after_failure(why, before)
            else:
                if self._stopping.is_set():
                    self._process.stop()
                code = self._process.wait()
                if self._is_over(code):
                    return
                self._after_failure(f"its driver {ending_of(code)}", before)
            if self._said.gave_up:
                return

    def _is_ours(self) -> bool:
        """True unless another host has taken the run over."""
        return is_of(self._directory, self._host)

    def _is_over(self, code: int) -> bool:
        if not self._is_ours():
            return True
        state = self._state()
        if state.status in FINAL and not (state.status == "FAILED" and state.may_restart):
            return True
        if code == 0:  # killed or completed, and a full disk kept it from saying so
            return True
        if self._wanted() == "KILLED":
            self._say_killed(state)
            return True
        return self._stopping.is_set()

    def _after_failure(self, how: str, before: State) -> None:
        state = self._state()
        seen, now = (before.batch, before.has_committed), (state.batch, state.has_committed)
        progressed = seen != now
        failures = 1 if progressed else self._said.failures + 1
        why = state.reason if state.status == "FAILED" else how
        gave_up = failures > self._restart_max
        grown = min(LONGEST_PAUSE_SECS, 2.0 ** (failures - 1))
        pause = AFTER_PROGRESS_SECS if progressed else grown
        self._say(
            replace(
                self._said,
                failures=failures,
                last_failure=why,
                gave_up=gave_up,
                waiting_until=0.0 if gave_up else time.time() + pause,
            )
        )
        if gave_up:
            self._say_state(
                replace(state, status="FAILED", reason=why, since=time.time(), address="")
            )
            return
        self._pause(pause)

    def _state(self) -> State:
        return read_state(self._directory)

    def _say_state(self, state: State) -> None:
        """Write the driver's state while there is no driver."""
        self._write("state.json", asdict(state))

    def _say_killed(self, state: State) -> None:
        if state.status not in ("KILLED", "COMPLETED"):
            killed = replace(state, status="KILLED", reason="", since=time.time(), address="")
            self._say_state(killed)

    def _wanted(self) -> str:
        return read_wanted(self._directory)

    def _say(self, said: Supervision) -> None:
        self._said = said
        self._write("supervisor.json", asdict(said))

    def _write(self, name: str, document: object) -> None:
        if self._is_ours():
            write_json_if_possible(self._directory / name, document)


class DriverProcess:
    """A driver in a session of its own, so that all its children can be ended with it."""

    def __init__(self, directory: Path, host: str) -> None:
        with (directory / "log" / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                _command("topo.manage.driver", directory, host),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> int:
        code = self._process.wait()
        # The JVM of a killed driver must not live on beside the next driver's.
        _end_group(self._process.pid)
        return code

    def stop(self) -> None:
        self._process.terminate()


def _end_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def spawn(directory: Path) -> None:
    """Start the supervisor of a run, detached from this process and its terminal."""
    log = str(directory / "log" / "driver.log")
    os.posix_spawn(
        sys.executable,
        supervisor_command(directory, gethostname()),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _let_go_of_what_was_inherited() -> None:
    """Close the files and locks inherited from `topo submit`, which this process outlives."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def supervisor_command(directory: Path, host: str) -> list[str]:
    """Return the command that supervises a run of this host."""
    return _command("topo.manage.supervisor", directory, host)


def _command(module: str, directory: Path, host: str) -> list[str]:
    """Return a Python command with -P: files of the current directory must not shadow imports."""
    return [sys.executable, "-P", "-m", module, str(directory), host]


def main(directory: Path, host: str = "") -> None:
    """Run a supervisor; a `topo up` from before an upgrade names no host."""
    if host and not is_of(directory, host):
        return  # or it would wait for the lock that the other host's has
    _let_go_of_what_was_inherited()
    lock = ProcessLock(directory / "supervisor.lock")
    supervisor = Supervisor(directory, host)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.stop())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    supervisor.run()
    lock.release()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
