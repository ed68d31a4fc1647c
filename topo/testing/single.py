"""Tests of one bolt or spout by itself: its emits, acks and failures for given input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, cast

from topo.collectors import BasicOutputCollector, OutputCollector, SpoutOutputCollector
from topo.components import (
    BasicBolt,
    Bolt,
    Component,
    Spout,
    StatefulBasicBolt,
    StatefulBolt,
    StatefulSpout,
)
from topo.config import Config, ConfigView
from topo.context import TopologyContext
from topo.errors import AnchorError, ComponentError, FailTuple, TupleSettledError
from topo.runtime.anchors import each_anchor, no_anchor
from topo.runtime.arrow_columns import columns_for, declared_types
from topo.runtime.batch_calls import BatchCalls, Inputs, failed_rows
from topo.runtime.bulk_emit import rows_of
from topo.runtime.emitter import Emitter
from topo.runtime.out_streams import OutStream
from topo.runtime.process_calls import ProcessCalls
from topo.runtime.task import full_conf
from topo.runtime.threads import CallsFromThreads
from topo.state import KeyValueState
from topo.timed import TimedBolt
from topo.topology.draft import Draft
from topo.topology.layout import TaskLayout
from topo.topology.lint import check_component
from topo.topology.model import ComponentDef, GroupingDef, InputDef, StreamDef, Topology
from topo.topology.validation import declared_streams
from topo.tuples import Fields, Source, Tuple, new_tuple, tick_source
from topo.ways import BY_BATCH, BY_TUPLE, hook_of


class Emitted(list[Any]):
    """The values of one emit, with the stream, the anchors and the target task."""

    def __init__(
        self,
        values: Iterable[Any],
        stream: str,
        anchors: Sequence[Tuple] = (),
        task: int | None = None,
        msg_id: Any = None,
    ) -> None:
        super().__init__(values)
        self.stream = stream
        self.anchors = list(anchors)
        self.task = task
        self.msg_id = msg_id


def make_tuple(
    values: Mapping[str, Any] | Sequence[Any],
    *,
    stream: str = "default",
    component: str = "component",
    fields: str | Iterable[str] | None = None,
    task: int = 1,
) -> Tuple:
    """Make a tuple; the fields are the mapping's keys, or field1, field2, ... for a sequence."""
    if isinstance(values, str | bytes) or not isinstance(values, Mapping | Sequence):
        raise TypeError(f"make_tuple takes a list of values or a mapping; got {values!r}")
    if isinstance(values, Mapping):
        names = tuple(Fields(fields if fields is not None else list(values)))
        listed = [values[name] for name in names]
    else:
        listed = list(values)
        default = [f"field{number}" for number in range(1, len(listed) + 1)]
        names = tuple(Fields(fields if fields is not None else default))
    if len(names) != len(listed):
        raise ValueError(f"{len(listed)} values for {len(names)} fields {names}")
    return new_tuple(Source(component, stream, task, names), listed)


def make_tick(secs: float = 1) -> Tuple:
    """Make a tick tuple."""
    return new_tuple(tick_source(), [secs])


class _Recorder:
    """A port that records calls instead of sending."""

    def __init__(self, component: Component) -> None:
        self._component = component
        draft = Draft("under_test", "component", component, 1, "")
        streams = [
            OutStream(s.name, s.fields, s.direct, [], index)
            for index, s in enumerate(declared_streams(draft).values())
        ]
        self._outlet = Emitter(type(component).__name__, 1, streams, strict=False, debug=False)
        self.emitted: list[Emitted] = []
        self.errors: list[BaseException | str] = []

    @property
    def state(self) -> dict[Any, Any]:
        """The keyed state of a stateful component, as a dict."""
        if not isinstance(self._component, StatefulBolt | StatefulBasicBolt | StatefulSpout):
            raise TypeError(f"{type(self._component).__name__} has no keyed state")
        return dict(self._component.state)

    def report_error(self, error: BaseException | str) -> None:
        self.errors.append(error)

    def record(
        self,
        values: Any,
        stream: str,
        anchors: Sequence[Tuple] = (),
        task: int | None = None,
        msg_id: Any = None,
    ) -> None:
        if task is None:
            self._outlet.checked(values, stream, direct=False)
        else:
            self._outlet.checked_direct(task, values, stream)
        self.emitted.append(Emitted(values, stream, anchors, task, msg_id))


