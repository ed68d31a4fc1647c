"""The keyed state in a savepoint, by its entries, to be looked at or to make another one of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from topo.errors import CheckpointError, did_you_mean, sentence_of
from topo.storage.classes import saved_by
from topo.storage.keyed import saved_state
from topo.storage.savepoints import Component, Savepoint


@dataclass(frozen=True)
class Entry:
    """One value of keyed state."""

    component: str
    index: int
    key: Any
    value: Any


def component_in(saved: Savepoint, name: str) -> Component:
    """Return what a savepoint says of a component; raise a CheckpointError if there is none."""
    if name in saved.components:
        return saved.components[name]
    names = list(saved.components)
    raise CheckpointError(
        f"{saved.name} has no component {name!r}",
        at=str(saved.directory),
        hint=did_you_mean(name, names) or ", ".join(names),
    )


def entries_of(
    saved: Savepoint, component: str, task: int | None, moved: Mapping[str, str] | None = None
) -> Iterator[Entry]:
    """Yield the keyed state of a component, of one task or of all.

    `moved` says where classes are now, as that of the component does.
    """
    for index in range(saved.components[component].tasks):
        if task not in (None, index):
            continue
        records = saved.records(component, index)
        loaded = _loaded(records, component, index, moved or {})
        yield from (Entry(component, index, *item) for item in loaded)


def text_of_key(key: Any) -> str:
    """Return a key as text: one that is no text as Python writes it."""
    return key if isinstance(key, str) else repr(key)


def plain(value: Any) -> Any:
    """Return a value as JSON has it; what JSON lacks as Python writes it."""
    if isinstance(value, str | int | float | bool | type(None)):
        return value
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(each) for key, each in value.items()}
    return repr(value)


def _loaded(
    records: Mapping[str, bytes], component: str, index: int, moved: Mapping[str, str]
) -> list[tuple[Any, Any]]:
    try:
        with saved_by("", moved):
            return list(saved_state(records).items())
    except Exception as error:  # of whatever the user's classes do
        cause = "" if isinstance(error, CheckpointError) else f"{type(error).__name__}: "
        raise CheckpointError(
            f"the state of {component!r} task {index} cannot be read: {cause}{sentence_of(error)}",
            hint="run it where the topology's modules can be imported",
        ) from error
