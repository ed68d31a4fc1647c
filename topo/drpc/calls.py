"""The calls of a server: who waits, which task computes what, and how each call ends.

    WAITING -> LEASED to a task -> one end: an answer, a failure, a time-out, a client that is gone

The first end counts. Whatever comes for a call that has ended is dropped and counted as late.

A lease belongs to a task of a topology and never moves: the other task might compute a request
whose effects have been committed already, and they would count twice. A task whose batch was rolled
back says up to which lease it has committed, and gets those behind it again.

The machine has no clock, no thread and no socket: times are given in seconds, and what is to be
sent waits in the tasks' queues until somebody takes it.
"""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from topo.drpc.errors import (
    FAILED_REQUEST,
    SERVER_SHUTDOWN,
    SERVER_TIMEOUT,
    TOO_LARGE,
    TOO_MANY,
    UNKNOWN_FUNCTION,
    DrpcError,
)
from topo.errors import did_you_mean

DEFAULT_SECS = 60.0
LARGEST = 1_000_000
"""Bytes of a request or a result."""
MOST_WAITING = 1_000
NO_RESULT_SECS = 5.0
"""How long an answer may be on its way when everything else of a request is settled, while the task
that has taken the request is there."""
SETTLED = "settled"
"""A part of a request that is done when a later batch has committed: what was made of the request
in other slots has been brought by then, however long one of them was away."""
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)
"""The limits of the histogram of answered calls."""


class Holder(NamedTuple):
    """A task that computes a function."""

    checkpoint: str
    function: str
    task: int


class Request(NamedTuple):
    """A request as its task gets it."""

    id: str
    args: str
    serial: int
    left_secs: float


class End(NamedTuple):
    """The end of a call: its result, or an error's code and reason."""

    result: str | None
    code: str = ""
    reason: str = ""

    def value(self) -> str:
        """Return the result; raise the error."""
        if self.result is None:
            raise DrpcError(self.code, self.reason)
        return self.result


@dataclass(eq=False)
class _Call:
    id: str
    function: str
    args: str
    began: float
    deadline: float
    holder: Holder | None = None
    serial: int = 0
    parts: set[str] = field(default_factory=set)
    """The trees of the request that are done."""
    has_to_settle: bool = False
    was_settled: bool = False
    """True once it was, and the task has come back since."""
    is_done: bool = False
    """True once all are."""
    done_at: float | None = None
    """When all were, and settled; an answer is due soon."""
    result: str | None = None
    """An answer that waits for them."""


@dataclass
class _Task:
    credit: int = 0
    serial: int = 0
    open: dict[int, _Call] = field(default_factory=dict)
    due: deque[_Call] = field(default_factory=deque)
    """Those of the open ones that have to be sent, in their order."""
    is_attached: bool = False
    gathers: bool = False


@dataclass
class Figures:
    """The figures of a server."""

    requests: int = 0
    answered: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    late: int = 0
    waiting: int = 0
    open: int = 0
    seconds: tuple[int, ...] = (0,) * (len(SECONDS) + 1)
    """Answered calls by time, up to each of SECONDS and beyond."""