class BoltRun(_Recorder):
    """The record of a bolt's emits, acks and failures for given tuples."""

    batch_id = -1
    """The last batch it was given, where it was given batches."""

    def __init__(self, bolt: Bolt | BasicBolt) -> None:
        super().__init__(bolt)
        self.bolt = bolt
        self.acked: list[Tuple] = []
        self.failed: list[Tuple] = []
        self.reset: list[Tuple] = []
        self._given: list[Tuple] = []
        # The state is not in the tuples themselves: another run may get them again.
        self._settled: set[Tuple] = set()
        self._current: Tuple | None = None
        self._process: ProcessCalls | None = None
        self._is_by_batch = isinstance(bolt, BasicBolt) and hook_of(bolt) == BY_BATCH
        self._batch: Sequence[Tuple] = ()
        self._batches = BatchCalls(
            cast(BasicBolt, bolt), self._outlet, CallsFromThreads(self._outlet.owner, None)
        )
        self._on_tick = type(bolt).on_tick not in (Bolt.on_tick, BasicBolt.on_tick)

    @property
    def pending(self) -> list[Tuple]:
        """The given tuples that are neither acked nor failed."""
        return [tup for tup in self._given if tup not in self._settled]

    def execute(self, tup: Tuple) -> BoltRun:
        """Execute the bolt with one more tuple; a bolt with `process_batch` with a batch of it."""
        if self._is_by_batch and not tup.is_tick:
            return self.execute_batch([tup])
        self._given.append(_checked(tup))
        self._current = tup
        on_tick = tup.is_tick and self._on_tick
        hook: Callable[[Tuple], None] = self.bolt.on_tick if on_tick else self.bolt.execute
        if isinstance(self.bolt, BasicBolt):
            if not on_tick and hook_of(self.bolt) != BY_TUPLE:
                hook = self._by_values(self.bolt, tup)
            self._execute_basic(tup, hook)
        else:
            try:
                hook(tup)
            except FailTuple as failure:
                if failure.report:
                    self.report_error(failure)
                self.fail(tup, failure.reason)
            if tup.is_tick and self._on_tick and tup not in self._settled:
                self.ack(tup)
        self._current = None
        return self

    def execute_all(self, tuples: Iterable[Tuple]) -> BoltRun:
        """Execute the bolt with more tuples: one by one, or those of one stream as a batch."""
        if not self._is_by_batch:
            for tup in tuples:
                self.execute(tup)
            return self
        for source, group in groupby(map(_checked, tuples), lambda tup: tup._topo_source):
            if source == tick_source():
                for tick in group:
                    self.execute(tick)
            else:
                self.execute_batch(list(group))
        return self

    def execute_batch(self, tuples: Sequence[Tuple]) -> BoltRun:
        """Give `process_batch` a batch of these tuples, which are of one stream."""
        assert isinstance(self.bolt, BasicBolt)
        first = tuples[0]
        self._given += tuples
        self._batch = tuples
        failed: dict[int, str] = {}
        try:
            self._batches.call(Inputs.of(tuples), first.fields, repr(first.source_component))
        except FailTuple as failure:
            if failure.report:
                self.report_error(failure)
            rows = failed_rows(self._outlet.owner, failure, len(tuples))
            failed = dict.fromkeys(rows, failure.reason)
        finally:
            self._batch = ()
        for place, tup in enumerate(tuples):
            if place in failed:
                self.fail(tup, failed[place])
            else:
                self.ack(tup)
        return self

    def batch(self, tuples: Iterable[Tuple], *, commit: bool = True) -> BoltRun:
        """Give the bolt a batch: its tuples, `pre_commit`, and `committed` if it commits."""
        self.batch_id += 1
        self.bolt.context.batch_id = self.batch_id
        self.execute_all(tuples)
        self.bolt.pre_commit(self.batch_id)
        return self.commit() if commit else self

    def commit(self) -> BoltRun:
        """Tell the bolt that its last batch is committed; again, if it was told before."""
        self.bolt.committed(self.batch_id)
        return self

    def _by_values(self, bolt: BasicBolt, tup: Tuple) -> Callable[[Tuple], None]:
        """Return what calls `process`, or `tick`, for a tuple."""
        if tup.is_tick:
            return lambda _: bolt.tick()
        if self._process is None:
            owner = f"bolt {type(bolt).__name__!r}"
            self._process = ProcessCalls(bolt, bolt.collector, owner)
        refusal = self._process.asked.refusal(tup.fields, f"{tup.source_component!r}")
        if refusal is not None:
            raise ComponentError(refusal[0], hint=refusal[1], code="unknown-field")
        return self._process

    def _execute_basic(self, tup: Tuple, hook: Any) -> None:
        try:
            hook(tup)
        except FailTuple as failure:
            if failure.report:
                self.report_error(failure)
            self.fail(tup, failure.reason)
        else:
            self.ack(tup)

    def emit(
        self,
        values: Any,
        *,
        stream: str = "default",
        anchors: Any = None,
        task_ids: bool = False,
    ) -> list[int] | None:
        self._batches.refuse_single()
        self.record(values, stream, self._anchors(anchors))
        return [] if task_ids else None

    def emit_batch(self, columns: Any, *, stream: str = "default", parents: Any = None) -> int:
        """Record the rows of columns, with their anchors."""
        rows, links = self._batches.rows_of(columns, stream, parents)
        for number, values in enumerate(rows):
            anchors = self._anchors(None)
            if self._is_by_batch:
                anchors = [] if links is None else [self._batch[links[number]]]
            self.record(values, stream, anchors)
        return len(rows)

    def emit_values(self, *values: Any, stream: str = "default") -> None:
        self.emit(list(values), stream=stream)

    def emit_direct(
        self, task: int, values: Any, *, stream: str = "default", anchors: Any = None
    ) -> None:
        self.record(values, stream, self._anchors(anchors), task)

    def _anchors(self, anchors: Any) -> list[Tuple]:
        if isinstance(self.bolt, BasicBolt):
            return [self._current] if self._current is not None else []
        if anchors is None:
            return []
        listed = [anchors] if isinstance(anchors, Tuple) else list(each_anchor(anchors))
        for anchor in listed:
            if not isinstance(anchor, Tuple):
                raise no_anchor(anchor)
            self._check_open(anchor, "anchored to")
        return listed

    def ack(self, tup: Tuple) -> None:
        self._settle(tup, "acked")
        self.acked.append(tup)

    def fail(self, tup: Tuple, reason: str | None = None) -> None:
        self._settle(tup, "failed")
        self.failed.append(tup)

    def reset_timeout(self, tup: Tuple) -> None:
        self.reset.append(tup)

    def _settle(self, tup: Tuple, what: str) -> None:
        if not isinstance(tup, Tuple):
            raise AnchorError(f"only an input tuple can be {what}; got {tup!r}")
        self._check_open(tup, what)
        self._settled.add(tup)

    def _check_open(self, tup: Tuple, what: str) -> None:
        if tup in self._settled:
            raise TupleSettledError(f"{tup!r} cannot be {what}: it is acked or failed already")


