"""Spouts and bolts: the classes that users subclass.

The docstring of each hook is its contract. No `super()` call is ever needed: the runtime sets
`collector` and `context` (and `state`) before the first hook runs, and binds `emit`, `ack` and the
other calls of the instance directly to the collector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeAlias, overload

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


Outputs: TypeAlias = FieldNames | Mapping[str, FieldNames | Stream] | Mapping[str, Any]
"""Fields, or streams with their fields, or fields with the Arrow types of their columns."""


def are_types(outputs: Mapping[str, Any]) -> bool:
    """True iff a mapping is kind of fields to Arrow types, not of streams to fields."""
    return {type(kind).__module__.partition(".")[0] for kind in outputs.values()} == {"pyarrow"}


class OutputFieldsDeclarer:
    """The declarer that `declare_output_fields` gets; Storm's way of declaring outputs."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}

    def declare(self, *fields: FieldNames, direct: bool = False) -> None:
        """Declare the fields of the default stream."""
        self.declare_stream("default", *fields, direct=direct)

    def declare_stream(self, name: str, *fields: FieldNames, direct: bool = False) -> None:
        if name in self.streams:
            raise ComponentError(f"stream {name!r} is declared twice")
        if len(fields) == 1 and isinstance(fields[0], Stream):
            self.streams[name] = fields[0]
        else:
            self.streams[name] = Stream(Fields(*fields), direct=direct)


