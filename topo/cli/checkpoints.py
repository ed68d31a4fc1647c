"""`topo checkpoints`: the state that topologies have left, or work on; and deleting it."""

from __future__ import annotations

import time
from typing import Any

import click

from topo.cli.completion import all_names
from topo.cli.failures import STATUS, CommandError, usage_error
from topo.cli.output import Output, common_options
from topo.cli.runs import Runs, drop_outside, duration, size
from topo.errors import did_you_mean
from topo.manage.checkpoints import Checkpoint, known_checkpoints, remove

COLUMNS = ["NAME", "STATUS", "BATCH", "SIZE", "AGE", "ID", "PLACE"]
LEFT = "left"
"""The status of a checkpoint whose run is forgotten."""


@click.command()
@click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=all_names)
@click.option("--remove", "removing", is_flag=True, help="Delete the named ones.")
@common_options()
@click.pass_obj
def checkpoints(out: Output, names: tuple[str, ...], removing: bool) -> None:
    """List the state that topologies have left or work on, or delete it.

    NAME is a topology, the ID of a run, or the PLACE of a checkpoint.
    `topo submit --resume` continues from it. It is kept until somebody deletes it: by --remove,
    `topo kill --purge`, or `topo submit --fresh` in the same directory.

    \b
    Examples:
      topo checkpoints
      topo checkpoints --remove words
    """
    runs = Runs(out)
    known = known_checkpoints(runs.registry, runs.project.environment.checkpoint_dir)
    chosen = [each for name in names for each in _named(known, name)] if names else known
    if removing:
        if not names:
            raise usage_error(
                "--remove deletes what is named", at="--remove", hint="topo checkpoints lists them"
            )
        for each in chosen:
            _remove(out, runs, each)
    if out.json:
        out.answer_json([{**_row(each), "removed": removing} for each in chosen])
    elif removing:
        return
    elif chosen:
        out.table(COLUMNS, [_cells(_row(each)) for each in chosen])
    else:
        out.answer("No checkpoints.")


def _named(known: list[Checkpoint], name: str) -> list[Checkpoint]:
    """Return the checkpoints that a person means: all of a topology's, or one by id or place."""
    found = [each for each in known if name in (each.name, each.place, _id(each))]
    if not found:
        names = sorted({each.name for each in known})
        near = did_you_mean(name, names)
        hint = f"{near} topo checkpoints" if near else "topo checkpoints"
        raise CommandError(STATUS, f"no checkpoint of {name!r}", code="no-checkpoint", hint=hint)
    return found


def _remove(out: Output, runs: Runs, each: Checkpoint) -> None:
    if each.is_used and each.run is not None:
        raise CommandError(
            STATUS,
            f"{each.place} is the checkpoint of {each.name}, which is {each.run.status}",
            code="checkpoint-in-use",
            hint=f"topo kill {each.name} first",
        )
    if each.run is not None:
        drop_outside(out, each.run)
    left = remove(each.place)
    if left is None:
        out.note(
            f"{each.place} is not on this machine: it is only forgotten", hint="delete it there"
        )
        if each.run is not None:
            runs.registry.forget(each.run)
    elif left:
        out.note(f"{each.place} holds other things, which are left: {', '.join(left[:5])}")
    if not out.json:
        out.answer(f"removed {each.place}")


def _id(each: Checkpoint) -> str:
    """Return its run's id; topo calls the directories that it chooses by it."""
    if each.run is not None:
        return each.run.id
    return each.place.rstrip("/").rpartition("/")[2]


def _row(each: Checkpoint) -> dict[str, Any]:
    changed = each.changed_at
    return {
        "name": each.name,
        "id": _id(each),
        "status": each.run.status if each.run else LEFT,
        "batch": each.last_batch,
        "bytes": each.size(),
        "age_secs": None if changed is None else round(max(0.0, time.time() - changed), 1),
        "place": each.place,
    }


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["name"],
        row["status"],
        "-" if row["batch"] is None else str(row["batch"]),
        "-" if row["bytes"] is None else size(row["bytes"]),
        "-" if row["age_secs"] is None else duration(row["age_secs"]),
        row["id"],
        row["place"],
    ]