class Calls:
    """The machine; see the module's head. `functions` are known before a task has attached."""

    def __init__(self, functions: Iterable[str] = (), most_waiting: int = MOST_WAITING) -> None:
        self.number = secrets.token_hex(4)
        """The server's own: it begins the id of each of its calls."""
        self._most_waiting = most_waiting
        self._calls: dict[str, _Call] = {}
        self._waiting: dict[str, dict[str, _Call]] = {name: {} for name in functions}
        self._tasks: dict[Holder, _Task] = {}
        self._ends: deque[tuple[str, End]] = deque()
        self._counts = Figures()
        self._seconds = [0] * (len(SECONDS) + 1)
        self._is_closed = False

    # -- callers ------------------------------------------------------------------------------

    def call(self, function: str, args: str, now: float, secs: float = DEFAULT_SECS) -> str:
        """Take a call in; return its id, or raise why it is refused."""
        self._counts.requests += 1
        try:
            self._check(function, args)
        except DrpcError as error:
            self._counts.failed[error.code] += 1
            raise
        id = f"{self.number}.{secrets.token_hex(16)}"
        call = _Call(id, function, args, now, now + secs)
        self._calls[id] = call
        self._waiting[function][id] = call
        self._deal(function)
        return id

    def _check(self, function: str, args: str) -> None:
        if self._is_closed:
            raise DrpcError(SERVER_SHUTDOWN, "the server ends")
        waiting = self._waiting.get(function)
        if waiting is None:
            hint = did_you_mean(function, self._waiting)
            names = ", ".join(map(repr, sorted(self._waiting))) or "none"
            raise DrpcError(
                UNKNOWN_FUNCTION,
                f"no topology computes {function[:80]!r}; functions: {names}"
                + (f"; {hint}" if hint else ""),
            )
        if len(waiting) >= self._most_waiting:
            raise DrpcError(TOO_MANY, f"{len(waiting):,} calls of {function!r} wait already")
        if len(args) > LARGEST or len(args.encode("utf-8", "surrogatepass")) > LARGEST:
            raise DrpcError(TOO_LARGE, f"the arguments have more than {LARGEST:,} bytes")

    def gone(self, id: str) -> None:
        """Forget a call whose client has gone."""
        call = self._calls.get(id)
        if call is not None:
            self._counts.failed["gone"] += 1
            self._drop(call)

    def take_ends(self) -> Iterator[tuple[str, End]]:
        """Yield the calls that have ended since, each once."""
        while self._ends:
            yield self._ends.popleft()

    # -- tasks --------------------------------------------------------------------------------

    def attach(self, holder: Holder, committed: int, now: float, *, gathers: bool = False) -> None:
        """Let a task compute; what was leased to it behind this serial is sent to it again.

        Answers that were on their way when it went are due anew, or when the task settles them:
        those that it had settled by `settle_anew`, since it does not know them any more.

        If its topology `gathers` the tuples of a request, an answer may have been made without
        those of a tuple that failed: it waits until all trees of the request are done.
        """
        self._waiting.setdefault(holder.function, {})
        task = self._tasks.setdefault(holder, _Task())
        task.is_attached, task.credit, task.gathers = True, 0, gathers
        task.due = deque(call for serial, call in task.open.items() if serial > committed)
        for call in task.open.values():
            call.was_settled |= SETTLED in call.parts
            call.parts.discard(SETTLED)
            call.done_at = now if call.is_done and not call.has_to_settle else None

    def detach(self, holder: Holder) -> None:
        """Send a task nothing until it is back; what is leased to it stays so."""
        task = self._tasks.get(holder)
        if task is not None:
            task.is_attached = False

    def grant(self, holder: Holder, credit: int) -> None:
        """Let so many requests, from now on, be sent to a task."""
        task = self._tasks[holder]
        task.credit = credit
        self._deal(holder.function)

    def take(self, holder: Holder, now: float) -> list[Request]:
        """Return what is to be sent to a task."""
        task = self._tasks[holder]
        calls = [call for call in task.due if call.deadline > now]
        task.due.clear()
        return [Request(call.id, call.args, call.serial, call.deadline - now) for call in calls]

    @property
    def to_send(self) -> list[Holder]:
        """The attached tasks for which something waits."""
        return [holder for holder, task in self._tasks.items() if task.due and task.is_attached]

    def function_of(self, id: str) -> str | None:
        """Return the function of an open call."""
        call = self._calls.get(id)
        return None if call is None else call.function

    def answer(self, id: str, result: str, now: float) -> bool:
        """End a call with a result; return False, and count it, if it has ended."""
        if len(result) > LARGEST or len(result.encode("utf-8", "surrogatepass")) > LARGEST:
            return self.fail(id, f"the result has more than {LARGEST:,} bytes")
        call = self._calls.get(id)
        if call is None:
            self._counts.late += 1
            return False
        if call.result is not None:
            self._counts.late += 1
            return False
        if call.holder is not None and self._tasks[call.holder].gathers and not call.is_done:
            call.result = result
            return True
        secs = now - call.began
        self._seconds[sum(secs > limit for limit in SECONDS)] += 1
        self._counts.answered += 1
        self._end(call, End(result))
        return True

    def fail(self, id: str, reason: str) -> bool:
        """End a call with a failure; a call that has ended stays as it is."""
        call = self._calls.get(id)
        if call is None:
            return False
        self._end(call, End(None, FAILED_REQUEST, reason))
        return True

    def done(self, id: str, now: float, part: str = "", parts: Iterable[str] = ("",)) -> None:
        """Take note that a tree of a request is done; all of them are `parts`.

        With SETTLED among these no answer is missed before the request is settled too.
        """
        call = self._calls.get(id)
        if call is not None:
            call.parts.add(part)
            call.has_to_settle = SETTLED in parts
            call.is_done = call.parts >= {*parts} - {SETTLED}
            if call.parts >= {*parts}:
                call.done_at = now
            if call.is_done and call.result is not None:
                result, call.result = call.result, None
                self.answer(id, result, now)

    def settle_anew(self, holder: Holder, now: float) -> None:
        """Take note that a batch has committed since a task came back: what it had settled is."""
        for call in self._tasks[holder].open.values():
            if call.was_settled and call.is_done and call.done_at is None:
                call.parts.add(SETTLED)
                call.done_at = now

    # -- time ---------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """End what has waited too long."""
        for call in list(self._calls.values()):
            if call.deadline <= now:
                self._end(call, End(None, SERVER_TIMEOUT, self._why_late(call)))
            elif self._due(call) <= now:
                reason = "no result: the last bolt emitted nothing for it"
                self._end(call, End(None, FAILED_REQUEST, reason))

    def next_due(self) -> float | None:
        """Return when `expire` has something to do."""
        return min(map(self._due, self._calls.values()), default=None)

    def _due(self, call: _Call) -> float:
        is_away = call.holder is not None and not self._tasks[call.holder].is_attached
        if call.done_at is None or is_away:
            return call.deadline
        return min(call.deadline, call.done_at + NO_RESULT_SECS)

    @staticmethod
    def _why_late(call: _Call) -> str:
        secs = call.deadline - call.began
        if call.holder is None:
            return f"no task of {call.function!r} has taken the call within {secs:.3g} s"
        return (
            f"no result within {secs:.3g} s; task {call.holder.task} of {call.function!r} had "
            "taken the call"
        )

    def close(self) -> None:
        """End all calls; the server takes no more."""
        self._is_closed = True
        for call in list(self._calls.values()):
            self._end(call, End(None, SERVER_SHUTDOWN, "the server ends"))

    # -- what is shown ------------------------------------------------------------------------

    @property
    def figures(self) -> Figures:
        waiting = sum(map(len, self._waiting.values()))
        counts = self._counts
        return Figures(
            counts.requests,
            counts.answered,
            Counter(counts.failed),
            counts.late,
            waiting,
            len(self._calls) - waiting,
            tuple(self._seconds),
        )

    @property
    def functions(self) -> list[str]:
        """The functions that topologies have computed since the server began."""
        return sorted(self._waiting)

    # -- within -------------------------------------------------------------------------------

    def _deal(self, function: str) -> None:
        """Lease waiting calls, in their order, to the tasks that have the fewest open ones."""
        waiting = self._waiting.get(function, {})
        tasks = [
            (holder, task)
            for holder, task in self._tasks.items()
            if holder.function == function and task.is_attached
        ]
        while waiting and (free := [pair for pair in tasks if pair[1].credit > 0]):
            holder, task = min(free, key=lambda pair: len(pair[1].open))
            call = waiting.pop(next(iter(waiting)))
            task.serial += 1
            task.credit -= 1
            call.holder, call.serial = holder, task.serial
            task.open[task.serial] = call
            task.due.append(call)

    def _end(self, call: _Call, end: End) -> None:
        if end.result is None:
            self._counts.failed[end.code] += 1
        self._drop(call)
        self._ends.append((call.id, end))

    def _drop(self, call: _Call) -> None:
        del self._calls[call.id]
        if call.holder is None:
            del self._waiting[call.function][call.id]
            return
        task = self._tasks[call.holder]
        del task.open[call.serial]
        if call in task.due:
            task.due.remove(call)
