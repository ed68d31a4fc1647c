"""The ledger: which messages are done, which failed and why, which are overdue.

Each tracked emit of a spout is a root whose value is the XOR of the edges that are still open. The
ledger is pure: it has no I/O, no clock of its own and no lock. One `apply` is one committed
micro-batch, in which the order of updates does not matter: all values are XORed first, then
failures are decided, then roots whose value is zero are complete. `expire` comes after `apply`. So
fail beats zero, and a root that completes in the batch in which it is overdue is complete.

Pages (see `pages`) hold the ordinary case: roots, values, start times, one holder.
Dictionaries hold the rare ones: second holders, and updates of roots that were not emitted yet.
A root is "not emitted yet" while its sequence is beyond the highest emitted one of its spout
task; anything else that is not pending is settled or belongs to another ledger, and is dropped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topo.tracking.few_updates import apply_few, are_few_and_plain
from topo.tracking.holders import Holders
from topo.tracking.ids import (
    SEQUENCE_BITS,
    U32,
    U64,
    Updates,
    sequence_of,
    sequences_of,
    spout_task_of,
    spout_tasks_of,
)
from topo.tracking.pages import I64, PAGE_BITS, PAGE_SIZE, PENDING, SETTLED, VACANT, Pages
from topo.tracking.verdicts import VerdictLog, Verdicts

__all__ = ["Ledger", "LedgerCounts", "Verdicts"]

MAX_EARLY = 100_000
_RARE_BYTES = 300


@dataclass
class LedgerCounts:
    """The figures of a ledger."""

    pending: int
    acked: int
    failed_by: dict[str, int]
    updates: int
    dropped: int
    oldest_secs: float
    unheard: int


@dataclass(slots=True)
class Lane:
    """One spout task's highest sequence, counts and verdicts."""

    highest: int = 0
    pending: int = 0
    acked: int = 0
    failed_by: Counter[str] = field(default_factory=Counter)
    log: VerdictLog = field(default_factory=VerdictLog)


@dataclass(slots=True)
class _Early:
    """The updates of a root that came before its emit."""

    since: float
    value: int = 0
    reason: str | None = None


