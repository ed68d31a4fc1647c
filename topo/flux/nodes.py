"""A YAML text as nodes that know their places.

PyYAML composes; its own `SafeLoader` makes the scalars, so that nothing in a file makes objects but
`className`. A text of a few lines may expand to billions of nodes by aliases, so the expansion has
a limit, and composing has none: it takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from topo.distribution import load_client
from topo.flux.problems import Place, Problems
from topo.flux.substitution import Placeholders, Unfilled, Values

_MOST_NODES = 100_000
_MOST_LEVELS = 20
_STANDARD_TAG = "tag:yaml.org,2002:"


@dataclass
class Entry:
    """A key of a mapping, with its place, and the value."""

    place: Place
    node: Node


@dataclass
class Node:
    """A scalar, a list of nodes, or a mapping of entries by key."""

    place: Place
    value: Scalar | list[Node] | dict[str, Entry] = field(default=None)

    @property
    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, list):
            return [node.plain for node in self.value]
        if isinstance(self.value, dict):
            return {key: entry.node.plain for key, entry in self.value.items()}
        return self.value

    @property
    def kind(self) -> str:
        """The kind of value, as an error names it."""
        if isinstance(self.value, list):
            return "a list"
        if isinstance(self.value, dict):
            return "a mapping"
        return "nothing" if self.value is None else repr(self.value)


Scalar: TypeAlias = Any


class TooMuch(Exception):
    """A text has more nodes, or deeper ones, than a topology can have."""


def parse_value(text: str) -> Any:
    """Return the value of a property: a number, a list and the like, or the text itself."""
    yaml = _yaml()
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text
    is_open = isinstance(value, list | dict) and text.lstrip()[:1] not in ("[", "{")
    return text if is_open else value  # a sentence with a colon is no mapping


def read_nodes(text: str, file: str, values: Values, problems: Problems) -> Node | None:
    """Return the root of a text; None if it cannot be read, which is a problem then."""
    yaml = _yaml()
    lines = text.splitlines()
    placeholders = Placeholders(text)
    loader = yaml.SafeLoader(placeholders.text)

    def place_of(mark: Any) -> Place:
        line = lines[mark.line] if mark.line < len(lines) else ""
        return Place(file, mark.line + 1, mark.column + 1, line)

    try:
        root = loader.get_single_node()
        if root is None:
            problems.add("yaml", Place(file, 1, 1), "the file is empty")
            return None
        return _Converter(yaml, loader, placeholders, values, problems, place_of).node(root, 0)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = place_of(mark) if mark is not None else Place(file, 1, 1)
        what = getattr(error, "problem", None) or str(error).partition("\n")[0]
        problems.add("yaml", place, f"this is no YAML: {placeholders.shown(str(what))}")
    except TooMuch as error:
        problems.add(
            "yaml", Place(file, 1, 1), str(error), "aliases (*name) multiply what they name"
        )
    except RecursionError:
        problems.add("yaml", Place(file, 1, 1), "the file has too many levels")
    finally:
        loader.dispose()
    return None


class _Converter:
    """Makes nodes of PyYAML's, with placeholders filled, up to a number of them."""

    def __init__(
        self,
        yaml: Any,
        loader: Any,
        placeholders: Placeholders,
        values: Values,
        problems: Problems,
        place_of: Any,
    ) -> None:
        self._yaml, self._loader = yaml, loader
        self._placeholders, self._values = placeholders, values
        self._problems, self._place_of = problems, place_of
        self._count = 0

    def node(self, node: Any, level: int) -> Node:
        self._count += 1
        if self._count > _MOST_NODES:
            raise TooMuch(f"the file has more than {_MOST_NODES:,} nodes")
        if level > _MOST_LEVELS:
            raise TooMuch(f"the file has more than {_MOST_LEVELS} levels")
        place = self._place_of(node.start_mark)
        tag = self._placeholders.shown(node.tag)
        if not tag.startswith(_STANDARD_TAG) or "python" in tag:
            spelling = tag.replace(_STANDARD_TAG, "!!")
            self._problems.add(
                "yaml", place, f"the tag {spelling} is not read", "className makes objects"
            )
            return Node(place)
        if isinstance(node, self._yaml.ScalarNode):
            return as_node(self._scalar(node, place), place)
        if isinstance(node, self._yaml.SequenceNode):
            return Node(place, [self.node(child, level + 1) for child in node.value])
        self._loader.flatten_mapping(node)
        return Node(place, dict(self._entries(node, level)))

    def _entries(self, node: Any, level: int) -> Iterator[tuple[str, Entry]]:
        """Yield the entries; what is merged comes first, so that the mapping's own replace it."""
        before: dict[str, Any] = {}
        own_from = node.start_mark.index
        for key_node, value_node in node.value:
            place = self._place_of(key_node.start_mark)
            key = self._scalar(key_node, place) if hasattr(key_node, "style") else None
            if not isinstance(key_node, self._yaml.ScalarNode):
                self._problems.add("yaml", place, "a key is a text")
                continue
            name = str(key)
            earlier = before.get(name)
            if earlier is not None and earlier.index >= own_from:
                text = (
                    f"the key {name!r} stands here twice: the first is on line {earlier.line + 1}"
                )
                self._problems.add("duplicate-key", place, text, "keep one of them")
            before[name] = key_node.start_mark
            yield name, Entry(place, self.node(value_node, level + 1))

    def _scalar(self, node: Any, place: Place) -> Any:
        if not self._placeholders.is_in(node.value):
            try:
                return self._loader.construct_object(node)
            except ValueError as error:  # 2026-02-31 looks like a date
                self._problems.add("yaml", place, f"{node.value!r} cannot be: {error}")
                return node.value
        try:
            return self._placeholders.fill(node.value, node.style is not None, self._values.get)
        except Unfilled as error:
            self._problems.add("placeholder", place, error.message, error.hint)
            return self._placeholders.shown(node.value)


def as_node(value: Any, place: Place) -> Node:
    """Return a value of a property, which may have parts, as nodes at one place."""
    if isinstance(value, list):
        return Node(place, [as_node(part, place) for part in value])
    if isinstance(value, dict):
        return Node(place, {str(k): Entry(place, as_node(v, place)) for k, v in value.items()})
    return Node(place, value)


def _yaml() -> Any:
    return load_client("yaml", "a topology in YAML", "yaml")
