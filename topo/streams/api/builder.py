"""`StreamBuilder`: where a program of streams begins, and where it becomes a topology.

    s = StreamBuilder()
    s.stream(["the cow", "the moon"]).flat_map(str.split).key_by(str.lower).count().print()
    topology = s.build()

Nothing runs while a program is written: every call adds an operator to a graph. An element is any
Python value: that of a spout with one field is the bare value, with several a record of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from topo.components import FieldNames, Spout
from topo.drpc.results import COMMITTED, ReturnResults
from topo.drpc.spout import DrpcSpout
from topo.errors import StreamError, TopoError
from topo.event_time import EventTime
from topo.lists import FromList, Items
from topo.streams.api.elements import Stream
from topo.streams.api.requests import RequestStream, request_of
from topo.streams.graph import Node, users_place

if TYPE_CHECKING:
    from topo.streams.compile.program import Program
    from topo.topology.model import Topology

T = TypeVar("T")


class StreamBuilder:
    """A program of streams, and the topology that it becomes."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.windows: dict[str, None] = {}
        """The lines at which windows begin that have no aggregate yet."""

    def stream(
        self,
        source: Spout | type[Spout] | Items,
        *,
        fields: FieldNames | None = None,
        time: EventTime | None = None,
        parallelism: int = 1,
        name: str = "",
    ) -> Stream[Any]:
        """Return the stream of a spout's default stream, or of the items of a list.

        `source` is a spout, or what a `FromList` takes, with its `fields`. `time` says where the
        event time is.
        """
        spout = self._spout(source, fields)
        options = {"spout": spout, "time": time, "parallelism": parallelism}
        return Stream(self, self.add(Node("stream", options=options, name=name)))

    def requests(
        self, function: str, *, answer: str = COMMITTED, parallelism: int = 1, name: str = ""
    ) -> RequestStream[str]:
        """Return the arguments of the calls of a function; `.answer()` ends the stream.

        `answer` is that of `topo.drpc.ReturnResults`: "committed" or "at_once".
        """
        options = {
            "spout": DrpcSpout(function),
            "time": None,
            "parallelism": parallelism,
            "answer": ReturnResults(answer).answer,
        }
        stream: Stream[Any] = Stream(self, self.add(Node("stream", options=options, name=name)))
        return RequestStream(stream.map(request_of).pairs(), stream._node)

    def _spout(self, source: Any, fields: FieldNames | None) -> Spout:
        if isinstance(source, type) and issubclass(source, Spout):
            source = source()
        if isinstance(source, Spout):
            if fields is None:
                return source
            raise StreamError(
                f"stream() takes fields for a list; {type(source).__name__} declares its own",
                at=users_place(),
            )
        try:
            return FromList(source, fields)
        except TopoError as error:
            raise StreamError(
                f"stream() takes a spout, a list or a function that returns one: {error.message}",
                hint=error.hint,
                at=users_place(),
            ) from None

    def merge(self, *streams: Stream[T]) -> Stream[T]:
        """Return the elements of all these streams; the order within each stays."""
        if not streams:
            raise StreamError(
                "merge() takes one stream or more", hint="write s.merge(a, b)", at=users_place()
            )
        return streams[0].merge(*streams[1:])

    def build(self) -> Topology:
        """Return the topology; raise a StreamError for a program that cannot be."""
        return self._compiled().topology

    def explain(self) -> str:
        """Return the operators, the bolts they became, and the inputs of each."""
        return self._compiled().describe()

    def _compiled(self) -> Program:
        from topo.streams.compile.compiler import compile_program  # slots need none of it

        for place in self.windows:
            raise StreamError(
                "window() without an aggregate gives nothing",
                hint="write .window(...).count(), or another aggregate",
                at=place,
            )
        return compile_program(self.nodes)

    def add(self, node: Node) -> Node:
        """Add an operator; streams call this."""
        node.place = users_place()
        for before in node.inputs:
            if not any(before is node_of_program for node_of_program in self.nodes):
                raise StreamError(
                    f"{node.kind}: {before} belongs to another StreamBuilder",
                    hint="begin all streams of a program with one builder",
                    at=node.place,
                )
        node.check_parallelism()
        node.check_parts()
        self.nodes.append(node)
        return node
