"""The ends of streams: what is done with each element, and the bolts that get them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from topo.components import BasicBolt, Bolt
from topo.errors import StreamError, did_you_mean
from topo.streams.graph import GROUPINGS, Node, check_function, users_place
from topo.streams.records import lasting

if TYPE_CHECKING:
    from topo.streams.api.builder import StreamBuilder
    from topo.streams.api.elements import Stream

T = TypeVar("T")


def check_grouping(kind: str, grouping: str) -> None:
    """Raise a StreamError if an operator does not know a grouping."""
    if grouping not in GROUPINGS:
        choices = ", ".join(map(repr, GROUPINGS))
        raise StreamError(
            f"{kind} by {grouping!r}; it is one of {choices}",
            hint=did_you_mean(grouping, GROUPINGS),
            at=users_place(),
        )


class Endings(Generic[T]):
    """The operators at which elements leave a program: actions, and bolts of the user's."""

    def __init__(self, builder: StreamBuilder, node: Node) -> None:
        self._builder = builder
        self._node = node

    def _next(self, kind: str, function: Any = None, *, keyed: bool, **options: Any) -> Node:
        node = Node(kind, (self._node,), keyed, function, options)
        return self._builder.add(node)

    def for_each(self, function: Callable[[T], Any]) -> None:
        """Call the function with each element, for its effect; at least once after a failure."""
        self._next("for_each", check_function("for_each", function), keyed=self._node.keyed)

    def for_each_batch(self, function: Callable[[int, list[T]], Any]) -> None:
        """Call the function once a batch and task with the batch's id and elements.

        A batch that runs again has the same id, perhaps with other elements: overwrite what was
        written under it.
        """
        check_function("for_each_batch", function)
        self._next("for_each_batch", function, keyed=self._node.keyed)

    def print(self, label: str = "") -> None:
        """Print each element; `topo logs` shows it."""
        self._next("for_each", Printer(label), keyed=self._node.keyed)

    def to(
        self,
        bolt: Bolt | BasicBolt,
        *,
        parallelism: int = 1,
        grouping: str | None = None,
        name: str = "",
    ) -> None:
        """Send the elements to a bolt; its tuples have `value`, or `key` and `value`.

        If the stream has event time, they have `ts` as well. A bolt right behind `stream` reads the
        spout itself, with the spout's fields. Of a stream with keys, all values of a key go to one
        task; other elements are dealt over the tasks. `grouping` says otherwise: "shuffle",
        "broadcast" or "global".
        """
        self._user_bolt("to", bolt, parallelism, grouping, name)

    def through(
        self,
        bolt: Bolt | BasicBolt,
        *,
        parallelism: int = 1,
        grouping: str | None = None,
        name: str = "",
    ) -> Stream[Any]:
        """Send the elements through a bolt, as `to` does; return the stream of its default stream.

        What the bolt emits is a stream without keys.
        """
        from topo.streams.api.elements import Stream

        return Stream(self._builder, self._user_bolt("through", bolt, parallelism, grouping, name))

    def _user_bolt(
        self, kind: str, bolt: Any, parallelism: int, grouping: str | None, name: str
    ) -> Node:
        if not isinstance(bolt, Bolt | BasicBolt):
            raise StreamError(
                f"{kind}() takes a bolt; got {bolt!r}",
                hint=f"write .{kind}(MyBolt())",
                at=users_place(),
            )
        if grouping is not None:
            check_grouping(kind, grouping)
        node = self._next(kind, keyed=False, bolt=bolt, parallelism=parallelism, grouping=grouping)
        node.name = name
        return node


class Printer:
    """Prints elements, each with a label."""

    def __init__(self, label: str) -> None:
        self.label = f"{label} " if label else ""

    def __call__(self, element: Any) -> None:
        print(f"{self.label}{lasting(element)!r}")
