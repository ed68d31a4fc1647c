"""Tuples as streamparse's bolts know them: `tup.id`, `component`, `stream`, `task` and `values`.

They are made around topo's tuples, and not instead of them: with streamparse `tup.id` is the
tuple's own, whatever fields there are, while a field of topo's tuple may have any of these names.
topo's names are there too, so that a component can be ported step by step.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from topo.errors import UnknownFieldAttribute, did_you_mean
from topo.tuples import Tuple as TopoTuple


class Values(list[Any]):
    """The values of a tuple: a list whose items are also attributes, by the fields' names."""

    def __init__(self, values: Iterable[Any] = (), fields: tuple[str, ...] = ()) -> None:
        super().__init__(values)
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_fields":
            raise AttributeError(f"'Values' object has no attribute {name!r}")
        try:
            return self[self._fields.index(name)]
        except ValueError:
            self._unknown(name)

    def _unknown(self, name: str) -> NoReturn:
        fields = ", ".join(map(repr, self._fields)) or "none"
        text = f"no field {name!r} in the values of a tuple; its fields are {fields}"
        if hint := did_you_mean(name, self._fields):
            text += f"; {hint}"
        raise UnknownFieldAttribute(text)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __reduce__(self) -> tuple[object, ...]:
        return (Values, (list(self), self._fields))


class Tuple:
    """One tuple, with streamparse's names and topo's; equal to another only if it is the same."""

    __slots__ = ("_id", "_itself")

    def __init__(self, itself: TopoTuple, id: str = "") -> None:
        self._itself = itself
        self._id = id

    @property
    def id(self) -> str:
        """A text that no other tuple has; it stays the tuple's own for as long as it is held."""
        if not self._id:
            self._id = uuid.uuid4().hex
        return self._id

    @property
    def component(self) -> str:
        """The id of the component that emitted the tuple."""
        return self._itself.source_component

    @property
    def stream(self) -> str:
        """The stream on which it was emitted."""
        return self._itself.source_stream

    @property
    def task(self) -> int:
        """The id of the task that emitted it; -1 for a tick."""
        return self._itself.source_task

    @property
    def values(self) -> Values:
        """The values, by position and by field: `tup.values[0]`, `tup.values.word`."""
        return Values(self._itself.values, tuple(self._itself.fields))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # nothing is there yet while a pickle is read
            raise AttributeError(f"'Tuple' object has no attribute {name!r}")
        return getattr(self._itself, name)

    def __getitem__(self, key: Any) -> Any:
        return self._itself[key]

    def __len__(self) -> int:
        return len(self._itself)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._itself)

    def __contains__(self, value: object) -> bool:
        return value in self._itself

    def __eq__(self, other: object) -> bool:
        return topos(other) is self._itself if isinstance(other, Tuple | TopoTuple) else False

    def __hash__(self) -> int:
        return hash(self._itself)

    def __repr__(self) -> str:
        return repr(self._itself)

    def __reduce__(self) -> tuple[object, ...]:
        return (Tuple, (self._itself, self._id))


def topos(tup: Any) -> Any:
    """Return topo's own tuple in one of streamparse's; anything else as it is."""
    return tup._itself if isinstance(tup, Tuple) else tup
