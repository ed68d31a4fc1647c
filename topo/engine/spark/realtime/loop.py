"""A slot's loop in real-time mode: one thread, whatever is ready, level by level.

A turn reads what can be read, asks the spouts, and works on all of it level by level, writing what
each one sends. What a level sends to its own slot goes to the next level directly, so it comes as
far as it can in the same turn, and together with what has come from other slots. Each level works
on everything that has come since its last turn, so batches grow with load, and there is no time to
tune.

Nothing here waits to write. A level whose output is not taken reads no more input, spouts are then
not asked, and Spark in between holds up whoever sends. The last level sends nothing and always
reads, so whatever waits can go on in the end. Spouts also emit no more in an epoch than epochs have
shown to be worked off in time and in memory: they begin with a few hundred tuples, and emit twice
as many as long as all is well.

On one machine the process has all levels of its slot. On a cluster it has those whose tasks Spark
has put into its executor, and learns of each when its task connects.
"""

from __future__ import annotations

import math
import selectors
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from topo.config.secrets import masked
from topo.engine.spark.process.slot import portable
from topo.engine.spark.realtime.level import Level, link
from topo.engine.spark.realtime.messages import (
    Kind,
    Place,
    SlotSetup,
    Start,
    pack_levels,
    pack_staged,
    pack_updated,
    unpack_committed,
    unpack_cut,
    unpack_setup,
    unpack_start,
    unpack_value,
    unpack_verdicts,
)
from topo.engine.spark.realtime.portions import shares_of_turn
from topo.engine.spark.realtime.records import Values, read_values
from topo.engine.spark.realtime.rounds import send_round
from topo.engine.spark.realtime.stream import Listener, MessageStream, connect
from topo.errors import EngineError, TopoError
from topo.logs.capture import collect_logs
from topo.logs.requests import LogRequests
from topo.runtime.roundabout import is_too_full
from topo.runtime.task import TaskEnvironment
from topo.systems import Bell
from topo.tracking.clock import FollowingClock, monotonic
from topo.tracking.ids import Updates
from topo.tracking.plan import Mode
from topo.wire.column import dump

if TYPE_CHECKING:
    from ssl import SSLContext

_FIRST_PAUSE_SECS = 0.0005
_USUAL_PAUSE_SECS = 0.005
_LONGEST_PAUSE_SECS = 0.01  # once nothing has come for a second or two
_PAUSE_GROWTH = 1.3
_LATE_GROWTH = 1.005
_COMPANY_SECS = 0.001
_FEW_TUPLES = 64
_FINISHED_PAUSE_SECS = 0.02  # of spouts that say that nothing more will come
_POLL_SECS = 0.002  # in a turn, a share
_FIRST_ALLOWANCE = 256
_FIRST_ALLOWANCE_AT_ONCE = 4096  # whose epochs are for reports, and longer
_LEAST_ALLOWANCE = 100
_SLOW_EPOCH_SECS = 1.0
_MOST_EPOCH_BYTES = 64 << 20


class Disconnected(EngineError):
    """Spark has closed a slot's pipe: one of its tasks ended."""

    code = "slot-lost"


