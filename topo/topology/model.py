"""A topology as immutable data, which the builder makes and every engine reads.

The module runs nothing. Components are stored as pickles, so that changing an instance after
`create_topology()` has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from topo.errors import RunError, TopoError, did_you_mean
from topo.routing.registry import grouping_named

if TYPE_CHECKING:
    from topo.shipping.pickling import LocalPickle, UserClass


@dataclass(frozen=True)
class StreamDef:
    """One stream that a component declares."""

    name: str
    fields: tuple[str, ...]
    direct: bool = False


@dataclass(frozen=True)
class GroupingDef:
    """The rule that deals the tuples of a stream over the tasks of a bolt that reads it.

    `custom` is the pickle of a CustomStreamGrouping.
    """

    kind: str
    fields: tuple[str, ...] = ()
    custom: bytes = b""
    local_custom: LocalPickle | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        grouping_named(self.kind)  # else an error, in a topology that came over the wire too

    @property
    def is_local(self) -> bool:
        """True iff it prefers the tasks in the producer's slot."""
        return grouping_named(self.kind).is_local

    @property
    def is_aligned(self) -> bool:
        """True iff each task reads what the producer's task of the same number emits."""
        return grouping_named(self.kind).is_aligned

    @property
    def is_by_value(self) -> bool:
        """True iff equal values go to the same task."""
        return grouping_named(self.kind).is_by_value

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.fields)})" if self.fields else self.kind


@dataclass(frozen=True)
class InputDef:
    """One stream that a bolt reads."""

    component: str
    stream: str
    grouping: GroupingDef
    loop: bool = False
    """It goes back: what comes over it is executed in the next batch."""

    def __str__(self) -> str:
        name = self.component if self.stream == "default" else f"{self.component}/{self.stream}"
        return f"{name} {self.grouping}{' loop' if self.loop else ''}"


@dataclass(frozen=True)
class ComponentDef:
    """One spout or bolt: its wiring, its settings, its pickle."""

    id: str
    kind: str  # "spout" or "bolt"
    class_name: str
    parallelism: int
    outputs: tuple[StreamDef, ...]
    inputs: tuple[InputDef, ...]
    conf: Mapping[str, Any]
    pickled: bytes
    stateless: bool = False
    finite: bool = False  # a spout that overrides is_exhausted
    basic: bool = False  # a bolt whose inputs are acked for it
    timed: bool = False  # a bolt that works in event time
    # By stream, of a bolt that holds nothing back: the input's field with the time of what it
    # emits, "" for the field of the same name. Others may keep tuples, or make times.
    times_in: Mapping[str, str] = field(default_factory=dict)
    requires: tuple[str, ...] = ()  # distributions it imports where it runs
    external: Mapping[str, Any] = field(default_factory=dict)  # what an engine does for it
    leaves: Mapping[str, Any] = field(default_factory=dict)  # what it leaves outside
    role: str = ""  # what it is drawn as: "drpc", "answers", "pattern" or "rules", if it is one
    # The same component for engines in this process, which need no copy of its classes.
    local: LocalPickle | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "conf", MappingProxyType(dict(self.conf)))
        object.__setattr__(self, "times_in", MappingProxyType(dict(self.times_in)))
        object.__setattr__(self, "external", MappingProxyType(dict(self.external)))
        object.__setattr__(self, "leaves", MappingProxyType(dict(self.leaves)))

    @property
    def is_spout(self) -> bool:
        return self.kind == "spout"

    @property
    def forward(self) -> tuple[InputDef, ...]:
        """The inputs that do not go back."""
        return tuple(read for read in self.inputs if not read.loop)

    def output(self, stream: str) -> StreamDef | None:
        return next((output for output in self.outputs if output.name == stream), None)

    def declared(self, stream: str) -> StreamDef:
        """Return a stream that is declared; raise an error that lists them otherwise."""
        found = self.output(stream)
        if found is None:
            names = [output.name for output in self.outputs]
            raise RunError(
                f"{self.id!r} declares no stream {stream!r}; "
                f"it declares {', '.join(map(repr, names)) or 'none'}",
                code="unknown-stream",
                hint=did_you_mean(stream, names),
            )
        return found


