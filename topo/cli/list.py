"""`topo list`: the topologies that run, or have run."""

from __future__ import annotations

import time
from typing import Any

import click

from topo.cli.output import Output, common_options
from topo.cli.runs import Runs, count, duration, figures
from topo.config.project import load_project
from topo.manage.registry import Registry, RunRecord

WINDOW_SECS = 600.0
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
    help="Those that are over, too (kept 7 days, or as long as their state).",
)
@common_options()
@click.pass_obj
def list_runs(out: Output, everything: bool) -> None:
    """List the topologies that run."""
    runs = Runs(out)
    found = runs.registry.runs(all_of_them=everything)
    rows = [_row(run) for run in found]
    if out.json:
        out.answer_json(rows)
    elif rows:
        out.table(COLUMNS, [_cells(row) for row in rows])
    else:
        _say_none(out, runs)
    for directory in runs.registry.damaged():
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


def _row(run: RunRecord) -> dict[str, Any]:
    until = run.ended_at or time.time()
    recent = figures(run, None if run.over else WINDOW_SECS) or {}
    spouts = [c for c in recent.get("components", {}).values() if c["kind"] == "spout"]
    return {
        "name": run.name,
        "id": run.id,
        "status": run.status,
        "reason": run.reason,
        "tasks": run.submission.tasks,
        "workers": run.submission.workers,
        "uptime_secs": round(max(0.0, until - run.submission.submitted_at), 1),
        "acked": sum(c["acked"] for c in spouts),
        "failed": sum(c["failed"] for c in spouts),
        "master": run.submission.master,
    }


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["name"],
        row["status"],
        str(row["tasks"]),
        str(row["workers"] or "-"),
        duration(row["uptime_secs"]),
        count(row["acked"]),
        count(row["failed"]),
        row["id"],
        row["reason"],
    ]
