"""A condition as a value: its text, its tree and what it reads. It pickles as its text."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from topo.conditions.grammar import EVENT, Reader
from topo.conditions.reads import Field, Read
from topo.errors import ConditionError, did_you_mean


class Condition:
    """A text that was parsed and looked through; equal texts of a kind are equal."""

    def __init__(self, reader: Reader) -> None:
        self.what = reader.what
        """What it is the condition of, for messages."""
        self.kind = reader.kind
        self.text = reader.text
        self.tree: ast.expr = reader.tree()
        self.reads: tuple[Read, ...] = tuple(reader.places)
        """What it reads, in the order of the text."""
        self.tables: tuple[tuple[str, str], ...] = tuple(reader.tables)
        """The tables that it looks up, each with the field."""
        self._reader = reader

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the event's that it reads."""
        return tuple(read.name for read in self.reads if isinstance(read, Field))

    def read_of(self, node: ast.expr) -> Read:
        """Return what a name, an attribute or an aggregate of the tree reads."""
        if isinstance(node, ast.Name):
            return Field(node.id)
        if isinstance(node, ast.Attribute):
            return self._reader.part_field(node)
        assert isinstance(node, ast.Call), "only these three read"
        return self._reader.aggregate(node)

    def refusal(self, read: Read, reason: str, hint: str = "") -> ConditionError:
        """Return the error for something that it reads, with its place in the text."""
        return self._reader.refusal(self._reader.places.get(read), reason, hint)

    def check_fields(self, fields: Iterable[str], of: str = "") -> None:
        """Raise a ConditionError if it names a field that is not there."""
        names = list(fields)
        for read in self.reads:
            if isinstance(read, Field) and read.name not in names:
                listed = ", ".join(map(repr, names)) or "none"
                hint = did_you_mean(read.name, names) or f"the fields are {listed}"
                raise self.refusal(read, f"{read.name!r} is no field{of and ' of ' + of}", hint)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Condition) and (self.text, self.kind) == (other.text, other.kind)

    def __hash__(self) -> int:
        return hash((self.text, self.kind))

    def __repr__(self) -> str:
        return f"<condition {self.text}>"

    def __reduce__(self) -> tuple[object, ...]:
        return parse, (self.text, self.what, self.kind)


def parse(text: object, what: str, kind: str = EVENT) -> Condition:
    """Return the condition of a text; raise a ConditionError if it is not allowed.

    `what` begins the message: "part 'small'". `kind` is EVENT, PATTERN or HAVING.
    """
    return Condition(Reader(text, what, kind))
