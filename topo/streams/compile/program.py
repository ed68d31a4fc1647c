"""A compiled program as data: its components, what they read, and where elements come out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from topo.builder import BoltDeclarer, TopologyBuilder
from topo.components import BasicBolt, Bolt
from topo.errors import StreamError
from topo.event_time import EventTime
from topo.streams.compile.chain_code import ChainSource
from topo.streams.graph import KEY, TIME, VALUE, Node
from topo.topology.model import Topology


@dataclass
class Read:
    """One stream that a component reads."""

    component: str
    stream: str
    grouping: str
    fields: tuple[str, ...] = ()


@dataclass
class PlannedComponent:
    """A component of the topology to be, and the operators that are in it."""

    name: str
    made: Any
    parallelism: int
    reads: list[Read] = field(default_factory=list)
    operators: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class Outlet:
    """The place at which the elements of a node come out."""

    component: str
    stream: str
    source: ChainSource
    parallelism: int
    time: EventTime | None
    is_by_key: bool = False
    """All elements of a key come out of the task that its key has by fields grouping."""


@dataclass
class Program:
    """A compiled program."""

    topology: Topology
    components: list[PlannedComponent]

    def describe(self) -> str:
        """Return a line for each component: its operators and its inputs."""
        lines = []
        for component in self.components:
            tasks = f" x {component.parallelism}" if component.parallelism > 1 else ""
            lines.append(f"{component.name}{tasks}: {', '.join(map(str, component.operators))}")
            for read in component.reads:
                by = f"({', '.join(read.fields)})" if read.fields else ""
                stream = "" if read.stream == "default" else f" [{read.stream}]"
                lines.append(f"    reads {read.component}{stream} by {read.grouping}{by}")
        return "\n".join(lines)


def topology_of(components: Iterable[PlannedComponent]) -> Topology:
    """Return the topology of these components."""
    builder = TopologyBuilder()
    for component in components:
        if isinstance(component.made, Bolt | BasicBolt):
            declarer = builder.set_bolt(component.name, component.made, component.parallelism)
            for read in component.reads:
                _wire(declarer, read)
        else:
            builder.set_spout(component.name, component.made, component.parallelism)
    return builder.create_topology()


def _wire(declarer: BoltDeclarer, read: Read) -> None:
    method = getattr(declarer, f"{read.grouping}_grouping")
    arguments: list[Any] = [list(read.fields)] if read.fields else []
    method(read.component, *arguments, stream=read.stream)


def pairs_source(time: EventTime | None, node: Node | None = None) -> ChainSource:
    """Return the source of a stream with keys that was made by a chain, or as by one."""
    fields = (KEY, VALUE) if time is None else (KEY, VALUE, TIME)
    place = None if time is None else 2
    by_window = node is not None and node.is_by_window
    return ChainSource(fields, True, by_window=by_window, time=place, hides_time=time is not None)


def plain_source(time: EventTime | None) -> ChainSource:
    """Return the source of a stream without keys that was made by a chain, or as by one."""
    fields = (VALUE,) if time is None else (VALUE, TIME)
    return ChainSource(fields, False, time=None if time is None else 1, hides_time=time is not None)


def time_behind(time: EventTime | None) -> EventTime | None:
    """Return the event time as operators behind a chain read it."""
    if time is None:
        return None
    # A spout's messages have it where the stream begins.
    held = time.field if time.hold_pending is True else time.hold_pending
    return replace(time, field=TIME, extractor=None, hold_pending=held or False)


def time_position(time: Any, fields: tuple[str, ...], node: Node) -> int | None:
    """Return the position of the event time of a stream; raise if it cannot be read there."""
    if time is None:
        return None
    if not isinstance(time, EventTime) or isinstance(time.field, Mapping) or time.extractor:
        raise StreamError(
            f"stream(time=...) takes an EventTime with the name of a field; got {time!r}",
            hint='write time=EventTime("ts"), or .times(lambda element: ..., lag=...) behind it',
            at=node.place,
        )
    if time.field not in fields:
        known = ", ".join(map(repr, fields))
        raise StreamError(
            f"the time field {time.field!r} is no field of the spout; it has {known}",
            hint="of what is parsed later, write .times('ts', lag=...) there",
            at=node.place,
        )
    return fields.index(time.field)
