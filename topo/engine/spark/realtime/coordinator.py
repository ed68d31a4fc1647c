"""The driver's end of the slots: begins and commits epochs, tells verdicts, answers for the run.

One thread per start of the query. The log, and what is committed, outlive it. What others ask of it
(`status`, `command`) takes a lock that the thread holds only while it changes what they see.

An epoch is appended to the log first, then applied, then told: nothing is acked before it is
durable. If the log cannot be written, the thread ends and nothing is acked any more.
"""

from __future__ import annotations

import os
import pickle
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from topo.engine.spark.plan import Plan
from topo.engine.spark.realtime.epochs import Committed, Epochs
from topo.engine.spark.realtime.messages import (
    COORDINATOR,
    Kind,
    Start,
    pack_cut,
    pack_start,
    pack_verdicts,
    unpack_staged,
    unpack_updated,
)
from topo.engine.spark.realtime.store import EpochStore
from topo.engine.spark.realtime.stream import Listener, Stream
from topo.errors import EngineError
from topo.tracking.epochs import CommittedPayload
from topo.tracking.figures import AckerStatus
from topo.tracking.ids import Updates
from topo.tracking.plan import Mode, TrackingPlan
from topo.tracking.verdicts import Verdicts

_RATE_SECS = 10.0
_NOTICE = 0.02  # seconds between two words to the run
START_SECS = 60.0
_LEAST_PATIENCE_SECS = 60.0