class SlotLoop:
    """Tasks of one slot, between Spark's pipes and the coordinator."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._setup: SlotSetup
        self._environment: TaskEnvironment | None = None
        self._clock = FollowingClock()
        self._selector = selectors.DefaultSelector()
        self._listener = Listener(place.path, place.token, self._selector, self._accepted)
        self._bell = Bell()
        self._selector.register(self._bell, selectors.EVENT_READ, self)
        self._log_requests = LogRequests(masked)
        self._pipes: dict[int, MessageStream] = {}
        self._levels: dict[int, Level] = {}  # in their order
        self._values = Values()  # of saved state, as far as the coordinator sends it
        self._spouts: Level | None = None  # level 0, if it is here
        self._incarnation = ""
        self._mode = Mode.INACTIVE
        self._is_going = False
        self._has_told_news = False
        self._has_verdicts = False
        self._is_loop_full = False  # so spouts are not asked
        self._woken_for = math.inf
        self._said: object = None
        self._pause = _FIRST_PAUSE_SECS
        self._poll_at = 0.0
        self._poll_secs = _POLL_SECS
        self._emitted = 0  # since the last cut
        self._in_epoch = 0  # before it
        self._allowance = _FIRST_ALLOWANCE
        self._cut_at = math.inf
        tls = _context_in(place.token)
        self._coordinator = connect(place.coordinator, place.token, place.slot, self._selector, tls)
        self._coordinator.listen(self._hear)

    def run(self) -> None:
        """Run until the coordinator is gone; an error ends it, once the coordinator knows."""
        try:
            while self._coordinator.is_open:
                self._turn()
        except Exception as error:
            failure = error if isinstance(error, TopoError) else _in_words(error)
            self._coordinator.send(Kind.FAILED, portable(failure))
            while self._coordinator.waiting and self._coordinator.is_open:
                self._coordinator.flush()
                self._selector.select(0.1)

    # -- connections --------------------------------------------------------------------------

    def _accepted(self, stream: MessageStream, level: int) -> None:
        if level in self._pipes:
            raise Disconnected(f"level {level} of slot {self._place.slot} was started twice")
        self._pipes[level] = stream
        stream.listen(lambda: self._receive(level, stream))
        if self._environment is not None and not self._setup.levels:
            self._want([level])
        self._connect(level)

    def _receive(self, level: int, stream: MessageStream) -> None:
        for _, message in stream.receive():  # nobody sends before all slots are ready
            self._levels[level].receive(message)
        if not stream.is_open:
            raise Disconnected(f"Spark closed level {level} of slot {self._place.slot}")

    def _connect(self, number: int) -> None:
        level, pipe = self._levels.get(number), self._pipes.get(number)
        if level is None or pipe is None or level.output.stream is not None:
            return
        level.output.connect(pipe)
        spouts = level.host.spouts if level.host else []
        cursors = {spout.id: spout.cursor for spout in spouts}
        self._coordinator.send(Kind.READY, dump((number, cursors)))

    def _want(self, levels: Iterable[int]) -> None:
        self._coordinator.send(Kind.WANT, pack_levels(levels))

    # -- the coordinator's word ---------------------------------------------------------------

    def _hear(self) -> None:
        for kind, data in self._coordinator.receive():
            match kind:
                case Kind.SETUP:
                    self._set_up(unpack_setup(data))
                case Kind.VALUE:
                    self._values.add(*unpack_value(data))
                case Kind.START:
                    self._start(unpack_start(data))
                case Kind.GO:
                    self._is_going = True
                    link(self._levels)
                    if self._spouts is not None:
                        self._spouts.set_mode(self._mode)
                    self._send_round()
                case Kind.CUT:
                    self._cut(*unpack_cut(data))
                case Kind.COMMITTED:
                    epoch, moved, verdicts = unpack_committed(data)
                    self._adapt(moved)
                    for level in self._levels.values():
                        level.tell_committed(epoch)
                    self._send_round()
                    self._told(verdicts)
                case Kind.TOLD:
                    self._told(data)

    def _set_up(self, setup: SlotSetup) -> None:
        self._setup = setup
        if setup.spec.log_bytes:
            collect_logs(setup.spec.log_bytes)
        environment = setup.spec.environment(setup.slot, self._clock)
        self._environment = replace(environment, wake=self._wake)
        first = _FIRST_ALLOWANCE_AT_ONCE if setup.acks_at_once else _FIRST_ALLOWANCE
        self._allowance = min(first, self._most)
        self._poll_secs = _POLL_SECS * shares_of_turn(setup.epoch_ms)
        if levels := setup.levels or tuple(self._pipes):
            self._want(levels)

    @property
    def _most(self) -> int:
        most: int = self._setup.spec.conf["topology.batch.max.tuples"]
        return most

    def _start(self, start: Start) -> None:
        assert self._environment is not None
        environment = replace(self._environment, checkpoint_id=start.incarnation)
        self._clock.follow(start.now)
        self._incarnation, self._mode = start.incarnation, start.mode
        with self._preparing(*start.levels):
            if start.directory:
                saved = read_values(Path(start.directory), start.places)
            else:
                saved = self._values.take()
            start = replace(start, places={}, saved=saved)
            for number in start.levels:
                opening = partial(self._preparing, number)
                self._levels[number] = Level(self._setup, number, environment, start, opening)
        self._levels = dict(sorted(self._levels.items()))
        self._spouts = self._levels.get(0)
        for number in start.levels:
            self._connect(number)

    @contextmanager
    def _preparing(self, *levels: int) -> Iterator[None]:
        """Tell the coordinator that user code opens tasks here, which may take any time."""
        self._coordinator.send(Kind.PREPARING, pack_levels(levels))
        self._coordinator.flush()
        yield
        self._coordinator.send(Kind.PREPARED, pack_levels(levels))

    def _meet_log_requests(self) -> None:
        hosts = [level.host for level in self._levels.values() if level.host is not None]
        self._log_requests.meet(task for host in hosts for task in host.tasks.values())

    def _cut(self, epoch: int, mode: Mode, clock: float) -> None:
        level = self._spouts
        assert level is not None
        assert level.epoch == epoch, "the coordinator and the slots count alike"
        if mode != self._mode:
            self._mode = mode
            level.set_mode(mode)
        self._pause, self._poll_at = _FIRST_PAUSE_SECS, 0.0
        self._in_epoch, self._emitted, self._cut_at = self._emitted, 0, monotonic()
        self._stage(level, mode, clock)
        self._meet_log_requests()

    def _adapt(self, moved: int) -> None:
        """Let spouts emit less in an epoch if epochs grow large, and more if they do not."""
        took = monotonic() - self._cut_at
        if moved > _MOST_EPOCH_BYTES:
            fits = self._in_epoch * _MOST_EPOCH_BYTES // moved
            self._allowance = max(1, min(self._allowance, fits))
        elif took > _SLOW_EPOCH_SECS:
            self._allowance = min(self._allowance, max(_LEAST_ALLOWANCE, self._allowance // 2))
        elif 2 * self._in_epoch >= self._allowance and took < _SLOW_EPOCH_SECS / 4:
            grows = 2 if moved < _MOST_EPOCH_BYTES / 4 else 1.1
            self._allowance = min(self._most, int(self._allowance * grows) + 1)

    def _send_round(self) -> None:
        """Begin the next lap of what goes round; once all is closed, it waits in the log."""
        nbytes = send_round(self._levels) if self._mode != Mode.CLOSE else 0
        self._is_loop_full = is_too_full(nbytes, self._setup.spec.conf["topology.loop.max.mb"])
        if nbytes:
            self._note_news()

    def _told(self, data: bytes) -> None:
        """Tell the spouts what became of messages."""
        if data and self._spouts is not None:
            self._spouts.deliver(self._incarnation, unpack_verdicts(data))
            self._has_verdicts = True
            self._note_news()

    def _wake(self) -> None:
        """Ask the spouts at once; any thread may call this."""
        self._bell.ring()

    def event(self, mask: int) -> None:
        """Take note that a spout has something."""
        self._bell.silence()
        self._pause, self._poll_at = _FIRST_PAUSE_SECS, 0.0
        for level in self._levels.values():
            if self._is_going and level.host is not None and level.host.is_called:
                level.tick()
                self._note_news()

    def _note_news(self) -> None:
        if not self._has_told_news:
            self._has_told_news = True
            self._coordinator.send(Kind.NEWS)

    def _stage(self, level: Level, mode: Mode, clock: float) -> None:
        epoch = level.epoch
        self._clock.follow(clock)
        if level.number == min(self._levels):
            self._has_told_news = False  # what follows is of the next epoch, or told by others
        staged = level.finish(mode, clock)
        if self._setup.acks_at_once:
            self._say(staged.updates)
            staged = replace(staged, puts={}, deletes=(), updates=Updates())
        self._coordinator.send(Kind.STAGED, pack_staged(epoch, level.number, staged))

    # -- a turn -------------------------------------------------------------------------------

    def _turn(self) -> None:
        for key, mask in self._selector.select(self._timeout()):
            key.data.event(mask)
        if self._has_verdicts and self._spouts is not None:  # all that came in this turn, at once
            self._has_verdicts = False
            self._spouts.tick()
            self._poll_at = 0.0
        if self._is_going:
            if self._spouts is not None:
                self._poll(self._spouts)
            self._work()
            self._wake_for_time()
            self._say_updates()
        for level in self._levels.values():
            stream = level.output.stream
            if stream is not None and stream.is_open:
                stream.flush()
                if level.number:
                    stream.read(not level.output.is_full and not level.has_work)
        self._coordinator.flush()

    def _work(self) -> None:
        for level in self._levels.values():
            if level.alignment is None:
                level.output.send()
                level.output.flush()
                continue
            if level.work(self._clock()):
                self._note_news()
            while level.has_ended:
                marker = level.alignment.marker
                self._stage(level, Mode(marker.mode), marker.clock)
                level.alignment.advance()
                if level.work(self._clock()):
                    self._note_news()
            level.output.flush()

    def _poll(self, level: Level) -> None:
        now = monotonic()
        if level.tick_at <= self._clock():
            level.tick()
            self._note_news()
        if not self._asks_spouts or now < self._poll_at:
            return
        left = self._allowance - self._emitted
        if left <= 0:
            self._poll_at = now + _USUAL_PAUSE_SECS
            return
        until = now + self._poll_secs
        emitted = level.poll(self._clock(), left, until)
        self._emitted += emitted
        before, self._said = self._said, level.spouts_say
        if emitted or before != self._said:
            self._note_news()
        if emitted:
            # A spout that was asked until it had nothing is not asked again in the same moment;
            # and what waits for the end of an epoch may as well wait for some company.
            had_more = emitted >= _FEW_TUPLES or emitted >= left or monotonic() > until
            company = _FIRST_PAUSE_SECS if self._setup.acks_at_once else _COMPANY_SECS
            self._pause, self._poll_at = _FIRST_PAUSE_SECS, now + (0.0 if had_more else company)
            return
        growth = _PAUSE_GROWTH if self._pause < _USUAL_PAUSE_SECS else _LATE_GROWTH
        self._pause = min(self._pause * growth, _LONGEST_PAUSE_SECS)
        pause = _FINISHED_PAUSE_SECS if level.is_exhausted else self._pause
        self._poll_at = monotonic() + pause

    def _wake_for_time(self) -> None:
        """Have an epoch end if something in event time is due; it does that, once."""
        wakes_at = self._wakes_at
        if wakes_at < math.inf and wakes_at <= self._clock():
            self._woken_for = wakes_at
            self._note_news()

    @property
    def _wakes_at(self) -> float:
        """The time of the next work in event time that no epoch has been cut for."""
        due = math.inf
        for level in self._levels.values():
            if level.is_woken:
                due = min(due, level.wakes_at)
        return math.inf if due == self._woken_for else due

    @property
    def _tick_at(self) -> float:
        """The time of the next tick; infinity if none is due."""
        due = math.inf
        for level in self._levels.values():
            if level.has_ticks:
                due = min(due, level.tick_at)
        return due

    @property
    def _asks_spouts(self) -> bool:
        level = self._spouts
        if level is None or self._mode != Mode.ACTIVE or self._is_loop_full:
            return False
        return level.has_tasks and not level.output.is_full

    def _timeout(self) -> float | None:
        if not self._is_going:
            return None
        now, due = monotonic(), math.inf
        if self._asks_spouts:
            due = self._poll_at - now
        for level in self._levels.values():
            if level.output.due_at:
                due = min(due, level.output.due_at - now)
            if level.has_work and not level.output.is_full:
                return 0.0
        wall = min(self._tick_at, self._wakes_at)
        if wall < math.inf:
            due = min(due, wall - self._clock())
        return None if due == math.inf else max(0.0, due)

    def _say_updates(self) -> None:
        if self._setup.acks_at_once:
            levels = self._levels.values()
            self._say(Updates.concat([part for level in levels for part in level.take_updates()]))

    def _say(self, updates: Updates) -> None:
        data = pack_updated(updates)
        if data:
            self._coordinator.send(Kind.UPDATES, data)


def _context_in(token: str) -> SSLContext | None:
    """Return the context for TLS that a token brings, if it does."""
    if "." not in token:
        return None
    from topo.engine.spark.realtime.encryption import client_context, tls_in

    return client_context(tls_in(token))


def _in_words(error: Exception) -> EngineError:
    return EngineError(
        f"a slot failed: {type(error).__name__}: {error}",
        code="slot-failed",
        hint=f"internal error; please report this:\n{''.join(traceback.format_exception(error))}",
    )
