"""Ending a run: by its driver, between two starts of it, or by force."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict, replace
from socket import gethostname

from topo.errors import TopoError
from topo.manage.client import ControlClient, unreachable
from topo.manage.files import write_json
from topo.manage.records import RunRecord
from topo.manage.registry import Registry

POLL_SECS = 0.1
STOP_SECS = 30.0
"""How long a driver may take to stop once nothing is in flight any more."""


class ElsewhereError(TopoError):
    """The processes of a run are on another machine."""

    code = "driver"


def begin_kill(registry: Registry, run: RunRecord, wait_secs: float) -> RunRecord:
    """Ask for the end of a run; return the run, which may be over already.

    A driver that was asked drains what is in flight, for `wait_secs` at most, and stops.
    """
    run = _settled(registry, run)
    if run.over:
        return run
    if not run.driver_alive and run.supervisor_alive:
        return _stop_between_starts(registry, run)
    with connect(run) as client:
        client.kill(wait_secs)
    return registry.reload(run)


def connect(run: RunRecord) -> ControlClient:
    """Return a client of the run's driver; raise an error if there is no driver."""
    if not run.driver_alive or not run.state.address:
        raise unreachable(run)
    return ControlClient(run)


def force_end(registry: Registry, run: RunRecord) -> RunRecord:
    """End the processes of a run, whatever state they are in.

    One that was started a moment ago holds no lock yet and cannot be seen here. It looks for what
    is wanted once it has its lock, and ends by itself.
    """
    if (run.driver_alive or run.supervisor_alive) and run.submission.host != gethostname():
        raise ElsewhereError(
            f"{run.name} runs on {run.submission.host}: its processes cannot be ended from here",
            hint=f"topo kill --force {run.name}, there",
        )
    _want_killed(run)
    run = registry.reload(run)
    if run.supervisor_pid:
        _signal(run.supervisor_pid, signal.SIGKILL)
    run = registry.reload(run)
    if run.driver_pid:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(run.driver_pid, signal.SIGKILL)
        _signal(run.driver_pid, signal.SIGKILL)
    deadline = time.monotonic() + STOP_SECS
    while (run := registry.reload(run)).driver_alive or run.supervisor_alive:
        if time.monotonic() > deadline:
            raise unreachable(run)
        time.sleep(POLL_SECS)
    return _record_killed(registry, run)


def _settled(registry: Registry, run: RunRecord) -> RunRecord:
    """Return the run once its driver listens, or is between two starts, or is over."""
    deadline = time.monotonic() + STOP_SECS
    while time.monotonic() < deadline:
        between_starts = run.supervisor_alive and not run.driver_alive and run.waits_to_start
        if run.over or between_starts or (run.driver_alive and run.state.address):
            break
        time.sleep(POLL_SECS)
        run = registry.reload(run)
    return run


def _stop_between_starts(registry: Registry, run: RunRecord) -> RunRecord:
    """Stop the supervisor, which waits to restart the driver."""
    if run.supervisor_pid and run.submission.host != gethostname():
        raise unreachable(run)  # over a shared registry, the pid is another machine's
    _want_killed(run)
    if run.supervisor_pid:
        _signal(run.supervisor_pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECS
    while registry.reload(run).supervisor_alive:
        if time.monotonic() > deadline:
            raise unreachable(run)
        time.sleep(POLL_SECS)
    return _record_killed(registry, registry.reload(run))


def _want_killed(run: RunRecord) -> None:
    write_json(run.directory / "wanted.json", {"status": "KILLED"})


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _record_killed(registry: Registry, run: RunRecord) -> RunRecord:
    if run.state.status in ("KILLED", "COMPLETED"):
        return run
    killed = replace(run.state, status="KILLED", reason="", since=time.time(), address="")
    write_json(run.directory / "state.json", asdict(killed))
    return registry.reload(run)
