"""`topo savepoint`: all that a topology has saved, as files that another run can begin with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from topo.cli.completion import all_names
from topo.cli.failures import STATUS, CommandError, usage_error
from topo.cli.kill import end_run
from topo.cli.options import NO_OPTIONS, prepare
from topo.cli.output import Output, common_options
from topo.cli.runs import Runs, size
from topo.engine.elastic import StatefulLaunch, saver
from topo.manage.ending import connect
from topo.manage.records import RunRecord
from topo.manage.savepoints import next_place
from topo.storage.savepoints import read_savepoint, summary_of

COLUMNS = ["COMPONENT", "KIND", "TASKS", "SIZE"]
SHOW = "show"


@click.command()
@click.argument("name", metavar="NAME", shell_complete=all_names)
@click.argument("directory", metavar="[DIR]", required=False)
@click.option(
    "--stop", "stopping", is_flag=True, help="Kill it first, which lets what is in flight finish."
)
@click.option(
    "--diff", metavar="TARGET", help="Tell what keeps TARGET from beginning with it; with `show`."
)
@click.option(
    "--rename",
    "renamed",
    multiple=True,
    metavar="OLD=NEW",
    help="Give the state of a component to one of another name; with --diff.",
)
@click.option(
    "--drop",
    "dropped",
    multiple=True,
    metavar="COMPONENT",
    help="Leave out the state of a component; with --diff.",
)
@common_options()
@click.pass_obj
def savepoint(
    out: Output,
    name: str,
    directory: str | None,
    stopping: bool,
    diff: str | None,
    renamed: tuple[str, ...],
    dropped: tuple[str, ...],
) -> None:
    """Write all that a topology has saved into a directory, or show what is in one.

    `topo submit --from DIR` begins with it: another run, with other code, on another machine. A
    topology that runs goes on meanwhile; in real-time mode it has to be over. `topo savepoint show
    DIR` tells what is in one.

    \b
    Examples:
      topo savepoint words /backup/words-1
      topo savepoint --stop words /backup/words-2
      topo savepoint show /backup/words-2 --diff wordcount.py
    """
    if name == SHOW:
        if directory is None:
            raise usage_error(
                "the directory of the savepoint is missing", hint="topo savepoint show DIR"
            )
        _show(out, Path(directory), diff, begin_of(directory, renamed, dropped))
        return
    if diff or renamed or dropped:
        raise usage_error(
            "--diff, --rename and --drop belong to show",
            hint="topo savepoint show DIR --diff TARGET",
        )
    runs = Runs(out)
    run = runs.find(name, "savepoint")
    home = runs.registry.home
    place = Path(directory).absolute() if directory else next_place(home, run.name)
    if stopping and not run.over:
        end_run(out, runs, run)
        run = runs.registry.reload(run)
    document = save_run(out, run, place)
    if out.json:
        out.answer_json(document)
        return
    out.answer(
        f"saved {run.name}, batch {document['batch']}, in {place} ({size(document['bytes'])})"
    )
    if document["pending"]:
        out.note(
            f"{document['pending']:,} messages are pending in it: only the same components resume "
            "them"
        )


def begin_of(directory: str, renamed: tuple[str, ...], dropped: tuple[str, ...]) -> dict[str, Any]:
    """Return what a run is to begin with, by the options of a command."""
    pairs = [text.partition("=") for text in renamed]
    for text, (old, equals, new) in zip(renamed, pairs, strict=True):
        if not (old and equals and new):
            raise usage_error(f"--rename takes OLD=NEW; got {text!r}", at="--rename")
    place = str(Path(directory).absolute())
    return {"from": place, "rename": {old: new for old, _, new in pairs}, "drop": list(dropped)}


def save_run(out: Output, run: RunRecord, place: Path) -> Mapping[str, Any]:
    """Write a savepoint of a run: have the driver save, or do it here if there is none."""
    if not run.over:
        with connect(run) as client:
            return client.savepoint(str(place))
    checkpoint = run.submission.checkpoint
    out.say(f"reading {checkpoint} ...")
    engine = saver()
    try:
        return engine.save(checkpoint, place, run.name)
    finally:
        engine.stop()


def _show(out: Output, directory: Path, target: str | None, begin: Mapping[str, Any]) -> None:
    saved = read_savepoint(directory)
    document: dict[str, Any] = summary_of(saved)
    if target is not None:
        prepared = prepare(out, target, NO_OPTIONS, command="topo savepoint show")
        launch = StatefulLaunch(saved.name, prepared.topology, prepared.conf, begin=begin)
        document["differences"] = saver().differences(launch)
    if out.json:
        out.answer_json(document)
    else:
        out.answer(
            f"{saved.name}, batch {saved.batch}, {saved.mode}, topo {saved.topo}, "
            f"Python {saved.python}; {saved.pending:,} messages pending"
        )
        rows = document["components"].items()
        out.table(
            COLUMNS,
            [[name, each["kind"], str(each["tasks"]), size(each["bytes"])] for name, each in rows],
        )
        for line in document.get("differences", ()):
            out.answer(f"differs: {line}")
    if document.get("differences"):
        raise CommandError(
            STATUS,
            f"{target} cannot begin with this savepoint",
            code="savepoint",
            at=str(directory),
        )
