"""A topology of a definition: its components are made, set and wired by the builder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topo.builder import BoltDeclarer, SpoutDeclarer, TopologyBuilder
from topo.components import BasicBolt, Bolt, Spout
from topo.config import Config
from topo.errors import ConfigError, InvalidTopologyError, TargetError, TopoError, did_you_mean
from topo.flux.nodes import Entry, parse_value
from topo.flux.objects import Missing, Objects
from topo.flux.problems import Place, Problems
from topo.flux.schema import Definition, ObjectDef, Reader, StreamDef
from topo.flux.substitution import Values, read_properties
from topo.groupings import CustomStreamGrouping
from topo.topology.model import Topology
from topo.topology.submission import name_for


@dataclass(frozen=True)
class Loaded:
    """A topology of a file, with its name and settings."""

    name: str
    topology: Topology
    conf: dict[str, Any]


def load(
    path: str | Path, properties: Mapping[str, str] | None = None
) -> tuple[Topology, dict[str, Any]]:
    """Return the topology of a YAML file in Flux's schema, and its settings.

    `properties` fill the file's placeholders, as `topo local --filter FILE` does. Raise
    InvalidTopologyError with all problems of the file, each with its line and column.
    """
    loaded = load_file(path, properties)
    return loaded.topology, loaded.conf


def load_file(
    path: str | Path,
    properties: Mapping[str, str] | None = None,
    filters: Iterable[str | Path] = (),
) -> Loaded:
    """Return the topology of a file; `filters` are files of properties, the last one wins."""
    merged_properties = dict(properties or {})
    has_files = properties is not None
    for file in filters:
        merged_properties.update(read_properties(file))
        has_files = True
    problems = Problems()
    values = Values(merged_properties, parse_value, has_files)
    file = Path(path)
    definition = Reader(values, problems).read(file, file.name)
    objects = Objects(definition.components, file.resolve().parent, problems)
    builder = _Builder(definition, objects, problems, Place(file.name, 1, 1))
    topology = builder.topology()
    if problems or topology is None:
        raise problems.error(file.name)
    return Loaded(definition.name or name_for(file.stem), topology, builder.conf)


class _Builder:
    """Makes the topology of a definition, and notes its problems."""

    def __init__(
        self, definition: Definition, objects: Objects, problems: Problems, start: Place
    ) -> None:
        self._definition, self._objects = definition, objects
        self._problems, self._start = problems, start
        self._builder = TopologyBuilder()
        self._declarers: dict[str, BoltDeclarer] = {}
        self._is_whole = True
        """False if a component or a stream is missing, for a reason that is noted."""
        self.conf = self._settings(definition.config, "")

    def topology(self) -> Topology | None:
        """Return the topology; None if there is none, for a reason that is noted."""
        self._objects.make_components()
        if self._definition.source is not None:
            return self._of_source(self._definition.source)
        self._add_components()
        self._add_streams()
        if not self._is_whole or self._problems:
            return None
        try:
            return self._builder.create_topology()
        except InvalidTopologyError as error:
            for problem in error.problems:
                place = self._place_of(problem.where, problem.message)
                self._problems.add(problem.code, place, problem.message, problem.hint)
        except TopoError as error:
            self._problems.add(error.code, self._start, error.message, error.hint)
        return None

    def _of_source(self, source: ObjectDef) -> Topology | None:
        if self._problems:
            return None
        try:
            maker = self._objects.make(source, "topologySource")
            result = self._objects.call(source, maker, self.conf)
        except Missing:
            return None
        if isinstance(result, TopologyBuilder):
            result = result.create_topology()
        if not isinstance(result, Topology):
            raise TargetError(
                f"the topologySource returned a {type(result).__name__}, and no topology",
                at=str(source.place),
                hint="return builder.create_topology()",
            )
        return result

    # -- components ---------------------------------------------------------------------------

    def _add_components(self) -> None:
        definition = self._definition
        if not definition.spouts and not self._problems:
            text = "the topology has no spout"
            self._problems.add("no-spout", self._start, text, "spouts: [{id: ..., className: ...}]")
        for name, vertex in definition.spouts.items():
            spout = self._made(vertex, "spout", Spout)
            if isinstance(spout, Spout):
                parallelism = self._count(vertex, "parallelism") or 1
                self._set(self._builder.set_spout(name, spout, parallelism), vertex)
        for name, vertex in definition.bolts.items():
            bolt = self._made(vertex, "bolt", (Bolt, BasicBolt))
            if isinstance(bolt, Bolt | BasicBolt):
                parallelism = self._count(vertex, "parallelism") or 1
                self._declarers[name] = self._builder.set_bolt(name, bolt, parallelism)
                self._set(self._declarers[name], vertex)

    def _made(self, vertex: ObjectDef, what: str, kinds: Any) -> Any:
        try:
            component = self._objects.make(vertex, what)
        except Missing:
            self._is_whole = False
            return None
        if not isinstance(component, kinds):
            other = "bolts" if isinstance(component, Bolt | BasicBolt) else "spouts"
            is_component = isinstance(component, Bolt | BasicBolt | Spout)
            text = f"{what} {vertex.id!r} is a {type(component).__name__}, which is no {what}"
            hint = f"it belongs to the {other}" if is_component else ""
            self._problems.add("kind", vertex.place, text, hint)
            return None
        return component

    def _set(self, declarer: SpoutDeclarer | BoltDeclarer, vertex: ObjectDef) -> None:
        tasks = self._count(vertex, "numTasks")
        if tasks is not None:
            declarer.set_num_tasks(tasks)
        on_heap, off_heap = (self._load(vertex, f"{k}HeapMemoryLoad") for k in ("on", "off"))
        if on_heap is not None or off_heap is not None:
            declarer.set_memory_load(on_heap or 0.0, off_heap or 0.0)
        load_of_cpu = self._load(vertex, "cpuLoad")
        if load_of_cpu is not None:
            declarer.set_cpu_load(load_of_cpu)
        entry = vertex.entry("config")
        entries = entry.node.value if entry is not None else {}
        if isinstance(entries, dict):
            declarer.add_configurations(self._settings(entries, vertex.id))

    def _count(self, vertex: ObjectDef, key: str) -> int | None:
        value = vertex.plain(key)
        if value is None or (type(value) is int and value >= 1):
            return value
        text = f"{key} is {value!r}; it is a whole number of 1 or more"
        self._problems.add("parallelism", vertex.place_of(key), text)
        return None

    def _load(self, vertex: ObjectDef, key: str) -> float | None:
        value = vertex.plain(key)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        self._problems.add("config", vertex.place_of(key), f"{key} is {value!r}; it is a number")
        return None

    def _settings(self, entries: Mapping[str, Entry], component: str) -> dict[str, Any]:
        """Return the settings that can be; the others are problems."""
        settings = {}
        for key, entry in entries.items():
            value = entry.node.plain
            try:
                Config.validate({key: value}, component=component)
                settings[key] = value
            except ConfigError as error:
                self._problems.add("config", entry.place, error.message, error.hint)
        return settings

    # -- streams ------------------------------------------------------------------------------

    def _add_streams(self) -> None:
        first: dict[tuple[str, str, str], Place] = {}
        for stream in self._definition.streams:
            if not self._is_between_components(stream):
                continue
            key = (stream.source, stream.stream, stream.target)
            if key in first:
                text = (
                    f"{stream.target!r} reads the stream {stream.stream!r} of {stream.source!r} a "
                    f"second time: the first is on line {first[key].line}"
                )
                self._problems.add("duplicate-input", stream.place, text, "keep one of them")
                continue
            first[key] = stream.place
            declarer = self._declarers.get(stream.target)
            if declarer is not None:
                self._read(declarer, stream)

    def _is_between_components(self, stream: StreamDef) -> bool:
        spouts, bolts = self._definition.spouts, self._definition.bolts
        sources = [*spouts, *bolts]
        if stream.source not in sources:
            text = f"stream from {stream.source!r}: there is no such component"
            near = did_you_mean(stream.source, sources)
            self._problems.add("unknown-component", stream.source_place, text, near)
        if stream.target not in bolts:
            text = f"stream to {stream.target!r}: there is no bolt {stream.target!r}"
            hint = did_you_mean(stream.target, bolts)
            if stream.target in spouts:
                text, hint = f"stream to {stream.target!r}, which is a spout", "spouts read nothing"
            self._problems.add("unknown-component", stream.target_place, text, hint)
        return stream.source in sources and stream.target in bolts

    def _read(self, declarer: BoltDeclarer, stream: StreamDef) -> None:
        kind, source = stream.grouping.lower(), stream.source
        if kind == "custom":
            grouping = self._custom(stream)
            if grouping is not None:
                declarer.custom_grouping(source, grouping, stream=stream.stream, loop=stream.loop)
        elif kind in ("fields", "partial_key"):
            read = getattr(declarer, f"{kind}_grouping")
            read(source, stream.fields, stream=stream.stream, loop=stream.loop)
        else:
            read = getattr(declarer, f"{kind}_grouping", None)
            if read is not None:  # else it is a problem already
                read(source, stream=stream.stream, loop=stream.loop)

    def _custom(self, stream: StreamDef) -> CustomStreamGrouping | None:
        if stream.custom is None:
            return None
        try:
            grouping = self._objects.make(stream.custom, "customClass")
        except Missing:
            return None
        if isinstance(grouping, CustomStreamGrouping):
            return grouping
        text = f"customClass is a {type(grouping).__name__}; it must be a CustomStreamGrouping"
        self._problems.add("kind", stream.custom.place, text)
        return None

    def _place_of(self, where: str, message: str) -> Place:
        """Return the place of a problem of the builder: a stream's if it names one."""
        component = where.partition("'")[2].rpartition("'")[0]
        for stream in self._definition.streams:
            names = (repr(stream.source), repr(stream.stream))
            if stream.target == component and all(name in message for name in names):
                return stream.place
        vertex = self._definition.bolts.get(component) or self._definition.spouts.get(component)
        return vertex.place if vertex is not None else self._start
