"""The collectors, which components call to emit, ack and fail.

A collector is a thin face over the port that the runtime made for this task. Unless a call is
overridden, the port's function is set on the instance, so that `collector.emit(...)` and
`self.emit(...)` are one Python call away from the rows they fill.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from topo.tuples import Tuple

if TYPE_CHECKING:
    Values: TypeAlias = list[Any] | tuple[Any, ...]
    Anchors: TypeAlias = Tuple | Iterable[Tuple] | None


class Port(Protocol):
    """The functions behind a collector; a port has those of its component's kind."""

    @property
    def emit(self) -> Any: ...
    @property
    def emit_direct(self) -> Any: ...
    @property
    def report_error(self) -> Any: ...


class _Collector:
    calls: tuple[str, ...] = ()

    def __init__(self, port: Port) -> None:
        self._port: Any = port
        for name in self.calls:
            if getattr(type(self), name) is getattr(_original(type(self)), name):
                setattr(self, name, getattr(port, name))

    def report_error(self, error: BaseException | str) -> None:
        """Show an error in `topo errors` and continue."""
        self._port.report_error(error)

    def observe_time(self, value: Any, stream: str = "default") -> None:
        """Tell readers in event time that this task has seen a time without emitting it.

        For what a filter dropped, and for a source that knows how complete it is: the watermark
        of the readers goes on as if a tuple with this time had been emitted on the stream.
        """
        self._port.observe_time(value, stream)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(f"{type(self).__name__} belongs to its task and does not pickle")


class OutputCollector(_Collector):
    """The collector of a Bolt."""

    calls = ("emit", "emit_direct", "ack", "fail", "reset_timeout")

    def emit(
        self,
        values: Values,
        *,
        stream: str = "default",
        anchors: Anchors = None,
        task_ids: bool = False,
    ) -> list[int] | None:
        made: list[int] | None = self._port.emit(
            values, stream=stream, anchors=anchors, task_ids=task_ids
        )
        return made

    def emit_direct(
        self, task: int, values: Values, *, stream: str = "default", anchors: Anchors = None
    ) -> None:
        self._port.emit_direct(task, values, stream=stream, anchors=anchors)

    def ack(self, tup: Tuple) -> None:
        self._port.ack(tup)

    def fail(self, tup: Tuple, reason: str | None = None) -> None:
        self._port.fail(tup, reason)

    def reset_timeout(self, tup: Tuple) -> None:
        self._port.reset_timeout(tup)


class BasicOutputCollector(_Collector):
    """The collector of a BasicBolt: every emit is anchored to the input."""

    calls = ("emit", "emit_values", "emit_batch", "emit_direct", "reset_timeout")

    def emit(
        self, values: Values, *, stream: str = "default", task_ids: bool = False
    ) -> list[int] | None:
        made: list[int] | None = self._port.emit(values, stream=stream, task_ids=task_ids)
        return made

    def emit_values(self, *values: Any, stream: str = "default") -> None:
        """Emit a tuple of these values."""
        self._port.emit_values(*values, stream=stream)

    def emit_batch(self, columns: Any, *, stream: str = "default", parents: Any = None) -> int:
        """Emit a tuple for each row of the columns; return how many."""
        return int(self._port.emit_batch(columns, stream=stream, parents=parents))

    def emit_direct(self, task: int, values: Values, *, stream: str = "default") -> None:
        self._port.emit_direct(task, values, stream=stream)

    def reset_timeout(self, tup: Tuple) -> None:
        self._port.reset_timeout(tup)


class SpoutOutputCollector(_Collector):
    """The collector of a Spout."""

    calls = ("emit", "emit_direct")

    def emit(
        self,
        values: Values,
        *,
        stream: str = "default",
        msg_id: Any = None,
        task_ids: bool = False,
    ) -> list[int] | None:
        made: list[int] | None = self._port.emit(
            values, stream=stream, msg_id=msg_id, task_ids=task_ids
        )
        return made

    def emit_direct(
        self, task: int, values: Values, *, stream: str = "default", msg_id: Any = None
    ) -> None:
        self._port.emit_direct(task, values, stream=stream, msg_id=msg_id)

    def emit_many(
        self,
        rows: Iterable[Values] | Mapping[str, Sequence[Any]],
        *,
        stream: str = "default",
        msg_ids: Iterable[Any] | None = None,
    ) -> int:
        """Emit a tuple for each row, or for each row of the columns; return how many."""
        return int(self._port.emit_many(rows, stream=stream, msg_ids=msg_ids))

    def emit_batch(
        self, columns: Any, *, stream: str = "default", msg_ids: Iterable[Any] | None = None
    ) -> int:
        """Emit a tuple for each row of Arrow columns; return how many."""
        return int(self._port.emit_batch(columns, stream=stream, msg_ids=msg_ids))

    @property
    def hears_splits(self) -> bool:
        """True iff a bolt reads this spout in event time, so that parts are worth telling apart."""
        return bool(self._port.hears_splits)

    def read_splits(self, splits: Mapping[str, bool]) -> None:
        """Tell which parts of the source this task reads from now on.

        Parts are partitions, shards or files, each in its own order of time; the value says
        whether there is more to read of it now. The watermark of bolts in event time stays at the
        part that is furthest behind, one of which nothing was emitted yet included. A part without
        more counts as idle after `EventTime(idle=...)`; one that is no longer named is forgotten.
        """
        self._port.read_splits(splits)

    def from_split(self, split: str) -> None:
        """Tell which part of the source the next emits are of."""
        self._port.from_split(split)

    @property
    def pending_count(self) -> int:
        """The number of messages of this task that are neither acked nor failed."""
        return int(self._port.pending_count())


def _original(cls: type[_Collector]) -> type[_Collector]:
    return next(base for base in cls.__mro__ if base.__module__ == __name__)
