"""`topo activate` and `topo deactivate`: resume a topology's spouts, or stop them."""

from __future__ import annotations

import click

from topo.cli.completion import live_names
from topo.cli.failures import STATUS, CommandError
from topo.cli.output import Output, common_options
from topo.cli.runs import Runs
from topo.manage.ending import connect
from topo.manage.records import RunRecord

_DONE = {"activate": "activated", "deactivate": "deactivated"}


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=live_names)
@common_options()
@click.pass_obj
def activate(out: Output, names: tuple[str, ...]) -> None:
    """Resume a topology's spouts.

    \b
    Example:
      topo activate words
    """
    _change(out, "activate", names)


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=live_names)
@common_options()
@click.pass_obj
def deactivate(out: Output, names: tuple[str, ...]) -> None:
    """Stop a topology's spouts; messages in flight are still processed.

    \b
    Example:
      topo deactivate words
    """
    _change(out, "deactivate", names)


def _change(out: Output, verb: str, names: tuple[str, ...]) -> None:
    runs = Runs(out)
    found = [runs.find(name, verb) for name in names]
    for run in found:
        _check(run, verb)
    changes = []
    for run in found:
        with connect(run) as client:
            reply = client.activate() if verb == "activate" else client.deactivate()
            pending = client.status().pending
        changes.append({"name": run.name, "status": reply.status, "was": reply.was})
        if not out.json:
            out.answer(_line(run.name, reply.status, reply.was, pending))
    if out.json:
        out.answer_json(changes)


def _line(name: str, status: str, was: str, pending: int) -> str:
    if status == was:
        return f"{name}: {status} (was already)"
    line = f"{name}: {status} (was {was})"
    if status == "INACTIVE":
        line += "; spouts stopped"
        line += f", {pending:,} tuples still draining" if pending else ""
    return line


def _check(run: RunRecord, verb: str) -> None:
    if run.over:
        raise CommandError(
            STATUS,
            f"{run.name} is {run.status}; it cannot be {_DONE[verb]}",
            code="run",
            hint="topo submit ... --resume",
        )
    if run.status == "STARTING":
        raise CommandError(
            STATUS,
            f"{run.name} is STARTING",
            code="run",
            hint="topo submit --inactive starts it inactive",
        )
