"""`topo local`: run a topology in the foreground."""

from __future__ import annotations

import os
from contextlib import nullcontext

import click

from topo.cli.failures import INTERRUPTED, usage_error
from topo.cli.foreground import FORCED, Foreground, Interrupts, TupleOutput, totals_of
from topo.cli.last_resort import LastResort
from topo.cli.launched import launched
from topo.cli.options import (
    ConfOptions,
    TargetCommand,
    checkpoint_option,
    conf_options,
    name_option,
    prepare,
    target_argument,
)
from topo.cli.output import Output, common_options
from topo.config.masters import is_local
from topo.config.slot_range import fixed_slots
from topo.engine.base import Launch
from topo.logs.capture import shown_logs
from topo.topology.layout import TaskLayout


@click.command(cls=TargetCommand)
@target_argument
@name_option
@conf_options
@click.option(
    "-t",
    "--time",
    "secs",
    type=click.FloatRange(min=0),
    metavar="SECS",
    help="Stop SECS after the start of the first batch.",
)
@click.option(
    "--engine",
    type=click.Choice(["spark", "inline"]),
    default="spark",
    show_default=True,
    help="Choose what runs it; inline needs no Java: one thread, and no state is kept.",
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="URL",
    help="Run Spark on N cores of this machine: local[N], or local[*] for all.",
)
@click.option(
    "--show",
    multiple=True,
    metavar="COMPONENT[:STREAM]",
    help="Print each tuple that the component emits as a JSON line.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Stop after N shown tuples.")
@checkpoint_option("By default no state is kept.")
@click.option("--inactive", is_flag=True, help="Start it with its spouts stopped.")
@common_options()
@click.pass_obj
def local(
    out: Output,
    target: str,
    name: str | None,
    conf: ConfOptions,
    secs: float | None,
    engine: str,
    master: str,
    show: tuple[str, ...],
    limit: int | None,
    checkpoint: str | None,
    inactive: bool,
) -> int:
    """Run a topology in the foreground.

    The run ends when its spouts are exhausted, after --time, or by Ctrl-C: the first lets messages
    in flight finish, the second ends at once.

    \b
    Examples:
      topo local wordcount.py
      topo local --engine inline wordcount.py --show count --limit 10
      topo local wordcount.py:build -c topology.workers=2 -- input.txt
    """
    if limit and not show:
        raise usage_error("--limit counts shown tuples", at="--limit", hint="--show COMPONENT")
    if engine == "inline" and checkpoint:
        raise usage_error("the inline engine keeps no state", at="--checkpoint")
    if not is_local(master):
        raise usage_error(
            f"topo local runs on this machine; got {master}", at="--master", hint="topo submit"
        )
    prepared = prepare(out, target, conf, name, command="topo local")
    settings = prepared.conf
    for warning in fixed_slots(settings, "topo local"):
        out.warn(warning)
    if checkpoint:
        settings.checkpoint_dir = checkpoint
    elif engine == "inline" and settings.checkpoint_dir:
        out.warn("the inline engine keeps no state: topology.checkpoint.dir is not used")
    shown = TupleOutput(show, prepared.topology, limit)
    launch = Launch(
        prepared.name,
        prepared.topology,
        settings,
        master=master,
        active=not inactive,
        capture=shown.components,
        listener=shown if shown.wanted else None,
    )
    level = "WARNING" if out.quiet else settings.log_level
    where = "inline, one thread" if engine == "inline" else f"{engine} {master}"
    layout = TaskLayout(prepared.topology, settings)
    size = f"{len(layout.components)} components, {layout.count} tasks"
    # Other engines run no user code in this process.
    guard = LastResort(FORCED) if engine == "inline" else nullcontext()
    with (
        Interrupts() as interrupts,
        guard,
        shown_logs(level),
        launched(engine, launch, lambda: out.say(f"{prepared.name}: {size} · {where}")) as run,
    ):
        foreground = Foreground(out, run, shown, secs, interrupts)
        why = foreground.follow(settings.message_timeout_secs)
    if shown.is_stuck:
        os._exit(INTERRUPTED)  # or the interpreter waits for the buffer that is being written
    if run.error:
        raise run.error
    totals = totals_of(run.stats())
    if out.json:
        out.answer_json(
            {
                "name": run.name,
                "status": run.status,
                "reason": why,
                **totals,
                "elapsed_secs": round(foreground.elapsed_secs, 3),
            }
        )
    verb = "completed" if why == "completed" else f"stopped ({why})"
    out.say(
        f"{run.name}: {verb}; {totals['acked']:,} acked, {totals['failed']:,} failed, "
        f"{totals['pending']:,} pending"
    )
    return INTERRUPTED if why == "interrupted" else 0
