"""`topo logs`: the log records and prints of a submitted topology's code."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from topo.cli.failures import usage_error
from topo.cli.output import Output, common_options
from topo.cli.runs import Runs, check_component, parse_duration
from topo.logs.reader import LEVELS, LogReader, Wanted
from topo.manage.records import RunRecord
from topo.manage.registry import Registry

POLL_SECS = 0.2


@click.command()
@click.argument("name", metavar="NAME")
@click.argument("component", metavar="[COMPONENT]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on as more comes, until the run is over.")
@click.option(
    "-n", "count", type=click.IntRange(0), default=100, show_default=True, help="The last N lines."
)
@click.option("--since", metavar="TIME", help="Those of the last 30s, 10m, 2h.")
@click.option(
    "--level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="INFO",
    show_default=True,
    help="Of this level or above.",
)
@click.option("--task", type=int, metavar="ID", help="Of this task only.")
@click.option("--grep", "pattern", metavar="RE", help="Those whose message matches.")
@click.option("--driver", is_flag=True, help="The driver's own log, and Spark's, as they are.")
@common_options()
@click.pass_obj
def logs(
    out: Output,
    name: str,
    component: str | None,
    follow: bool,
    count: int,
    since: str | None,
    level: str,
    task: int | None,
    pattern: str | None,
    driver: bool,
) -> None:
    """Show the log records and prints of a topology's code.

    Lines of all processes are merged in time order; those of a cluster's workers come when their
    batch has committed.
    """
    seconds = parse_duration(since, "--since") if since else None
    wanted = Wanted(level, _moment(seconds), component, task, _compiled(pattern))
    runs = Runs(out)
    run = runs.find(name, "logs")
    check_component(run, component)
    if driver:
        _show_driver(out, run, count)
        return
    reader = LogReader(run.directory / "log", wanted)
    shown = reader.last(count)
    for line in shown:
        _show(out, line)
    if follow:
        _follow(out, runs.registry, run, reader)
    elif not shown:
        _say_none(out, wanted, since)


def _moment(seconds_ago: float | None) -> str:
    if seconds_ago is None:
        return ""
    return datetime.fromtimestamp(time.time() - seconds_ago, UTC).isoformat()


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern) if pattern else None
    except re.error as error:
        where = f" at position {error.pos}" if error.pos is not None else ""
        raise usage_error(f"--grep: {error.msg}{where}: {pattern!r}", at="--grep") from None


def _follow(out: Output, registry: Registry, run: RunRecord, reader: LogReader) -> None:
    over = False
    while not over:
        over = registry.reload(run).over  # asked first: what it said last is still to be read
        for line in reader.read():
            _show(out, line)
        time.sleep(0 if over else POLL_SECS)


def _show(out: Output, line: dict[str, Any]) -> None:
    if out.json:
        out.answer_json(line)
        return
    moment = datetime.fromisoformat(line["time"]).astimezone()
    clock = f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03}"
    who = f"{line['component']}/{line['task']} " if line["component"] else ""
    out.answer(f"{clock} {line['level']:<5} {who}{line['logger']}: {line['message']}")


def _say_none(out: Output, wanted: Wanted, since: str | None) -> None:
    period = f" in {since}" if since else ""
    below = [level for level in LEVELS if wanted.seen[level] and level != wanted.level]
    lower = [level for level in below if LEVELS.index(level) < LEVELS.index(wanted.level)]
    if lower:
        found = f"{wanted.seen[lower[-1]]:,} at {lower[-1]}"
        text = f"no line at {wanted.level} or above{period}; {found}"
        out.note(text, hint=f"--level {lower[-1]}")
    else:
        out.note(f"no lines{period}")


def _show_driver(out: Output, run: RunRecord, count: int) -> None:
    for file in ("spark.log", "driver.log"):
        path: Path = run.directory / "log" / file
        if path.exists():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            for line in lines[len(lines) - min(count, len(lines)) :]:
                out.answer_json({"file": file, "line": line}) if out.json else out.answer(line)
