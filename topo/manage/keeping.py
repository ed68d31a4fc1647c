"""The keeper of a registry's runs: it starts those that should run and have nobody to do it.

`topo submit` leaves a supervisor behind, which nobody starts after a reboot. The keeper, which a
machine starts when it starts itself, gives a supervisor of its own to every run that was neither
killed nor completed and whose processes are gone. Each is a process, so that ending one by force
ends no other. When the keeper is told to end, its supervisors end their drivers, which resume at
the next start; nobody is killed by that, and nothing is drained.

A keeper on standby does so for the hosts that share the registry with it, once one of them has
fallen silent. It writes itself down as the host of the run, which keeps the processes of the silent
one from writing to the registry should they live, and replaces the files of their locks, which a
file system's server may not know to be free. What keeps them from the state is the checkpoint's
owner (`topo/storage/ownership.py`).

It outlives an outage of its storage, with the supervisors that it has. Only one that was told to
end says so: the topologies of one that died are another host's to take over.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from topo.errors import TopoError, sentence_of
from topo.manage.beats import GONE_SECS, LOOK_SECS, Beats, Stillness
from topo.manage.marks import note_mark
from topo.manage.records import FINAL, RunRecord, is_of, read_wanted
from topo.manage.registry import Registry
from topo.manage.supervisor import supervisor_command

_END_SECS = 60.0


def should_run(run: RunRecord, host: str) -> bool:
    """True if nobody ended the run on purpose, and its processes on this host are gone."""
    if run.driver_alive or run.supervisor_alive or run.status == "STARTING":
        return False
    return run.submission.host == host and is_wanted(run)


def is_wanted(run: RunRecord) -> bool:
    """True if the run has come to no end, and nobody has asked for one."""
    if read_wanted(run.directory) == "KILLED":
        return False
    gave_up = run.supervision is not None and run.supervision.gave_up
    return run.state.status not in FINAL or (
        run.state.status == "FAILED" and run.state.may_restart and not gave_up
    )


@dataclass
class Keeper:
    """Keeps the runs of one registry running, until `stop`."""

    registry: Registry
    tell: Callable[[str], None] = print
    """Gets a line for each start and end."""
    host: str = field(default_factory=socket.gethostname)
    standby: bool = False
    """It takes over the runs of hosts that have fallen silent."""

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._supervisors: dict[str, subprocess.Popen[bytes]] = {}
        self._beats = Beats(self.registry.home, self.host)
        self._stillness = Stillness()
        """Of what is written of the runs, by drivers that live."""
        self._troubles: dict[str, str] = {}
        """What does not succeed, and why, as it was told."""

    def stop(self) -> None:
        """Have `keep` end; any thread, and a signal's handler, may call it."""
        self._stopping.set()

    def keep(self) -> None:
        """Start what should run, now and whenever something should; return after `stop`."""
        try:
            while not self._stopping.is_set():
                with self._going_on("looking at the registry"):
                    self.look()
                self._stopping.wait(LOOK_SECS)
        finally:
            if self._stopping.is_set():  # else it died of an error, and another host is to see that
                self._beats.stop()  # first: the ends of drivers take longer than a beat
            self._end()

    @contextmanager
    def _going_on(self, what: str) -> Iterator[None]:
        """Go on after an error of the storage or the system, which is told once."""
        try:
            yield
        except (OSError, TopoError) as error:
            why = sentence_of(error)
            if self._troubles.get(what) != why:
                self.tell(f"{what}: {why}; it is tried again")
            self._troubles[what] = why
        else:
            self._troubles.pop(what, None)

    def look(self) -> list[str]:
        """Start what should run now; return the ids of the runs that were started."""
        self._beats.beat()
        for run_id, process in list(self._supervisors.items()):
            if process.poll() is not None:
                del self._supervisors[run_id]
                self.tell(f"{run_id}: its supervisor has ended")
            elif not is_of(self.registry.directory_of(run_id), self.host):
                process.terminate()
        if self.standby:
            with self._going_on("looking at other hosts"):
                self._take_over(self._beats.silent())
        started = []
        for run_id in self.due():
            with self._going_on(f"{run_id}: starting it"):
                self._supervisors[run_id] = _start(self.registry.directory_of(run_id), self.host)
                self.tell(f"{run_id}: starting it again")
                started.append(run_id)
        return started

    def due(self) -> list[str]:
        """Return the ids of the runs that should be started."""
        runs = (run for run in self._latest() if run.id not in self._supervisors)
        return [run.id for run in runs if should_run(run, self.host)]

    def _latest(self) -> list[RunRecord]:
        """Return of each name the last run."""
        return list({run.name: run for run in self.registry.runs()}.values())

    def _take_over(self, silent: set[str]) -> None:
        """Make the runs of silent hosts those of this one."""
        for run in self._latest():
            host = run.submission.host
            still = self._stillness.secs(run.id, run.last_seen) >= GONE_SECS
            if not still or host not in silent or not is_wanted(run):
                continue
            with self._going_on(f"{run.id}: taking it over"):
                if self.registry.move(run, self.host):
                    self.tell(f"{run.id}: {host} is silent; taking it over")
                    note_mark(run.directory, "restart", f"taken over from {host}, which is silent")

    def _end(self) -> None:
        for process in self._supervisors.values():
            with suppress(OSError):
                process.terminate()
        for run_id, process in self._supervisors.items():
            try:
                process.wait(_END_SECS)
            except subprocess.TimeoutExpired:
                self.tell(f"{run_id}: its supervisor does not end")


def _start(directory: Path, host: str) -> subprocess.Popen[bytes]:
    with (directory / "log" / "driver.log").open("ab") as log:
        return subprocess.Popen(
            supervisor_command(directory, host),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,  # a Ctrl-C is the keeper's to pass on
        )


def tell_systemd(state: str) -> None:
    """Tell systemd that the service is READY=1 or STOPPING=1, if it asked to be told."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    name = f"\0{address[1:]}" if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.connect(name)
        notified.sendall(state.encode())
