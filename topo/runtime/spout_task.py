"""A spout task: it polls the spout, tracks its emits, and delivers verdicts on its messages."""

from __future__ import annotations

import inspect
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

import numpy as np

from topo.collectors import SpoutOutputCollector
from topo.components import Spout
from topo.errors import ComponentError, EmitError, TopoError, Unavailable, UncaughtError, shown
from topo.metrics.figure import BOUNDS, BUCKETS, in_buckets
from topo.runtime import user_errors as failures
from topo.runtime.arrow_columns import declared_types
from topo.runtime.pending import PendingMessages
from topo.runtime.pending_log import PendingLog
from topo.runtime.pending_times import HeldTimes
from topo.runtime.ports import SpoutPort
from topo.runtime.shedding import Shedder
from topo.runtime.task import Task, TaskEnvironment
from topo.storage.saving import Changes
from topo.topology.shedding import ATTRIBUTE, SHEDS, shedding_of
from topo.tracing.spans import Tracer
from topo.tracking.ids import U64, EdgeIds, root_ids
from topo.tracking.trees import SpoutTrees
from topo.tracking.verdicts import Verdicts

ACKER_LOST = "acker lost"
_FLUSH_AT = 4096
_FEW = 8  # for more, numpy is faster
_FIRST_PAUSE_SECS = 0.25
_LONGEST_PAUSE_SECS = 10.0


