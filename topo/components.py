"""Spouts and bolts: what users subclass.

The contract of each hook is written on it. No `super()` call is ever needed: the host sets
`collector` and `context` (and `state`) before the first hook runs, and points `emit`, `ack` and
the like of the instance straight at the collector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, overload

from topo.errors import ComponentError, TopoError
from topo.tuples import Fields, Tuple

if TYPE_CHECKING:
    from topo.collectors import BasicOutputCollector, OutputCollector, SpoutOutputCollector
    from topo.context import TopologyContext
    from topo.state import KeyValueState

    Anchors: TypeAlias = Tuple | Iterable[Tuple] | None

FieldNames: TypeAlias = str | Iterable[str]


class Stream:
    """The declaration of one output stream: its fields, and whether it is a direct stream."""

    __slots__ = ("direct", "fields")

    def __init__(self, fields: FieldNames = (), *, direct: bool = False) -> None:
        self.fields = Fields(fields)
        self.direct = direct

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return self.fields == other.fields and self.direct == other.direct

    def __hash__(self) -> int:
        return hash((self.fields, self.direct))

    def __repr__(self) -> str:
        return f"Stream({tuple(self.fields)!r}{', direct=True' if self.direct else ''})"


Outputs: TypeAlias = FieldNames | Mapping[str, FieldNames | Stream]


class OutputFieldsDeclarer:
    """What `declare_output_fields` is given; Storm's way of declaring outputs."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}

    def declare(self, *fields: FieldNames, direct: bool = False) -> None:
        """The fields of the default stream."""
        self.declare_stream("default", *fields, direct=direct)

    def declare_stream(self, name: str, *fields: FieldNames, direct: bool = False) -> None:
        if name in self.streams:
            raise ComponentError(f"stream {name!r} is declared twice")
        if len(fields) == 1 and isinstance(fields[0], Stream):
            self.streams[name] = fields[0]
        else:
            self.streams[name] = Stream(Fields(*fields), direct=direct)


