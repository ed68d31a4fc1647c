"""`topo list`: running and finished topologies."""

from __future__ import annotations

from typing import Any

import click

from topo.cli.output import Output, common_options
from topo.cli.runs import Runs, count, duration, restarted
from topo.config.project import load_project
from topo.manage.answers import row_or_none
from topo.manage.documents import plain
from topo.manage.registry import Registry

COLUMNS = [
    "NAME",
    "STATUS",
    "TASKS",
    "WORKERS",
    "UPTIME",
    "ACKED/10m",
    "FAILED/10m",
    "ID",
    "REASON",
]


@click.command("list")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="List those that are over as well; they are kept 7 days, or as long as their state.",
)
@common_options()
@click.pass_obj
def list_runs(out: Output, everything: bool) -> None:
    """List running topologies.

    \b
    Example:
      topo list --all
    """
    runs = Runs(out)
    found = runs.registry.runs(all_of_them=everything)
    known = {run.directory: row_or_none(run) for run in found}
    rows: list[dict[str, Any]] = [plain(row) for row in known.values() if row is not None]
    if out.json:
        out.answer_json(rows)
    elif rows:
        out.table(COLUMNS, [_cells(row) for row in rows])
    else:
        _say_none(out, runs)
    unreadable = [directory for directory, row in known.items() if row is None]
    for directory in sorted({*runs.registry.damaged(), *unreadable}):
        out.note(
            f"{directory.name} is not shown: its submission.json is damaged",
            hint=f"its log: {directory / 'log'}; delete {directory} to forget it",
        )


def _say_none(out: Output, runs: Runs) -> None:
    finished = len(runs.registry.runs())
    place = f" in env {runs.env!r}" if runs.env else ""
    if not finished:
        out.answer(f"No topologies running{place}.")
    else:
        out.answer(f"No topologies running{place}; {finished} finished")
        out.note("", hint="topo list --all")
    for name in runs.project.environments:
        if name == runs.env:
            continue
        home = load_project(name).environment.registry
        running = len(Registry(home).runs(all_of_them=False)) if home != runs.registry.home else 0
        if running:
            verb = "is" if running == 1 else "are"
            out.note("", hint=f"{running} {verb} running in {name!r}: --env {name}")


def _cells(row: dict[str, Any]) -> list[str]:
    restarts = restarted(row["restarts"], row["last_failure"], row["reason"])
    return [
        row["name"],
        row["status"],
        str(row["tasks"]),
        str(row["workers"] or "-"),
        duration(row["uptime_secs"]),
        count(row["acked"]),
        count(row["failed"]),
        row["id"],
        "; ".join(filter(None, [row["reason"], restarts])),
    ]
