"""`StreamBuilder`: where a program of streams begins, and where it becomes a topology.

    s = StreamBuilder()
    s.stream(Sentences()).flat_map(str.split).key_by(str.lower).count().print()
    topology = s.build()

Nothing runs while a program is written: every call adds an operator to a graph. An element is any
Python value: that of a spout with one field is the bare value, with several a record of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from topo.components import Spout
from topo.errors import StreamError
from topo.event_time import EventTime
from topo.streams.elements import Stream
from topo.streams.graph import Node, users_place

if TYPE_CHECKING:
    from topo.topology.model import Topology

T = TypeVar("T")


class StreamBuilder:
    """A program of streams, and the topology that it becomes."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def stream(
        self,
        spout: Spout | type[Spout],
        *,
        time: EventTime | None = None,
        parallelism: int = 1,
        name: str = "",
    ) -> Stream[Any]:
        """Return the stream of a spout's default stream; `time` says where its event time is."""
        if isinstance(spout, type) and issubclass(spout, Spout):
            spout = spout()
        if not isinstance(spout, Spout):
            raise StreamError(
                f"stream() takes a spout; got {spout!r}",
                hint="write builder.stream(MySpout())",
                at=users_place(),
            )
        options = {"spout": spout, "time": time, "parallelism": parallelism}
        return Stream(self, self.add(Node("stream", options=options, name=name)))

    def merge(self, *streams: Stream[T]) -> Stream[T]:
        """Return the elements of all these streams; the order within each stays."""
        return streams[0].merge(*streams[1:])

    def build(self) -> Topology:
        """Return the topology; raise a StreamError for a program that cannot be."""
        from topo.streams.compiler import compile_program

        return compile_program(self.nodes).topology

    def explain(self) -> str:
        """Return the operators, the bolts they became, and the inputs of each."""
        from topo.streams.compiler import compile_program

        return compile_program(self.nodes).describe()

    def add(self, node: Node) -> Node:
        """Add an operator; streams call this."""
        node.place = users_place()
        node.check_parts()
        self.nodes.append(node)
        return node
