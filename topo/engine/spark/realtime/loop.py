"""A slot's loop in real-time mode: one thread, whatever is ready, the deepest level first.

A turn reads what can be read, works on it level by level from the last one up, asks the spouts, and
writes. Each level works on everything that has come since its last turn, so batches grow with load,
and there is no time to tune. The deepest level goes first because what it does makes room.

Nothing here waits to write. A level whose output is not taken reads no more input, spouts are then
not asked, and Spark in between holds up whoever sends. The last level sends nothing and always
reads, so whatever waits can go on in the end.
"""

from __future__ import annotations

import math
import os
import selectors
import time
import traceback
from dataclasses import replace

from topo.config.secrets import masked
from topo.engine.spark.realtime.level import MOST_WAITING_BYTES, Level
from topo.engine.spark.realtime.messages import (
    COORDINATOR,
    Kind,
    SlotSetup,
    Start,
    pack_staged,
    pack_updated,
    unpack_cut,
    unpack_start,
    unpack_verdicts,
)
from topo.engine.spark.realtime.stream import Listener, Stream, connect
from topo.engine.spark.worker.slot_process import portable
from topo.errors import EngineError, TopoError
from topo.logs.requests import LogRequests
from topo.tracking.ids import Updates
from topo.tracking.plan import Mode
from topo.wire.column import dump

_FIRST_PAUSE_SECS = 0.0005
_LONGEST_PAUSE_SECS = 0.005
_PAUSE_GROWTH = 1.3
_FINISHED_PAUSE_SECS = 0.02  # of spouts that say that nothing more will come
_POLL_SECS = 0.002
_POLL_TUPLES = 1024
_FIRST_ALLOWANCE = 20_000
_LEAST_ALLOWANCE = 100
_SLOW_EPOCH_SECS = 1.0


class Disconnected(EngineError):
    """Spark has closed a slot's pipe: one of its tasks ended."""

    code = "slot-lost"


