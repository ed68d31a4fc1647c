"""`topo stats`: a topology's throughput, latencies and messages in flight."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import click

from topo.cli.chosen import chosen_of, moment
from topo.cli.completion import all_names, components
from topo.cli.output import Output, common_options
from topo.cli.runs import Runs, check_component, count, duration, restarted, size
from topo.config import Config
from topo.manage.answers import WINDOWS, view_of
from topo.manage.client import last_seen
from topo.manage.documents import plain
from topo.manage.records import RunRecord
from topo.metrics.figure import Figure
from topo.metrics.figures import COMPONENT
from topo.metrics.inputs import inputs_of
from topo.metrics.keys import name_and_labels

_LABELS = list(dict.fromkeys(figure.label for figure in COMPONENT if figure.label))
INPUT_COLUMNS = ["FROM", "STREAM", "EXECUTED", "LATENCY ms", "UNTIL ACK ms"]
COLUMNS = ["COMPONENT", "KIND", "TASKS", *_LABELS]


@click.command()
@click.argument("name", metavar="NAME", shell_complete=all_names)
@click.argument("component", metavar="[COMPONENT]", required=False, shell_complete=components)
@click.option(
    "--window",
    type=click.Choice(list(WINDOWS)),
    default="all",
    show_default=True,
    help="Count what happened in this time.",
)
@click.option(
    "--watch",
    type=click.FloatRange(min=0.1),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECS]",
    help="Show the figures again every SECS seconds (2).",
)
@common_options()
@click.pass_obj
def stats(out: Output, name: str, component: str | None, window: str, watch: float | None) -> None:
    """Show the figures of a topology, or of one of its components.

    With COMPONENT, its tasks' figures are shown as well, and a bolt's by the stream that it reads:
    LATENCY is the time of one execute there, UNTIL ACK that from execute to ack.

    The first line has the last batch; the median and the 99th percentile of the latest hundred,
    without the time they waited for spouts; the tuples that come in per second; the lag, which is
    the age of the oldest message that is neither acked nor failed; the size of the saved state.

    LATENCY is the mean time from a message to its ack for a spout, and of one execute for a bolt.
    CAPACITY is the share of the time in which a bolt's tasks were busy: near 1 it needs more tasks.
    Counters and gauges that components choose, such as bad_records and lag, have a line below.

    \b
    Examples:
      topo stats words
      topo stats --window 10m --watch 5 words count
    """
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


def _document(run: RunRecord, window: str) -> dict[str, Any]:
    document: dict[str, Any] = plain(view_of(run, window))
    return document


def _note_once(out: Output, run: RunRecord) -> None:
    if run.over:
        out.note(f"{run.name} is {run.status}; figures as of {last_seen(run)}")
    elif run.state.drpc:
        out.note(f"its functions are called at {run.state.drpc}")
    if Config(run.submission.conf).acker_executors == 0:
        out.note("acked and failed are 0: topology.acker.executors=0 turns tracking off")


def _show(out: Output, document: dict[str, Any], component: str | None, *, clear: bool) -> None:
    head = head_of(document)
    if component:
        of_it = {n: figures for n, figures in document["components"].items() if n == component}
        document = {**document, "components": of_it}
    if out.json:
        out.answer_json(document)
        return
    if clear:
        out.clear()
    out.answer(head)
    rows = [cells_of(name, figures) for name, figures in document["components"].items()]
    if component:
        tasks = [of["by_task"] for of in document["components"].values() if "by_task" in of]
        rows += [_task_cells(task, of) for by_task in tasks for task, of in by_task.items()]
    if rows:
        out.table(COLUMNS, rows)
    if component and (read := input_rows(document["components"].get(component) or {})):
        out.table(INPUT_COLUMNS, read)
    chosen = chosen_of(document, in_full=component is not None)
    for line in [*times_of(document), *rounds_of(document), *chosen]:
        out.answer(line)


def input_rows(of: Mapping[str, Any]) -> list[list[str]]:
    """Return a row for each stream that a bolt reads."""
    return [
        [
            read.component,
            read.stream,
            count(read.executed),
            *map(_ms, (read.execute_ms, read.process_ms)),
        ]
        for read in inputs_of(of)
    ]


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def times_of(document: dict[str, Any]) -> list[str]:
    """Return a line for each bolt in event time: how far it is, and what came too late."""
    lines = []
    for name, of in document["components"].items():
        gauges = of.get("gauges") or {}
        watermark, behind = gauges.get("watermark_secs"), gauges.get("watermark_lag_secs")
        if watermark is None and not (of.get("late") or of.get("ahead")):
            continue
        parts = ["no watermark"]
        if watermark is not None:
            parts = [f"watermark {moment(watermark)}"]
            if behind is not None and behind >= 0:
                parts[0] += f", {duration(behind)} behind the clock"
        for key, secs in gauges.items():
            name_of_key, labels = name_and_labels(key)
            if name_of_key == "watermark_held_secs":
                parts.append(f"held back for {duration(secs)} by {labels['by']}")
        parts += [f"{count(of[key])} {key}" for key in ("late", "ahead") if of.get(key)]
        if of.get("state_rows"):
            parts.append(f"{count(of['state_rows'])} rows of state")
        lines.append(f"{name}: {', '.join(parts)}")
    return lines


def rounds_of(document: dict[str, Any]) -> list[str]:
    """Return a line for each bolt with tuples of its own on a loop."""
    looping = {name: of.get("looping", 0) for name, of in document["components"].items()}
    return [f"{name}: {count(number)} looping" for name, number in looping.items() if number]


def head_of(document: dict[str, Any]) -> str:
    """Return one line with the topology's status and figures."""
    parts = [f"{document['name']} {document['status']} {duration(document['uptime_secs'])}"]
    batch, acker = document["batch"], document.get("acker")
    if batch and batch["ms"]:
        parts.append(f"batch {batch['id']}, {_batch_times(batch)}")
        if "rows_per_sec" in batch:
            parts.append(f"in {count(batch['rows_per_sec'])}/s")
    if acker and acker["pending"]:
        parts.append(f"lag {duration(acker['lag_secs'])}")
    saved = sum(c["saved_bytes"] for c in document["components"].values())
    if saved:
        parts.append(f"state {size(saved)}")
    reason, failure = document["reason"], document.get("last_failure", "")
    parts += [restarted(document.get("restarts", 0), failure, reason), reason]
    return " · ".join(filter(None, parts))


