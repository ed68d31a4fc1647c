"""`topo logs`: the log records and prints of a submitted topology's code."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from topo.cli.completion import all_names, components
from topo.cli.failures import usage_error
from topo.cli.log_requests import ask, parse_level, parse_rate
from topo.cli.output import Output, common_options
from topo.cli.runs import Runs, check_component, last_option, parse_duration
from topo.logs.reader import LEVELS, LogReader, Wanted
from topo.logs.search import InvalidPattern, Search
from topo.manage.api import Management
from topo.manage.records import RunRecord
from topo.manage.registry import Registry

POLL_SECS = 0.2


@click.command()
@click.argument("name", metavar="NAME", shell_complete=all_names)
@click.argument("component", metavar="[COMPONENT]", required=False, shell_complete=components)
@click.option("-f", "--follow", is_flag=True, help="Continue with new lines until the run is over.")
@last_option(100)
@click.option("--since", metavar="TIME", help="Show only those of the last 30s, 10m or 2h.")
@click.option(
    "--level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="INFO",
    show_default=True,
    help="Show lines of this level or above.",
)
@click.option("--task", type=int, metavar="ID", help="Show lines of this task only.")
@click.option("--grep", "pattern", metavar="RE", help="Show lines whose message matches.")
@click.option(
    "--set",
    "levels",
    metavar="LOGGER=LEVEL[:SECS]",
    multiple=True,
    help="Give a logger of your code this level for SECS seconds (600); 0 gives it its own back.",
)
@click.option(
    "--sample",
    metavar="PER_SEC[:SECS]",
    help="Log so many tuples a second of each task of COMPONENT, for SECS seconds (60).",
)
@click.option("--driver", is_flag=True, help="Show the driver's own log and Spark's, as they are.")
@common_options()
@click.pass_obj
def logs(
    out: Output,
    name: str,
    component: str | None,
    follow: bool,
    last: int,
    since: str | None,
    level: str,
    task: int | None,
    pattern: str | None,
    levels: tuple[str, ...],
    sample: str | None,
    driver: bool,
) -> None:
    """Show the log records and prints of a topology's code.

    Lines of all processes are merged in time order; those of a cluster's workers come when their
    batch has committed. --set and --sample change what a running topology logs, and then show no
    lines unless -f is given.

    \b
    Examples:
      topo logs -f words
      topo logs --level WARNING --since 10m words count
      topo logs --set shop.db=DEBUG:60 -f words
      topo logs --sample 5:60 -f words count
    """
    seconds = parse_duration(since, "--since") if since else None
    wanted = Wanted(level, _moment(seconds), component, task, _search(pattern))
    runs = Runs(out)
    run = runs.find(name, "logs")
    check_component(run, component)
    if levels or sample:
        wanted_levels = [parse_level(text) for text in levels]
        rate = parse_rate(sample) if sample else None
        ask(out, Management(runs.registry), run.id, wanted_levels, component, rate)
        if not follow:
            return
    if driver:
        _show_driver(out, run, last)
        return
    with closing(LogReader(run.directory / "log", wanted)) as reader:
        shown = reader.last(last)
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


def _search(pattern: str | None) -> Search | None:
    try:
        return Search(pattern) if pattern else None
    except InvalidPattern as error:
        raise usage_error(f"--grep: {error.message}", at="--grep") from None


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