class Ledger:
    """The roots of any number of spout tasks; if `timeout_secs` is None, none is ever overdue."""

    def __init__(
        self, timeout_secs: float | None, component_of: Callable[[int], str] | None = None
    ) -> None:
        self.timeout_secs = timeout_secs
        self._pages = Pages()
        self._holders = Holders(self._pages, component_of)
        self._lanes: dict[int, Lane] = {}
        self._early: dict[int, _Early] = {}
        self._quiet: set[int] = set()
        self._updates = 0
        self._dropped = 0

    def apply(self, updates: Updates | Sequence[Updates], now: float) -> None:
        """Apply one committed batch, and decide which roots completed and which failed in it."""
        batch = updates if isinstance(updates, Updates) else Updates.concat(updates)
        if batch.is_empty:
            return
        self._updates += len(batch)
        if not self._early and not len(self._holders) and are_few_and_plain(batch):
            passed = apply_few(batch, now, self._pages, self._lanes, self._quiet)
            if passed is not None:
                self._free(set(passed))
                return
        failures: dict[int, str] = {}
        opened, turned = self._open(batch.init_roots, batch.init_values, now, failures)
        touched = self._xor(batch.ack_roots, batch.ack_values, now)
        self._mark_failed(batch.fail_roots, batch.fail_reasons, now, failures)
        self._restart(batch.reset_roots, now)
        self._tell(self._holders.hold, batch.held_roots, batch.held_tasks)
        self._tell(self._holders.release, batch.released_roots, batch.released_tasks)
        if failures:
            places = np.array(list(failures), np.int64)
            order = np.argsort(self._pages.root_at(places))
            reasons = list(failures.values())
            self._settle(places[order], "failed", [reasons[which] for which in order])
        self._settle(self._pages.pending_zeros(np.concatenate((opened, touched))), "acked", None)
        self._free(turned)

    def foretell(self, failures: Mapping[int, str]) -> None:
        """Fail these roots as soon as they are started, however late that is.

        They failed under a ledger that is lost, and their spouts have not heard of it.
        """
        for root, reason in failures.items():
            self._early[root] = _Early(math.inf, reason=reason)

    def expire(self, now: float) -> None:
        """Fail the roots that are overdue at `now`."""
        if self.timeout_secs is None:
            return
        pages, timeout = self._pages, self.timeout_secs
        due = pages.used()
        due = due[pages.earliest[due] + timeout <= now]
        if len(due):
            places = (due[:, None] << PAGE_BITS | np.arange(PAGE_SIZE)).ravel()
            late = (pages.state[places] == PENDING) & (pages.started[places] + timeout <= now)
            places = places[late]
            places = places[np.argsort(pages.root_at(places))]
            pages.stale[due] = True
            self._settle(places, "timeout", self._timeout_reasons(places))
            self._free(set())
        for root in [r for r, early in self._early.items() if early.since + timeout <= now]:
            del self._early[root]
            self._dropped += 1

    def next_timeout(self) -> float | None:
        """Return when the next root will be overdue, or None if none is pending."""
        earliest = self._earliest()
        if earliest is None or self.timeout_secs is None:
            return None
        return earliest + self.timeout_secs

    def verdicts(self, spout_task: int, after: int = 0) -> Verdicts:
        """Return the verdicts with a number greater than `after`, in order; the first ever is 1."""
        lane = self._lanes.get(spout_task)
        return lane.log.after(after) if lane else Verdicts(1)

    def last_verdict(self, spout_task: int) -> int:
        """Return the number of the last verdict, or 0 if there is none yet."""
        lane = self._lanes.get(spout_task)
        return lane.log.last if lane else 0

    def forget(self, spout_task: int, upto: int) -> None:
        """Drop verdicts up to this number: the spout task has committed that it heard them."""
        lane = self._lanes.get(spout_task)
        if lane:
            lane.log.forget(upto)

    def pending(self, spout_task: int | None = None) -> int:
        """Return how many roots are neither complete nor failed."""
        if spout_task is None:
            return sum(lane.pending for lane in self._lanes.values())
        lane = self._lanes.get(spout_task)
        return lane.pending if lane else 0

    def counts(self, now: float, spout_task: int | None = None) -> LedgerCounts:
        """Return the figures of one spout task or, for None, of all."""
        lanes = list(self._lanes.values())
        if spout_task is not None:
            lanes = [self._lanes[spout_task]] if spout_task in self._lanes else []
        failed_by: Counter[str] = Counter()
        for lane in lanes:
            failed_by.update(lane.failed_by)
        earliest = self._earliest()
        return LedgerCounts(
            pending=sum(lane.pending for lane in lanes),
            acked=sum(lane.acked for lane in lanes),
            failed_by=dict(failed_by),
            updates=self._updates,
            dropped=self._dropped,
            oldest_secs=0.0 if earliest is None else max(0.0, now - earliest),
            unheard=sum(len(lane.log) for lane in lanes),
        )

    def as_data(self) -> dict[str, Any]:
        """Return all that the ledger knows as plain data: numbers, text, bytes, and no classes.

        Snapshots outlive this version of the code; `storage/format.py` tells of their number.
        """
        return {
            "pages": self._pages.as_data(),
            "holders": self._holders.as_data(),
            "lanes": {
                task: {
                    "highest": lane.highest,
                    "pending": lane.pending,
                    "acked": lane.acked,
                    "failed_by": dict(lane.failed_by),
                    "verdicts": lane.log.as_data(),
                }
                for task, lane in self._lanes.items()
            },
            "early": {
                root: (early.since, early.value, early.reason)
                for root, early in self._early.items()
            },
            "updates": self._updates,
            "dropped": self._dropped,
        }

    def take_data(self, data: Mapping[str, Any]) -> None:
        """Take over what `as_data` gave, into a ledger that is new."""
        self._pages.take_data(data["pages"])
        self._holders.take_data(data["holders"])
        self._lanes = {
            task: Lane(
                lane["highest"],
                lane["pending"],
                lane["acked"],
                Counter(lane["failed_by"]),
                VerdictLog.of_data(*lane["verdicts"]),
            )
            for task, lane in data["lanes"].items()
        }
        self._early = {root: _Early(*early) for root, early in data["early"].items()}
        self._updates, self._dropped = data["updates"], data["dropped"]

    @property
    def nbytes(self) -> int:
        """The ledger's memory in bytes, accurate enough for a limit."""
        rare = len(self._early) + len(self._holders)
        logs = sum(lane.log.nbytes for lane in self._lanes.values())
        return self._pages.nbytes + rare * _RARE_BYTES + logs

    def _open(
        self, roots: U64, values: U64, now: float, failures: dict[int, str]
    ) -> tuple[I64, set[int]]:
        """Start roots; return their places, and the pages that the spout tasks have passed."""
        if not len(roots):
            return np.empty(0, np.int64), set()
        if np.any(roots[1:] <= roots[:-1]):
            order = np.argsort(roots, kind="stable")
            order = order[np.concatenate(([True], np.diff(roots[order]) != 0))]
            self._dropped += len(roots) - len(order)
            roots, values = roots[order], values[order]
        fresh = np.ones(len(roots), np.bool_)
        left = set()
        for task, start, end in _by_task(roots):
            lane = self._lanes.setdefault(task, Lane())
            known = int(np.searchsorted(sequences_of(roots[start:end]), lane.highest, "right"))
            fresh[start : start + known] = False
            self._dropped += known
            if start + known < end:
                left.add((task << SEQUENCE_BITS | lane.highest) >> PAGE_BITS)
                lane.highest = sequence_of(int(roots[end - 1]))
                lane.pending += end - start - known
        roots, values = roots[fresh], values[fresh]
        pages = self._pages
        places = pages.open(roots)
        pages.value[places] = values
        pages.started[places] = now
        pages.state[places] = PENDING
        np.add.at(pages.pending, places >> PAGE_BITS, 1)
        pages.earliest[places >> PAGE_BITS] = np.minimum(pages.earliest[places >> PAGE_BITS], now)
        if self._early:
            self._recall(failures)
        return places, {page for page in map(pages.page_of, left) if page >= 0}

    def _recall(self, failures: dict[int, str]) -> None:
        """Apply early updates to the roots that have been emitted by now."""
        pages = self._pages
        for root in [root for root in self._early if self._is_emitted(root)]:
            early = self._early.pop(root)
            place = int(pages.locate(np.array([root], np.uint64))[0])
            if place < 0 or pages.state[place] != PENDING:
                self._dropped += 1
                continue
            pages.value[place] ^= np.uint64(early.value)
            if early.reason is not None:
                failures[place] = early.reason

    def _xor(self, roots: U64, values: U64, now: float) -> I64:
        if not len(roots):
            return np.empty(0, np.int64)
        places, state = self._find(roots)
        known = state != VACANT
        if not known.all():
            unknown = ~known
            for root, value in zip(roots[unknown].tolist(), values[unknown].tolist(), strict=True):
                early = self._keep_early(root, now)
                if early:
                    early.value ^= value
            places, values, state = places[known], values[known], state[known]
        self._dropped += int(np.count_nonzero(state == SETTLED))
        np.bitwise_xor.at(self._pages.value, places, values)
        return places

    def _mark_failed(
        self, roots: U64, reasons: list[str], now: float, failures: dict[int, str]
    ) -> None:
        if not len(roots):
            return
        places, state = self._find(roots)
        found = zip(roots.tolist(), places.tolist(), state.tolist(), reasons, strict=True)
        for root, place, condition, reason in found:
            if condition == PENDING:
                failures.setdefault(place, reason)
            elif condition == SETTLED:
                self._dropped += 1
            else:
                early = self._keep_early(root, now)
                if early and early.reason is None:
                    early.reason = reason

    def _restart(self, roots: U64, now: float) -> None:
        if not len(roots):
            return
        places, _ = self._find_pending(roots)
        self._pages.started[places] = now
        self._pages.stale[places >> PAGE_BITS] = True

    def _tell(self, tell: Callable[[I64, U64, U32], None], roots: U64, tasks: U32) -> None:
        """Call `tell` of the holders with those of these roots that are pending."""
        if len(roots):
            places, found = self._find_pending(roots)
            tell(places, roots[found], tasks[found])

    def _settle(self, places: I64, kind: str, reasons: list[str] | None) -> None:
        """Give each of these pending roots its verdict; they are in order, and distinct."""
        if not len(places):
            return
        pages = self._pages
        pages.state[places] = SETTLED
        np.subtract.at(pages.pending, places >> PAGE_BITS, 1)
        pages.stale[places >> PAGE_BITS] = True
        roots = pages.root_at(places)
        self._holders.forget(roots)
        for task, start, end in _by_task(roots):
            lane = self._lanes[task]
            failures: dict[int, str] = {}
            if reasons is None:
                lane.acked += end - start
            else:
                lane.failed_by[kind] += end - start
                failures = dict(enumerate(reasons[start:end]))
            lane.pending -= end - start
            lane.log.append(sequences_of(roots[start:end]), failures)
        settled = pages.pages_of(places)
        self._quiet.update(settled[pages.pending[settled] == 0].tolist())

    def _free(self, left: set[int]) -> None:
        """Give up pages whose roots are all settled and to which no further one can come."""
        over = []
        for page in self._quiet | left:
            last = (int(self._pages.keys[page]) << PAGE_BITS) | (PAGE_SIZE - 1)
            if self._pages.pending[page] == 0 and self._is_emitted(last):
                over.append(page)
        self._quiet.clear()
        self._pages.release(over)

    def _find(self, roots: U64) -> tuple[I64, NDArray[np.uint8]]:
        """Return places and states; the state of an absent root is VACANT."""
        places = self._pages.locate(roots)
        state = self._pages.state[places]
        state[places < 0] = VACANT
        return places, state

    def _find_pending(self, roots: U64) -> tuple[I64, NDArray[np.bool_]]:
        """Return the places of the pending roots, and a mask that selects them."""
        places, state = self._find(roots)
        found = state == PENDING
        return places[found], found

    def _is_emitted(self, root: int) -> bool:
        lane = self._lanes.get(spout_task_of(root))
        return lane is not None and sequence_of(root) <= lane.highest

    def _keep_early(self, root: int, now: float) -> _Early | None:
        if self._is_emitted(root) or (root not in self._early and len(self._early) >= MAX_EARLY):
            self._dropped += 1
            return None
        return self._early.setdefault(root, _Early(now))

    def _earliest(self) -> float | None:
        """Return when the oldest pending root was started, or last restarted."""
        pages = self._pages
        used = pages.used()
        if not len(used):
            return None
        sure = used[~pages.stale[used]]
        bound = pages.earliest[sure].min(initial=np.inf)
        doubtful = used[pages.stale[used] & (pages.earliest[used] <= bound)]
        if len(doubtful):
            rows = pages.state.reshape(-1, PAGE_SIZE)[doubtful] == PENDING
            started = pages.started.reshape(-1, PAGE_SIZE)[doubtful]
            pages.earliest[doubtful] = np.where(rows, started, np.inf).min(axis=1)
            pages.stale[doubtful] = False
        earliest = float(pages.earliest[used].min())
        return None if earliest == np.inf else earliest

    def _timeout_reasons(self, places: I64) -> list[str]:
        reason = f"timeout after {self.timeout_secs:g} s"
        if not len(self._holders) and not self._pages.holds[places].any():
            return [reason] * len(places)
        holders = map(self._holders.named, places.tolist())
        return [f"{reason}; {named}" if named else reason for named in holders]


def _by_task(roots: U64) -> list[tuple[int, int, int]]:
    """Return (spout task, start, end) of each run in sorted roots."""
    if not len(roots):
        return []
    tasks = spout_tasks_of(roots)
    starts = [0, *(np.flatnonzero(tasks[1:] != tasks[:-1]) + 1).tolist()]
    ends = [*starts[1:], len(roots)]
    return [(int(tasks[start]), start, end) for start, end in zip(starts, ends, strict=True)]