class SpoutRun(_Recorder):
    """The record of a spout's emits, with calls to ack and fail them."""

    hears_splits = False
    """No bolt in event time reads the spout."""

    def __init__(self, spout: Spout) -> None:
        super().__init__(spout)
        self.spout = spout
        self._pending = 0

    def pending_count(self) -> int:
        return self._pending

    def emit(
        self,
        values: Any,
        *,
        stream: str = "default",
        msg_id: Any = None,
        task_ids: bool = False,
    ) -> list[int] | None:
        self.record(values, stream, msg_id=msg_id)
        self._pending += msg_id is not None
        return [] if task_ids else None

    def emit_direct(
        self, task: int, values: Any, *, stream: str = "default", msg_id: Any = None
    ) -> None:
        self.record(values, stream, task=task, msg_id=msg_id)
        self._pending += msg_id is not None

    def emit_many(
        self, rows: Any, *, stream: str = "default", msg_ids: Iterable[Any] | None = None
    ) -> int:
        listed = rows_of(rows, self._outlet, stream)
        ids = [None] * len(listed) if msg_ids is None else list(msg_ids)
        for values, msg_id in zip(listed, ids, strict=True):
            self.emit(values, stream=stream, msg_id=msg_id)
        return len(listed)

    def emit_batch(
        self, columns: Any, *, stream: str = "default", msg_ids: Iterable[Any] | None = None
    ) -> int:
        """Record the rows of columns."""
        outlet, types = self._outlet, declared_types(self.spout, stream)
        fields = outlet.fields_of(stream)
        arrays = columns_for(outlet.owner, stream, fields, columns, types)
        return self.emit_many(
            dict(zip(fields, arrays, strict=True)), stream=stream, msg_ids=msg_ids
        )

    def from_split(self, split: str) -> None:
        """Take no note of the part of the source that the next emits are of."""

    def read_splits(self, splits: Mapping[str, bool]) -> None:
        """Take no note of the parts that the source has."""

    def commit(self, batch_id: int = 0) -> SpoutRun:
        """Tell the spout that a batch is at its end, and committed."""
        self.spout.context.batch_id = batch_id
        self.spout.pre_commit(batch_id)
        self.spout.committed(batch_id)
        return self

    def next(self, n: int = 1) -> SpoutRun:
        """Call next_tuple n more times."""
        for _ in range(n):
            self.spout.next_tuple()
        return self

    def ack(self, msg_id: Any) -> SpoutRun:
        self._pending -= 1
        self.spout.ack(msg_id)
        return self

    def fail(self, msg_id: Any, reason: str = "") -> SpoutRun:
        from topo.runtime.spout_task import takes_reason

        self._pending -= 1
        if takes_reason(self.spout):
            self.spout.fail(msg_id, reason)
        else:
            self.spout.fail(msg_id)
        return self


