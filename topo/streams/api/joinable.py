"""The join operators of keyed streams.

Rows of two streams match if they have the same key and are close in time (`within`), or in the same
window (`window`). A key that is None matches nothing; in a left, right or outer join its element is
a result at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, overload

from topo.errors import JoinError, StreamError
from topo.event_time import Duration
from topo.joins.cogroup import check_modes
from topo.streams.graph import Node, check_function, users_place
from topo.windows.assigners import WindowSpec, check_spec

if TYPE_CHECKING:
    from topo.streams.api.builder import StreamBuilder
    from topo.streams.api.elements import KeyedStream
    from topo.streams.api.tables import StreamTable

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")
X = TypeVar("X")
R = TypeVar("R")

Within: TypeAlias = "Duration | tuple[Duration, Duration] | None"


class Joinable(Generic[K, V]):
    """The joins of a stream of pairs of a key and a value.

    `within` is (before, after): the other's element matches from `before` earlier to `after` later;
    one duration stands for both. The elements of the result are (key, (value, other's value)), or
    (key, merge(value, other's value)). What has no match is a result once, when the watermark says
    that none can come.
    """

    _builder: StreamBuilder
    _node: Node

    @overload
    def join(
        self, other: KeyedStream[K, W], *, within: Within = ..., window: WindowSpec | None = ...,
        parallelism: int = ...,
    ) -> KeyedStream[K, tuple[V, W]]: ...  # fmt: skip
    @overload
    def join(
        self, other: KeyedStream[K, W], *, within: Within = ..., window: WindowSpec | None = ...,
        merge: Callable[[V, W], R], parallelism: int = ...,
    ) -> KeyedStream[K, R]: ...  # fmt: skip
    @overload
    def join(self, other: StreamTable[K, W]) -> KeyedStream[K, tuple[V, W]]: ...
    @overload
    def join(
        self, other: StreamTable[K, W], merge: Callable[[V, W], R], *, wait: bool = ...,
        grace: Duration | None = ..., parallelism: int = ...,
    ) -> KeyedStream[K, R]: ...  # fmt: skip
    def join(self, other: Any, merge: Any = None, **options: Any) -> KeyedStream[K, Any]:
        """Return each pair of values that match.

        Beside a table, each value with what the table has for its key: the latest value, or of a
        versioned table what was valid at the element's own time, when the watermark has passed it
        (`wait`), at once (`wait=False`), or when the stream is `grace` further.
        """
        return self._joined("inner", other, merge=merge, **options)

    @overload
    def left_join(
        self, other: KeyedStream[K, W], *, within: Within = ..., window: WindowSpec | None = ...,
        parallelism: int = ...,
    ) -> KeyedStream[K, tuple[V, W | None]]: ...  # fmt: skip
    @overload
    def left_join(
        self, other: KeyedStream[K, W], *, within: Within = ..., window: WindowSpec | None = ...,
        merge: Callable[[V, W | None], R], parallelism: int = ...,
    ) -> KeyedStream[K, R]: ...  # fmt: skip
    @overload
    def left_join(self, other: StreamTable[K, W]) -> KeyedStream[K, tuple[V, W | None]]: ...
    @overload
    def left_join(
        self, other: StreamTable[K, W], merge: Callable[[V, W | None], R], *, wait: bool = ...,
        grace: Duration | None = ..., parallelism: int = ...,
    ) -> KeyedStream[K, R]: ...  # fmt: skip
    def left_join(self, other: Any, merge: Any = None, **options: Any) -> KeyedStream[K, Any]:
        """Return each pair that matches, and this stream's values without a match."""
        return self._joined("left", other, merge=merge, **options)

    @overload
    def right_join(
        self, other: KeyedStream[K, W], *, within: Within = ..., window: WindowSpec | None = ...,
        parallelism: int = ...,
    ) -> KeyedStream[K, tuple[V | None, W]]: ...  # fmt: skip
    @overload
    def right_join(
        self, other: KeyedStream[K, W], *, within: Within = ..., window: WindowSpec | None = ...,
        merge: Callable[[V | None, W], R], parallelism: int = ...,
    ) -> KeyedStream[K, R]: ...  # fmt: skip
    def right_join(self, other: Any, **options: Any) -> KeyedStream[K, Any]:
        """Return each pair that matches, and the other stream's values without a match."""
        return self._joined("right", other, **options)

    @overload
    def outer_join(
        self, other: KeyedStream[K, W], *, within: Within = ..., window: WindowSpec | None = ...,
        parallelism: int = ...,
    ) -> KeyedStream[K, tuple[V | None, W | None]]: ...  # fmt: skip
    @overload
    def outer_join(
        self, other: KeyedStream[K, W], *, within: Within = ..., window: WindowSpec | None = ...,
        merge: Callable[[V | None, W | None], R], parallelism: int = ...,
    ) -> KeyedStream[K, R]: ...  # fmt: skip
    def outer_join(self, other: Any, **options: Any) -> KeyedStream[K, Any]:
        """Return each pair that matches, and the values of both streams without a match."""
        return self._joined("outer", other, **options)

    @overload
    def cogroup(
        self, other: KeyedStream[K, W], /, *, window: WindowSpec | None = ...,
        keep: Literal["all"] = ..., emit: str = ..., parallelism: int = ...,
    ) -> KeyedStream[K, tuple[list[V], list[W]]]: ...  # fmt: skip
    @overload
    def cogroup(
        self, other: KeyedStream[K, W], third: KeyedStream[K, X], /, *,
        window: WindowSpec | None = ..., keep: Literal["all"] = ..., emit: str = ...,
        parallelism: int = ...,
    ) -> KeyedStream[K, tuple[list[V], list[W], list[X]]]: ...  # fmt: skip
    @overload
    def cogroup(
        self, other: KeyedStream[K, W], /, *, window: WindowSpec | None = ...,
        keep: Literal["first", "last", "product"], emit: str = ..., parallelism: int = ...,
    ) -> KeyedStream[K, tuple[V | None, W | None]]: ...  # fmt: skip
    @overload
    def cogroup(
        self, /, *others: KeyedStream[K, Any], window: WindowSpec | None = ..., keep: str = ...,
        emit: str = ..., parallelism: int = ...,
    ) -> KeyedStream[K, Any]: ...  # fmt: skip
    def cogroup(
        self,
        /,
        *others: Any,
        window: WindowSpec | None = None,
        keep: str = "all",
        emit: str = "final",
        parallelism: int = 0,
    ) -> KeyedStream[K, Any]:
        """Put the values of each key of all these streams side by side: (key, (own, ...)).

        `keep` is what is kept of each: "all" values as a list, the "first", the "last", or the
        "product", every combination as an element. `emit` is when: "final", as the window or the
        input ends, "complete", whenever every stream has something, or "running", at each value.
        """
        try:
            check_modes(keep, emit)
            if window is not None:
                check_spec(window)
        except JoinError as error:
            raise StreamError(error.message, hint=error.hint, at=users_place()) from None
        options = {"window": window, "keep": keep, "emit": emit, "parallelism": parallelism}
        return self._with("cogroup", others, None, options)

    def _joined(self, how: str, other: Any, **options: Any) -> KeyedStream[K, Any]:
        from topo.streams.api.tables import StreamTable, lookup

        if not isinstance(other, StreamTable):
            return self._joined_stream(how, other, **options)
        if how not in ("inner", "left"):
            raise StreamError(
                f"a stream joins a table by join or left_join, not {how}: a table has no end",
                hint="make tables of both for an outer join",
                at=users_place(),
            )
        stream: Any = self
        joined: KeyedStream[K, Any] = lookup(how, stream, other, **options)
        return joined

    def _joined_stream(
        self,
        how: str,
        other: Any,
        *,
        within: Within = None,
        window: WindowSpec | None = None,
        merge: Any = None,
        parallelism: int = 0,
    ) -> KeyedStream[K, Any]:
        if (within is None) == (window is None):
            raise StreamError(
                "a join takes within or window"
                if within is None
                else "a join takes within or window, not both",
                hint="write within=timedelta(minutes=10), or window=Tumbling(timedelta(hours=1))",
                at=users_place(),
            )
        if window is not None:
            check_spec(window)
        if merge is not None:
            check_function("join(merge=...)", merge)
        options = {"how": how, "within": within, "window": window, "parallelism": parallelism}
        return self._with("join", (other,), merge, options)

    def _with(
        self, kind: str, others: tuple[Any, ...], function: Any, options: dict[str, Any]
    ) -> KeyedStream[K, Any]:
        from topo.streams.api.elements import KeyedStream

        for other in others or (None,):
            if not isinstance(other, KeyedStream):
                raise StreamError(
                    f"{kind} takes a stream with keys; got {other!r}",
                    hint=f"write .{kind}(other.key_by(...))",
                    at=users_place(),
                )
            if other._builder is not self._builder:
                raise StreamError(
                    f"{kind}: the streams are of two builders",
                    hint="make both with one StreamBuilder",
                    at=users_place(),
                )
        inputs = (self._node, *[other._node for other in others])
        return KeyedStream(
            self._builder, self._builder.add(Node(kind, inputs, True, function, options))
        )
