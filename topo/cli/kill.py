"""`topo kill`: deactivate, let what is in flight finish, stop."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict, replace
from socket import gethostname
from typing import Any

import click

from topo.cli.failures import STATUS, CommandError, environment_error
from topo.cli.output import Output, common_options
from topo.cli.runs import Runs, figures
from topo.config import Config
from topo.errors import TopoError
from topo.manage.checkpoints import remove
from topo.manage.client import DriverUnreachable, unreachable
from topo.manage.files import write_json
from topo.manage.registry import RunRecord

POLL_SECS = 0.1
STOP_SECS = 30.0
"""How long a driver may take to stop once nothing is in flight any more."""
CLOSING_SECS = 30.0
"""What a driver gives its tasks to close, beyond that."""


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "-w",
    "--wait",
    "wait_secs",
    type=click.FloatRange(min=0),
    metavar="SECS",
    help="How long to let what is in flight finish; default: the message timeout.",
)
@click.option("-i", "--ignore-errors", is_flag=True, help="Go on with the next NAME.")
@click.option("--purge", "purging", is_flag=True, help="Delete the checkpoint too.")
@click.option("--force", is_flag=True, help="Its driver is gone, or stuck: end and forget it.")
@common_options()
@click.pass_obj
def kill(
    out: Output,
    names: tuple[str, ...],
    wait_secs: float | None,
    ignore_errors: bool,
    purging: bool,
    force: bool,
) -> int:
    """Stop topologies; their state is kept unless it is purged.

    The spouts are stopped first, and what is in flight gets the time to finish.
    """
    runs = Runs(out)
    killed: list[dict[str, Any]] = []
    failure: TopoError | None = None
    for name in names:
        try:
            run = runs.find(name, "kill")
            killed.append(_kill(out, runs, run, wait_secs, purging=purging, force=force))
        except TopoError as error:
            if not ignore_errors:
                raise
            failure = error
            out.note(f"{name}: {error.message}")
    if out.json:
        out.answer_json(killed)
    return STATUS if failure and not killed else 0


def _kill(
    out: Output, runs: Runs, run: RunRecord, wait_secs: float | None, *, purging: bool, force: bool
) -> dict[str, Any]:
    pending, waited = 0, 0.0
    if force:
        _force(runs, run)
    elif run.over and not purging:
        raise CommandError(
            STATUS, f"{run.name} is {run.status} already", code="run", hint="topo list --all"
        )
    elif not run.over:
        limit = Config(run.submission.conf).message_timeout_secs if wait_secs is None else wait_secs
        pending, waited = _drain(out, runs, run, limit)
    checkpoint: str | None = run.submission.checkpoint
    if purging:
        left = remove(run.submission.checkpoint)
        if left is None:
            out.note(f"{run.name}: {checkpoint} is not on this machine: delete it there")
        else:
            if left:
                out.note(f"{checkpoint} holds other things, which are left: {', '.join(left[:5])}")
            checkpoint = None
    if not out.json:
        kept = "its state is kept: topo submit --resume (or kill --purge)"
        out.answer(f"killed {run.name}; {kept if checkpoint else 'its state is gone'}")
    return {
        "name": run.name,
        "id": run.id,
        "status": "KILLED",
        "pending": pending,
        "waited_secs": round(waited, 1),
        "checkpoint": checkpoint,
    }


def _drain(out: Output, runs: Runs, run: RunRecord, limit: float) -> tuple[int, float]:
    """Ask the driver to end, and follow until it has; how much was left, and how long it took."""
    began = time.monotonic()
    run = _settled(runs, run)
    if run.over:
        return 0, time.monotonic() - began
    if not run.driver_alive and run.supervisor_alive:
        _stop_between_starts(runs, run)
        return 0, time.monotonic() - began
    with runs.connect(run) as client:
        client.kill(limit)
        out.say(f"killing {run.name}: deactivated; draining ({limit:g} s at most) ...")
        now, pending = 0, -1
        while True:
            run = runs.registry.reload(run)
            if run.over and not run.driver_alive:
                break
            if time.monotonic() - began > limit + CLOSING_SECS + STOP_SECS:
                raise unreachable(run)
            with suppress(DriverUnreachable):  # it is going away
                now = client.status().pending
            if now != pending:
                pending = now
                out.say(f"  {pending:,} pending after {time.monotonic() - began:.0f} s")
            time.sleep(POLL_SECS)
    components = (figures(run) or {}).get("components", {})  # its last word
    return sum(c["pending"] for c in components.values()), time.monotonic() - began


def _settled(runs: Runs, run: RunRecord) -> RunRecord:
    """The run once its driver listens; at once if it is between two starts, or over."""
    deadline = time.monotonic() + STOP_SECS
    while time.monotonic() < deadline:
        between_starts = run.supervisor_alive and not run.driver_alive and run.waits_to_start
        if run.over or between_starts or (run.driver_alive and run.state.address):
            break
        time.sleep(POLL_SECS)
        run = runs.registry.reload(run)
    return run


def _stop_between_starts(runs: Runs, run: RunRecord) -> None:
    """The supervisor waits to start the driver again: it is not to."""
    write_json(run.directory / "wanted.json", {"status": "KILLED"})
    if run.supervisor_pid:
        _signal(run.supervisor_pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECS
    while runs.registry.reload(run).supervisor_alive:
        if time.monotonic() > deadline:
            raise unreachable(run)
        time.sleep(POLL_SECS)
    _record_killed(runs.registry.reload(run))


def _force(runs: Runs, run: RunRecord) -> None:
    if (run.driver_alive or run.supervisor_alive) and run.submission.host != gethostname():
        raise environment_error(
            f"{run.name} runs on {run.submission.host}: its processes cannot be ended from here",
            code="driver",
            hint=f"topo kill --force {run.name}, there",
        )
    if run.supervisor_pid:
        _signal(run.supervisor_pid, signal.SIGKILL)
    run = runs.registry.reload(run)
    if run.driver_pid:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(run.driver_pid, signal.SIGKILL)
        _signal(run.driver_pid, signal.SIGKILL)
    deadline = time.monotonic() + STOP_SECS
    while (run := runs.registry.reload(run)).driver_alive or run.supervisor_alive:
        if time.monotonic() > deadline:
            raise unreachable(run)
        time.sleep(POLL_SECS)
    _record_killed(run)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _record_killed(run: RunRecord) -> None:
    if run.state.status in ("KILLED", "COMPLETED"):
        return
    killed = replace(run.state, status="KILLED", reason="", since=time.time(), address="")
    write_json(run.directory / "state.json", asdict(killed))