class SlotLost(EngineError):
    """A slot's process is gone, or does not come."""

    code = "slot-lost"
    slot: int | None = None


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
        sockets: str,
        token: str,
        payload_number: int = 0,
        notify: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name="topo-coordinator", daemon=True)
        self.failure: Exception | None = None
        self.payload_number = payload_number
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
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, self)
        path = os.path.join(sockets, COORDINATOR)
        self._listener = Listener(path, token, self._selector, self._accepted)
        self._saved: dict[int, dict[str, bytes]] = store.restore() if store else {}
        self._streams: dict[int, Stream] = {}
        self._cursors: dict[int, int] = {}
        self._ready: set[int] = set()
        self._is_going = False
        self._begun_at = time.monotonic()
        self._payloads: deque[CommittedPayload] = deque()
        self._rates: deque[tuple[float, int]] = deque()
        self._cut_at = 0.0
        self._updates: list[Updates] = []
        self._epoch_ms = 0.0
        # A tuple may take as long as its message has; an epoch that takes twice that is stuck.
        self._patience_secs = max(_LEAST_PATIENCE_SECS, 2 * (tracking.timeout_secs or 0.0))
        self._noticed = 0.0

    # -- from other threads -------------------------------------------------------------------

    def close(self) -> None:
        """End the thread, and with it the connections to the slots."""
        self._closing = True
        self._wake()
        if self.is_alive():
            self.join()
        os.close(self._wake_fd)  # not before: nobody may write to what has its number then

    def command(self, mode: Mode) -> int:
        """Change what the topology does from its next epoch on."""
        with self._lock:
            version = self._epochs.command(mode)
        self._wake()
        return version

    def status(self, payloads_after: int | None = None) -> AckerStatus:
        """Return figures, with the reports of committed epochs behind this number."""
        with self._lock:
            now, epochs = time.time(), self._epochs
            counts = self._committed.ledger.counts(now)
            while self._payloads and self._payloads[0].number <= (payloads_after or 0):
                self._payloads.popleft()
            in_work = epochs.in_work
            missing = set(epochs.missing)
            places = [(le, s) for le in range(len(self._plan.levels)) for s in range(self._slots)]
            recent = sum(count for at, count in self._rates if at > now - _RATE_SECS)
            return AckerStatus(
                epoch=0,
                incarnations=(0,),
                next_batch=self._committed.epoch + 1,
                staged=tuple(p for p in places if in_work and p not in missing),
                poisoned=False,
                mode=epochs.mode,
                mode_version=epochs.mode_version,
                mode_version_begun=epochs.mode_version_begun,
                waiting=0 if in_work else self._slots,
                clock=self._committed.clock,
                pending=counts.pending,
                acked=counts.acked,
                failed_by=counts.failed_by,
                oldest_secs=counts.oldest_secs,
                updates=counts.updates,
                updates_per_sec=recent / _RATE_SECS,
                held_bytes=self._committed.ledger.nbytes,
                unheard=counts.unheard,
                dropped=counts.dropped,
                payloads=tuple(self._payloads) if payloads_after is not None else (),
                payloads_lost=0,
            )

    @property
    def epoch_ms(self) -> float:
        """The duration of the last epoch, from its cut to its commit."""
        return self._epoch_ms

    @property
    def _slots(self) -> int:
        return self._plan.slots

    def _wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

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
            for stream in self._streams.values():
                stream.close()
            self._selector.close()
            self._notify()

    def event(self, mask: int) -> None:
        """Take note that another thread wants something."""
        os.eventfd_read(self._wake_fd)

    def _turn(self) -> None:
        for key, mask in self._selector.select(self._timeout()):
            key.data.event(mask)
        if self._is_going:
            now = time.monotonic()
            if self._epochs.due_at(now, time.time()) <= now:
                self._cut(now)
            elif self._epochs.in_work and now > self._cut_at + self._patience_secs:
                raise SlotLost(self._overdue())
        elif time.monotonic() > self._begun_at + START_SECS:
            missing = sorted(set(range(self._slots)) - self._ready)
            raise SlotLost(
                f"slots {', '.join(map(str, missing))} were not ready after {START_SECS:g} s",
                hint="Spark's log says why its tasks did not start",
            )
        self._apply()
        for stream in self._streams.values():
            stream.flush()

    def _timeout(self) -> float | None:
        if not self._is_going:
            return 1.0
        now = time.monotonic()
        if self._epochs.in_work:
            return 1.0
        due = self._epochs.due_at(now, time.time())
        return None if due == float("inf") else max(0.0, due - now)

    def _overdue(self) -> str:
        cut = self._epochs.in_work
        assert cut is not None
        missing = ", ".join(f"level {level} of slot {slot}" for level, slot in self._epochs.missing)
        return f"epoch {cut.epoch} has not ended for {self._patience_secs:g} s: {missing}"

    def _accepted(self, stream: Stream, slot: int) -> None:
        if slot in self._streams or not 0 <= slot < self._slots:
            raise SlotLost(f"slot {slot} came twice")
        self._streams[slot] = stream
        stream.on_event = lambda: self._hear(slot, stream)
        mine = self._plan.tasks_in(slot) | {0}
        saved = {task: records for task, records in self._saved.items() if task in mine}
        committed = self._committed
        start = Start(committed.epoch, committed.clock, self._mode, self._incarnation, saved)
        stream.send(Kind.START, pack_start(start))

    def _hear(self, slot: int, stream: Stream) -> None:
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
                case Kind.READY:
                    self._cursors.update(pickle.loads(data))
                    self._ready.add(slot)
                    if len(self._ready) == self._slots:
                        self._go()
                case Kind.FAILED:
                    error: Exception = pickle.loads(data)
                    raise error
        if not stream.is_open:
            lost = SlotLost(f"the process of slot {slot} is gone")
            lost.slot = slot
            raise lost

    def _go(self) -> None:
        self._is_going = True
        self._saved = {}
        never_heard = dict.fromkeys(self._spouts, 0)
        self._epochs.resume_from({**never_heard, **self._cursors})
        for stream in self._streams.values():
            stream.send(Kind.GO)
        self._tell(self._epochs.new_verdicts(), Kind.TOLD)

    def _cut(self, now: float) -> None:
        with self._lock:
            cut = self._epochs.cut(now, time.time())
        self._cut_at = now
        for stream in self._streams.values():
            stream.send(Kind.CUT, pack_cut(cut.epoch, cut.mode, cut.clock))

    def _commit(self) -> None:
        self._apply()  # what is acked is not overdue
        epochs = self._epochs
        record = epochs.record()
        if self._store is not None:
            self._store.append(record, self._committed)
        with self._lock:
            reports = epochs.commit(record)
            for level, slot, report in reports:
                if report:
                    self.payload_number += 1
                    number, epoch = self.payload_number, record.epoch
                    self._payloads.append(CommittedPayload(number, epoch, level, slot, report))
            self._count(len(record.updates))
        self._epoch_ms = 1000 * (time.monotonic() - self._cut_at)
        self._tell(epochs.new_verdicts(), Kind.COMMITTED)
        if any(report for _, _, report in reports) and time.monotonic() > self._noticed + _NOTICE:
            self._noticed = time.monotonic()
            self._notify()

    def _apply(self) -> None:
        """Take in what came in this turn and waits for no epoch; one word answers all of it."""
        if not self._updates:
            return
        now = time.time()
        updates, self._updates = Updates.concat(self._updates), []
        with self._lock:
            self._committed.ledger.apply(updates, now)
            self._count(len(updates))
        self._tell(self._epochs.new_verdicts(), Kind.TOLD)

    def _count(self, updates: int) -> None:
        now = time.time()
        self._rates.append((now, updates))
        while self._rates[0][0] < now - _RATE_SECS:
            self._rates.popleft()

    def _tell(self, verdicts: Mapping[int, Verdicts], kind: Kind) -> None:
        by_slot: dict[int, dict[int, Verdicts]] = {}
        for task, said in verdicts.items():
            by_slot.setdefault(self._plan.place_of(task)[1], {})[task] = said
        for slot, stream in self._streams.items():
            if slot in by_slot:
                stream.send(kind, pack_verdicts(by_slot[slot]))
            elif kind == Kind.COMMITTED:
                stream.send(kind)