def _batch_times(batch: dict[str, Any]) -> str:
    """Format batch times without waiting for spouts: "640 ms (p50 610, p99 1,240)"."""
    last = f"{batch['ms'] - batch.get('waited_ms', 0.0):,.0f} ms"
    if batch.get("p50_ms") is None:
        return last
    return f"{last} (p50 {batch['p50_ms']:,.0f}, p99 {batch['p99_ms']:,.0f})"


def _task_cells(task: str, of: dict[str, Any]) -> list[str]:
    _, _, _, *cells = cells_of("", of)
    return [f"  task {task}", "", "", *cells]


def cells_of(name: str, of: dict[str, Any]) -> list[str]:
    return [name, of["kind"], str(of["tasks"]), *(_cell(label, of) for label in _LABELS)]


def _cell(label: str, of: dict[str, Any]) -> str:
    """Return the figures of one column; "-" if this kind of component has none."""
    shown = [
        _shown(figure, of[figure.name])
        for figure in COMPONENT
        if figure.label == label and figure.of in ("", of["kind"])
    ]
    return " ".join(filter(None, shown)) or "-"


def _shown(figure: Figure, value: Any) -> str:
    if figure.kind in ("counters", "histogram", "gauges"):
        return " ".join(f"{key} {count(number)}" for key, number in sorted(value.items()))
    if value is None or (figure.unit == "bytes" and not value):
        return ""
    formats: dict[str, Callable[[Any], str]] = {
        "bytes": size,
        "seconds": lambda secs: f"({duration(secs)})" if secs else "",
        "milliseconds": _ms,
        "ratio": lambda part: f"{part:.2f}",
    }
    return formats.get(figure.unit, count)(value)