class Component:
    """The base of spouts and bolts."""

    outputs: Outputs = ()
    """The default stream's fields, or {stream: fields or Stream}; read from the instance.

    Fields may have types of pyarrow, as in {"word": pa.string()}: what `emit_batch` emits is cast
    to them.
    """

    transient: Iterable[str] = ()
    """The names of attributes that are never saved."""

    moved: ClassVar[Mapping[str, str]] = {}
    """Classes of saved objects that have other names now: {"old.module:Old": "new.module:New"}."""

    stateless: bool = False
    """If True, nothing is saved, and a change of an attribute is an error."""

    requires: Iterable[str] = ()
    """Distributions that this component imports where it runs, such as "confluent_kafka>=2.6"."""

    external: Mapping[str, Any] = {}
    """What an engine reads or writes for this component, as data: "engine" is the engine's name."""

    leaves: Mapping[str, Any] = {}
    """What it leaves outside for as long as its checkpoint is kept, as data.

    "by" is a module with two functions of this mapping, the checkpoint's id and the component's:
    `left` returns what is there, a line each, and `drop` drops it. `topo doctor` asks the first,
    `topo kill --purge` the second. A `Secret` in it is looked up there.
    """

    _topo_role = ""
    """What the pages draw it as, of a component whose work has figures of its own."""

    context: TopologyContext

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare outputs in code instead of in `outputs`."""
        outputs = self.outputs
        if isinstance(outputs, Mapping) and not are_types(outputs):
            for name, declared in outputs.items():
                declarer.declare_stream(name, declared)
        elif outputs := Fields(outputs):
            declarer.declare(outputs)

    def restored(self) -> None:
        """Set up what depends on saved attributes, which are back; also on the first start."""

    def pre_commit(self, batch_id: int) -> None:
        """Flush outside writes at the end of a micro-batch in which this task worked.

        The hook may emit and ack. A batch that runs again has the same id, perhaps with other
        input: overwrite the writes under that id, never skip them.
        """

    def committed(self, batch_id: int) -> None:
        """Publish what batch `batch_id` prepared: the batch is durable.

        Called after a batch in which this task worked has committed, before anything else that the
        task does in a later batch; after `restored` once more for the last such batch, since the
        process may have died before. So it may come twice: make it idempotent. It must not emit,
        ack or fail. `Unavailable` raised here is tried again, in this batch's name.
        """

    def get_component_configuration(self) -> Mapping[str, Any] | None:
        """Return settings of this component, such as `topology.tick.tuple.freq.secs`."""
        return None


class Spout(Component):
    """A source of tuples."""

    collector: SpoutOutputCollector

    def open(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutOutputCollector
    ) -> None:
        """Set the task up when it starts, or restarts in another process."""

    def close(self) -> None:
        """Clean up at an orderly end of the task; not called when a process is killed."""

    def activate(self) -> None:
        """Handle the topology's change from inactive to active."""

    def deactivate(self) -> None:
        """Handle the topology's change to inactive, after which `next_tuple` is not called."""

    def next_tuple(self) -> None:
        """Emit nothing, one tuple or many, and return; never block."""
        raise NotImplementedError

    def receive(self, rows: bytes) -> None:
        """Take rows that the engine has read, of a spout whose `external` says what to read.

        The engine knows them as read from then on, whether the topology is active or not.
        """
        raise NotImplementedError

    def keep_alive(self) -> None:
        """Keep what is in flight: extend its leases, answer its broker.

        Called when a batch begins, also while `next_tuple` is not: at `topology.max.spout.pending`,
        or while the topology is inactive. It must not emit. `Unavailable` is as in `next_tuple`.
        """

    def ack(self, msg_id: Any) -> None:
        """Handle the ack of a message, whose whole tuple tree is processed and committed."""

    def fail(self, msg_id: Any, reason: str = "") -> None:
        """Handle the failure or timeout of a message; an override may leave out `reason`.

        The reason begins with "timeout", "acker lost" or "failed by", and names the task and cause.
        """

    def is_exhausted(self) -> bool:
        """Return True if no tuple will ever come again; asked after an empty `next_tuple`."""
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

        Columns may be an Arrow table or record batch, and stay Arrow if bolts cannot tell that from
        rows. `msg_ids` has one id a row; None in it leaves that row untracked. All rows are checked
        before the first is emitted.
        """
        return int(_collector(self).emit_many(rows, stream=stream, msg_ids=msg_ids))

    def emit_batch(
        self, columns: Any, *, stream: str = "default", msg_ids: Iterable[Any] | None = None
    ) -> int:
        """Emit a tuple for each row of Arrow columns, which stay as they are; return how many.

        The columns are a RecordBatch, a Table, a data frame, or {field: array}; `msg_ids` as those
        of `emit_many`.
        """
        return int(_collector(self).emit_batch(columns, stream=stream, msg_ids=msg_ids))

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
        """Show an error in `topo errors` and continue."""
        _collector(self).report_error(error)

    @property
    def pending_count(self) -> int:
        """The number of messages of this task that are neither acked nor failed."""
        return int(_collector(self).pending_count)

    def room(self, most: int) -> int:
        """Return how many more messages may be emitted now, of as many as `most`.

        That is what `topology.max.spout.pending` leaves of it: the task is not asked while it is at
        the limit, and a call of `next_tuple` that emits many has to keep it.
        """
        limit = self.context.conf.get("topology.max.spout.pending")
        return most if limit is None else max(0, min(most, limit - self.pending_count))


class _AnyBolt(Component):
    keyed: Iterable[str] = ()
    """The names of attributes that are dicts by the input's key.

    They are dealt by it if the number of tasks changes.
    """

    def input_key(self, key: Any) -> Any:
        """Return the value, or the tuple of values, of the fields that the input is grouped by.

        `key` is one of `self.state`, or of an attribute that `keyed` names. It says to which task
        the entry belongs if the number of tasks changes: by default, the key is that value.
        """
        return key

    @classmethod
    def redistribute(cls, states: list[dict[str, Any]], tasks: int) -> list[dict[str, Any]]:
        """Return what so many tasks have, given what each of the tasks before has saved.

        An override decides what cannot be dealt by key. Each has the changed attributes by name,
        and the keyed state under "state".
        """
        raise NotImplementedError

    def execute(self, tup: Any) -> None:
        """Process one tuple; an exception stops the topology, unless configured otherwise."""
        raise NotImplementedError

    def on_tick(self, tup: Tuple) -> None:
        """Handle a tick; an override gets the ticks instead of `execute`, acked afterwards."""
        raise NotImplementedError

    def cleanup(self) -> None:
        """Clean up at an orderly end of the task; not called when a process is killed."""

    def report_error(self, error: BaseException | str) -> None:
        """Show an error in `topo errors` and continue."""
        _collector(self).report_error(error)


class Bolt(_AnyBolt):
    """A bolt that anchors its emits and acks its input by hand."""

    collector: OutputCollector

    def prepare(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: OutputCollector
    ) -> None:
        """Set the task up when it starts, or restarts in another process."""

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
        """Emit a tuple into the trees of its anchors; `anchors=[]` says that there are none."""
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
        """Ack a processed tuple. Every tuple must be acked or failed exactly once."""
        _collector(self).ack(tup)

    def fail(self, tup: Tuple, reason: str | None = None) -> None:
        """Fail a tuple: the messages it came from fail with this reason."""
        _collector(self).fail(tup, reason)

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the timeout of the messages that this tuple came from."""
        _collector(self).reset_timeout(tup)


