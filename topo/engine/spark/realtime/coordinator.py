"""The driver's end of the slots: begins and commits epochs, tells verdicts, answers for the run.

One thread per start of the query. The log, and what is committed, outlive it. What others ask of it
(`status`, `command`) takes a lock that the thread holds only while it changes what they see.

Reports wait for the run to take them. While it is busy elsewhere and many wait, no epoch is cut, so
spouts, which may emit only so much in an epoch, wait as well.

An epoch is appended to the log first, then applied, then told: nothing is acked before it is
durable. If the log cannot be written, the thread ends and nothing is acked any more.
"""

from __future__ import annotations

import pickle
import selectors
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from topo.engine.spark.plan import Plan
from topo.engine.spark.realtime.encryption import server_context
from topo.engine.spark.realtime.epochs import Committed, Epochs
from topo.engine.spark.realtime.messages import (
    Kind,
    SlotSetup,
    Start,
    pack_committed,
    pack_cut,
    pack_setup,
    pack_start,
    pack_value,
    pack_verdicts,
    unpack_levels,
    unpack_staged,
    unpack_updated,
)
from topo.engine.spark.realtime.records import PIECE_BYTES, pieces_of
from topo.engine.spark.realtime.store import EpochStore
from topo.engine.spark.realtime.stream import Listener, MessageStream
from topo.errors import EngineError
from topo.systems import Bell
from topo.tracking.batches import Rate, Reports
from topo.tracking.clock import monotonic
from topo.tracking.exchange import TrackingFigures
from topo.tracking.figures import AckerStatus, status_of
from topo.tracking.ids import Updates
from topo.tracking.plan import Mode, TrackingPlan
from topo.tracking.security import Tls
from topo.tracking.verdicts import Verdicts

_NOTICE_SECS = 0.1  # between two words to the run, which looks by itself as well
START_SECS = 60.0
_LEAST_PATIENCE_SECS = 60.0
_MOST_REPORTS = 20_000
_MOST_REPORT_BYTES = 64 << 20


