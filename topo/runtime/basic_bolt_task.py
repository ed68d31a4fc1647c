"""Tasks of basic bolts: emits are anchored to the input, which is acked when `execute` returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from topo.collectors import BasicOutputCollector
from topo.columns import ByColumns
from topo.components import BasicBolt
from topo.errors import EmitError, FailTuple
from topo.functions import FunctionBolt
from topo.runtime.basic_port import BasicBoltPort
from topo.runtime.batch_calls import BatchCalls, batches_of, failed_rows
from topo.runtime.batch_calls import Inputs as BatchInputs
from topo.runtime.bolt_task import BoltTask, is_plain, sections_of
from topo.runtime.column_loops import ColumnLoops
from topo.runtime.loops import COLLECT, EXECUTE, Loop
from topo.runtime.process_calls import ProcessCalls, ProcessWork
from topo.runtime.task import TaskEnvironment
from topo.runtime.users_loops import CALLS_OF_BASIC
from topo.tracing.spans import Tracer
from topo.tracking.trees import BasicBoltTrees, Inputs
from topo.tuples import Tuple
from topo.ways import BY_BATCH, BY_TUPLE, BY_VALUES
from topo.wire.frame import I64, Frame


class BasicBoltTask(BoltTask):
    component: BasicBolt
    _trees: BasicBoltTrees
    basic = True
    orders_all_emits = True
    loops_over_columns: type[ColumnLoops] | None = ColumnLoops
    """The maker of loops for bolts that work on columns; without it `execute` gets each tuple."""

    def __init__(self, setting: TaskEnvironment, task: int, tracer: Tracer | None = None) -> None:
        super().__init__(setting, task, tracer)
        self._failed: dict[int, str] = {}
        self._marking = True
        self._is_read = any(stream.subscriptions for stream in self.outlet.streams.values())
        self._yields = (
            isinstance(self.component, FunctionBolt)
            and inspect.isgeneratorfunction(self.component.function)
            and not self.component.takes_collector
            and self.hook == BY_TUPLE
            and len(self.outlet.streams) == 1
            and not setting.strict
            and self._stops_on_error  # or a wrong row would have to fail its own input
        )
        self._port = BasicBoltPort(
            self.outlet,
            self._this_input,
            self.report_error,
            self.threads,
            by_columns=not (self._yields or isinstance(self.component, ByColumns)),
        )
        self._process: ProcessCalls | None = None
        self._batches: BatchCalls | None = None
        if self.hook == BY_BATCH:
            self._batches = BatchCalls(self.component, self.outlet, self.threads)
            self._port.emit_by_batch(self._batches)
        self._out = list(self.outlet.streams.values())

    def make_trees(self) -> BasicBoltTrees:
        return BasicBoltTrees(self.tracer)

    def open(self, saved: Mapping[str, bytes]) -> None:
        port = self._port
        users = self.users_loops(*CALLS_OF_BASIC)
        if users is not None and users.emit_columns:
            self._yields = False
            if not port.writes_columns:
                port.emit_beside_columns()
        collector = BasicOutputCollector(port)
        self.bind(
            emit=port.emit,
            emit_values=port.emit_values,
            emit_batch=port.emit_batch,
            emit_direct=port.emit_direct,
            reset_timeout=port.reset_timeout,
        )
        self.load_core(saved)
        self.start(collector, port, saved)
        if self.loops_over_columns is not None and isinstance(self.component, ByColumns):
            loops = self.loops_over_columns(self.component, self.outlet)
            self._own_loops = loops
            self._loops = {(r.component, r.stream): loops for r in self.readings()}
            return
        if users is not None:
            calls = {"emit": port.emit, "emit_values": port.emit_values, "collector": collector}
            self._loops = users.loops(calls)
            self._users = users if self._loops else None
        if self.hook == BY_VALUES:
            self._loop_over_values(collector)

    def _loop_over_values(self, collector: BasicOutputCollector) -> None:
        calls = self._process = ProcessCalls(self.component, collector, self.owner)
        plainly = calls.emit == self._port.emit and self._port.writes_columns
        columns = self._out[0].appends() if plainly else []
        if self.loops_over_columns is None or self._loops:
            return
        for reading in self.readings():
            work = ProcessWork(calls, reading.fields, columns)
            key = (reading.component, reading.stream)
            self._loops[key] = self.loops_over_columns(work, self.outlet)

    def _this_input(self) -> int | None:
        return None if self._trees.inputs is None else self._current()

    def _current(self) -> int:
        """Return the link of the input that is being executed."""
        trees = self._trees
        if self._marking:
            return trees.link_of(trees.first + len(trees.marks))
        return self.position()

    def run(self, frames: Sequence[Frame]) -> None:
        inputs = Inputs.of(sections_of(frames)) if self.setting.tracking else None
        batches = self._batches
        if batches is not None and batches.are_scattered(frames):
            batches, frames = None, [frame.listed() for frame in frames]
        self._trees.run(inputs, None if batches else _links_as_executed(frames))
        count = sum(map(len, frames))
        if batches is not None:
            self._run_batches(batches, frames)
        else:
            self._run_each(inputs, frames)
        self.metrics.acked += count - len(self._failed)
        self.metrics.failed += len(self._failed)
        if inputs is not None:
            self._tell(inputs, count)
        self._failed.clear()
        self._trees.run(None)

    def _run_batches(self, calls: BatchCalls, frames: Sequence[Frame]) -> None:
        """Give the bolt the inputs of these frames batch by batch, and note which of them fail."""
        first = 0
        self.inputs_timed.restart()
        for frame in frames:
            source = self.setting.layout.component_of(frame.source_task)
            for inputs in batches_of(frame, first):
                self._note_starts(inputs.count)
                try:
                    calls.call(inputs, self._fields_of(source, inputs.section.stream), repr(source))
                except BaseException as error:
                    self._fail_batch(inputs, error, source)
                self.settle()
                self.inputs_timed.lap(frame.source_task, inputs.section.stream, inputs.count)
            first += len(frame)

    def _fail_batch(self, inputs: BatchInputs, error: BaseException, source: str) -> None:
        what = f"a batch of {inputs.count} tuples of {source!r}"
        rows = list(range(inputs.count))
        if isinstance(error, FailTuple):
            try:
                rows = failed_rows(self.owner, error, inputs.count)
            except EmitError as wrong:
                error = wrong
        reason = self.fail_reason(self.reason_to_fail(error, what))
        self._failed.update((inputs.first + row, reason) for row in rows)

    def _fields_of(self, component: str, stream: str) -> tuple[str, ...]:
        declared = self.setting.topology.component(component).output(stream)
        assert declared is not None, "a frame's stream is one that its source declares"
        return declared.fields

    def _run_each(self, inputs: Inputs | None, frames: Sequence[Frame]) -> None:
        # The input of an emit matters only if the emit is read; the input being executed follows
        # from the number of values that are left, if the values come one after the other.
        plain = is_plain(frames)
        self._marking = (inputs is not None and self._is_read) or not plain
        self._takes_columns = self._own_loops is not None or (plain and self._starts is None)
        self.run_segments(frames, COLLECT if self._yields else EXECUTE)

    @property
    def marks_emits(self) -> bool:
        return self._marking

    @property
    def _emits(self) -> list[Any]:
        """The list that grows by one with every emit; of columns, it is a new one after a flush."""
        if len(self._out) != 1:
            return self.outlet.order
        (out,) = self._out
        by_columns = self._columns is not None or out.is_by_columns
        return out.columns[0] if out.columns and by_columns else out.rows

    def executing(self) -> Callable[[Tuple], Any]:
        if self._process is not None:
            return self._process
        if self._yields and isinstance(self.component, FunctionBolt):
            return self.component.function
        return super().executing()

    def run_loop(self, loop: Loop, items: Iterator[Any]) -> None:
        super().run_loop(loop, items)
        if self._yields and self._columns is None:
            self._check_rows(self._emits)

    def loop_calls(self) -> tuple[Any, ...]:
        emits = self._emits
        return self._trees.marks.append, emits, emits.extend, None

    def fail_input(self, tup: Tuple | None, reason: str | None) -> None:
        self._failed[self._current()] = self.fail_reason(reason)
        if self._marking:
            self._trees.marks.append(len(self._emits))

    def _check_rows(self, rows: list[Any]) -> None:
        """Check rows that a generator function yielded, which went into the stream unchecked."""
        (stream,) = self.outlet.streams.values()
        if set(map(type, rows)) <= {list, tuple} and _all_have(rows, stream.width):
            return
        for values in rows:
            try:
                self.outlet.checked(values, stream.name, direct=False)
            except EmitError as error:
                raise self.uncaught(error, None) from None

    def _tell(self, inputs: Inputs, count: int) -> None:
        links = np.arange(count)
        if self._failed:
            links = np.delete(links, list(self._failed))
        self.updates.ack(*inputs.acks(links))
        for link, reason in self._failed.items():
            self.updates.fail(inputs.roots[inputs.span(link)].tolist(), reason)
        for link in self._port.reset:
            self.updates.reset(inputs.roots[inputs.span(link)].tolist())
        self._port.reset.clear()

    def settle(self) -> None:
        self.outlet.flush()


def _links_as_executed(frames: Sequence[Frame]) -> I64 | None:
    """Return the links in the order in which inputs are executed; None for the natural order.

    Links run over the sections of a frame one after the other, which the frame's order mixes.
    """
    if all(frame.order is None for frame in frames):
        return None
    links = []
    first = 0
    for frame in frames:
        own = np.arange(first, first + len(frame))
        if frame.order is not None:
            executed = np.empty_like(own)
            executed[np.argsort(frame.order, kind="stable")] = own
            own = executed
        links.append(own)
        first += len(frame)
    return np.concatenate(links)


def _all_have(rows: list[Any], width: int) -> bool:
    # Unpacking is twice as fast as collecting the lengths, for the commonest width there is.
    if width != 1:
        return set(map(len, rows)) <= {width}
    try:
        for (_,) in rows:
            pass
    except ValueError:
        return False
    return True