class SlotLoop:
    """The tasks of one slot, at every level, between Spark's pipes and the coordinator."""

    def __init__(self, setup: SlotSetup) -> None:
        self._setup = setup
        self._plan = setup.plan
        self._selector = selectors.DefaultSelector()
        path = os.path.join(setup.sockets, f"slot-{setup.slot}")
        self._listener = Listener(path, setup.token, self._selector, self._accepted)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, self)
        self._log_requests = LogRequests(masked)
        self._pipes: dict[int, Stream] = {}
        self._levels: list[Level] = []
        self._incarnation = ""
        self._mode = Mode.INACTIVE
        self._is_going = False
        self._is_ready = False
        self._has_told_news = False
        self._has_verdicts = False
        self._woken_for = math.inf
        self._said: object = None
        self._pause = _FIRST_PAUSE_SECS
        self._poll_at = 0.0
        self._emitted = 0  # since the last cut
        self._allowance = min(_FIRST_ALLOWANCE, setup.spec.conf["topology.batch.max.tuples"])
        self._cut_at = math.inf
        where = os.path.join(setup.sockets, COORDINATOR)
        self._coordinator = connect(where, setup.token, setup.slot, self._selector)
        self._coordinator.on_event = self._hear

    def run(self) -> None:
        """Run until the coordinator is gone; an error ends it, once the coordinator knows."""
        try:
            while self._coordinator.is_open:
                self._turn()
        except Exception as error:
            told = error if isinstance(error, TopoError) else _in_words(error)
            self._coordinator.send(Kind.FAILED, portable(told))
            while self._coordinator.waiting and self._coordinator.is_open:
                self._coordinator.flush()
                self._selector.select(0.1)

    # -- connections --------------------------------------------------------------------------

    def _accepted(self, stream: Stream, level: int) -> None:
        if level in self._pipes or level >= len(self._plan.levels):
            raise Disconnected(f"level {level} of slot {self._setup.slot} was started twice")
        self._pipes[level] = stream
        stream.on_event = lambda: self._receive(level, stream)
        self._connect_levels()

    def _receive(self, level: int, stream: Stream) -> None:
        for _, message in stream.receive():  # nobody sends before all slots are ready
            self._levels[level].receive(message)
        if not stream.is_open:
            raise Disconnected(f"Spark closed level {level} of slot {self._setup.slot}")

    def _connect_levels(self) -> None:
        if not self._levels or len(self._pipes) < len(self._levels) or self._is_ready:
            return
        for level, pipe in self._pipes.items():
            self._levels[level].stream = pipe
        self._is_ready = True
        spouts = self._levels[0].host.spouts if self._levels[0].host else []
        self._coordinator.send(Kind.READY, dump({spout.id: spout.cursor for spout in spouts}))

    # -- the coordinator's word ---------------------------------------------------------------

    def _hear(self) -> None:
        for kind, data in self._coordinator.receive():
            match kind:
                case Kind.START:
                    self._start(unpack_start(data))
                case Kind.GO:
                    self._is_going = True
                    self._levels[0].set_mode(self._mode)
                case Kind.CUT:
                    self._cut(*unpack_cut(data))
                case Kind.COMMITTED:
                    self._adapt()
                    for level in self._levels:
                        level.tell_committed()
                    self._told(data)
                case Kind.TOLD:
                    self._told(data)

    def _start(self, start: Start) -> None:
        spec, slot = self._setup.spec, self._setup.slot
        environment = spec.environment(slot)
        environment.wake = self._wake
        environment.checkpoint_id = start.incarnation
        self._incarnation, self._mode = start.incarnation, start.mode
        self._levels = [
            Level(self._setup, number, environment, start)
            for number in range(len(self._plan.levels))
        ]
        self._connect_levels()

    def _meet_log_requests(self) -> None:
        hosts = [level.host for level in self._levels if level.host is not None]
        self._log_requests.meet(task for host in hosts for task in host.tasks.values())

    def _cut(self, epoch: int, mode: Mode, clock: float) -> None:
        level = self._levels[0]
        if mode != self._mode:
            self._mode = mode
            level.set_mode(mode)
        assert level.epoch == epoch, "the coordinator and the slots count alike"
        self._has_told_news = False
        self._pause = _FIRST_PAUSE_SECS
        self._emitted, self._cut_at = 0, time.monotonic()
        self._stage(level, mode, clock)
        self._meet_log_requests()

    def _adapt(self) -> None:
        """Let spouts emit less in an epoch where epochs take long, and more where they do not."""
        took = time.monotonic() - self._cut_at
        most = self._setup.spec.conf["topology.batch.max.tuples"]
        if took > _SLOW_EPOCH_SECS:
            self._allowance = max(_LEAST_ALLOWANCE, self._allowance // 2)
        elif took < _SLOW_EPOCH_SECS / 4:
            self._allowance = min(most, self._allowance + self._allowance // 8 + 1)

    def _told(self, data: bytes) -> None:
        """Tell the spouts what became of messages."""
        if data:
            self._levels[0].deliver(self._incarnation, unpack_verdicts(data))
            self._has_verdicts = True
            self._note_news()

    def _wake(self) -> None:
        """Ask the spouts at once; any thread may call this."""
        os.eventfd_write(self._wake_fd, 1)

    def event(self, mask: int) -> None:
        """Take note that a spout has something."""
        os.eventfd_read(self._wake_fd)
        self._pause, self._poll_at = _FIRST_PAUSE_SECS, 0.0
        for level in self._levels:
            if self._is_going and level.host is not None and level.host.is_called:
                level.tick()
                self._note_news()

    def _note_news(self) -> None:
        if not self._has_told_news:
            self._has_told_news = True
            self._coordinator.send(Kind.NEWS)

    def _stage(self, level: Level, mode: Mode, clock: float) -> None:
        epoch = level.epoch
        staged = level.finish(mode, clock)
        if self._setup.acks_at_once:
            self._say(staged.updates)
            staged = replace(staged, puts={}, deletes=(), updates=Updates())
        self._coordinator.send(Kind.STAGED, pack_staged(epoch, level.number, staged))

    # -- a turn -------------------------------------------------------------------------------

    def _turn(self) -> None:
        for key, mask in self._selector.select(self._timeout()):
            key.data.event(mask)
        if self._has_verdicts:  # all that came in this turn, at once
            self._has_verdicts = False
            self._levels[0].tick()
            self._poll_at = 0.0
        if self._is_going:
            self._work()
            self._poll()
            self._say_updates()
        for level in self._levels:
            if level.stream is not None:
                level.stream.flush()
                self._hold_back(level)
        self._coordinator.flush()

    def _work(self) -> None:
        for level in reversed(self._levels[1:]):
            alignment = level.alignment
            assert alignment is not None
            if level.work(time.time()):
                self._note_news()
            while alignment.is_complete:
                marker = alignment.marker
                self._stage(level, Mode(marker.mode), marker.clock)
                alignment.advance()
                if level.work(time.time()):
                    self._note_news()

    def _poll(self) -> None:
        level, now = self._levels[0], time.monotonic()
        if level.tick_at <= time.time():
            level.tick()
            self._note_news()
        wakes_at = self._wakes_at
        if wakes_at <= time.time():  # the end of an epoch does what is due, once
            self._woken_for = wakes_at
            self._note_news()
        if not self._asks_spouts or now < self._poll_at:
            return
        left = self._allowance - self._emitted
        if left <= 0:
            self._poll_at = now + _LONGEST_PAUSE_SECS
            return
        emitted = level.poll(time.time(), min(left, _POLL_TUPLES), now + _POLL_SECS)
        self._emitted += emitted
        said, self._said = self._said, level.spouts_say
        if emitted or said != self._said:
            self._note_news()
        if emitted:
            self._pause, self._poll_at = _FIRST_PAUSE_SECS, now
            return
        self._pause = min(self._pause * _PAUSE_GROWTH, _LONGEST_PAUSE_SECS)
        pause = _FINISHED_PAUSE_SECS if level.is_exhausted else self._pause
        self._poll_at = time.monotonic() + pause

    @property
    def _wakes_at(self) -> float:
        """The time of the next work in event time that no epoch has been cut for."""
        due = min(level.wakes_at for level in self._levels)
        return math.inf if due == self._woken_for else due

    @property
    def _asks_spouts(self) -> bool:
        level = self._levels[0]
        return self._mode == Mode.ACTIVE and level.has_tasks and not level.is_full

    def _timeout(self) -> float | None:
        if not self._is_going:
            return None
        now, due = time.monotonic(), math.inf
        if self._asks_spouts:
            due = self._poll_at - now
        tick_at = min(level.tick_at for level in self._levels)
        due = min(due, min(tick_at, self._wakes_at) - time.time())
        return None if due == math.inf else max(0.0, due)

    def _hold_back(self, level: Level) -> None:
        assert level.stream is not None
        if level.number and level.stream.is_open:
            level.stream.read(level.stream.waiting <= MOST_WAITING_BYTES)

    def _say_updates(self) -> None:
        if self._setup.acks_at_once:
            for level in self._levels:
                self._say(level.take_updates())

    def _say(self, updates: Updates) -> None:
        data = pack_updated(updates)
        if data:
            self._coordinator.send(Kind.UPDATES, data)


def _in_words(error: Exception) -> EngineError:
    return EngineError(
        f"a slot failed: {type(error).__name__}: {error}",
        code="slot-failed",
        hint=f"internal error; please report this:\n{''.join(traceback.format_exception(error))}",
    )