class SlotLost(EngineError):
    """A slot's process is gone, or does not come."""

    code = "slot-lost"

    def __init__(self, message: str, *, slot: int | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.slot = slot


class Coordinator(threading.Thread):
    """One start of a run: from its slots' first word to the first thing that goes wrong."""

    def __init__(
        self,
        plan: Plan,
        tracking: TrackingPlan,
        committed: Committed,
        store: EpochStore | None,
        *,
        mode: Mode,
        period_secs: float,
        incarnation: str,
        address: str,
        token: str,
        setup: Callable[[int], SlotSetup],
        clock: Callable[[], float],
        shares_files: bool = True,
        tls: Tls | None = None,
        payload_number: int = 0,
        notify: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name="topo-coordinator", daemon=True)
        self.failure: Exception | None = None
        self._reports = Reports(payload_number)
        self._plan = plan
        self._committed = committed
        self._epochs = Epochs(tracking, committed, mode, period_secs)
        self._store = store
        self._mode = mode
        self._incarnation = incarnation
        self._spouts = frozenset(tracking.spout_tasks)
        self._notify = notify
        self._lock = threading.Lock()
        self._closing = False
        self._selector = selectors.DefaultSelector()
        self._bell = Bell()
        self._selector.register(self._bell, selectors.EVENT_READ, self)
        self._setup = setup
        self._clock = clock
        context = server_context(tls) if tls else None
        self._listener = Listener(address, token, self._selector, self._accepted, context)
        self._shares_files = shares_files
        self._restoring: dict[MessageStream, Iterator[tuple[Kind, bytes]]] = {}
        """What is still to be sent to slots that resume."""
        self._streams: list[MessageStream] = []
        self._wanted: dict[tuple[int, int], MessageStream] = {}
        """By level and slot, the process that has it."""
        self._ready: set[tuple[int, int]] = set()
        self._preparing: dict[tuple[int, int], float] = {}
        """Levels whose tasks are being opened, and since when."""
        self._cursors: dict[int, int] = {}
        self._is_going = False
        self._moved_at = monotonic()
        """When a slot last said how far it is."""
        self._rate = Rate()
        self._cut_at = 0.0
        self._updates: list[Updates] = []
        self._epoch_ms = 0.0
        # A tuple may take as long as its message has; an epoch that takes twice that is stuck.
        self._patience_secs = max(_LEAST_PATIENCE_SECS, 2 * (tracking.timeout_secs or 0.0))
        self._noticed = 0.0

    # -- from other threads -------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port where processes of other machines reach it."""
        return self._listener.port

    def close(self) -> None:
        """End the thread, and with it the connections to the slots."""
        self._closing = True
        self._wake()
        if self.is_alive():
            self.join()
        self._bell.close()  # not before: nobody may write to what has its number then

    def command(self, mode: Mode) -> int:
        """Change what the topology does from its next epoch on."""
        with self._lock:
            version = self._epochs.batches.command(mode)
        self._wake()
        return version

    def status(self, payloads_after: int | None = None) -> AckerStatus:
        """Return figures, with the reports of committed epochs behind this number."""
        with self._lock:
            epochs, batches = self._epochs, self._epochs.batches
            had_room = self._has_room
            reports = self._reports.after(payloads_after or 0)
            if self._has_room and not had_room:
                self._wake()
            figures = TrackingFigures(
                **vars(self._committed.ledger.counts(self._clock())),
                next_batch=self._committed.epoch + 1,
                staged=[execution for execution, _ in batches.staged],
                mode=batches.mode,
                mode_version=batches.mode_version,
                mode_version_begun=batches.begun_version,
                waiting=0 if epochs.in_work else self._slots,
                clock=self._committed.clock,
                updates_per_sec=self._rate.per_sec(monotonic()),
                held_bytes=self._committed.ledger.nbytes,
                payloads=reports if payloads_after is not None else [],
            )
        return status_of([figures])

    @property
    def preparing(self) -> str:
        """The level that has been opening its tasks for the longest time, in words; or ""."""
        opening = min(
            ((since, *place) for place, since in dict(self._preparing).items()), default=None
        )
        if opening is None:
            return ""
        since, level, slot = opening
        names = ", ".join(repr(placed.id) for placed in self._plan.levels[level])
        return f"slot {slot} has been preparing {names} for {monotonic() - since:.0f} s"

    @property
    def _has_room(self) -> bool:
        """True if the run has taken its reports: no more are made while it is busy elsewhere."""
        reports = self._reports
        return len(reports) < _MOST_REPORTS and reports.nbytes < _MOST_REPORT_BYTES

    @property
    def last_report(self) -> int:
        """The number of the last report: the next start counts on from it."""
        return self._reports.number

    @property
    def epoch_ms(self) -> float:
        """The duration of the last epoch, from its cut to its commit."""
        return self._epoch_ms

    @property
    def _slots(self) -> int:
        return self._plan.slots

    @property
    def _places(self) -> list[tuple[int, int]]:
        return [(le, s) for le in range(len(self._plan.levels)) for s in range(self._slots)]

    def _wake(self) -> None:
        self._bell.ring()

    # -- the thread ---------------------------------------------------------------------------

    def run(self) -> None:
        """Serve the slots until something fails or `close` is called."""
        try:
            while not self._closing:
                self._turn()
        except Exception as error:
            self.failure = error
        finally:
            self._listener.close()
            for stream in self._streams:
                stream.close()
            self._selector.close()
            self._notify()

    def event(self, mask: int) -> None:
        """Take note that another thread wants something."""
        self._bell.silence()

    def _turn(self) -> None:
        for key, mask in self._selector.select(self._timeout()):
            key.data.event(mask)
        if self._is_going:
            now = monotonic()
            if self._has_room and self._epochs.due_at(now, self._clock()) <= now:
                self._cut(now)
            elif self._epochs.in_work and self._is_quiet(now, self._patience_secs):
                raise SlotLost(self._overdue())
        elif self._is_quiet(monotonic(), START_SECS):
            missing = sorted(set(self._places) - self._ready)
            raise SlotLost(
                f"not ready after {START_SECS:g} s: {_in_words(missing)}",
                hint="Spark's log says why its tasks did not start",
            )
        self._apply()
        self._restore()
        for stream in self._streams:
            stream.flush()

    def _is_quiet(self, now: float, secs: float) -> bool:
        """Return True if nothing has moved for so long, and no user code is why."""
        return not self._preparing and now > self._moved_at + secs

    def _timeout(self) -> float | None:
        if not self._is_going:
            return 1.0
        now = monotonic()
        if self._epochs.in_work or not self._has_room:
            return 1.0
        due = self._epochs.due_at(now, self._clock())
        return None if due == float("inf") else max(0.0, due - now)

    def _overdue(self) -> str:
        cut = self._epochs.in_work
        assert cut is not None
        missing = _in_words(self._epochs.missing)
        return f"epoch {cut.epoch} has not ended for {self._patience_secs:g} s: {missing}"

    def _accepted(self, stream: MessageStream, slot: int) -> None:
        if not 0 <= slot < self._slots:
            raise SlotLost(f"a process came as slot {slot}, and there are {self._slots}")
        self._streams.append(stream)
        self._moved_at = monotonic()
        stream.listen(lambda: self._hear(slot, stream))
        stream.send(Kind.SETUP, pack_setup(self._setup(slot)))

    def _start(self, slot: int, levels: tuple[int, ...], stream: MessageStream) -> None:
        """Tell a process what the levels that it has resume from."""
        for level in levels:
            if (level, slot) in self._wanted:
                raise SlotLost(f"level {level} of slot {slot} came twice")
            self._wanted[level, slot] = stream
        mine = {task for level in levels for task in self._plan.tasks_at(level, slot)} | {0}
        before = self._restoring.get(stream, iter(()))
        self._restoring[stream] = chain(before, self._what_starts(levels, mine))

    def _what_starts(
        self, levels: tuple[int, ...], tasks: set[int]
    ) -> Iterator[tuple[Kind, bytes]]:
        """Yield the messages by which these levels begin where they were."""
        last, store = self._committed, self._store
        start = Start(
            levels, last.epoch, last.clock, self._mode, self._incarnation, now=self._clock()
        )
        if store is not None and self._shares_files:
            places = store.places(tasks)
            start = replace(start, directory=str(store.directory.absolute()), places=places)
        elif store is not None:
            for key, piece in pieces_of(store.directory, store.places(tasks)):
                yield Kind.VALUE, pack_value(key, piece)
            start = replace(start, now=self._clock())
        yield Kind.START, pack_start(start)

    def _restore(self) -> None:
        """Send slots what they resume from, no faster than they take it."""
        for stream, messages in list(self._restoring.items()):
            while stream.waiting < PIECE_BYTES:
                message = next(messages, None)
                if message is None:
                    del self._restoring[stream]
                    break
                stream.send(*message)
                stream.flush()
                self._moved_at = monotonic()

    def _hear(self, slot: int, stream: MessageStream) -> None:
        for kind, data in stream.receive():
            match kind:
                case Kind.STAGED:
                    epoch, level, staged = unpack_staged(data)
                    if self._epochs.stage(epoch, level, slot, staged):
                        self._commit()
                case Kind.NEWS:
                    self._epochs.note_news()
                case Kind.UPDATES:
                    self._updates.append(unpack_updated(data))
                case Kind.WANT:
                    self._start(slot, unpack_levels(data), stream)
                case Kind.PREPARING | Kind.PREPARED:
                    self._note_preparing(slot, unpack_levels(data), kind == Kind.PREPARING)
                case Kind.READY:
                    level, cursors = pickle.loads(data)
                    self._cursors.update(cursors)
                    self._ready.add((level, slot))
                    self._moved_at = monotonic()
                    if len(self._ready) == len(self._places):
                        self._go()
                case Kind.FAILED:
                    error: Exception = pickle.loads(data)
                    raise error
        if not stream.is_open:
            raise SlotLost(f"the process of slot {slot} is gone", slot=slot)

    def _note_preparing(self, slot: int, levels: tuple[int, ...], begins: bool) -> None:
        self._moved_at = monotonic()
        for level in levels:
            if begins:
                self._preparing.setdefault((level, slot), self._moved_at)
            else:
                self._preparing.pop((level, slot), None)

    def _go(self) -> None:
        self._is_going = True
        never_heard = dict.fromkeys(self._spouts, 0)
        self._epochs.resume_from({**never_heard, **self._cursors})
        for stream in self._streams:
            stream.send(Kind.GO)
        self._tell(self._epochs.new_verdicts())

    def _cut(self, now: float) -> None:
        with self._lock:
            cut = self._epochs.cut(now, self._clock())
        self._cut_at = self._moved_at = now
        for slot in range(self._slots):
            self._wanted[0, slot].send(Kind.CUT, pack_cut(cut.epoch, cut.mode, cut.clock))

    def _commit(self) -> None:
        self._apply()  # what is acked is not overdue
        epochs = self._epochs
        record = epochs.record()
        if self._store is not None:
            self._store.append(record, self._committed)
        moved = epochs.moved
        with self._lock:
            reports = epochs.commit(record)
            for level, slot, report in reports:
                self._reports.add(record.epoch, (level, slot), report)
            self._rate.add(len(record.updates), monotonic())
        self._epoch_ms = 1000 * (monotonic() - self._cut_at)
        self._tell_committed(record.epoch, moved)
        self._notice(any(report for _, _, report in reports))

    def _notice(self, has_reports: bool) -> None:
        """Wake the run, if it has not been woken lately; on its way to its end, each time."""
        now = monotonic()
        waits = self._epochs.batches.mode == Mode.ACTIVE and now < self._noticed + _NOTICE_SECS
        if has_reports and not waits:
            self._noticed = now
            self._notify()

    def _apply(self) -> None:
        """Take in what came in this turn and waits for no epoch; one word answers all of it."""
        if not self._updates:
            return
        updates, self._updates = Updates.concat(self._updates), []
        with self._lock:
            self._committed.ledger.apply(updates, self._clock())
            self._rate.add(len(updates), monotonic())
        self._tell(self._epochs.new_verdicts())

    def _tell_committed(self, epoch: int, moved: int) -> None:
        verdicts = self._by_slot(self._epochs.new_verdicts())
        hearing = {id(self._wanted[0, slot]): each for slot, each in verdicts.items()}
        for stream in self._streams:
            own = hearing.get(id(stream), {})
            stream.send(Kind.COMMITTED, pack_committed(epoch, moved, own))

    def _tell(self, verdicts: Mapping[int, Verdicts]) -> None:
        for slot, own in self._by_slot(verdicts).items():
            self._wanted[0, slot].send(Kind.TOLD, pack_verdicts(own))

    def _by_slot(self, verdicts: Mapping[int, Verdicts]) -> dict[int, dict[int, Verdicts]]:
        by_slot: dict[int, dict[int, Verdicts]] = {}
        for task, own in verdicts.items():
            by_slot.setdefault(self._plan.place_of(task)[1], {})[task] = own
        return by_slot


def _in_words(places: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"level {level} of slot {slot}" for level, slot in places)
