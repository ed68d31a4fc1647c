"""The schema of Flux: what a file says, checked, with the places of all that is said.

Names are Flux's as they are. What Flux drops, overwrites or finds out by an exception is a problem
here: a key that is misspelt, an id that is given twice, a stream to nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from topo.errors import TargetError, did_you_mean, words_of
from topo.flux.nodes import Entry, Node, read_nodes
from topo.flux.problems import Place, Problems
from topo.flux.substitution import Values

TOPOLOGY_KEYS = (
    "name", "config", "components", "spouts", "bolts", "streams", "includes", "topologySource",
    "workerHooks",
)  # fmt: skip
_OBJECT = ("id", "className", "constructorArgs", "factory", "factoryArgs", "properties",
           "configMethods")  # fmt: skip
_VERTEX = (*_OBJECT, "parallelism", "numTasks", "onHeapMemoryLoad", "offHeapMemoryLoad", "cpuLoad",
           "config")  # fmt: skip
_SOURCE = (*_OBJECT, "methodName")
_STREAM = ("id", "name", "from", "to", "grouping")
_GROUPING = ("type", "args", "streamId", "customClass", "loop")
_INCLUDE = ("file", "resource", "override")
_PROPERTY = ("name", "value", "ref", "reflist")
_METHOD = ("name", "args")
GROUPINGS = ("SHUFFLE", "FIELDS", "ALL", "GLOBAL", "NONE", "DIRECT", "LOCAL_OR_SHUFFLE", "CUSTOM",
             "PARTIAL_KEY", "SAME_TASK")  # fmt: skip
BY_FIELDS = ("FIELDS", "PARTIAL_KEY")


@dataclass
class ObjectDef:
    """An object: its class, its arguments, what is set and called afterwards."""

    id: str
    place: Place
    entries: Mapping[str, Entry]

    def entry(self, key: str) -> Entry | None:
        return self.entries.get(key)

    def place_of(self, key: str) -> Place:
        """Return the place of a key, or of the object."""
        entry = self.entries.get(key)
        return entry.place if entry else self.place

    def plain(self, key: str) -> Any:
        entry = self.entries.get(key)
        return entry.node.plain if entry else None


@dataclass
class StreamDef:
    """A stream from a component to a bolt."""

    place: Place
    source: str
    target: str
    source_place: Place
    target_place: Place
    grouping: str
    grouping_place: Place
    fields: list[str]
    stream: str
    custom: ObjectDef | None
    loop: bool


@dataclass
class Definition:
    """What a file says, with what it includes."""

    name: str | None = None
    config: dict[str, Entry] = field(default_factory=dict)
    components: dict[str, ObjectDef] = field(default_factory=dict)
    spouts: dict[str, ObjectDef] = field(default_factory=dict)
    bolts: dict[str, ObjectDef] = field(default_factory=dict)
    streams: list[StreamDef] = field(default_factory=list)
    source: ObjectDef | None = None

    def include(self, other: Definition, override: bool) -> None:
        """Take what another file says: instead of what is here, or where nothing is."""
        first, second = (other, self) if override else (self, other)
        self.name = first.name if first.name is not None else second.name
        self.source = first.source or second.source
        for name in ("config", "components", "spouts", "bolts"):
            getattr(self, name).update({**getattr(second, name), **getattr(first, name)})
        self.streams += other.streams


class Reader:
    """Reads a file and those that it includes."""

    def __init__(self, values: Values, problems: Problems) -> None:
        self._values, self._problems = values, problems
        self._path: list[Path] = []
        """The file being read, behind those that include it."""

    def read(self, path: Path, name: str) -> Definition:
        """Return what a file says; raise TargetError if there is none."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise TargetError(f"{name}: {words_of(error)}") from None
        except UnicodeDecodeError:
            raise TargetError(f"{name} is not UTF-8") from None
        self._path.append(path.resolve())
        try:
            root = read_nodes(text, name, self._values, self._problems)
            return self._definition(root) if root is not None else Definition()
        finally:
            self._path.pop()

    def _definition(self, root: Node) -> Definition:
        entries = self._entries(root, TOPOLOGY_KEYS, "a topology")
        definition = Definition()
        if "name" in entries:
            name = entries["name"].node.value
            definition.name = None if name is None else str(name)
        definition.config = self._mapping(entries.get("config"), "config")
        sections: dict[str, dict[str, ObjectDef]] = {}
        for key, known_keys in (("components", _OBJECT), ("spouts", _VERTEX), ("bolts", _VERTEX)):
            sections[key] = self._objects(entries.get(key), key, known_keys)
        self._check_ids(sections)
        definition.components = sections["components"]
        definition.spouts, definition.bolts = sections["spouts"], sections["bolts"]
        for node in self._list(entries.get("streams"), "streams"):
            stream = self._stream(node)
            if stream is not None:
                definition.streams.append(stream)
        self._read_source(definition, entries)
        self._refuse_hooks(entries.get("workerHooks"))
        for node in self._list(entries.get("includes"), "includes"):
            self._include(definition, node)
        return definition

    def _read_source(self, definition: Definition, entries: Mapping[str, Entry]) -> None:
        source = entries.get("topologySource")
        if source is None:
            return
        definition.source = self._object(source.node, "the topologySource", _SOURCE, "")
        for key in ("spouts", "bolts", "streams"):
            if key in entries:
                self._problems.add(
                    "source-and-components",
                    entries[key].place,
                    f"a topologySource makes the whole topology; {key} stand beside it",
                    f"take topologySource or {key} away",
                )

    def _refuse_hooks(self, entry: Entry | None) -> None:
        if entry is not None:
            self._problems.add(
                "refused",
                entry.place,
                "workerHooks have no counterpart: workers are Spark's",
                "make it in prepare; context.shared('name', make) keeps one a process",
            )

    # -- parts --------------------------------------------------------------------------------

    def _objects(
        self, entry: Entry | None, section: str, allowed: tuple[str, ...]
    ) -> dict[str, ObjectDef]:
        objects: dict[str, ObjectDef] = {}
        what = section.removesuffix("s")
        for node in self._list(entry, section):
            definition = self._object(node, what, allowed)
            if definition is None:
                continue
            before = objects.get(definition.id)
            if before is not None:
                self._add_twice(what, definition, before)
            else:
                objects[definition.id] = definition
        return objects

    def _object(
        self, node: Node, what: str, allowed: tuple[str, ...], name: str | None = None
    ) -> ObjectDef | None:
        if not isinstance(node.value, dict):
            text = f"a {what.removeprefix('the ')} is a mapping with className; got {node.kind}"
            self._problems.add("kind", node.place, text)
            return None
        if name is None:
            entry = node.value.get("id")
            if entry is None or entry.node.value is None:
                self._problems.add("missing-key", node.place, f"a {what} has no id", "id: NAME")
                return None
            name = str(entry.node.value)
        label = f"{what} {name!r}" if name else what
        entries = self._entries(node, allowed, label)
        if "className" not in entries:
            hint = "className: package.module.Class"
            self._problems.add("missing-key", node.place, f"{label} has no className", hint)
        for key in ("properties", "configMethods"):
            for part in self._list(entries.get(key), key):
                if self._entries(part, _PROPERTY if key == "properties" else _METHOD, key):
                    self._require(part, "name", key)
        if "factory" in entries and "constructorArgs" in entries:
            self._problems.add(
                "arguments",
                entries["constructorArgs"].place,
                f"{label} has a factory, and constructorArgs, which it would not get",
                "arguments of a factory are factoryArgs",
            )
        return ObjectDef(name, node.place, entries)

    def _check_ids(self, sections: Mapping[str, Mapping[str, ObjectDef]]) -> None:
        """Note ids that two sections have."""
        first: dict[str, ObjectDef] = {}
        for section, objects in sections.items():
            for name, definition in objects.items():
                if name in first:
                    self._add_twice(section.removesuffix("s"), definition, first[name])
                first.setdefault(name, definition)

    def _add_twice(self, what: str, definition: ObjectDef, before: ObjectDef) -> None:
        text = f"{what} {definition.id!r} has the id of another one, on line {before.place.line}"
        self._problems.add("duplicate-name", definition.place, text, "every id is used once")

    def _stream(self, node: Node) -> StreamDef | None:
        entries = self._entries(node, _STREAM, "a stream")
        if not isinstance(node.value, dict):
            return None
        ends = [self._require(node, key, "a stream") for key in ("from", "to")]
        grouping = self._require(node, "grouping", "a stream")
        if grouping is None or not all(ends):
            return None
        source, target = entries["from"], entries["to"]
        parts = self._entries(grouping.node, _GROUPING, "a grouping")
        kind = str(parts["type"].node.value).upper() if "type" in parts else ""
        if not isinstance(grouping.node.value, dict) or self._has_no_type(grouping.node, parts):
            return None
        self._check_grouping(kind, parts, grouping.place)
        fields = parts["args"].node.plain if "args" in parts else []
        custom = parts.get("customClass")
        stream = parts["streamId"].node.value if "streamId" in parts else None
        return StreamDef(
            node.place,
            str(source.node.value),
            str(target.node.value),
            source.place,
            target.place,
            kind,
            parts["type"].place,
            list(map(str, fields)) if isinstance(fields, list) else [str(fields)],
            "default" if stream is None else str(stream),
            self._object(custom.node, "customClass", _OBJECT, "") if custom else None,
            self._is_loop(parts.get("loop")),
        )

    def _is_loop(self, entry: Entry | None) -> bool:
        if entry is None:
            return False
        if not isinstance(entry.node.plain, bool):
            text = f"loop is {entry.node.plain!r}; it is true or false"
            self._problems.add("kind", entry.place, text)
        return entry.node.plain is True

    def _has_no_type(self, node: Node, parts: Mapping[str, Entry]) -> bool:
        return "type" not in parts and self._require(node, "type", "a grouping") is None

    def _check_grouping(self, kind: str, parts: Mapping[str, Entry], place: Place) -> None:
        if kind not in GROUPINGS:
            self._problems.add(
                "unknown-grouping",
                parts["type"].place,
                f"there is no grouping {parts['type'].node.value!r}",
                did_you_mean(kind, GROUPINGS) or f"there are {', '.join(GROUPINGS)}",
            )
        elif kind in BY_FIELDS and not (parts.get("args") and parts["args"].node.plain):
            self._problems.add(
                "fields", parts["type"].place, f"a {kind} grouping has no fields", "args: [FIELD]"
            )
        elif kind == "CUSTOM" and "customClass" not in parts:
            self._problems.add(
                "missing-key",
                place,
                "a CUSTOM grouping has no customClass",
                "customClass: {className: package.module.Class}",
            )

    # -- includes -----------------------------------------------------------------------------

    def _include(self, definition: Definition, node: Node) -> None:
        entries = self._entries(node, _INCLUDE, "an include")
        file = self._require(node, "file", "an include")
        if file is None:
            return
        name = str(file.node.value)
        is_resource = "resource" in entries and bool(entries["resource"].node.value)
        path = self._resource(name, file.place) if is_resource else self._path[-1].parent / name
        if path is None:
            return
        if path.resolve() in self._path:
            chain = " -> ".join([*(p.name for p in self._path), Path(name).name])
            text = f"{name} includes itself: {chain}"
            self._problems.add("include", file.place, text, "take one of them away")
            return
        if not path.is_file():
            near = did_you_mean(path.name, [p.name for p in path.parent.glob("*.y*ml")])
            text = f"there is no file {name!r} to include"
            self._problems.add("include", file.place, text, near or f"looked at {path}")
            return
        override = "override" in entries and bool(entries["override"].node.value)
        definition.include(self.read(path, name), override)

    def _resource(self, name: str, place: Place) -> Path | None:
        """Return the file of `package:path`, or of `package.module:path`."""
        package, colon, file = name.partition(":")
        try:
            spec = find_spec(package) if colon else None
        except (ImportError, ValueError):
            spec = None
        directory = next(iter(spec.submodule_search_locations or ()), None) if spec else None
        if directory is None:
            text = f"there is no package {package!r} with a file {file!r}"
            self._problems.add("include", place, text, "a resource is named PACKAGE:FILE")
            return None
        return Path(directory, file)

    # -- kinds --------------------------------------------------------------------------------

    def _entries(self, node: Node, allowed: tuple[str, ...], what: str) -> dict[str, Entry]:
        """Return the entries of a mapping that may be there, without those that have no value."""
        if not isinstance(node.value, dict):
            self._problems.add("kind", node.place, f"{what} is a mapping; got {node.kind}")
            return {}
        for key, entry in node.value.items():
            if key not in allowed:
                hint = did_you_mean(key, allowed) or f"it has {', '.join(allowed)}"
                self._problems.add("unknown-key", entry.place, f"{what} has no key {key!r}", hint)
        return {
            key: entry
            for key, entry in node.value.items()
            if key in allowed and (entry.node.value is not None or key == "name")
        }

    def _require(self, node: Node, key: str, what: str) -> Entry | None:
        entry = node.value.get(key) if isinstance(node.value, dict) else None
        if entry is None or entry.node.value is None:
            self._problems.add("missing-key", node.place, f"{what} has no {key!r}", f"{key}: ...")
            return None
        return entry

    def _list(self, entry: Entry | None, key: str) -> Iterator[Node]:
        if entry is None or entry.node.value is None:
            return
        if not isinstance(entry.node.value, list):
            self._problems.add("kind", entry.place, f"{key} is a list; got {entry.node.kind}")
            return
        yield from entry.node.value

    def _mapping(self, entry: Entry | None, key: str) -> dict[str, Entry]:
        if entry is None or entry.node.value is None:
            return {}
        if not isinstance(entry.node.value, dict):
            self._problems.add("kind", entry.place, f"{key} is a mapping; got {entry.node.kind}")
            return {}
        return dict(entry.node.value)
