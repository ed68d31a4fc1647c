"""One topology in one thread, in micro-batches, by a clock that the caller moves.

A batch has the same steps as on the Spark engine: verdicts and polling first, then the components
in order, then changes are saved and the ledger gets the updates. All tasks live in one slot; frames
between them are encoded and decoded, so that values that cannot travel fail here too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from time import perf_counter
from typing import Any

from topo.config import Config
from topo.drpc.calls import DEFAULT_SECS
from topo.drpc.desk import Desk, open_desk
from topo.drpc.places import functions_of, no_server
from topo.engine.completion import Completion
from topo.engine.inline.external import refuse_external
from topo.engine.inline.recorder import RecordedRun, Recorder
from topo.engine.inline.stalls import stall_of
from topo.errors import RunError, TopoError, Unavailable, UncaughtError, sentence_of
from topo.metrics.totals import RunTotals
from topo.running import (
    ACTIVE,
    COMPLETED,
    ENDED,
    FAILED,
    INACTIVE,
    KILLED,
    STALLED,
    AckerStats,
    BatchRecord,
    ErrorEntry,
    Listener,
    RunStats,
)
from topo.runtime.bolt_task import BoltTask
from topo.runtime.dealing import deal_all, dealers, resizes_to
from topo.runtime.level import SlotLevel
from topo.runtime.roundabout import is_too_full, rounds_in_words
from topo.runtime.slot import Batch, SlotTasks, TaskEnvironment, full_conf
from topo.runtime.spout_task import Pause
from topo.runtime.timed_task import TimedBoltTask
from topo.shipping.pickling import install_user_classes
from topo.shipping.requirements import check_requirements
from topo.topology.layout import TASK_IDS, TaskLayout
from topo.topology.model import Topology
from topo.tracing.exporting import check_tracing
from topo.tracking.ids import root_id
from topo.tracking.ledger import Ledger
from topo.tracking.plan import Mode

_MOST_PER_BATCH = 10_000
_FEWEST_ROUNDS, _MOST_ROUNDS = 16, 4096


class InlineRun(RecordedRun, Completion):
    """A topology running in this thread; it advances when `settle` or `step` is called."""

    ui = ""
    drpc = None  # it has no socket

    def __init__(
        self,
        name: str,
        topology: Topology,
        conf: Mapping[str, Any] | None,
        *,
        now: Callable[[], float],
        active: bool = True,
        shuffled: Random | None = None,
        strict: bool = True,
        record: bool = True,
        listener: Listener | None = None,
        wake: Callable[[], None] | None = None,
        advance: Callable[[float], None] | None = None,
    ) -> None:
        given = Config(conf or {})
        install_user_classes(topology.user_classes)
        self.warnings = Config.validate(given, components=topology.components)
        refuse_external(topology, in_tests=strict)
        self.name = name
        self.topology = topology
        self.conf = full_conf(given)
        self.recorder = Recorder()
        self._now = now
        self._started = self._last_clock = now()
        self._shuffled = shuffled
        self._random = shuffled or Random(0)
        self.layout = TaskLayout(topology, self.conf)
        check_requirements(topology)
        check_tracing(self.conf)
        self._setting = TaskEnvironment(
            topology,
            self.layout,
            self.conf,
            name,
            now,
            local_tasks=frozenset(self.layout.ids),
            strict=strict,
            listener=listener or (self.recorder if record else None),
            wake=wake,
            checkpoint_id=uuid.uuid4().hex,
        )
        self._advance = advance
        self._desk = self._opened_desk()
        self._ledger = self._new_ledger()
        self._incarnation = 1  # of the ledger; each restart loses it, as a driver's death does
        self._level: SlotLevel | None = None
        self._saved: dict[int, dict[str, bytes]] = {}
        self._had_last_tick = False
        self._batch_id = 0
        self._polled = 0
        self._book = RunTotals(topology, self.layout)
        self._wanted_active = active
        self._status = ACTIVE if active else INACTIVE
        self._reason = ""
        self._pause = Pause()

    # -- what it looks like -------------------------------------------------------------------

    @property
    def status(self) -> str:
        return STALLED if self._stall else self._status

    @property
    def reason(self) -> str:
        return self._reason or self._stall or self._rounds

    @property
    def _host(self) -> SlotTasks | None:
        return self._level.host if self._level is not None else None

    @property
    def looping(self) -> int:
        """The tuples on loops that wait for the next batch."""
        return self._host.roundabout.count if self._host else 0

    @property
    def _rounds(self) -> str:
        """What goes round, if nothing else moves."""
        if self._host is None or self._polled or not self._is_live():
            return ""
        return rounds_in_words(self.topology, self._host.roundabout.counts())

    @property
    def _stall(self) -> str:
        if self._status != ACTIVE:
            return ""
        return stall_of(self._host, self._ledger, self._pause)

    @property
    def pending(self) -> int:
        return self._host.pending if self._host else 0

    def stats(self) -> RunStats:
        return RunStats(
            name=self.name,
            status=self.status,
            reason=self.reason,
            uptime_secs=self._now() - self._started,
            window="all",
            batch=self._book.batch(self._now()),
            components=self._book.components(),
            acker=self._acker() if self.conf["topology.acker.executors"] else None,
        )

    def _acker(self) -> AckerStats:
        now = self._now()
        counts = self._ledger.counts(now)
        return AckerStats(
            executors=1,
            pending=self.pending,
            lag_secs=counts.oldest_secs,
            quiet_secs=now - self._last_clock,
            unheard=counts.unheard,
            updates=counts.updates,
            updates_per_sec=None,
            held_bytes=self._ledger.nbytes,
        )

    def errors(self) -> list[ErrorEntry]:
        return self._book.errors()

    def batches(self) -> list[BatchRecord]:
        return self._book.batches()

    # -- moving it ----------------------------------------------------------------------------

    def start(self) -> InlineRun:
        """Do nothing: the first `settle` or `step` opens the components."""
        return self

    def wait(self, secs: float | None = None) -> bool:
        """Return True iff it has ended; nothing moves while its only thread waits."""
        return self._status in ENDED

    def settle(self, max_steps: int = 100_000) -> None:
        """Run until nothing is left to do at this instant."""
        steps = 0
        most = _FEWEST_ROUNDS  # of polling; batches of every size should work
        while self._is_live() and (moved := self._batch(self._random.randint(1, most))):
            most = min(2 * most, _MOST_ROUNDS)
            steps += moved
            if steps > max_steps:
                rounds = f": {self._rounds}" if self._rounds else ""
                raise RunError(
                    f"{self.name} still moves after {max_steps:,} steps{rounds}",
                    hint="an endless spout or loop never settles: run.step(n) makes n calls of "
                    "next_tuple, and runs one lap",
                )

    def step(self, n: int = 1) -> int:
        """Call next_tuple `n` times for each spout task, and process; return the steps taken.

        Processing ends with the batch if tuples go round: they may never come to an end.
        """
        if n < 1:
            raise ValueError(f"step({n}): at least one")
        moved = self._batch(n) if self._is_live() else 0
        while self._is_live() and not self.looping and (more := self._batch(0)):
            moved += more
        return moved

    def call(self, function: str, args: str, timeout: float = DEFAULT_SECS) -> str:
        """Call a function that the topology computes; the clock moves on until it is answered."""
        if self._advance is None:
            raise RunError("nobody moves this run's clock", hint="call it through a TestCluster")
        self._require_live("be called")
        desk = self.desk
        id = desk.begin(function, args, timeout)
        self.settle()
        while (end := desk.take_end(id)) is None:
            due = desk.next_due()
            assert due is not None, "a call that has not ended is due"
            event = self.next_event(due)
            self._advance(max(0.0, min(due, due if event is None else event) - self._now()))
        return end.value()

    @property
    def desk(self) -> Desk:
        """The server of the functions that this topology computes."""
        if self._desk is None:
            raise no_server(self.name, self.topology.components)
        return self._desk

    def _opened_desk(self) -> Desk | None:
        functions = functions_of(self.topology.components)
        if not functions:
            return None
        return open_desk(self._setting.checkpoint_id, self._now, functions)

    def next_event(self, until: float) -> float | None:
        """Return the time of the next timeout or tick up to `until`, or None."""
        times = [self._ledger.next_timeout(), *self._tick_times(), *self._pause_times()]
        times += self._host.wakes_at() if self._host else []
        due = [time for time in times if time is not None and time <= until]
        return min(due, default=None) if self._is_live() else None

    def watermark(self, component: str) -> Any:
        """Return a bolt's watermark in the unit of its time field.

        It is None before every input has spoken, and at the end of a finite input.
        """
        task = next(iter(self.layout.tasks_of(component)))
        if self._level is None and self._saved and self._is_live():
            self._level = self._opened()
        found = self._host.tasks.get(task) if self._host is not None else None
        return found.shown_watermark if isinstance(found, TimedBoltTask) else None

    def activate(self) -> None:
        self._set_active(True)

    def deactivate(self) -> None:
        self._set_active(False)

    def restart(self) -> None:
        """Rebuild every instance from its saved state, as after a crash of all processes."""
        self._require_live("restart")
        if self._host is None:
            return
        failures = {
            root_id(spout.id, sequence): reason
            for spout in self._host.spouts
            for sequence, reason in self._ledger.verdicts(spout.id, spout.cursor).failed()
            if not reason.startswith("timeout")  # those are pending again
        }
        self._level = None
        self._setting.shared.close()
        self._ledger = self._new_ledger()
        self._ledger.foretell(failures)
        self._incarnation += 1

    def rebalance(self, tasks: Mapping[str, int]) -> None:
        """Restart with other numbers of tasks of some bolts, to which what they saved is dealt."""
        self._require_live("be rebalanced")
        ids, resized = resizes_to(self.topology, self.layout, tasks)
        conf = {**self.conf, TASK_IDS: ids}
        layout = TaskLayout(self.topology, conf)
        dealt = deal_all(dealers(self.topology, self.conf, resized), resized, self._saved)
        self.restart()  # nothing has changed if anything was refused
        self.conf, self.layout = conf, layout
        local = frozenset(layout.ids)
        self._setting = replace(self._setting, conf=conf, layout=layout, local_tasks=local)
        self._book.take_layout(layout)
        unchanged = {task: saved for task, saved in self._saved.items() if task in local}
        self._saved = {**unchanged, **dealt}

    def kill(self, wait_secs: float = 0) -> None:
        if self._status in ENDED:
            return
        self._end(KILLED, "")

    def abandon(self, reason: str) -> None:
        """Count as killed while its thread is kept by user code; nothing is closed."""
        self._status, self._reason = KILLED, reason

    def stop(self) -> None:
        """End it without closing anything."""
        self._level = None
        self.kill()

    def _set_active(self, active: bool) -> None:
        self._require_live("activate" if active else "deactivate")
        self._wanted_active = active
        self._status = ACTIVE if active else INACTIVE

    def _require_live(self, what: str) -> None:
        if self._status in ENDED:
            raise RunError(f"{self.name} is {self._status}; it cannot {what}")

    def _is_live(self) -> bool:
        return self._status not in ENDED

    def _new_ledger(self) -> Ledger:
        timeouts = self.conf["topology.enable.message.timeouts"]
        return Ledger(
            self.conf["topology.message.timeout.secs"] if timeouts else None,
            lambda task: self.layout.component_of(task),  # of the present one: a ledger may stay
        )

    # -- a batch ------------------------------------------------------------------------------

    def _batch(self, rounds: int) -> int:
        """Run one micro-batch with at most `rounds` rounds of polling; return the steps taken."""
        if self._pause.reason and self._now() < self._pause.until:
            return 0
        try:
            if self._level is None:
                if not self._wanted_active and not self._saved:
                    return 0  # never was active: nothing is opened before it is
                self._level = self._opened()
            moved = self._guarded_batch(self._level, rounds)
            if not moved and self._level.host.is_done and self._level.host.spouts:
                self._finish(self._level)
        except Unavailable as error:
            self._roll_back(error)
            return 0
        self._pause = Pause()
        return moved

    def _roll_back(self, error: Unavailable) -> None:
        """Forget the batch: the next one begins with what was saved before it, after a pause."""
        assert isinstance(error, UncaughtError)
        self._level = None
        self._pause = self._pause.longer(error, self._now())

    def _guarded_batch(self, level: SlotLevel, rounds: int, mode: Mode = Mode.ACTIVE) -> int:
        started = perf_counter()
        try:
            moved = self._run_batch(level, rounds, mode)
        except Unavailable:
            raise
        except BaseException as error:
            self._fail(error)
            raise
        took_ms = 1000 * (perf_counter() - started)
        self._book.batch_done(self._batch_id, self._now(), ms=took_ms, rows=self._polled)
        return moved

    def _run_batch(self, level: SlotLevel, rounds: int, mode: Mode) -> int:
        host, now = level.host, self._now()
        self._ledger.expire(now)
        host.begin(Batch(self._batch_id, now, self._last_clock))
        host.meet_ackers({spout.id: self._incarnation for spout in host.spouts})
        host.set_active(self._wanted_active)
        moved = self._deliver(host)
        looped = host.roundabout.take()
        full = is_too_full(looped.nbytes, self.conf["topology.loop.max.mb"])
        polls = self._wanted_active and rounds and not full
        self._polled = host.poll(_MOST_PER_BATCH, rounds=rounds) if polls else 0
        moved += self._polled + host.take_batch_ends()
        for frame in level.work(looped.frames, mode, more_came=bool(self._polled)):
            raise AssertionError(f"a frame for task {frame.target_task}, which no host has")
        host.take_handed_out()  # nobody is here to write it
        end = level.finish(mode)
        for task, changes in end.changes.items():
            changes.apply_to(self._saved.setdefault(task, {}))
        self._had_last_tick = level.had_last_tick
        self._last_clock = now
        self._batch_id += 1
        self._ledger.apply(end.updates, now)
        metrics = end.metrics
        self._book.add(metrics, now)
        host.tell_committed()
        fired = sum(task.moved() for task in host.timed)
        worked = sum(int(m.executed + m.emitted.total()) for m in metrics.values())
        return moved + fired + worked

    def _deliver(self, host: SlotTasks) -> int:
        heard = 0
        for spout in host.spouts:
            verdicts = self._ledger.verdicts(spout.id, spout.cursor)
            host.deliver(spout.id, str(self._incarnation), verdicts, rebuilds=True)
            heard += len(verdicts)
            # A state with an older cursor may ask for the same verdicts again after a restart.
            self._ledger.forget(spout.id, verdicts.first - 1)
        return heard

    def _opened(self) -> SlotLevel:
        host = SlotTasks(
            self._setting,
            self.layout.ids,
            shuffled=self._shuffled,
            travelling=True,
            nonce=lambda: self._random.getrandbits(64),
        )
        try:
            host.open(self._saved)
        except Unavailable:
            raise
        except BaseException as error:
            self._fail(error)
            raise
        return SlotLevel(host, self._saved, had_last_tick=self._had_last_tick)

    def _tick_times(self) -> list[float | None]:
        if self._host is None:
            return []
        bolts = [task for task in self._host.tasks.values() if isinstance(task, BoltTask)]
        return [task.next_tick(self._last_clock) for task in bolts]

    def _pause_times(self) -> list[float | None]:
        spouts = self._host.spouts if self._host is not None else []
        own = self._pause.until if self._pause.reason else None
        now = self._now()
        times = [own, *(spout.pause_ends for spout in spouts)]
        return [time for time in times if time is not None and time > now]

    def _finish(self, level: SlotLevel) -> None:
        self._guarded_batch(level, 0, Mode.LAST_TICK)
        while self._guarded_batch(level, 0, Mode.LAST_TICK):  # one alone has the tick
            pass
        self._end(COMPLETED, "")

    def _end(self, status: str, reason: str) -> None:
        host, self._level = self._host, None
        self._status, self._reason = status, reason
        if self._desk is not None:
            self._desk.close()
        try:
            if host is not None:
                host.close()
            self._setting.shared.close()
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        self._status, self._level = FAILED, None
        self._setting.shared.close()
        if self._desk is not None:
            self._desk.close()
        self.error = error if isinstance(error, Exception) else None  # or somebody's Ctrl-C
        is_topos = isinstance(error, TopoError) and not isinstance(error, UncaughtError)
        text = str(error) if is_topos else sentence_of(error)  # with the hint, or without
        self._reason = text or type(error).__name__
