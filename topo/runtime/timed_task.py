"""Tasks of bolts that work in event time, by the contract of `topo.timed`.

The operator gets the columns of each frame with the times read out of them; no tuple object is made
unless it asks for one. When all frames of the batch are in, the marks of all producers make the
new watermark, and the operator advances to it, in every task, with tuples or without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, repeat
from typing import Any

import numpy as np

from topo.errors import TimestampError
from topo.event_time import AFTER_ALL, BEFORE_ALL, TimeReader
from topo.runtime.bolt_task import sections_of
from topo.runtime.input_times import Input, InputTimes, Marks, spouts_behind
from topo.runtime.pending_times import held_by
from topo.runtime.rich_bolt_task import RichBoltTask
from topo.runtime.task import TaskEnvironment
from topo.runtime.time_reading import time_reader
from topo.storage.saving import Changes
from topo.timed import Clock, Operator, Rows, TimedBolt
from topo.tracing.spans import Tracer
from topo.tracking.ids import EdgeIds
from topo.tracking.trees import NO_ANCHOR, Inputs
from topo.tuples import HELD, UNTRACKED, Source, Tuple
from topo.wire.frame import Frame, Section

_STALLED_SECS = 60.0
"""How long the watermark may stand, while tuples come, before that is said."""
_HELD_SECS = 5.0
"""After so long without a step of the watermark, the figures name what holds it back."""
_MOST_HOLDERS = 3


class TimedBoltTask(RichBoltTask):
    component: TimedBolt
    rewrites = False  # its operator gets the columns
    emits_columns = False  # and emits rows

    def __init__(self, setting: TaskEnvironment, task: int, tracer: Tracer | None = None) -> None:
        super().__init__(setting, task, tracer)
        self.component.configure(self.conf)
        self._time = self.component.timing()
        self._saved_times: Any = None
        self._times = self._input_times()
        self._readers: dict[tuple[str, str], TimeReader | None] = {}
        self._operator = Operator()
        self._by_hand = False
        self._first = 0  # link of the section's first tuple
        self._linked = False
        self._got_some = False
        self._fired = 0
        self._told = BEFORE_ALL
        self._holders: set[str] = set()
        layout = setting.layout
        self._spouts = spouts_behind(setting.topology, layout, self.component_id)
        self._inactive = False
        self._clock = 0.0  # of the operator

    # -- life ---------------------------------------------------------------------------------

    def load_core(self, saved: Mapping[str, bytes]) -> dict[str, Any]:
        core = super().load_core(saved)
        self._saved_times = core.get("times")
        return core

    def start(self, collector: Any, port: object, saved: Mapping[str, bytes]) -> None:
        super().start(collector, port, saved)
        if self._times is not None and self._saved_times is not None:
            self._times.restore(self._saved_times)
        self._by_hand = self.component.acks == "expiry"
        self._operator = self.component.operator(self)
        self._operator.load(saved, self.watermark)

    def core(self) -> dict[str, Any]:
        times = None if self._times is None else self._times.state()
        return {**super().core(), "times": times}

    def save(self) -> Changes:
        changes = super().save()
        self._operator.save(changes)
        return changes

    def _input_times(self) -> InputTimes | None:
        time = self._time
        if time is None:
            return None
        topology, layout = self.setting.topology, self.setting.layout
        inputs: dict[Input, frozenset[int]] = {}
        lags: dict[Input, int] = {}
        for birth in self.setting.births(self.definition):
            spouts = spouts_behind(topology, layout, birth.component)
            for task in layout.tasks_of(birth.component):
                born = Input(birth.component, birth.stream, task)
                inputs[born] = frozenset((task,)) if task in spouts else spouts
                lags[born] = time.lag_of(birth.read.component)
        every = self.component.watermark_every()
        spouts_held = held_by(topology, self.definition, time)
        holders = {task: spout for spout in spouts_held for task in layout.tasks_of(spout)}
        return InputTimes(time, inputs, self.component_id, lags, every, holders)

    @property
    def hears_ticks(self) -> bool:
        """True iff the bolt has an `on_tick`: its `execute` gets windows, and a tick is in none."""
        return self._has_on_tick

    # -- what operators ask for ---------------------------------------------------------------

    def now(self) -> float:
        return self.batch_now

    @property
    def follows_tuples(self) -> bool:
        if self._times is None or not self._times.is_single:
            return False
        births = self.setting.births(self.definition)
        return not any(self.setting.topology.component(b.component).timed for b in births)

    def emit(self, rows: list[list[Any]], stream: str = "default") -> None:
        out = self.outlet.streams.get(stream)
        if out is None or not rows:
            return
        if self.outlet.strict or self.outlet.keeps_order:
            for row in rows:
                self.outlet.added(out, row)
        out.rows.extend(rows)
        out.parents.extend([NO_ANCHOR] * len(rows))

    def emit_anchored(
        self, rows: Rows, places: Sequence[int], values: list[list[Any]], stream: str = "default"
    ) -> None:
        if not self._linked:
            self.emit(values, stream)
            return
        out = self.outlet.streams.get(stream)
        if out is None:
            return
        for row in values:
            self.outlet.added(out, row)
        out.rows.extend(values)
        out.parents.extend([self._first + place for place in places])

    def set_aside(self, rows: Rows, places: Iterable[int]) -> None:
        stream = self.component.late_stream
        out = self.outlet.streams.get(stream) if stream else None
        count = 0
        for count, place in enumerate(places, 1):  # noqa: B007 - the count is wanted
            if out is not None:
                row = [rows.tuple(place)]
                self.outlet.added(out, row)
                out.rows.append(row)
                out.parents.append(self._first + place if self._linked else NO_ANCHOR)
        self.metrics.late += count
        if count:
            self._tell_of_changed_times(rows.component, rows.stream)

    def _tell_of_changed_times(self, component: str, stream: str) -> None:
        """Warn of tuples that are late behind a bolt of the user's that passes a watermark on."""
        if self.setting.topology.component(component).times_in.get(stream) != "":
            return
        reads = (b for b in self.setting.births(self.definition) if b.read.component == component)
        passed = [birth.component for birth in reads if birth.component != component]
        if passed:
            self.warn_once(
                f"{self.owner}: tuples of {component!r} are late by the watermark of "
                f"{passed[0]!r}, which it passes on; if it changes times, or keeps tuples back, "
                "write passes_time = False in its class"
            )

    def note_expired(self, count: int) -> None:
        self.metrics.expired += count

    def acks(self, tuples: Iterable[Tuple]) -> None:
        self._port.ack_all(tuples)

    def fails(self, tuples: Iterable[Tuple], reason: str | None) -> None:
        for tup in tuples:
            if tup._topo_link >= UNTRACKED or tup._topo_link == HELD:
                self._port.fail(tup, reason)

    def changed_attributes(self) -> list[str]:
        return self.attributes.changed_names()

    def failed(self, error: BaseException) -> None:
        self.stop_or_fail(error, None)

    # -- a batch ------------------------------------------------------------------------------

    @property
    def watermark(self) -> int:
        return BEFORE_ALL if self._times is None else self._times.watermark

    def begin(self, batch_id: int, now: float, ids: EdgeIds) -> None:
        super().begin(batch_id, now, ids)
        self._got_some = False

    def begin_rows(self, marks: Marks) -> None:
        """Let the operator do what is due by the clock before the batch's tuples.

        While the topology is inactive, nothing is due: the operator's clock stands.
        """
        spouts = (marks.asked.get(spout, True) for spout in self._spouts)
        self._inactive = all(asked is None for asked in spouts)
        if self._inactive:
            return
        self._clock = self.batch_now
        with self.users_code():
            self._operator.begin(Clock(self.watermark, self.watermark, self.batch_now))
        self._settle_some()

    def run(self, frames: Sequence[Frame]) -> None:
        self._got_some = True
        inputs = Inputs.of(sections_of(frames)) if self.setting.tracking else None
        self._trees.inputs = inputs
        self._linked = inputs is not None
        count = 0
        self.inputs_timed.restart()
        for frame in frames:
            for section, links in _runs(frame, count):
                self._run_section(frame, section, links)
                self.inputs_timed.lap(frame.source_task, section.stream, section.count)
            count += len(frame)
        if self._by_hand:
            self.settle()
        else:
            self.outlet.flush()
            if inputs is not None:
                self.updates.ack(*inputs.acks(np.arange(count)))
            self.metrics.acked += count
        self._trees.inputs = None
        self._linked = False

    def _run_section(self, frame: Frame, section: Section, first: int) -> None:
        self._first = first
        cls: Callable[..., Tuple] = self._class_of(frame.source_task, section.stream)
        columns = section.columns
        linked, by_hand = self._linked, self._by_hand
        made: dict[int, Tuple] = {}

        def tuple_at(place: int) -> Tuple:
            tup = made.get(place)
            if tup is None:
                link = first + place if linked and by_hand else UNTRACKED
                tup = made[place] = cls(*[column[place] for column in columns], link)
            return tup

        def all_tuples() -> list[Tuple]:
            if made:
                return list(map(tuple_at, range(section.count)))
            count = section.count
            links: Iterable[int] = repeat(UNTRACKED, count)
            if linked and by_hand:
                links = range(first, first + count)
            tuples = list(map(cls, *columns, links))
            made.update(enumerate(tuples))
            return tuples

        component = self.setting.layout.component_of(frame.source_task)
        fields = tuple(getattr(cls, "fields"))  # noqa: B009 - set when the class is made
        times, span = self._times_of(component, section, fields)
        source = Source(component, section.stream, frame.source_task, fields)
        rows = Rows(
            component, section.stream, fields, columns, section.count, times, tuple_at, source,
            span, all_tuples,
        )  # fmt: skip
        with self.users_code():
            self._operator.rows(rows)
        if by_hand and linked:
            self._left_open.extend(tup for tup in made.values() if tup._topo_link >= 0)

    def _times_of(
        self, component: str, section: Section, fields: tuple[str, ...]
    ) -> tuple[list[Any] | None, tuple[int, int] | None]:
        """Return the times of the tuples; the lowest and the highest, where they are known."""
        if self._times is None or not section.count:
            return None, None
        key = (component, section.stream)
        if key not in self._readers:
            self._readers[key] = time_reader(
                self.setting, self.definition, self.component, component, section.stream
            )
        reader = self._readers[key]
        if reader is None:
            return None, None
        try:
            times = reader.times(section.columns, section.count)
        except TimestampError as error:
            raise self.uncaught(error, None) from error
        self._note_ahead(times)
        return times, reader.span

    def _note_ahead(self, times: list[Any]) -> None:
        time = self._time
        if time is None or time.max_ahead is None:
            return
        limit = time.clock_ticks(self.batch_now + time.max_ahead.total_seconds())
        ahead = sum(1 for ts in times if ts is not None and ts > limit)
        if ahead:
            self.metrics.ahead += ahead
            self.warn_once(
                f"{self.owner} gets tuples whose time is more than max_ahead beyond the clock: "
                "they do not move the watermark; is a source's clock wrong?"
            )

    def advance(self, marks: Marks, *, ended: bool) -> None:
        """Come to the new watermark, when all tuples of the batch are in."""
        before = self.watermark
        after = AFTER_ALL if ended else before
        if self._times is not None:
            after = self._times.fold(marks, self.batch_now, ended=ended)
        with self.users_code():
            self._fired = self._operator.advance(Clock(before, after, self._clock, ended))
        if self._fired:
            self.worked = True
        self._settle_some()
        self._show_time(after)

    def _settle_some(self) -> None:
        if self.outlet.is_waiting or self._by_hand:
            self.settle()

    def marks(self) -> Iterator[tuple[str, Input, int]]:
        """Yield the watermark for each bolt downstream in event time that hears of it."""
        # A bolt whose inputs are all idle is idle itself, once its last watermark is told.
        idle = self._times is None or self._times.all_idle
        if self.watermark == BEFORE_ALL or (idle and self.watermark == self._told):
            return
        self._told = self.watermark
        mark = self.watermark
        if mark < AFTER_ALL:
            mark -= self.component.result_delay()
        for consumer, birth in self.setting.births_at(self.component_id):
            yield consumer.id, Input(self.component_id, birth.stream, self.id), mark

    @property
    def shown_watermark(self) -> Any:
        """The watermark in the unit of the time field."""
        return None if self._time is None else self._time.shown(self.watermark)

    def moved(self) -> int:
        """Return how much happened in this batch without a tuple."""
        return self._fired

    def next_due(self) -> float | None:
        """Return when, by the clock, something is due."""
        if self._inactive:
            return None
        times = [self._operator.wakes_at()]
        if self._times is not None:
            times.append(self._times.next_due(self._operator.next_event()))
        return min((time for time in times if time is not None), default=None)

    # -- what is shown ------------------------------------------------------------------------

    def _show_time(self, watermark: int) -> None:
        figures, time = self.context.figures, self._time
        self.metrics.state_rows = self._operator.state_rows
        if time is None or self.context.this_task_index:
            return  # all tasks have the same watermark
        known = BEFORE_ALL < watermark < AFTER_ALL
        per_second = time.per_second
        figures.gauge("watermark_secs", watermark / per_second if known else None, {})
        lag = self.batch_now - watermark / per_second
        figures.gauge("watermark_lag_secs", lag if known else None, {})
        oldest = self._operator.oldest()
        is_time = oldest is not None and BEFORE_ALL < oldest < AFTER_ALL
        figures.gauge("oldest_window_secs", oldest / per_second if oldest is not None and is_time
                      else None, {})  # fmt: skip
        self._show_holders()
        self._warn_if_it_stands()

    def _show_holders(self) -> None:
        """Note which inputs have kept the watermark for a while, and since when it stands."""
        holders: dict[str, float] = {}
        times = self._times
        if times is not None and times.watermark < AFTER_ALL:
            since = times.stands_since()
            stood = 0.0 if since is None else self.batch_now - since
            if stood >= _HELD_SECS:
                holders = dict.fromkeys(times.held_back_by()[:_MOST_HOLDERS], stood)
        for holder in self._holders | holders.keys():
            self.context.figures.gauge("watermark_held_secs", holders.get(holder), {"by": holder})
        self._holders = set(holders)

    def _warn_if_it_stands(self) -> None:
        times = self._times
        if times is None or not self._got_some or times.watermark >= AFTER_ALL:
            return
        since = times.stands_since()
        if since is None or self.batch_now - since < _STALLED_SECS:
            return
        self.warn_once(
            f"{self.owner}: the watermark stands for over {_STALLED_SECS:.0f} s while tuples come; "
            f"{_reason(times.held_back_by())}"
        )


def _reason(held_back_by: list[str]) -> str:
    """Return why the watermark stands, and what can be done."""
    if not held_back_by:
        return (
            "all inputs count as idle, since none of these tuples has a time that moves it: look "
            "at the time field, and at EventTime(max_ahead=...)"
        )
    return (
        f"it is held back by {', '.join(held_back_by)}. No window ends until that input goes on; "
        "EventTime(idle=...) leaves out one that has nothing, untimed=[...] one without times"
    )


def _runs(frame: Frame, first: int) -> Iterator[tuple[Section, int]]:
    """Yield runs of consecutive tuples of one stream, each with its first link."""
    starts = []
    for section in frame.sections:
        starts.append(first)
        first += section.count
    if frame.order is None:
        yield from zip(frame.sections, starts, strict=True)
        return
    done = [0] * len(frame.sections)
    for number, run in groupby(frame.order.tolist()):
        size = sum(1 for _ in run)
        at = done[number]
        done[number] += size
        yield frame.sections[number].cut(at, at + size), starts[number] + at