class Component:
    """What spouts and bolts have in common."""

    outputs: Outputs = ()
    """The default stream's fields, or {stream: fields or Stream}. Read from the instance."""

    transient: Iterable[str] = ()
    """Names of attributes that are never saved."""

    stateless: bool = False
    """True: nothing is saved. An attribute that changes all the same is an error."""

    requires: Iterable[str] = ()
    """Distributions that this component imports where it runs, such as "confluent_kafka>=2.6"."""

    context: TopologyContext

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare outputs in code instead of in `outputs`."""
        outputs = self.outputs
        if isinstance(outputs, Mapping):
            for name, declared in outputs.items():
                declarer.declare_stream(name, declared)
        elif outputs := Fields(outputs):
            declarer.declare(outputs)

    def restored(self) -> None:
        """After open or prepare, when saved attributes are back; on the first start too."""

    def pre_commit(self, batch_id: int) -> None:
        """The end of a micro-batch this task worked in: flush writes to the outside.

        May emit and ack. A batch that runs again has the same id, perhaps with other input:
        overwrite what was written under it, never skip.
        """

    def committed(self, batch_id: int) -> None:
        """Publish what batch `batch_id` prepared: the batch is durable.

        Called after a batch in which this task worked has committed, before anything else that the
        task does in a later batch; after `restored` once more for the last such batch, since the
        process may have died before. So it may come twice: make it idempotent. It must not emit,
        ack or fail. `Unavailable` raised here is tried again, in this batch's name.
        """

    def get_component_configuration(self) -> Mapping[str, Any] | None:
        """Settings of this component, such as `topology.tick.tuple.freq.secs`."""
        return None


class Spout(Component):
    """A source of tuples."""

    collector: SpoutOutputCollector

    def open(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutOutputCollector
    ) -> None:
        """The task starts, or starts again elsewhere."""

    def close(self) -> None:
        """The task ends in good order; never called when a process is killed."""

    def activate(self) -> None:
        """The topology goes from inactive to active."""

    def deactivate(self) -> None:
        """The topology goes inactive; `next_tuple` is not called until it is active again."""

    def next_tuple(self) -> None:
        """Emit nothing, one tuple or many, and return; never block."""
        raise NotImplementedError

    def ack(self, msg_id: Any) -> None:
        """The message and everything that came of it was processed, and that is committed."""

    def fail(self, msg_id: Any, reason: str = "") -> None:
        """The message failed or timed out. `reason` may be left out of an override.

        It begins with "timeout", "acker lost" or "failed by", and names who and why.
        """

    def is_exhausted(self) -> bool:
        """True when nothing will ever come again; asked when `next_tuple` emitted nothing."""
        return False

    @overload
    def emit(
        self, values: list[Any] | tuple[Any, ...], *, stream: str = ..., msg_id: Any = ...
    ) -> None: ...
    @overload
    def emit(
        self,
        values: list[Any] | tuple[Any, ...],
        *,
        stream: str = ...,
        msg_id: Any = ...,
        task_ids: bool,
    ) -> list[int] | None: ...
    def emit(
        self,
        values: list[Any] | tuple[Any, ...],
        *,
        stream: str = "default",
        msg_id: Any = None,
        task_ids: bool = False,
    ) -> list[int] | None:
        """Emit a tuple; with a `msg_id` it is tracked, and `ack` or `fail` will be called."""
        made: list[int] | None = _collector(self).emit(
            values, stream=stream, msg_id=msg_id, task_ids=task_ids
        )
        return made

    def emit_many(
        self,
        rows: Iterable[list[Any] | tuple[Any, ...]] | Mapping[str, Sequence[Any]],
        *,
        stream: str = "default",
        msg_ids: Iterable[Any] | None = None,
    ) -> int:
        """Emit a tuple for each row, or for each row of {field: column}; return how many.

        Columns may be an Arrow table or record batch. `msg_ids` has one id a row; None in it leaves
        that row untracked. All rows are checked before the first is emitted.
        """
        return int(_collector(self).emit_many(rows, stream=stream, msg_ids=msg_ids))

    def wake(self) -> None:
        """End the wait of an idle topology, so that `next_tuple` is called now; for any thread."""
        self.context.wake()

    def emit_direct(
        self,
        task: int,
        values: list[Any] | tuple[Any, ...],
        *,
        stream: str = "default",
        msg_id: Any = None,
    ) -> None:
        """Emit to one task, on a direct stream."""
        _collector(self).emit_direct(task, values, stream=stream, msg_id=msg_id)

    def report_error(self, error: BaseException | str) -> None:
        """Show an error in `topo errors` and go on."""
        _collector(self).report_error(error)

    @property
    def pending_count(self) -> int:
        """How many messages of this task are neither acked nor failed."""
        return int(_collector(self).pending_count)


class _AnyBolt(Component):
    def execute(self, tup: Tuple) -> None:
        """Process one tuple. What it raises stops the topology, unless configured otherwise."""
        raise NotImplementedError

    def on_tick(self, tup: Tuple) -> None:
        """Override to get the ticks here rather than in `execute`; they are acked afterwards."""
        raise NotImplementedError

    def cleanup(self) -> None:
        """The task ends in good order; never called when a process is killed."""

    def report_error(self, error: BaseException | str) -> None:
        """Show an error in `topo errors` and go on."""
        _collector(self).report_error(error)


class Bolt(_AnyBolt):
    """Processes tuples; anchors what it emits and acks its input by hand."""

    collector: OutputCollector

    def prepare(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: OutputCollector
    ) -> None:
        """The task starts, or starts again elsewhere."""

    @overload
    def emit(
        self, values: list[Any] | tuple[Any, ...], *, stream: str = ..., anchors: Anchors = ...
    ) -> None: ...
    @overload
    def emit(
        self,
        values: list[Any] | tuple[Any, ...],
        *,
        stream: str = ...,
        anchors: Anchors = ...,
        task_ids: bool,
    ) -> list[int] | None: ...
    def emit(
        self,
        values: list[Any] | tuple[Any, ...],
        *,
        stream: str = "default",
        anchors: Anchors = None,
        task_ids: bool = False,
    ) -> list[int] | None:
        """Emit a tuple that belongs to the trees of its anchors; `anchors=[]` says: to none."""
        made: list[int] | None = _collector(self).emit(
            values, stream=stream, anchors=anchors, task_ids=task_ids
        )
        return made

    def emit_direct(
        self,
        task: int,
        values: list[Any] | tuple[Any, ...],
        *,
        stream: str = "default",
        anchors: Anchors = None,
    ) -> None:
        """Emit to one task, on a direct stream."""
        _collector(self).emit_direct(task, values, stream=stream, anchors=anchors)

    def ack(self, tup: Tuple) -> None:
        """This tuple is processed. Every tuple is acked or failed, once."""
        _collector(self).ack(tup)

    def fail(self, tup: Tuple, reason: str | None = None) -> None:
        """This tuple cannot be processed: the messages it came of fail, with this reason."""
        _collector(self).fail(tup, reason)

    def reset_timeout(self, tup: Tuple) -> None:
        """The message timeout of the messages this tuple came of starts again."""
        _collector(self).reset_timeout(tup)


class BasicBolt(_AnyBolt):
    """Processes tuples; every emit is anchored to the input, acked when `execute` returns."""

    collector: BasicOutputCollector

    def prepare(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: BasicOutputCollector
    ) -> None:
        """The task starts, or starts again elsewhere."""

    @overload
    def emit(self, values: list[Any] | tuple[Any, ...], *, stream: str = ...) -> None: ...
    @overload
    def emit(
        self, values: list[Any] | tuple[Any, ...], *, stream: str = ..., task_ids: bool
    ) -> list[int] | None: ...
    def emit(
        self,
        values: list[Any] | tuple[Any, ...],
        *,
        stream: str = "default",
        task_ids: bool = False,
    ) -> list[int] | None:
        """Emit a tuple, anchored to the input."""
        made: list[int] | None = _collector(self).emit(values, stream=stream, task_ids=task_ids)
        return made

    def emit_direct(
        self, task: int, values: list[Any] | tuple[Any, ...], *, stream: str = "default"
    ) -> None:
        """Emit to one task, on a direct stream, anchored to the input."""
        _collector(self).emit_direct(task, values, stream=stream)

    def reset_timeout(self, tup: Tuple) -> None:
        """The message timeout of the messages this tuple came of starts again."""
        _collector(self).reset_timeout(tup)


class _Stateful:
    state: KeyValueState[Any, Any]

    def init_state(self, state: KeyValueState[Any, Any]) -> None:
        """The keyed state is there, with what was saved; `self.state` is set all the same."""


class StatefulSpout(_Stateful, Spout):
    """A Spout with keyed state in `self.state`, whose keys are dealt over its tasks.

    A key is a shard of the source: a partition, a file, a table. Every task sees all of them, reads
    those that it `owns`, and keeps its position in each.
    """

    def owner(self, key: Any, tasks: int) -> int:
        """Return the index of the task, of so many, that owns the key.

        The same for the same key in every process and run; state is dealt by it when the number of
        tasks changes.
        """
        return self.context.stable_hash(key) % tasks

    def owns(self, key: Any) -> bool:
        """Return True if this task owns the key."""
        context = self.context
        tasks = len(context.component_tasks(context.this_component_id))
        return self.owner(key, tasks) == context.this_task_index


class StatefulBolt(_Stateful, Bolt):
    """A Bolt with keyed state in `self.state`, saved by what changed."""


class StatefulBasicBolt(_Stateful, BasicBolt):
    """A BasicBolt with keyed state in `self.state`, saved by what changed."""


def _collector(component: Component) -> Any:
    try:
        return component.__dict__["collector"]
    except KeyError:
        _not_started(component)


def _not_started(component: Component) -> NoReturn:
    raise TopoError(
        f"{type(component).__name__} has no collector yet",
        hint="emit and ack from open, prepare and the hooks after it, not from __init__",
    )
