"""`topo state`: the keyed state of a topology, or of a savepoint."""

from __future__ import annotations

import fnmatch
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from topo.cli.completion import all_names
from topo.cli.failures import STATUS, CommandError, usage_error
from topo.cli.output import Output, common_options
from topo.cli.runs import Runs, size
from topo.cli.savepoint import save_run
from topo.errors import did_you_mean
from topo.storage.entries import Entry, entries_of, plain, text_of_key
from topo.storage.savepoints import Savepoint, read_savepoint

COLUMNS = ["COMPONENT", "TASK", "KEY", "VALUE"]
SIZES = ["COMPONENT", "KIND", "TASKS", "SIZE", "KEYS"]
_CHARS = 200


def _document(entry: Entry) -> dict[str, Any]:
    return {
        "component": entry.component,
        "index": entry.index,
        "key": plain(entry.key),
        "value": plain(entry.value),
    }


def _cells(entry: Entry) -> list[str]:
    return [entry.component, str(entry.index), _shown(entry.key), _shown(entry.value)]


@click.command()
@click.argument("name", metavar="NAME|DIR", shell_complete=all_names)
@click.argument("component", required=False)
@click.argument("key", required=False)
@click.option("--task", type=click.IntRange(0), metavar="N", help="Show one task's, by its index.")
@click.option("--like", metavar="GLOB", help="Show the keys that are like this, such as user-*.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    metavar="N",
    help="Show so many entries at most; 0: all.",
)
@common_options()
@click.pass_obj
def state(
    out: Output,
    name: str,
    component: str | None,
    key: str | None,
    task: int | None,
    like: str | None,
    limit: int,
) -> None:
    """Show the keyed state that bolts have saved.

    It is that of a topology's last commit, or that in a savepoint. KEY is the key as text, or as
    Python writes it. Without COMPONENT it tells how much each has saved. Your classes are imported
    from the topology's directory, or from the current one.

    \b
    Examples:
      topo state words
      topo state words count cow
      topo state /backup/words-7 count --like "user-*"
    """
    if Path(name, "savepoint.json").exists():
        sys.path.insert(0, str(Path.cwd()))
        _show(out, read_savepoint(Path(name)), component, key, task, like, limit)
        return
    run = Runs(out).find(name, "state")
    sys.path.insert(0, run.submission.code_directory)
    with tempfile.TemporaryDirectory(prefix="topo-state-") as directory:
        place = Path(directory) / "savepoint"
        save_run(out, run, place)
        _show(out, read_savepoint(place), component, key, task, like, limit)


def _show(
    out: Output,
    saved: Savepoint,
    component: str | None,
    key: str | None,
    task: int | None,
    like: str | None,
    limit: int,
) -> None:
    if component is None:
        _show_sizes(out, saved)
        return
    if component not in saved.components:
        names = list(saved.components)
        near = did_you_mean(component, names)
        raise usage_error(
            f"{saved.name} has no component {component!r}", hint=near or ", ".join(names)
        )
    entries = [
        entry
        for entry in entries_of(saved, component, task)
        if (key is None or key in (text_of_key(entry.key), repr(entry.key)))
        and (like is None or fnmatch.fnmatchcase(text_of_key(entry.key), like))
    ]
    if key is not None and not entries:
        raise CommandError(
            STATUS,
            f"{component!r} has no key {key!r}",
            code="no-key",
            hint=f"topo state ... {component}",
        )
    first = entries[:limit] if limit else entries
    if out.json:
        out.answer_json([_document(entry) for entry in first])
        return
    out.table(COLUMNS, [_cells(entry) for entry in first])
    if len(first) < len(entries):
        out.note(f"{len(entries) - len(first):,} more entries", hint="--limit 0 shows all")


def _show_sizes(out: Output, saved: Savepoint) -> None:
    rows: list[dict[str, Any]] = [
        {
            "component": name,
            "kind": each.kind,
            "tasks": each.tasks,
            "bytes": saved.bytes_of(name),
            "keys": sum(1 for _ in entries_of(saved, name, None)),
        }
        for name, each in saved.components.items()
    ]
    if out.json:
        out.answer_json({"name": saved.name, "batch": saved.batch, "components": rows})
        return
    out.answer(f"{saved.name}, batch {saved.batch}")
    out.table(
        SIZES,
        [
            [
                row["component"],
                row["kind"],
                str(row["tasks"]),
                size(row["bytes"]),
                f"{row['keys']:,}",
            ]
            for row in rows
        ],
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _CHARS else f"{text[:_CHARS]}..."
