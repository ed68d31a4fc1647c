"""A savepoint: all that the tasks of a topology have saved, as files that another run begins with.

It is filed by component and index, and neither by task id nor by slot, so it fits any number of
slots, and other topologies that have these components. Each task is one archive of its records
(`DIR/COMPONENT/INDEX`), which `unzip -l` lists. `savepoint.json` is written last and tells what has
to be there, with a checksum of each file: a directory without it is no savepoint, and one that was
copied in part is refused.

A savepoint belongs to whoever made it. topo never deletes one, and changes none.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from topo.errors import CheckpointError, words_of
from topo.storage.checkpoints import SAVEPOINT_FILE
from topo.storage.format import FORMAT as STATE_FORMAT
from topo.storage.trust import ON_ONE_MACHINE, check_trusted, make_place, writing

FORMAT = 1
"""Of the directory; that of the records in it is `state`."""
_COPY = "bring a whole copy of it"
_ALWAYS = (1980, 1, 1, 0, 0, 0)  # the time of each record: equal states are equal files

Records = Mapping[str, bytes]


@dataclass(frozen=True)
class Component:
    """A component of the topology that was saved."""

    kind: str
    first_task: int
    tasks: int
    keeps_state: bool
    reads: tuple[str, ...] = ()

    @property
    def ids(self) -> range:
        """The ids that its tasks had."""
        return range(self.first_task, self.first_task + self.tasks)


@dataclass(frozen=True)
class Savepoint:
    """The text of `savepoint.json`, and where it lies."""

    name: str
    """Of the topology."""
    checkpoint: str
    """The id of its checkpoint."""
    batch: int
    """The last one that is in it."""
    mode: str
    made_at: float
    topo: str
    python: str
    components: Mapping[str, Component]
    pending: int = 0
    """How many messages its spouts wait for."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """The roots of messages that have failed, of which no spout has heard, with the reasons."""
    last_ticked: bool = False
    """The bolts have had their last tick: the topology was at its end."""
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By file its bytes and its SHA-256."""
    format: int = FORMAT
    state: int = STATE_FORMAT
    directory: Path = field(default=Path(), compare=False)

    def bytes_of(self, component: str) -> int:
        """Return how much a component has saved."""
        start = f"{quote(component, safe='')}/"
        return sum(each["bytes"] for name, each in self.files.items() if name.startswith(start))

    def records(self, component: str, index: int) -> dict[str, bytes]:
        """Return what a task has saved; nothing if it had nothing. Raises for a damaged file."""
        file = file_of(component, index)
        if file not in self.files:
            return {}
        path = self.directory / file
        try:
            data = path.read_bytes()
        except OSError as error:
            raise _damaged(path, words_of(error)) from None
        if hashlib.sha256(data).hexdigest() != self.files[file]["sha256"]:
            raise _damaged(path, "it is not what was written")
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


def file_of(component: str, index: int) -> str:
    """Return the file of a task in a savepoint."""
    return f"{quote(component, safe='')}/{index}"


def write_savepoint(savepoint: Savepoint, tasks: Iterable[tuple[str, int, Records]]) -> Savepoint:
    """Write a savepoint into its directory, which must hold nothing; return it with its files.

    If the place cannot be written to, what was written is removed.
    """
    directory = savepoint.directory
    with writing("the savepoint", str(directory)):
        make_place(directory, ON_ONE_MACHINE)
        is_empty = not any(directory.iterdir())
    if not is_empty:
        raise CheckpointError(
            f"{directory} is not empty", at=str(directory), hint="name a new directory for it"
        )
    try:
        with writing("the savepoint", str(directory)):
            _write_files(savepoint, tasks)
    except BaseException:
        for path in directory.iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        raise
    return read_savepoint(directory)


def _write_files(savepoint: Savepoint, tasks: Iterable[tuple[str, int, Records]]) -> None:
    directory = savepoint.directory
    files = {}
    for component, index, records in tasks:
        path = directory / file_of(component, index)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        with path.open("wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                for name, record in sorted(records.items()):
                    archive.writestr(zipfile.ZipInfo(name, _ALWAYS), record)
            file.flush()
            os.fsync(file.fileno())
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        files[file_of(component, index)] = {"bytes": len(data), "sha256": digest}
    document = {**asdict(savepoint), "files": files}
    del document["directory"]
    unfinished = directory / f".{SAVEPOINT_FILE}"
    with unfinished.open("w", encoding="utf-8") as file_:
        json.dump(document, file_, indent=1)
        file_.flush()
        os.fsync(file_.fileno())
    unfinished.rename(directory / SAVEPOINT_FILE)


def read_savepoint(directory: Path) -> Savepoint:
    """Read what a savepoint says; raise a CheckpointError if it is none, or cannot be read."""
    path = directory / SAVEPOINT_FILE
    try:
        document = json.loads(path.read_bytes())
        number, state = int(document["format"]), int(document["state"])
    except FileNotFoundError:
        raise CheckpointError(
            f"{directory} holds no savepoint",
            at=str(path),
            hint="topo savepoint NAME DIR writes one",
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(
            path, words_of(error) if isinstance(error, OSError) else str(error)
        ) from None
    if number != FORMAT or state != STATE_FORMAT:
        raise CheckpointError(
            f"the savepoint is of format {number} with state of format {state}; this topo reads "
            f"{FORMAT} and {STATE_FORMAT}",
            at=str(path),
            hint=f"read it with topo {document.get('topo', 'of then')}",
        )
    check_trusted(directory, os.getuid(), ON_ONE_MACHINE)
    try:
        named = document.pop("components")
        components = {
            name: Component(**{**each, "reads": tuple(each["reads"])})
            for name, each in named.items()
        }
        return Savepoint(**document, components=components, directory=directory)
    except (TypeError, KeyError, AttributeError) as error:
        raise _damaged(path, str(error)) from None


def tasks_of(savepoint: Savepoint) -> Iterator[tuple[str, int]]:
    """Yield every task by component and index."""
    for name, component in savepoint.components.items():
        yield from ((name, index) for index in range(component.tasks))


def summary_of(saved: Savepoint) -> dict[str, Any]:
    """Return what there is to tell of a savepoint."""
    return {
        "name": saved.name,
        "directory": str(saved.directory),
        "batch": saved.batch,
        "mode": saved.mode,
        "made_at": saved.made_at,
        "topo": saved.topo,
        "python": saved.python,
        "pending": saved.pending,
        "bytes": sum(each["bytes"] for each in saved.files.values()),
        "components": {
            name: {"kind": each.kind, "tasks": each.tasks, "bytes": saved.bytes_of(name)}
            for name, each in saved.components.items()
        },
    }


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"the savepoint cannot be read: {why}", at=str(path), hint=_COPY)