class BasicBolt(_AnyBolt):
    """A bolt whose emits are anchored to the input, which is acked when its hook returns.

    The hook is `execute(self, tup)`, which gets the tuple, `process(self, field, ...)`, which gets
    values, or `process_batch(self, batch)`, which gets Arrow columns of many tuples.
    """

    passes_time: bool | None = None
    """True: behind a window, what it emits has the time of its input, in a field of the same name.

    Then the window's watermark passes it. None: if it has neither state, ticks nor `pre_commit`;
    write False in one that changes times or keeps tuples back.
    """

    collector: BasicOutputCollector

    def prepare(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: BasicOutputCollector
    ) -> None:
        """Set the task up when it starts, or restarts in another process."""

    def process(self, *args: Any, **kwargs: Any) -> Any:
        """Process the values of one tuple, instead of `execute`.

        The parameters are names of fields of the input, in any order; one with a default value may
        be missing there, and `tup` is the tuple itself. Emit, or return or yield rows: a list or a
        tuple of values each.
        """
        raise NotImplementedError

    def process_batch(self, batch: Any) -> None:
        """Process the tuples of a frame at once, instead of `execute`: a pyarrow.RecordBatch.

        They are of one stream of one task, in their order, up to some thousand. All are acked when
        the call returns; `FailTuple(reason, rows=[...])` fails some, another exception all of them.
        """
        raise NotImplementedError

    def tick(self) -> None:
        """Handle a tick, in a bolt without `execute`; such a bolt without this hook gets none."""

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

    def emit_values(self, *values: Any, stream: str = "default") -> None:
        """Emit a tuple of these values, anchored to the input; the fastest way to emit."""
        _collector(self).emit_values(*values, stream=stream)

    def emit_batch(self, columns: Any, *, stream: str = "default", parents: Any = None) -> int:
        """Emit a tuple for each row of columns; return how many.

        The columns are a RecordBatch, a Table, a data frame, or {field: array}. Of as many rows as
        the batch in work has, row i is anchored to input i; otherwise `parents` has the position of
        the input for each row, or is `topo.UNANCHORED`.
        """
        return int(_collector(self).emit_batch(columns, stream=stream, parents=parents))

    def emit_direct(
        self, task: int, values: list[Any] | tuple[Any, ...], *, stream: str = "default"
    ) -> None:
        """Emit to one task, on a direct stream, anchored to the input."""
        _collector(self).emit_direct(task, values, stream=stream)

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the timeout of the messages that this tuple came from."""
        _collector(self).reset_timeout(tup)


class _Stateful:
    state: KeyValueState[Any, Any]
    state_version: ClassVar[int] = 1
    """The version of the form of the state's values, which is saved with them."""

    def upgrade(self, key: Any, value: Any, version: int) -> Any:
        """Return the value that a key has in the present form; it was saved in that of `version`.

        Called before `init_state` for every entry that was saved under a lower `state_version`.
        """
        return value

    def init_state(self, state: KeyValueState[Any, Any]) -> None:
        """Take the keyed state with its saved content; `self.state` is set in any case."""


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
    """A Bolt with keyed state in `self.state`, saved incrementally."""


class StatefulBasicBolt(_Stateful, BasicBolt):
    """A BasicBolt with keyed state in `self.state`, saved incrementally."""


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
