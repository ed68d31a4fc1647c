"""`topo stats`: how fast a topology goes, and where its messages are."""

from __future__ import annotations

import time
from typing import Any

import click

from topo.cli.output import Output, common_options
from topo.cli.runs import Runs, check_component, count, duration, figures, size
from topo.config import Config
from topo.control.client import last_seen
from topo.control.registry import Run

WINDOWS = {"10m": 600.0, "3h": 10_800.0, "1d": 86_400.0, "all": None}
COLUMNS = [
    "COMPONENT",
    "KIND",
    "TASKS",
    "EMITTED",
    "EXECUTED",
    "ACKED",
    "FAILED",
    "HELD (OLDEST)",
    "LATENCY ms",
    "CAPACITY",
]
_CLEAR = "\x1b[H\x1b[J"


@click.command()
@click.argument("name", metavar="NAME")
@click.argument("component", metavar="[COMPONENT]", required=False)
@click.option(
    "--window",
    type=click.Choice(list(WINDOWS)),
    default="all",
    show_default=True,
    help="The time the figures are of.",
)
@click.option(
    "--watch",
    type=click.FloatRange(min=0.1),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECS]",
    help="Show them again every SECS (2).",
)
@common_options()
@click.pass_obj
def stats(out: Output, name: str, component: str | None, window: str, watch: float | None) -> None:
    """Show the figures of a topology, or of one of its components."""
    runs = Runs(out)
    run = runs.find(name, "stats")
    document = _document(run, window)
    check_component(run, component)
    _note_once(out, run)
    while True:
        _show(out, document, component, clear=watch is not None)
        if watch is None or run.over:
            return
        time.sleep(watch)
        run = runs.registry.reload(run)
        document = _document(run, window)


def _document(run: Run, window: str) -> dict[str, Any]:
    found = figures(run, WINDOWS[window]) or {}
    until = run.ended_at or time.time()
    return {
        "name": run.name,
        "status": run.status,
        "reason": run.reason,
        "uptime_secs": round(max(0.0, until - run.submission.submitted_at), 1),
        "window": window,
        "batch": found.get("batch"),
        "components": found.get("components", {}),
    }


def _note_once(out: Output, run: Run) -> None:
    if run.over:
        out.note(f"{run.name} is {run.status}; figures as of {last_seen(run)}")
    if Config(run.submission.conf).acker_executors == 0:
        out.note("acked and failed are 0: topology.acker.executors=0 turns tracking off")


def _show(out: Output, document: dict[str, Any], component: str | None, *, clear: bool) -> None:
    if component:
        of_it = {n: figures for n, figures in document["components"].items() if n == component}
        document = {**document, "components": of_it}
    if out.json:
        out.answer_json(document)
        return
    if clear and out.is_terminal:
        out.answer(_CLEAR)
    out.answer(_head(document))
    if document["components"]:
        rows = [cells_of(name, figures) for name, figures in document["components"].items()]
        out.table(COLUMNS, rows)


def _head(document: dict[str, Any]) -> str:
    parts = [f"{document['name']} {document['status']} {duration(document['uptime_secs'])}"]
    batch = document["batch"]
    if batch:
        parts.append(f"batch {batch['id']}, {batch['ms']:.0f} ms")
    saved = sum(c["saved_bytes"] for c in document["components"].values())
    if saved:
        parts.append(f"state {size(saved)}")
    if document["reason"]:
        parts.append(document["reason"])
    return " · ".join(parts)


def cells_of(name: str, of: dict[str, Any]) -> list[str]:
    is_spout = of["kind"] == "spout"
    failed = " ".join([count(of["failed"]), *_by_reason(of["failed_by"])])
    latency = of["complete_ms"] if is_spout else of["process_ms"]
    held = f"{count(of['held'])} ({duration(of['oldest_held_secs'])})" if of["held"] else "0"
    return [
        name,
        of["kind"],
        str(of["tasks"]),
        count(of["emitted"]),
        "-" if is_spout else count(of["executed"]),
        count(of["acked"]),
        failed,
        "-" if is_spout else held,
        "-" if latency is None else f"{latency:.3g}",
        "-" if is_spout or of["capacity"] is None else f"{of['capacity']:.2f}",
    ]


def _by_reason(failed_by: dict[str, int]) -> list[str]:
    return [f"{reason} {count(number)}" for reason, number in sorted(failed_by.items())]
