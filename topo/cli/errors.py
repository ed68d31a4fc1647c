"""`topo errors`: errors with their count, place and last time."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import click

from topo.cli.completion import all_names, components
from topo.cli.output import Output, common_options
from topo.cli.runs import Runs, check_component, last_option, parse_duration, restarted
from topo.manage.answers import errors_of

COLUMNS = ["LAST", "COUNT", "COMPONENT", "TASK", "ERROR", "AT"]


@click.command()
@click.argument("name", metavar="NAME", shell_complete=all_names)
@click.argument("component", metavar="[COMPONENT]", required=False, shell_complete=components)
@last_option(20, least=1)
@click.option("--since", metavar="TIME", help="Show only those of the last 30s, 10m or 2h.")
@click.option("--traceback", is_flag=True, help="Show the tracebacks as well.")
@common_options()
@click.pass_obj
def errors(
    out: Output, name: str, component: str | None, last: int, since: str | None, traceback: bool
) -> None:
    """Show the errors of a topology: uncaught, reported, and failed messages.

    Equal errors of a component are one line with their count.

    \b
    Examples:
      topo errors words
      topo errors --since 10m --traceback words count
    """
    after = time.time() - parse_duration(since, "--since") if since else 0.0
    runs = Runs(out)
    run = runs.find(name, "errors")
    found = errors_of(run)
    check_component(run, component)
    chosen = [
        error
        for error in sorted(found, key=_last, reverse=True)
        if component in (None, error["component"]) and _last(error) >= after
    ][:last]
    if out.json:
        out.answer_json(chosen)
        return
    if run.supervision and run.supervision.restarts:
        words = restarted(run.supervision.restarts, run.supervision.last_failure)
        out.note(f"{run.name} was {words}")
    is_at_start = run.status == "FAILED" and not run.state.batch
    cause = next((error for error in chosen if error["kind"] == "uncaught"), None)
    if is_at_start:  # its reason is the error that is listed, if there is one
        reason = "" if cause else f": {run.reason}"
        out.answer(f"{run.name} FAILED before its first batch{reason}")
    if chosen:
        out.table(COLUMNS, [_cells(error) for error in chosen])
    elif not is_at_start:
        out.answer("No errors.")
    if is_at_start and cause is None and run.state.traceback:
        out.answer(run.state.traceback.rstrip())
    if traceback:
        for error in chosen:
            _show_traceback(out, error)


def _last(error: dict[str, Any]) -> float:
    last = error["last"]
    if isinstance(last, int | float):
        return float(last)
    return datetime.fromisoformat(last).timestamp()


def _cells(error: dict[str, Any]) -> list[str]:
    kind = f"{error['type']}: " if error["type"] else ""
    return [
        f"{datetime.fromtimestamp(_last(error)):%H:%M:%S}",
        f"{error['count']:,}",
        error["component"],
        str(error["task"]),
        f"{kind}{error['message']}",
        error["at"],
    ]


def _show_traceback(out: Output, error: dict[str, Any]) -> None:
    if error["traceback"]:
        out.answer(f"\n{error['component']} task {error['task']}:")
        out.answer(error["traceback"].rstrip())