class Topology:
    """Spouts and bolts and how they are wired: immutable, comparable, printable.

    Made by `TopologyBuilder.create_topology()`; travels as `to_bytes()`.
    """

    __slots__ = ("_components", "_user_classes", "_warnings")

    def __init__(
        self,
        components: Iterable[ComponentDef],
        warnings: Iterable[str] = (),
        user_classes: tuple[UserClass, ...] = (),
    ) -> None:
        ordered = sorted(components, key=lambda component: component.id)
        object.__setattr__(
            self,
            "_components",
            MappingProxyType({component.id: component for component in ordered}),
        )
        object.__setattr__(self, "_warnings", tuple(warnings))
        object.__setattr__(self, "_user_classes", user_classes)

    _components: Mapping[str, ComponentDef]
    _warnings: tuple[str, ...]
    _user_classes: tuple[UserClass, ...]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Topology cannot be changed: {name!r}; build another one")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Topology cannot be changed: {name!r}; build another one")

    @property
    def components(self) -> Mapping[str, ComponentDef]:
        """All components by id, in the order of the ids."""
        return self._components

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._warnings

    @property
    def user_classes(self) -> tuple[UserClass, ...]:
        """The user's classes that came with a topology loaded from bytes."""
        return self._user_classes

    @property
    def spouts(self) -> list[ComponentDef]:
        return [component for component in self._components.values() if component.is_spout]

    @property
    def bolts(self) -> list[ComponentDef]:
        return [component for component in self._components.values() if not component.is_spout]

    def component(self, name: str) -> ComponentDef:
        try:
            return self._components[name]
        except KeyError:
            known = ", ".join(map(repr, self._components))
            raise TopoError(
                f"no component {name!r}; there are {known}",
                code="unknown-component",
                hint=did_you_mean(name, self._components),
            ) from None

    def consumers(self, component: str) -> Iterator[tuple[ComponentDef, InputDef]]:
        """Yield every bolt that reads `component`, with its input."""
        for consumer in self._components.values():
            for read in consumer.inputs:
                if read.component == component:
                    yield consumer, read

    def loops_from(self, component: str) -> tuple[str, ...]:
        """Return the bolts that get tuples of `component` back over a loop."""
        back = (consumer.id for consumer, read in self.consumers(component) if read.loop)
        return tuple(dict.fromkeys(back))

    @property
    def has_loops(self) -> bool:
        """True iff an input of some bolt goes back."""
        return any(read.loop for bolt in self.bolts for read in bolt.inputs)

    def to_bytes(self) -> bytes:
        from topo.topology.protobuf import topology_to_bytes

        return topology_to_bytes(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Topology:
        from topo.topology.protobuf import topology_from_bytes

        return topology_from_bytes(data)

    def __reduce__(self) -> tuple[object, ...]:
        return (Topology.from_bytes, (self.to_bytes(),))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return dict(self._components) == dict(other._components)

    def __hash__(self) -> int:
        return hash(
            tuple((c.id, c.kind, c.parallelism, c.outputs, c.inputs) for c in self._iterate())
        )

    def _iterate(self) -> Iterable[ComponentDef]:
        return self._components.values()

    def __repr__(self) -> str:
        return f"Topology({', '.join(f'{c.id} x{c.parallelism}' for c in self._iterate())})"

    def __str__(self) -> str:
        lines = []
        for component in self._iterate():
            line = f"{component.kind} {component.id} x{component.parallelism}"
            line += f" ({component.class_name})"
            if component.inputs:
                line += f" <- {', '.join(map(str, component.inputs))}"
            lines.append(line)
        return "\n".join(lines)
