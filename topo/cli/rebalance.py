"""`topo rebalance`: other numbers of slots, and of tasks, for a topology that runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from topo.cli.completion import live_names
from topo.cli.failures import STATUS, TOO_LATE, WENT_BACK, CommandError, usage_error
from topo.cli.output import Output, common_options
from topo.cli.runs import Runs, Unlettered
from topo.manage.client import DriverUnreachable
from topo.manage.ending import POLL_SECS, connect
from topo.manage.plans import plan_of
from topo.manage.records import RunRecord
from topo.manage.views import TopologyPlan
from topo.topology.layout import MAX_TASKS

COLUMNS = ["COMPONENT", "TASKS", "SLOTS", "THEN"]


def _tasks(
    context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, int]:
    """Return the numbers of tasks that were given as COMPONENT=N."""
    tasks: dict[str, int] = {}
    for text in texts:
        name, _, count = text.rpartition("=")
        at = f"-e {text:.80}"
        is_number = count.isascii() and count.isdigit() and len(count) <= len(str(MAX_TASKS))
        if not name or not (is_number and 1 <= int(count) <= MAX_TASKS):
            raise usage_error(
                f"numbers of tasks are given by component, from 1 to {MAX_TASKS}",
                at=at,
                hint="-e count=8",
            )
        if name in tasks:
            raise usage_error(f"{name!r} is given twice", at=at)
        tasks[name] = int(count)
    return tasks


@click.command()
@click.argument("name", shell_complete=live_names)
@click.option(
    "-n",
    "--workers",
    cls=Unlettered,
    type=click.IntRange(1),
    metavar="N",
    help="Go over to so many slots; -n, as Storm has it.",
)
@click.option(
    "-e",
    "--executors",
    "tasks",
    multiple=True,
    callback=_tasks,
    metavar="COMPONENT=N",
    help="Give a bolt so many tasks, over which its state is dealt by key; repeatable.",
)
@click.option(
    "-w",
    "--wait",
    "wait_secs",
    type=click.FloatRange(min=0),
    default=60,
    show_default=True,
    metavar="SECS",
    help="Wait so long for it to run again; 0: do not wait.",
)
@click.option("--explain", is_flag=True, help="Show what would be where, and change nothing.")
@common_options()
@click.pass_obj
def rebalance(
    out: Output,
    name: str,
    workers: int | None,
    tasks: dict[str, int],
    wait_secs: float,
    explain: bool,
) -> None:
    """Give a running topology other numbers of slots or tasks.

    Whole tasks move, with all that they have saved, behind the last commit: nothing is drained,
    nothing fails, and nothing comes twice. With -e, what the tasks of a bolt have saved is dealt
    to others by the key of its input. It goes back if that cannot be, and says why.

    \b
    Examples:
      topo rebalance words -n 8
      topo rebalance words -n 8 -e count=16 -e split=8
      topo rebalance words -e count=4 --explain
    """
    runs = Runs(out)
    run = runs.find(name, "rebalance")
    if workers is None and not tasks:
        raise usage_error(
            "how many slots it is to have is missing",
            hint=f"topo rebalance {name} -n 4, or tasks: -e COMPONENT=4",
        )
    if run.over or run.status == "STARTING":
        raise CommandError(
            STATUS,
            f"{run.name} is {run.status}; it cannot be rebalanced",
            code="run",
            hint=f"topo submit ... --resume --workers {workers}" if run.over else "topo list",
        )
    before = plan_of(run)
    if explain:
        if tasks:  # the driver has the classes, which say what can be dealt
            with connect(run) as client:
                client.rebalance(workers, tasks, explain=True)
        _explain(out, run, before, workers or before.slots, tasks)
        return
    began = time.perf_counter()
    with connect(run) as client:
        client.rebalance(workers, tasks)
    counts = _counts(before)
    dealt = _dealt(counts, tasks)
    out.say(f"rebalancing {run.name}: {before.slots} -> {workers or before.slots} slots{dealt} ...")
    slots, failure = _follow(runs, run, wait_secs) if wait_secs else (before.slots, "")
    took = round(time.perf_counter() - began, 1)
    run = runs.registry.reload(run)
    if wait_secs:  # what it has, which need not be what was asked for
        now = _counts(plan_of(run))
        if failure:
            raise CommandError(
                WENT_BACK,
                f"{run.name} {_left_with(slots, counts, now)}: {failure}",
                code="rebalance",
                at=str(run.log),
            )
        tasks = {each: now[each] for each in tasks}
        dealt = _dealt(counts, tasks)
    if out.json:
        out.answer_json(
            {
                "name": run.name,
                "status": run.status,
                "was": before.slots,
                "slots": slots,
                "tasks": tasks,
                "secs": took,
            }
        )
    elif wait_secs:
        out.answer(f"rebalanced {run.name}: {before.slots} -> {slots} slots{dealt} after {took} s")
    else:
        out.answer(f"{run.name}: REBALANCING; topo list shows how far it is")


def _counts(plan: TopologyPlan) -> dict[str, int]:
    return {each.id: each.tasks for each in plan.components}


def _dealt(before: Mapping[str, int], tasks: Mapping[str, int]) -> str:
    return "".join(f", {each} {before[each]} -> {tasks[each]} tasks" for each in sorted(tasks))


def _left_with(slots: int, before: Mapping[str, int], now: Mapping[str, int]) -> str:
    """Return in words what a topology has that is not as it was asked to be."""
    others = "".join(f", {each} {now[each]} tasks" for each in now if now[each] != before[each])
    return f"has {slots} slots{others}" if others else f"keeps its {slots} slots"


def _follow(runs: Runs, run: RunRecord, wait_secs: float) -> tuple[int, str]:
    """Wait until it runs again; return its number of slots, and why it is not as asked, or ""."""
    deadline, failure = time.perf_counter() + wait_secs, ""
    while True:
        run = runs.registry.reload(run)
        if run.over:
            raise CommandError(STATUS, f"{run.name} is {run.status}: {run.reason}", code="run")
        try:
            with connect(run) as client:
                status = client.status()
        except DriverUnreachable:  # another one follows, and ends what this one has begun
            pass
        else:
            failure = str(status.rebalance_failure)
            if status.slots and status.status != "REBALANCING":
                return int(status.slots), failure
        if time.perf_counter() >= deadline:
            raise CommandError(
                TOO_LATE,
                f"{run.name} is still {run.status} after {wait_secs:g} s"
                + (f", on its way back: {failure}" if failure else ""),
                code="timeout",
                at=str(run.log),
                hint=f"it goes on: topo list, topo logs --driver {run.name}",
            )
        time.sleep(POLL_SECS)


def _explain(
    out: Output, run: RunRecord, before: TopologyPlan, workers: int, tasks: dict[str, int]
) -> None:
    """Show where the tasks of each component are, and where they would be."""
    after = plan_of(run, workers, tasks)
    then = {component.id: component for component in after.components}
    rows: list[dict[str, Any]] = [
        {
            "component": component.id,
            "tasks": component.tasks,
            "then_tasks": then[component.id].tasks,
            "slots": component.slots,
            "then": then[component.id].slots,
            "keeps_state": component.keeps_state,
        }
        for component in before.components
    ]
    whole = [row for row in rows if row["component"] not in tasks]
    moving = sum(a != b for row in whole for a, b in zip(row["slots"], row["then"], strict=True))
    count = sum(row["tasks"] for row in rows)
    few = [row["component"] for row in rows if row["then_tasks"] < workers]
    if out.json:
        out.answer_json(
            {
                "name": run.name,
                "slots": before.slots,
                "then": workers,
                "moving": moving,
                "plan": rows,
            }
        )
        return
    cells = [
        [row["component"], _change_of(row), _listed(row["slots"]), _listed(row["then"])]
        for row in rows
    ]
    out.table(COLUMNS, cells)
    move = "moves, with all that it has" if moving == 1 else "move, with all that they have"
    out.answer(f"{before.slots} -> {workers} slots; {moving} of {count} tasks {move} saved")
    for row in rows:
        if row["component"] in tasks and row["keeps_state"]:
            out.note(
                f"what {row['component']!r} has saved is dealt to {row['then_tasks']} tasks; if a "
                "key of it is not that of the input, the topology goes back and says so"
            )
    if few and workers > before.slots:
        out.note(f"fewer tasks than {workers}: {', '.join(few)}; more slots do not speed them up")


def _change_of(row: dict[str, Any]) -> str:
    before, then = row["tasks"], row["then_tasks"]
    return str(before) if before == then else f"{before} -> {then}"


def _listed(slots: list[int]) -> str:
    return " ".join(map(str, slots))
