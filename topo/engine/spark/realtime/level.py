"""One level of a slot in real-time mode: its tasks, the alignment of its input, its output.

What it sends goes to the next level, in messages of one target slot each: directly, if that is the
next level of this slot in this process, and else by way of Spark. A message for a deeper level
passes through the slot of the same number on every level between, where it is counted, held and
sent on like all others; so a marker ends an epoch for whatever goes before it, however far.

If a bolt's inputs are of several levels, tuples of the deepest ones could come before what their
producers' producers sent it directly: two slots' ways through Spark take no turns. So the tuples
from below its first input wait for the end of the epoch, when everything before them is here.

It works in portions, and not at all while its output waits to be written: what it has in memory is
bounded by that, by what one tuple becomes, and by what the spouts may emit in two epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from topo.engine.spark.plan import Plan
from topo.engine.spark.realtime.align import Alignment, Marker, Misaligned
from topo.engine.spark.realtime.epochs import Key, Staged
from topo.engine.spark.realtime.messages import SlotSetup, Start
from topo.engine.spark.realtime.output import DATA, END, HEAD, LENGTH, MARKER, Item, Output
from topo.engine.spark.realtime.portions import Portion, Queue, shares_of_turn
from topo.engine.spark.realtime.rescaling import last_tick_key
from topo.engine.spark.realtime.rounds import SavedRound
from topo.engine.spark.worker.report import Capture, Report
from topo.logs.capture import collected_lines
from topo.metrics.counters import TaskMetrics
from topo.runtime.input_times import Marks
from topo.runtime.level import SlotLevel
from topo.runtime.slot import Batch, SlotTasks
from topo.runtime.task import TaskEnvironment
from topo.tracking.clock import monotonic
from topo.tracking.ids import Updates
from topo.tracking.plan import Mode
from topo.wire.frame import AnyFrame, PackedFrame

_WORK_SECS = 0.02
_POLL_TUPLES = 1024  # in a turn, a share


class Level:
    """One level of one slot. Level 0 has no input: `poll` and `deliver` feed it.

    User code opens tasks within `preparing`, which may take any time.
    """

    def __init__(
        self,
        setup: SlotSetup,
        number: int,
        environment: TaskEnvironment,
        start: Start,
        preparing: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        plan: Plan = setup.plan
        self.number = number
        self.output = Output(plan, number, setup.slot)
        self._level: SlotLevel | None = None
        self.saved_round: SavedRound | None = None
        """What its tasks have sent over loops, once they are open."""
        self.epoch = start.epoch + 1
        self.alignment: Alignment[Item] | None = None
        if number:
            name = f"level {number} of slot {setup.slot}"
            self.alignment = Alignment(name, plan.slots, self.epoch)
        self._preparing = preparing
        self._plan = plan
        self._slot = setup.slot
        self._sends_updates = setup.acks_at_once
        self._reports = setup.spec.reports
        self._tasks = plan.tasks_at(number, setup.slot)
        components = environment.topology.components.values()
        self._is_timed = any(component.timed for component in components)
        self._capture = Capture(setup.spec.capture, setup.spec.conclusions)
        captures = setup.spec.capture or setup.spec.conclusions
        self._environment = replace(environment, listener=self._capture if captures else None)
        self._saved = {task: dict(start.saved.get(task, {})) for task in self._tasks}
        self._now = start.clock or start.now
        self._mode = start.mode
        self._last_tick_key = last_tick_key(number, setup.slot)
        self._had_last_tick = self._last_tick_key[1] in start.saved.get(0, {})
        self._more_came = False
        self.has_ticks = self.is_woken = False  # if any of its tasks ticks, or has timers
        self._may_have_updates = False
        self._queue = Queue()
        self._waiting: list[AnyFrame] = []  # for the end of the epoch
        self._waits_for_end = {} if setup.acks_at_once else _longer_ways(plan, environment, number)
        self._near_tasks: frozenset[int] = frozenset()
        self._polls = Portion(_POLL_TUPLES * shares_of_turn(setup.epoch_ms))
        self._tuples = 0
        self._told: tuple[Any, ...] = ()
        self._told_levels: dict[int, tuple[float, ...]] = {}  # of figures, by task
        if start.mode == Mode.ACTIVE or any(self._saved.values()):
            self._open()

    def _open(self) -> SlotTasks:
        """Bring the tasks to life; those of a topology that was never active wait until it is."""
        if self._level is None:
            host = SlotTasks(self._environment, self._tasks)
            with self._preparing():
                host.open(self._saved)
            host.keep_decoded_for(self._near_tasks)
            if host.roundabout:
                self.saved_round = SavedRound(host.roundabout)
            host.begin(Batch(self.epoch, self._now, self._now))
            self.has_ticks = host.next_tick() < math.inf
            self.is_woken = bool(host.timed)
            self._level = SlotLevel(
                host,
                self._saved,
                had_last_tick=self._had_last_tick,
                is_durable=not self._sends_updates,  # of updates sent at once nothing waits for it
            )
            self._saved = {}
        return self._level.host

    @property
    def host(self) -> SlotTasks | None:
        """Its tasks, once they are open."""
        return self._level.host if self._level is not None else None

    @property
    def _closed(self) -> bool:
        return self._level is not None and self._level.is_closed

    def connect(self, near: Level | None, tasks: frozenset[int]) -> None:
        """Hand what is for this slot to its next level, which is in this process.

        `tasks` are those of this slot that are reached without leaving the process.
        """
        self.output.lead_to(near)
        self._near_tasks = tasks
        if self.host is not None:
            self.host.keep_decoded_for(tasks)

    @property
    def tasks(self) -> list[int]:
        """The tasks of the slot on this level."""
        return self._tasks

    # -- the work of a turn -------------------------------------------------------------------

    def receive(self, message: bytes) -> None:
        """Take in a message from the level before."""
        assert self.alignment is not None
        view = memoryview(message)
        kind, source, level = HEAD.unpack_from(view)
        if kind == DATA:
            self.take_in(source, (level, list(_frames_in(view[HEAD.size :]))))
        elif kind == MARKER:
            marks = bytes(view[HEAD.size + END.size :])
            epoch, sent, mode, clock = END.unpack_from(view, HEAD.size)
            self.take_in(source, Marker(epoch, sent, mode, clock, marks))
        else:
            raise Misaligned(f"a message of kind {kind} on level {self.number}")

    def take_in(self, source: int, item: Item | Marker) -> None:
        """Take in what a slot of the level before has sent."""
        assert self.alignment is not None
        self.alignment.receive(source, item)

    @property
    def backlog(self) -> float:
        """About how many bytes wait to be worked on."""
        return self._queue.nbytes

    def work(self, now: float) -> bool:
        """Work on what has come, and on ticks that are due; return True if there was either.

        It stops when the output has to go first, and now and then to let others have a turn.
        """
        assert self.alignment is not None
        items = self.alignment.take()
        for item in items:
            if item[0] != self.number:
                self.output.pass_on(item)
                continue
            for frame in item[1]:
                if frame.source_task in self._waits_for_end.get(frame.target_task, ()):
                    self._waiting.append(frame)
                else:
                    self._queue.add(frame)
        if self.alignment.is_complete and self._waiting:
            self._waiting.sort(key=lambda frame: self._plan.place_of(frame.source_task)[0])
            for frame in self._waiting:
                self._queue.add(frame)
            self._waiting = []
        until = 0.0
        while self._queue and not self.output.is_full:
            self._more_came = True
            before = self.output.moved
            self._run(now, self._queue.take())
            self._queue.learn(self.output.moved - before)
            if self._queue:
                self.output.send(at_once=True)
                self.output.flush()
                until = until or monotonic() + _WORK_SECS
                if monotonic() > until:
                    break
        ticks = self.tick_at <= now
        if ticks:
            self._run(now)
        self.output.send()
        return ticks or bool(items)

    @property
    def has_work(self) -> bool:
        """True if something of what has come is still to be worked on."""
        if self._queue or self.alignment is None:
            return bool(self._queue)
        return self.alignment.has_ready or (self.alignment.is_complete and bool(self._waiting))

    @property
    def has_ended(self) -> bool:
        """True if the epoch has come to its end here: `finish` may be called."""
        return self.alignment is not None and self.alignment.is_complete and not self.has_work

    def poll(self, now: float, most: int, until: float) -> int:
        """Ask the spouts, and run what is fused with them; return how much was emitted."""
        host = self._open()
        ticks = self.tick_at <= now
        host.turn(now)
        self._now = now
        emitted = host.poll(min(most, self._polls.allowed), until=until)
        self._tuples += emitted
        if emitted:
            self._more_came = True
        if emitted or ticks:
            self._may_have_updates = True
            before = self.output.moved
            self._collect(host.work(pre_commit=False))
            if emitted:
                self._polls.learn(emitted, self.output.moved - before)
            self.output.send()
        return emitted

    def deliver(self, incarnation: str, verdicts: Any) -> None:
        """Tell the spouts what became of their messages."""
        host = self._open()
        if self._closed:
            return
        self._may_have_updates = True
        for task, own in verdicts.items():
            host.deliver(task, incarnation, own)

    @property
    def tick_at(self) -> float:
        """The time of the next tick; infinity if none is due."""
        if not self.has_ticks:  # which is asked several times a turn
            return math.inf
        if self.host is None or self._closed or self._mode in (Mode.LAST_TICK, Mode.CLOSE):
            return math.inf
        return self.host.next_tick()

    @property
    def wakes_at(self) -> float:
        """The time at which a bolt in event time has something to do; infinity if none has."""
        if not self.is_woken:
            return math.inf
        if self.host is None or self._closed or self._mode != Mode.ACTIVE:
            return math.inf
        return min((at for at in self.host.wakes_at() if at is not None), default=math.inf)

    def tick(self) -> None:
        """Run the ticks that are due."""
        self._run(self._environment.now())
        self.output.send()

    @property
    def has_tasks(self) -> bool:
        """True if the slot has tasks on this level."""
        return bool(self._tasks)

    @property
    def is_exhausted(self) -> bool:
        """True if the spouts say that nothing more will come, and nothing of them is pending."""
        host = self.host
        return host is not None and bool(host.spouts) and host.is_done

    @property
    def spouts_say(self) -> object:
        """The state of the spouts that the driver hears of even if nothing is emitted."""
        return (self.is_exhausted, self.host.stalls if self.host else ())

    def tell_committed(self, epoch: int) -> None:
        """Tell the components that this epoch is committed; a later one may be staged already."""
        if self.host is not None and not self._closed:
            self.host.tell_committed(epoch)

    def take_updates(self) -> list[Updates]:
        """Return what the acker is to hear at once, before the epoch ends."""
        if self.host is None or not self._may_have_updates:
            return []
        self._may_have_updates = False
        return self.host.take_update_parts()

    def _run(self, now: float, frames: Iterable[AnyFrame] = ()) -> None:
        host = self._open()
        if self._closed:
            return
        self._may_have_updates = True
        host.turn(now)
        self._now = now
        self._collect(host.work(frames, pre_commit=False))

    def _collect(self, frames: Iterable[AnyFrame]) -> None:
        for frame in frames:
            self.output.add(frame)

    # -- the end of an epoch ------------------------------------------------------------------

    def set_mode(self, mode: Mode) -> None:
        """Let spouts go on or stop; of level 0."""
        if mode == Mode.ACTIVE:
            self._open()
        if self.host is not None and not self._closed:
            self._may_have_updates = True
            self.host.set_active(mode == Mode.ACTIVE)
        self._mode = mode

    def finish(self, mode: Mode, clock: float) -> Staged:
        """End the epoch: run what comes last in it, save, pass the marker on."""
        self._mode = mode
        if mode == Mode.ACTIVE:
            self._open()
        puts: dict[Key, bytes] = {}
        deletes: list[Key] = []
        updates, cursors = Updates(), {}
        report = Report({}, self._tuples, mode=mode)
        self._tuples = 0
        marks = Marks()
        for packed in self.alignment.marks if self.alignment is not None else ():
            marks.add(Marks.unpack(packed))
        level = self._level
        if level is not None and not level.is_closed:
            host = level.host
            now = max(clock, self._now)
            host.turn(now, ticking=mode not in (Mode.LAST_TICK, Mode.CLOSE))
            self._now = now
            more_came, self._more_came = self._more_came, False
            self._collect(level.work((), mode, more_came=more_came, marks=[marks]))
            marks = host.marks
            end = level.finish(mode)
            if end.last_tick:
                puts[self._last_tick_key] = b"\1"
            elif end.last_tick is False:
                deletes.append(self._last_tick_key)
            for task, changes in end.changes.items():
                puts |= {(task, name): blob for name, blob in changes.puts.items()}
                deletes += [(task, name) for name in changes.deletes]
            if self.saved_round is not None:
                self.saved_round.note_saved()
            updates = end.updates
            cursors = {spout.id: spout.cursor for spout in host.spouts}
            report.metrics = self._untold(end.metrics)
        if level is not None:
            report.note_spouts(level.host)
        self._capture.move_to(report)
        report.lines = collected_lines()
        self.output.end(self.epoch, mode, clock, marks.pack() if self._is_timed else b"")
        self.epoch += 1
        if level is not None and not level.is_closed:
            level.host.begin(Batch(self.epoch, self._now, self._now))
        moved = self.output.take_moved()
        return Staged(puts, deletes, updates, cursors, self._packed(report), moved)

    # -- reports ------------------------------------------------------------------------------

    def _packed(self, report: Report) -> bytes:
        """Return what the driver is told of the epoch; nothing if nothing happened in it."""
        state = (report.mode, report.exhausted, report.at_limit, report.stalls)
        rest = report.rows or report.concluded or report.lines
        if not (report.metrics or rest or state != self._told):
            return b""
        self._told = state
        return report.pack(self._reports)

    def _untold(self, metrics: Mapping[int, TaskMetrics]) -> dict[int, TaskMetrics]:
        """Return what the tasks counted without those of which the driver knows all.

        A task that did nothing may have other levels: another has executed what it had on a loop.
        What the driver knows of a task from before this start is not known here.
        """
        figures = {}
        for task, counted in metrics.items():
            levels = counted.levels()
            if counted.has_counts or levels != self._told_levels.get(task):
                figures[task] = counted
                self._told_levels[task] = levels
        return figures


def link(levels: Mapping[int, Level]) -> None:
    """Connect the levels of a slot that are in this process and follow one another."""
    for number, level in levels.items():
        near: set[int] = set()
        deeper = number + 1
        while deeper in levels:
            near.update(levels[deeper].tasks)
            deeper += 1
        level.connect(levels.get(number + 1), frozenset(near))


def _longer_ways(plan: Plan, environment: TaskEnvironment, level: int) -> dict[int, frozenset[int]]:
    """Return, for each task of a level, the tasks that it reads from below its first input."""
    tasks: dict[int, frozenset[int]] = {}
    for placed in plan.levels[level]:
        reads = environment.topology.component(placed.id).forward  # a loop comes from above
        sources = [plan.component(read.component) for read in reads]
        first = min((source.level for source in sources), default=0)
        if late := frozenset(t for s in sources if s.level > first for t in s.tasks):
            tasks |= dict.fromkeys(placed.tasks, late)
    return tasks


def _frames_in(data: memoryview) -> Iterator[PackedFrame]:
    at = 0
    while at < len(data):
        (size,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size
        yield PackedFrame.of(data[at : at + size])
        at += size