def run_bolt(
    bolt: Bolt | BasicBolt | type[Bolt | BasicBolt],
    tuples: Iterable[Tuple] = (),
    conf: Mapping[str, Any] | None = None,
    *,
    batches: Iterable[Iterable[Tuple]] | None = None,
) -> BoltRun:
    """Prepare the bolt and give it these tuples; what it raises is raised from here.

    With `batches`, lists of tuples, each is a micro-batch: `pre_commit` and `committed` are called
    at its end.
    """
    instance = bolt() if isinstance(bolt, type) else bolt
    if not isinstance(instance, Bolt | BasicBolt):
        raise TypeError(f"run_bolt takes a bolt; got {bolt!r}")
    if isinstance(instance, TimedBolt):
        raise TypeError(
            f"{type(instance).__name__} gets windows or keys, not tuples; "
            "test it in a topology: TestCluster, or complete_topology"
        )
    check_component(instance)
    run = BoltRun(instance)
    given = list(map(_checked, tuples))
    in_batches = [list(map(_checked, batch)) for batch in batches or ()]
    context = _context(instance, [*given, *chain(*in_batches)], conf)
    basic = isinstance(instance, BasicBolt)
    collector: Any = BasicOutputCollector(run) if basic else OutputCollector(run)
    instance.collector = collector
    instance.context = context
    instance.prepare(context.conf, context, collector)
    if isinstance(instance, StatefulBolt | StatefulBasicBolt):
        instance.state = KeyValueState()
        instance.init_state(instance.state)
    instance.restored()
    run.execute_all(given)
    for batch in in_batches:
        run.batch(batch)
    return run


def run_spout(
    spout: Spout | type[Spout], calls: int = 1, conf: Mapping[str, Any] | None = None
) -> SpoutRun:
    """Open the spout and call its next_tuple so many times."""
    instance = spout() if isinstance(spout, type) else spout
    if not isinstance(instance, Spout):
        raise TypeError(f"run_spout takes a spout; got {spout!r}")
    check_component(instance)
    run = SpoutRun(instance)
    context = _context(instance, [], conf)
    collector = SpoutOutputCollector(run)
    instance.collector = collector
    instance.context = context
    instance.open(context.conf, context, collector)
    if isinstance(instance, StatefulSpout):
        instance.state = KeyValueState()
        instance.init_state(instance.state)
    instance.restored()
    instance.activate()
    return run.next(calls)


def _checked(tup: Tuple) -> Tuple:
    if not isinstance(tup, Tuple):
        raise TypeError(f"a bolt executes tuples; got {tup!r}; see make_tuple")
    return tup


def _context(
    component: Component, tuples: Sequence[Tuple], conf: Mapping[str, Any] | None
) -> TopologyContext:
    """Make the context of a topology in which the component reads the sources of its tuples."""
    kind = "spout" if isinstance(component, Spout) else "bolt"
    sources: dict[str, dict[str, StreamDef]] = {}
    for tup in tuples:
        if not tup.is_tick:
            stream = StreamDef(tup.source_stream, tuple(tup.fields))
            sources.setdefault(tup.source_component, {})[tup.source_stream] = stream
    reads = tuple(
        InputDef(name, stream, GroupingDef("shuffle"))
        for name, streams in sources.items()
        for stream in streams
    )
    name = kind + "_under_test"
    declared = tuple(declared_streams(Draft(name, kind, component, 1, "")).values())
    definitions = [ComponentDef(name, kind, name, 1, declared, reads, {}, b"")]
    for source, streams in sources.items():
        definitions.append(
            ComponentDef(source, "spout", source, 1, tuple(streams.values()), (), {}, b"")
        )
    topology = Topology(definitions)
    settings = {**full_conf(Config(conf or {})), **(component.get_component_configuration() or {})}
    layout = TaskLayout(topology, settings)
    task = layout.tasks_of(name)[0]
    return TopologyContext(
        topology,
        layout,
        task,
        ConfigView(settings),
        "test",
        lambda: 0.0,
        checkpoint_id=lambda: "test-checkpoint",
    )