class SpoutTask(Task):
    component: Spout
    _trees: SpoutTrees

    def __init__(self, setting: TaskEnvironment, task: int, tracer: Tracer | None = None) -> None:
        super().__init__(setting, task, tracer)
        self._pending = PendingMessages()
        self._port = SpoutPort(
            self.outlet,
            self._pending.add if setting.tracking else self._ack_at_once,
            self._pending.add_all if setting.tracking else self._ack_all_at_once,
            lambda: len(self._pending),
            self.report_error,
            self.threads,
            partial(declared_types, self.component),
        )
        # Called for every tuple.
        self._waiting: Callable[[], int] = self._waiting_of_all
        if len(self.outlet.streams) == 1:
            (out,) = self.outlet.streams.values()
            self._waiting = (out.columns[0] if out.lasts else out.rows).__len__
        self.limit: int | None = self.conf["topology.max.spout.pending"]
        self._concluded: list[U64] = []  # in this batch
        self._log = PendingLog(f"{self.owner} task {task}")
        self._cursor = 0
        self._incarnation = ""  # of the acker that knows the pending messages
        self._clocks: list[tuple[int, float]] = []  # since which sequence, the batch's clock
        self._active: bool | None = None
        self._takes_reason = takes_reason(self.component)
        self._keeps_alive = type(self.component).keep_alive is not Spout.keep_alive
        self._pause = Pause()
        self.times = HeldTimes(self)
        self._shedder = self._opened_shedder()

    def _opened_shedder(self) -> Shedder | None:
        rules = shedding_of(self.component)
        if rules is None:
            if self.conf.get(SHEDS):
                raise ComponentError(
                    f"{self.owner} has lost its shed(...): the class pickles only some attributes",
                    hint=f"let __getstate__ return {ATTRIBUTE!r} as well",
                )
            return None
        object.__delattr__(self.component, ATTRIBUTE)  # it is the task's, and never saved
        out = self.outlet.streams[rules.stream]
        out.shed_by(Shedder(rules, out.fields, f"{self.owner} task {self.id}", self.ids_of))
        return out.shedder

    def make_trees(self) -> SpoutTrees:
        return SpoutTrees(self.id, self.updates, self.tracer)

    # -- life ---------------------------------------------------------------------------------

    def open(self, saved: Mapping[str, bytes]) -> None:
        collector = SpoutOutputCollector(self._port)
        port = self._port
        self.introduce(collector, port)
        self.bind(emit=port.emit, emit_direct=port.emit_direct, emit_many=port.emit_many)
        core = self.load_core(saved)
        last = core.get("last", 0)
        self._pending.restore(self._log.load(saved, last), last)
        self._cursor = core.get("cursor", 0)
        self._incarnation = core.get("incarnation", "")
        self.times.load(saved)
        if self._shedder is not None and "shed" in core:
            self._shedder.restore(core["shed"])
        with self.users_code():
            self.component.open(self.context.conf, self.context, collector)
        self.restore(saved)
        self._next_tuple = self.component.next_tuple

    def close(self) -> None:
        with self.users_code():
            self.component.close()

    def core(self) -> dict[str, Any]:
        return {
            "last": self._pending.last,
            "cursor": self._cursor,
            "incarnation": self._incarnation,
            "groupers": self.groupers_core(),
            **({} if self._shedder is None else {"shed": self._shedder.state()}),
        }

    def save(self) -> Changes:
        changes = super().save()
        self._log.save(self._pending, self._concluded, changes)
        self._concluded.clear()
        self.times.save(changes)
        if self._shedder is not None:
            self._shedder.show(self.context.figures)
        self.metrics.pending = len(self._pending)
        self.metrics.oldest_pending_secs = self._oldest_pending_secs()
        return changes

    def _oldest_pending_secs(self) -> float:
        """Return the age that the oldest pending message had when this batch began."""
        first = self._pending.first
        if first is None or not self._clocks:
            return 0.0
        place = bisect_right(self._clocks, (first, math.inf)) - 1
        _, emitted_at = self._clocks[max(0, place)]  # of what is older, nothing better is known
        return max(0.0, self.batch_now - emitted_at)

    def ids_of(self, sequences: list[int]) -> list[Any]:
        """Return the ids of pending messages."""
        return self._pending.ids_of(np.array(sequences, np.uint64))

    # -- a batch ------------------------------------------------------------------------------

    def begin(self, batch_id: int, now: float, ids: EdgeIds) -> None:
        super().begin(batch_id, now, ids)
        self._clocks = [*self._clocks[-256:], (self._pending.last + 1, now)]
        if self._shedder is not None:
            self._shedder.begin(now, self._oldest_pending_secs())
        if self._keeps_alive and not self.is_paused:
            self._keep_alive()

    def _keep_alive(self) -> None:
        before = self._done_so_far()
        try:
            with self.users_code():
                self.component.keep_alive()
        except BaseException as error:
            self._pause_for(error)
            return
        if self.at_limit:  # else `next_tuple` says whether the pause is over
            self._pause = Pause()
        if self._done_so_far() != before:
            raise TopoError(
                f"{self.owner} task {self.id}: keep_alive emitted something",
                hint="emit it from next_tuple, which topology.max.spout.pending holds back",
            )

    def turn(self, now: float) -> None:
        super().turn(now)
        if self._shedder is not None:
            self._shedder.begin(now, self._oldest_pending_secs())
        first = self._pending.last + 1
        if self._clocks and self._clocks[-1][0] == first:  # nothing was emitted since
            self._clocks[-1] = (first, now)
        else:
            self._clocks = [*self._clocks[-256:], (first, now)]

    @property
    def splits(self) -> dict[str, bool] | None:
        """The parts of the source, and whether each has more to read; None: it has no parts."""
        return self._port.splits

    @property
    def cursor(self) -> int:
        """The number of the last verdict that this task has heard."""
        return self._cursor

    @property
    def incarnation(self) -> str:
        """The incarnation of the acker that knows the pending messages; "" before the first."""
        return self._incarnation

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    @property
    def at_limit(self) -> bool:
        return self.limit is not None and self.pending_count >= self.limit

    def set_active(self, active: bool) -> None:
        """Call `activate` or `deactivate` if the status changed."""
        if active == self._active:
            return
        first = self._active is None
        self._active = active
        self.worked = True
        if active:
            with self.users_code():
                self.component.activate()
        elif not first:
            with self.users_code():
                self.component.deactivate()

    def poll(self, most: int, until: float) -> int:
        """Ask the spout, at least once; return how many tuples it emitted.

        Polling ends when a call emitted nothing, after `most` tuples, at the pending limit, or at
        `until` by the monotonic clock.
        """
        ask, waiting, outlet, limit = self._next_tuple, self._waiting, self.outlet, self.limit
        first = waiting() + outlet.dealt
        if self.threads:
            self.make_calls()
        so_far = waiting() + outlet.dealt
        while True:
            try:
                returned = ask()
                rows = waiting()
                before, so_far = so_far, rows + outlet.dealt
                if returned is not None and so_far == before:
                    _check_returned(returned)
            except BaseException as error:
                self._pause_for(error)
                return waiting() + outlet.dealt - first
            if rows >= _FLUSH_AT:
                self.settle()
            if so_far == before or so_far - first >= most or monotonic() >= until:
                break
            if limit is not None and len(self._pending) >= limit:
                break
        if self._pause.reason:
            self._pause = Pause()
        return so_far - first

    def receive(self, rows: bytes) -> int:
        """Give the spout rows that the engine has read; return how many tuples it emitted."""
        self.worked = True
        before = self._waiting() + self.outlet.dealt
        with self.users_code():
            self.component.receive(rows)
        emitted = self._waiting() + self.outlet.dealt - before
        self.settle()
        return emitted

    @property
    def stalled(self) -> str:
        """The reason why the spout could not emit when it was last asked; "" if it could."""
        return self._pause.reason

    @property
    def is_paused(self) -> bool:
        """True if the spout is not to be asked yet."""
        return bool(self._pause.reason) and self.setting.now() < self._pause.until

    @property
    def pause_ends(self) -> float | None:
        """The time at which a paused spout is asked again, or None."""
        return self._pause.until if self._pause.reason else None

    def _pause_for(self, error: BaseException) -> None:
        """Ask again later, if what `next_tuple` raised may pass or is not to stop the topology."""
        caught = self.uncaught(error, None)
        if not isinstance(error, Unavailable):
            if self._stops_on_error:
                raise caught from error
            self.metrics.errors.append(
                failures.report(error, self.component_id, self.id, "uncaught")
            )
        self._pause = self._pause.longer(caught, self.setting.now())

    def _waiting_of_all(self) -> int:
        return sum(stream.waiting for stream in self.outlet.streams.values())

    def is_exhausted(self) -> bool:
        with self.users_code():
            return bool(self.component.is_exhausted())

    def deliver(self, verdicts: Verdicts) -> None:
        """Deliver verdicts to the spout; skip those of messages that are no longer pending."""
        if len(verdicts):
            self.worked = True
        if verdicts.failures or self.setting.listener is not None:
            reasons = verdicts.reasons
            acked = [place for place, reason in enumerate(reasons) if reason is None]
            self._count_ages(self._pending.known(verdicts.sequences[acked]))
            for sequence, reason in zip(verdicts.sequences.tolist(), reasons, strict=True):
                if sequence in self._pending:
                    self._conclude(sequence, reason)
        else:
            self._ack_all(verdicts.sequences)
        self._cursor = max(self._cursor, verdicts.last)

    def _ack_all(self, sequences: U64) -> None:
        """Conclude many acked messages at once: the ordinary case."""
        known = self._pending.known(sequences)
        if not len(known):
            return
        self._concluded.append(known)
        self.times.acked(known)
        self.metrics.acked += len(known)
        self._count_ages(known)
        if self.tracer is not None:
            self.tracer.concluded(known.tolist(), None)
        hears = type(self.component).ack is not Spout.ack
        messages = self._pending.ids_of(known) if hears else []
        self._pending.drop(known)
        ack = self.component.ack
        waiting = iter(messages)
        while True:
            try:
                for msg_id in waiting:
                    ack(msg_id)
                return
            except BaseException as error:
                self._stop_or_report(error)

    def meet_acker(self, incarnation: str, rebuilds: bool) -> None:
        """Start the pending messages anew at an acker that has lost them, or fail them.

        In a rebuilt tree the root itself has no open edge; the bolts that hold tuples of it add
        theirs in the same batch.
        """
        if incarnation == self._incarnation:
            return
        if self._incarnation:
            self._cursor = 0
            if rebuilds:
                roots = root_ids(self.id, self._pending.sequences())
                self.updates.init(roots, np.zeros(len(roots), np.uint64))
            else:
                for sequence in self._pending.sequences().tolist():
                    self._conclude(sequence, ACKER_LOST)
        self._incarnation = incarnation

    def _conclude(self, sequence: int, reason: str | None) -> None:
        msg_id = self._pending.take(sequence)
        self._concluded.append(np.array([sequence], np.uint64))
        self.times.concluded(sequence, msg_id, reason)
        self.worked = True
        if self.tracer is not None:
            self.tracer.concluded([sequence], reason)
        self._listen(msg_id, reason)
        if reason is None:
            self.metrics.acked += 1
            try:
                self.component.ack(msg_id)
            except BaseException as error:
                self._stop_or_report(error)
            return
        if self._shedder is not None:
            self._shedder.failed(msg_id)
        self.metrics.failed += 1
        self.metrics.failed_by[reason_kind(reason)] += 1
        self.metrics.errors.append(failures.report(reason, self.component_id, self.id, "failed"))
        try:
            if self._takes_reason:
                self.component.fail(msg_id, reason)
            else:
                self.component.fail(msg_id)
        except BaseException as error:
            self._stop_or_report(error)

    def _stop_or_report(self, error: BaseException) -> None:
        """Raise what `ack` or `fail` raised; or report it, if such errors do not stop."""
        caught = self.uncaught(error, None)
        if self._stops_on_error or isinstance(error, Unavailable):
            raise caught from error
        self.metrics.errors.append(failures.report(error, self.component_id, self.id, "uncaught"))

    def _count_ages(self, sequences: U64) -> None:
        """Count these messages' ages, as far back as the clocks are stored."""
        if len(sequences) <= _FEW or not self._clocks:
            for sequence in sequences.tolist():
                self._count_age(sequence)
            return
        firsts = np.array([first for first, _ in self._clocks], np.uint64)
        clocks = np.array([clock for _, clock in self._clocks])
        places = np.searchsorted(firsts, sequences, side="right") - 1
        counts = np.bincount(places[places >= 0], minlength=len(clocks))
        seen = np.flatnonzero(counts)
        ages, counts = self.batch_now - clocks[seen], counts[seen]
        self.metrics.complete_seconds += float(ages @ counts)
        by = np.bincount(np.searchsorted(BOUNDS, ages), weights=counts).astype(np.int64)
        self.metrics.complete_by.update(in_buckets(by.tolist()))

    def _count_age(self, sequence: int) -> None:
        place = bisect_right(self._clocks, (sequence, math.inf)) - 1
        if place >= 0:
            age = self.batch_now - self._clocks[place][1]
            self.metrics.complete_seconds += age
            self.metrics.complete_by[BUCKETS[bisect_left(BOUNDS, age)]] += 1

    def settle(self) -> None:
        self.outlet.flush()

    # -- tracking -----------------------------------------------------------------------------

    def _ack_all_at_once(self, msg_ids: list[Any]) -> list[int]:
        return list(map(self._ack_at_once, msg_ids))

    def _ack_at_once(self, msg_id: Any) -> int:
        self.metrics.acked += 1
        self._listen(msg_id, None)
        self.component.ack(msg_id)
        return 0

    def _listen(self, msg_id: Any, reason: str | None) -> None:
        if self.setting.listener is not None:
            self.setting.listener.concluded(self.component_id, msg_id, reason)


@dataclass(frozen=True)
class Pause:
    """A pause of a spout, with its reason and end; each further failure makes it longer."""

    reason: str = ""
    until: float = 0.0
    secs: float = 0.0

    def longer(self, error: UncaughtError, now: float) -> Pause:
        secs = min(max(2 * self.secs, _FIRST_PAUSE_SECS), _LONGEST_PAUSE_SECS)
        given = error.after_secs if isinstance(error, Unavailable) else None
        return Pause(error.message, now + (secs if given is None else given), secs)


def reason_kind(reason: str) -> str:
    """Return the kind that a failure counts under: "timeout", "acker lost" or "failed"."""
    for kind in ("timeout", ACKER_LOST):
        if reason.startswith(kind):
            return kind
    return "failed"


def takes_reason(spout: Spout) -> bool:
    try:
        inspect.signature(spout.fail).bind(None, "")
    except TypeError:
        return False
    return True


def _check_returned(returned: object) -> None:
    """Raise EmitError if a call that emitted nothing returned what looks like a row."""
    if returned and isinstance(returned, (list, tuple, dict)):
        raise EmitError(
            f"next_tuple returned {shown(returned)}, which nobody emits",
            hint="write self.emit([...]) and return nothing",
        )
