"""A topology as a class: its attributes are specs of components, as in streamparse.

    class WordCount(Topology):
        words = WordSpout.spec()
        counts = CountBolt.spec(inputs={words: Grouping.fields("word")}, par=2)

`WordCount.create_topology()` is an ordinary topology; `topo local wordcount.py:WordCount` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from topo.errors import ComponentError
from topo.tuples import DEFAULT_STREAM

if TYPE_CHECKING:
    from topo.topology.model import Topology as BuiltTopology


@dataclass(frozen=True)
class Grouping:
    """The way in which tuples of a stream are dealt over the tasks of a bolt."""

    kind: str
    names: tuple[str, ...] = ()

    SHUFFLE: ClassVar[Grouping]
    GLOBAL: ClassVar[Grouping]
    ALL: ClassVar[Grouping]
    NONE: ClassVar[Grouping]
    DIRECT: ClassVar[Grouping]
    LOCAL_OR_SHUFFLE: ClassVar[Grouping]

    @classmethod
    def fields(cls, *names: str | Sequence[str]) -> Grouping:
        """Return the grouping by these fields: equal values go to the same task."""
        listed: list[str] = []
        for name in names:
            listed.extend([name] if isinstance(name, str) else name)
        if not listed:
            raise ComponentError(
                "Grouping.fields needs a field", hint='write Grouping.fields("word")'
            )
        return cls("fields", tuple(listed))


Grouping.SHUFFLE = Grouping("shuffle")
Grouping.GLOBAL = Grouping("global")
Grouping.ALL = Grouping("all")
Grouping.NONE = Grouping("none")
Grouping.DIRECT = Grouping("direct")
Grouping.LOCAL_OR_SHUFFLE = Grouping("local_or_shuffle")


class ComponentSpec:
    """A component's place in a `Topology` class: its inputs, parallelism and settings."""

    def __init__(
        self,
        component: type[Any],
        name: str | None,
        inputs: Inputs,
        par: int,
        config: Mapping[str, Any] | None,
    ) -> None:
        self.component = component
        self.name = name
        self.inputs = inputs
        self.par = par
        self.config = config

    def __getitem__(self, stream: str) -> StreamOf:
        return StreamOf(self, stream)


@dataclass(frozen=True)
class StreamOf:
    """One stream of a component, as the key of another component's inputs."""

    spec: ComponentSpec
    stream: str


Source: TypeAlias = ComponentSpec | StreamOf
Inputs: TypeAlias = Source | Sequence[Source] | Mapping[Source, Grouping] | None


class Topology:
    """A topology whose components are the `spec()` attributes of a subclass."""

    config: ClassVar[Mapping[str, Any]] = {}
    """Settings of the topology, as Storm's keys."""

    def __init_subclass__(cls) -> None:
        for attribute, value in vars(cls).items():
            if isinstance(value, ComponentSpec) and value.name is None:
                value.name = attribute

    @classmethod
    def specs(cls) -> list[ComponentSpec]:
        """Return the specs of this class and its bases, in the order they were written."""
        listed: dict[str, ComponentSpec] = {}
        for base in reversed(cls.__mro__):
            for attribute, value in vars(base).items():
                if isinstance(value, ComponentSpec):
                    listed[attribute] = value
        return list(listed.values())

    @classmethod
    def create_topology(cls) -> BuiltTopology:
        """Build the topology; raises InvalidTopologyError with every problem there is."""
        from topo.builder import TopologyBuilder
        from topo.components import Spout

        builder = TopologyBuilder()
        specs = cls.specs()
        for spec in specs:
            name = str(spec.name)
            if issubclass(spec.component, Spout):
                if spec.inputs:
                    raise ComponentError(
                        f"spout {name!r} of {cls.__name__} has inputs",
                        hint="only bolts have inputs",
                    )
                builder.set_spout(name, spec.component, spec.par).add_configurations(
                    spec.config or {}
                )
                continue
            declarer = builder.set_bolt(name, spec.component, spec.par)
            declarer.add_configurations(spec.config or {})
            for source, grouping in _inputs(spec, cls.__name__):
                of, stream = (
                    (source.spec, source.stream)
                    if isinstance(source, StreamOf)
                    else (source, DEFAULT_STREAM)
                )
                if of not in specs:
                    raise ComponentError(
                        f"bolt {name!r} of {cls.__name__} reads a component that is not in it",
                        hint="make the other spec an attribute of the same class",
                    )
                read = getattr(declarer, f"{grouping.kind}_grouping")
                arguments = [list(grouping.names)] if grouping.kind == "fields" else []
                read(str(of.name), *arguments, stream=stream)
        return builder.create_topology()


def _inputs(spec: ComponentSpec, topology: str) -> list[tuple[Source, Grouping]]:
    given = spec.inputs
    if given is None:
        return []
    if isinstance(given, ComponentSpec | StreamOf):
        given = [given]
    pairs = given.items() if isinstance(given, Mapping) else [(s, Grouping.SHUFFLE) for s in given]
    for source, grouping in pairs:
        if not isinstance(source, ComponentSpec | StreamOf):
            raise ComponentError(
                f"an input of {spec.name!r} in {topology} is {source!r}",
                hint="name the spec itself: inputs=[words] or {words['stream']: Grouping.SHUFFLE}",
            )
        if not isinstance(grouping, Grouping):
            raise ComponentError(
                f"the grouping of an input of {spec.name!r} in {topology} is {grouping!r}",
                hint='write Grouping.SHUFFLE or Grouping.fields("word")',
            )
    return list(pairs)
