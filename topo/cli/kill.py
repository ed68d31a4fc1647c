"""`topo kill`: deactivate, let what is in flight finish, stop."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import click

from topo.cli.completion import all_names
from topo.cli.failures import STATUS, CommandError
from topo.cli.output import Output, common_options
from topo.cli.runs import Runs, drop_outside
from topo.config import Config
from topo.errors import TopoError
from topo.manage.answers import figures_of
from topo.manage.checkpoints import remove
from topo.manage.client import DriverUnreachable, unreachable
from topo.manage.ending import POLL_SECS, STOP_SECS, begin_kill, connect, force_end
from topo.manage.records import RunRecord

CLOSING_SECS = 30.0
"""What a driver gives its tasks to close, beyond that."""


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=all_names)
@click.option(
    "-w",
    "--wait",
    "wait_secs",
    type=click.FloatRange(min=0),
    metavar="SECS",
    help="Give messages in flight so long to finish; default: the message timeout.",
)
@click.option(
    "-i", "--ignore-errors", is_flag=True, help="Continue with the next NAME after an error."
)
@click.option(
    "--purge",
    "purging",
    is_flag=True,
    help="Delete the checkpoint as well, and what it leaves outside, such as replication slots.",
)
@click.option("--force", is_flag=True, help="End it without its driver, which is gone or stuck.")
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

    \b
    Examples:
      topo kill words
      topo kill --wait 0 --purge words clicks
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
        force_end(runs.registry, run)
    elif run.over and not purging:
        raise CommandError(
            STATUS, f"{run.name} is {run.status} already", code="run", hint="topo list --all"
        )
    elif not run.over:
        limit = Config(run.submission.conf).message_timeout_secs if wait_secs is None else wait_secs
        pending, waited = _drain(out, runs, run, limit)
    checkpoint: str | None = run.submission.checkpoint
    dropped: list[str] = []
    if purging:
        dropped = drop_outside(out, run)
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
        "dropped": dropped,
    }


def end_run(out: Output, runs: Runs, run: RunRecord) -> None:
    """Stop a run, when what is in flight has finished or has timed out."""
    _drain(out, runs, run, Config(run.submission.conf).message_timeout_secs)


def _drain(out: Output, runs: Runs, run: RunRecord, limit: float) -> tuple[int, float]:
    """Ask the driver to end, and follow until it has; how much was left, and how long it took."""
    began = time.monotonic()
    run = begin_kill(runs.registry, run, limit)
    if run.over and not run.driver_alive:
        return 0, time.monotonic() - began
    out.say(f"killing {run.name}: deactivated; draining ({limit:g} s at most) ...")
    now, pending = 0, -1
    while True:
        run = runs.registry.reload(run)
        if run.over and not run.driver_alive:
            break
        if time.monotonic() - began > limit + CLOSING_SECS + STOP_SECS:
            raise unreachable(run)
        if not run.over:  # its port may be another process' from then on
            with suppress(DriverUnreachable), connect(run) as client:  # or it is going away
                now = client.status().pending
        if now != pending:
            pending = now
            out.say(f"  {pending:,} pending after {time.monotonic() - began:.0f} s")
        time.sleep(POLL_SECS)
    components = figures_of(run)[0].get("components", {})  # its last word
    return sum(c["pending"] for c in components.values()), time.monotonic() - began
