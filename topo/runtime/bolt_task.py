"""Bolt tasks: run a bolt over frames of tuples.

Per tuple there is one tuple object and one call of the user's `execute`; emits, acks and anchors
are processed a few thousand at a time. `rich_bolt_task` and `basic_bolt_task` have the two kinds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat, starmap
from typing import Any, TypeAlias

import numpy as np

from topo.columns import ByColumns, LoopText
from topo.components import BasicBolt, Bolt
from topo.errors import FailTuple, Unavailable, sentence_of, text_of
from topo.functions import FunctionBolt
from topo.runtime import user_errors as failures
from topo.runtime.column_loops import ColumnLoops
from topo.runtime.input_seconds import InputSeconds
from topo.runtime.loops import Loop, Values, loop_over_tuples, loop_over_values, values_of
from topo.runtime.replaced_calls import replaces
from topo.runtime.task import Task, TaskEnvironment
from topo.runtime.text_change import Reading
from topo.runtime.users_loops import UsersLoops
from topo.tracing.spans import TaskTracer, Tracer
from topo.tracking.trees import BoltTrees
from topo.tuples import UNTRACKED, Source, Tuple, tick_source, tuple_class
from topo.ways import BY_BATCH, BY_TUPLE, has_tick, hook_of
from topo.wire.column import UnreadableValues
from topo.wire.frame import AnyFrame, Frame, PackedFrame, Section

_TUPLES_A_RUN = 4096
_ROWS_A_FLUSH = 2048
_SMALLEST_SEGMENT = 16


SectionLoop: TypeAlias = tuple[Values, Loop]


class BoltTask(Task):
    """The base of rich and basic bolt tasks."""

    component: Bolt | BasicBolt
    _trees: BoltTrees
    basic = False
    rewrites = True
    """Whether an `execute` of the user's is rewritten to work on columns, where it can be."""

    def __init__(self, setting: TaskEnvironment, task: int, tracer: Tracer | None = None) -> None:
        super().__init__(setting, task, tracer)
        self._tick_secs: float | None = self.conf["topology.tick.tuple.freq.secs"]
        base = BasicBolt if self.basic else Bolt
        self._has_on_tick = type(self.component).on_tick is not base.on_tick
        self.hook = hook_of(self.component) if self.basic else BY_TUPLE
        self._replaces_execute = replaces(self.component, "execute")
        self._classes: dict[tuple[int, str], type[Tuple]] = {}
        self.inputs_timed = InputSeconds(setting.layout)
        self._left: Callable[[], int] = int  # of the section being executed, how many inputs
        self._end = 0  # where it ends
        self._growth = 1.0  # tuples emitted for one that came in, lately
        self._unsettled = 0.0
        self._starts: list[int] | None = None
        """When each tuple of the frame in work was executed, if it is traced."""
        self._users: UsersLoops | None = None
        self._loops: dict[tuple[str, str], ColumnLoops] = {}
        """The loops over columns, for the streams of components whose tuples they are for."""
        self._own_loops: ColumnLoops | None = None
        """The loops of a bolt that is written as the text of its work, and has no `execute`."""
        self._columns: ColumnLoops | None = None
        """The loops over the columns of the inputs being executed; None if they are tuples."""
        self._takes_columns = False
        self._section: tuple[Any, Section] | None = None
        """The class of the inputs being executed by columns, and those columns."""

    # -- life ---------------------------------------------------------------------------------

    def start(self, collector: Any, port: object, saved: Mapping[str, bytes]) -> None:
        self.introduce(collector, port)
        with self.users_code():
            self.component.prepare(self.context.conf, self.context, collector)
        self.restore(saved)

    def close(self) -> None:
        with self.users_code():
            self.component.cleanup()

    def core(self) -> dict[str, Any]:
        return {"groupers": self.groupers_core()}

    # -- tuples -------------------------------------------------------------------------------

    def execute(self, frames: Iterable[AnyFrame]) -> None:
        """Run the bolt over these frames, in order."""
        self.worked = True
        if self.outlet.is_waiting:  # what `prepare` emitted comes of no input
            self.settle()
        self.inputs_timed.begin()
        run: list[Frame] = []
        size = 0
        for packed in frames:
            try:
                frame = packed.unpack()
                if self.hook != BY_BATCH:
                    frame = frame.listed()
            except UnreadableValues as unreadable:
                assert isinstance(packed, PackedFrame), "others have their values"
                self._fail_unread(packed, unreadable.error)
                continue
            run.append(frame)
            size += len(frame)
            if size >= _TUPLES_A_RUN:
                self._run(run, size)
                run, size = [], 0
        if run:
            self._run(run, size)
        self.inputs_timed.end(self.metrics)

    def _fail_unread(self, packed: PackedFrame, error: BaseException) -> None:
        """Stop for values that cannot be unpickled, or fail all tuples that came with them."""
        source = self.setting.layout.component_of(packed.source_task)
        reason = self.stop_or_fail(error, f"in values of {source!r}, which cannot be unpickled")
        unread = packed.without_values()
        for section in unread.sections:
            if section.trees is not None:
                self.updates.fail(section.trees.roots.tolist(), self.fail_reason(reason))
        self.inputs_timed.note_unread(unread)
        self.metrics.executed += len(unread)
        self.metrics.settled += len(unread)
        self.metrics.failed += len(unread)

    def _run(self, frames: Sequence[Frame], size: int) -> None:
        if self.tracer is None:
            self.run(frames)
        else:
            self._run_traced(self.tracer, frames)
        self.metrics.executed += size
        self.metrics.settled += size

    def _run_traced(self, tracer: TaskTracer, frames: Sequence[Frame]) -> None:
        """Run the bolt frame by frame, and note when each tuple of a traced one was executed."""
        for frame in frames:
            if not any(tracer.has_sampled(section.trees) for section in frame.sections):
                self.run([frame])
                continue
            starts: list[int] = []
            self._starts = starts
            self.run([frame])
            self._starts = None
            end = tracer.now()
            for number, section in enumerate(frame.sections):
                if section.trees is not None:
                    own = starts
                    if frame.order is not None:
                        own = [starts[i] for i in np.flatnonzero(frame.order == number).tolist()]
                    tracer.executed(section.stream, section.trees, own, end)

    def _note_starts(self, count: int) -> None:
        """Note that so many tuples are executed from now on, if the frame in work is traced."""
        if self._starts is not None and self.tracer is not None:
            self._starts += [self.tracer.now()] * count

    def _timed(self, items: Iterator[Any]) -> Iterator[Any]:
        """Return the items of a loop, each noted as it is taken if the frame in work is traced."""
        if self._starts is None or self.tracer is None:
            return items
        return _noted(items, self._starts.append, self.tracer.now)

    def executing(self) -> Callable[[Tuple], Any]:
        """Return the `execute` to call: that of now, or what asks for it each time."""
        if self._replaces_execute:
            return lambda tup: self.component.execute(tup)
        return self.component.execute

    def run(self, frames: Sequence[Frame]) -> None:
        raise NotImplementedError

    def run_segments(self, frames: Sequence[Frame], text: LoopText) -> None:
        """Do the work on each tuple, and settle every few thousand emits.

        Segments are that short so that their emits are still in the cache when they are dealt.
        """
        first = 0
        self.inputs_timed.restart()
        for frame in frames:
            for stream, items, loop, count in self._runs_of(frame, text, first):
                left = count
                while left > 0:
                    size = min(left, max(_SMALLEST_SEGMENT, int(_ROWS_A_FLUSH / self._growth)))
                    emitted = self.outlet.emitted_in_all
                    self.run_loop(loop, islice(items, size))
                    self._growth = max(1.0, (self.outlet.emitted_in_all - emitted) / size)
                    self._unsettled += size * self._growth
                    if self._unsettled >= _ROWS_A_FLUSH / 2:
                        self.settle()
                        self._unsettled = 0.0
                    left -= size
                if stream is not None:
                    self.inputs_timed.lap(frame.source_task, stream, count)
            if frame.order is not None:
                self.inputs_timed.lap_mixed(frame)
            first += len(frame)
        self.settle()
        self._unsettled = 0.0
        self._columns = self._section = None  # its values are kept by whoever keeps them, or gone

    def run_loop(self, loop: Loop, items: Iterator[Any]) -> None:
        """Run the loop to the end of the items, and handle every error on the way."""
        columns = self._columns
        execute = self.executing() if columns is None else None
        items = self._timed(items)
        while (stopped := loop(items, execute, *self.loop_calls())) is not None:
            tup, error = stopped
            if columns is not None:
                self.outlet.even_columns()
                columns.explain(error)
                if tup is None and self._section is not None:
                    tup = self.input_in_work()
            self.fail_input(tup, self.reason_to_fail(error, tup))

    def loop_calls(self) -> tuple[Any, ...]:
        """Return what a loop is given beside its items and `execute`; see `loops`."""
        raise NotImplementedError

    def fail_input(self, tup: Tuple | None, reason: str | None) -> None:
        """Fail the input being executed, which is this tuple unless it could not be made."""
        raise NotImplementedError

    def input_in_work(self) -> Tuple:
        """Return the input being executed, of which a loop over columns has only the values."""
        assert self._section is not None
        cls, section = self._section
        link = self.position()
        place = link - (self._end - section.count)
        values = [column[place] for column in section.columns]
        return self._tuple(cls, values, UNTRACKED if self._trees.inputs is None else link)

    def _tuple(self, cls: type[Tuple], values: Iterable[Any], link: int = UNTRACKED) -> Tuple:
        """Make a tuple: those of basic bolts have no link."""
        make: Callable[..., Tuple] = cls
        return make(*values) if self.basic else make(*values, link)

    def _runs_of(
        self, frame: Frame, text: LoopText, first: int
    ) -> Iterator[tuple[str | None, Iterator[Any], Loop, int]]:
        """Yield the values of a frame, run by run, with their stream; None: they are mixed."""
        if frame.order is not None:
            loop = self._loop_over_tuples(text)
            yield None, self._in_order(frame, first), loop, len(frame)
            return
        for section in frame.sections:
            cls: Any = self._class_of(frame.source_task, section.stream)
            links = self._links(section, first)
            first += section.count
            if not section.columns and links is None:
                loop = self._loop_over_tuples(text)
                yield section.stream, _empty(cls, section.count), loop, section.count
            else:
                values, loop = self.section_loop(section, cls, text, links)
                self._left, self._end = values.left, first
                yield section.stream, values.items, loop, section.count

    def _loop_over_tuples(self, text: LoopText) -> Loop:
        if self._own_loops is None:
            return loop_over_tuples(text, self.marks_emits)
        self._columns, self._section = self._own_loops, None
        return self._own_loops.loop_over_tuples(self.marks_emits)

    def section_loop(
        self, section: Section, cls: Any, text: LoopText, links: Iterable[int] | None
    ) -> SectionLoop:
        """Return the values of a section's tuples, and the loop over them."""
        source: Source = cls._topo_source
        if self._users is not None and not self._users.are_of_what_runs:
            self._users, self._loops = None, {}
        columns = self._loops.get((source.component, source.stream))
        if self._takes_columns and columns is not None:
            self._columns, self._section = columns, (cls, section)
            return columns.values(section, links), columns.loop(cls, self.marks_emits)
        self._columns = self._section = None
        values = values_of(section, links)
        assert values is not None, "there is a column, or links"
        return values, loop_over_values(cls, text, links is not None, self.marks_emits)

    @property
    def marks_emits(self) -> bool:
        """True iff a loop has to note how many emits there are by each input's end."""
        return False

    def readings(self) -> Iterator[Reading]:
        """Yield the inputs of this bolt."""
        for read in self.definition.inputs:
            declared = self.setting.topology.component(read.component).output(read.stream)
            if declared is not None:
                yield Reading(read.component, read.stream, declared.fields)

    def users_loops(self, *calls: str) -> UsersLoops | None:
        """Return the loops that the bolt could be rewritten for, if its calls are topo's own."""
        if not self.rewrites or isinstance(self.component, ByColumns) or self.hook == BY_BATCH:
            return None
        tracking = self.setting.tracking
        return UsersLoops(
            self.component, self.outlet, self.readings(), calls, hook=self.hook, tracking=tracking
        )

    def position(self) -> int:
        """Return the place of the input being executed, if inputs are executed in natural order."""
        return self._end - self._left() - 1

    def _in_order(self, frame: Frame, first: int) -> Iterator[Tuple]:
        """Yield the tuples of several streams in the order in which they were emitted."""
        assert frame.order is not None
        made: list[Iterator[Tuple]] = []
        for section in frame.sections:
            cls: Callable[..., Tuple] = self._class_of(frame.source_task, section.stream)
            links = self._links(section, first)
            values = values_of(section, links)
            if values is None:
                made.append(_empty(cls, section.count))
            elif len(section.columns) + (links is not None) == 1:
                made.append(map(cls, values.items))
            else:
                made.append(starmap(cls, values.items))
            first += section.count
        return self.inputs_timed.one_by_one(made, frame.order.tolist())

    def _links(self, section: Section, first: int) -> Iterable[int] | None:
        """Return the links of a section's tuples; those of basic bolts have none."""
        if self.basic:
            return None
        if self._trees.inputs is None:
            return repeat(UNTRACKED, section.count)
        return range(first, first + section.count)

    def tick_due(self, now: float, before: float) -> bool:
        period = self._tick_secs
        if period is None or not self.hears_ticks:
            return False
        return _ticks_by(now, period) > _ticks_by(before, period)

    def next_tick(self, after: float) -> float | None:
        """Return when the next tick is due, or None."""
        if self._tick_secs is None or not self.last_tick_due():
            return None
        number = _ticks_by(after, self._tick_secs) + 1
        due = number * self._tick_secs
        while _ticks_by(due, self._tick_secs) < number:  # rounded down
            due = math.nextafter(due, math.inf)
        return due

    def last_tick_due(self) -> bool:
        return self._tick_secs is not None and self.hears_ticks

    @property
    def hears_ticks(self) -> bool:
        """True iff the bolt has a hook that a tick can be given to."""
        if isinstance(self.component, FunctionBolt):
            return False
        if self.hook == BY_TUPLE or self._has_on_tick:
            return True
        return isinstance(self.component, BasicBolt) and has_tick(self.component)

    def tick(self) -> None:
        """Give the bolt a tick; its error fails no tuple."""
        self.worked = True
        tup = self._tuple(tuple_class(tick_source(), self.basic), [self._tick_secs])
        try:
            self.execute_tick(tup)
        except BaseException as error:
            self.reason_to_fail(error, tup)
        self.settle()

    def execute_tick(self, tup: Tuple) -> None:
        """Give the bolt a tick: `on_tick` gets it, or `execute`; or `tick` is called instead."""
        if self._has_on_tick:
            self.component.on_tick(tup)
        elif self.hook == BY_TUPLE or not isinstance(self.component, BasicBolt):
            self.component.execute(tup)
        else:
            self.component.tick()

    def _class_of(self, source_task: int, stream: str) -> type[Tuple]:
        key = (source_task, stream)
        found = self._classes.get(key)
        if found is None:
            component = self.setting.layout.component_of(source_task)
            declared = self.setting.topology.component(component).output(stream)
            assert declared is not None, "a frame's stream is one that its source declares"
            source = Source(component, stream, source_task, declared.fields)
            found = self._classes[key] = tuple_class(source, self.basic)
        return found

    def stop_or_fail(self, error: BaseException, tup: Tuple | str | None) -> str:
        """Raise the uncaught error, or report it and return the reason to fail the tuple with."""
        caught = self.uncaught(error, tup)
        if self._stops_on_error or isinstance(error, Unavailable):
            raise caught from error
        self.metrics.errors.append(failures.report(error, self.component_id, self.id, "uncaught"))
        return f"{type(error).__name__}: {sentence_of(error)}"

    def reason_to_fail(self, error: BaseException, tup: Tuple | str | None) -> str | None:
        """Return the reason to fail the tuple with, or raise the error that stops the topology."""
        if not isinstance(error, FailTuple):
            return self.stop_or_fail(error, tup)
        if error.report:
            self.report_error(error)
        return failures.failure_reason(error)

    def fail_reason(self, reason: str | None) -> str:
        text = f"failed by {self.component_id!r} task {self.id}"
        is_said = reason is not None and not (isinstance(reason, str) and not reason)
        return f"{text}: {text_of(reason)}" if is_said else text


def is_plain(frames: Sequence[Frame]) -> bool:
    """True iff the inputs of these frames are executed in the order of their values."""
    return all(
        frame.order is None and all(section.columns for section in frame.sections)
        for frame in frames
    )


def sections_of(frames: Sequence[Frame]) -> list[Section]:
    return [section for frame in frames for section in frame.sections]


def _noted(
    items: Iterator[Any], note: Callable[[int], None], now: Callable[[], int]
) -> Iterator[Any]:
    for item in items:
        note(now())
        yield item


def _empty(cls: Callable[..., Tuple], count: int) -> Iterator[Tuple]:
    """Return tuples without fields."""
    return (cls() for _ in range(count))


def _ticks_by(time: float, period: float) -> int:
    return math.floor(time / period)
