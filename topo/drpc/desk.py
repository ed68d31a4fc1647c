"""A server of calls for callers and tasks in threads of one process: the inline engine's.

Also what a task sees of any server: `Line` and `Answers`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol
from weakref import WeakValueDictionary

from topo.drpc.calls import DEFAULT_SECS, Calls, End, Figures, Holder, Request

PARTS = ("args", "announced")
"""The trees of a request: of its arguments, and of its announcement."""


class Line(Protocol):
    """The line from a spout's task to one server."""

    @property
    def number(self) -> str:
        """The server's number; "" before it has answered."""

    def take(self) -> list[Request]:
        """Return the requests that have come."""

    def grant(self, credit: int) -> None:
        """Let so many requests come from now on."""

    def done(self, id: str, part: str, parts: Iterable[str]) -> None:
        """Tell that a tree of a request is done; all of them are `parts`."""

    def settle_anew(self) -> None:
        """Tell that the first batch of an instance that was rebuilt has committed."""

    def fail(self, id: str, reason: str) -> None:
        """Tell that a request has failed."""

    def close(self) -> None: ...


class Answers(Protocol):
    """The way of results to their servers."""

    def send(self, results: Iterable[tuple[str, str]]) -> None:
        """Send results by id, and wait for nothing."""

    def deliver(self, results: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Bring results to their servers; return those whose server cannot be reached now."""

    def take_answered(self) -> int:
        """Return how many of them were the answer of a call, of those heard of since."""

    def close(self) -> None: ...


class Desk:
    """The machine of `calls` behind a lock."""

    def __init__(self, clock: Callable[[], float], functions: Iterable[str] = ()) -> None:
        self._calls = Calls(functions)
        self._clock = clock
        self._changed = threading.Condition()
        self._ends: dict[str, End] = {}
        self._wakes: dict[Holder, Callable[[], None]] = {}

    # -- callers ------------------------------------------------------------------------------

    def begin(self, function: str, args: str, secs: float = DEFAULT_SECS) -> str:
        """Take a call in; return its id."""
        with self._changed:
            self._calls.expire(self._clock())
            id = self._calls.call(function, args, self._clock(), secs)
            wakes = [self._wakes[holder] for holder in self._calls.to_send]
        for wake in wakes:
            wake()
        return id

    def take_end(self, id: str) -> End | None:
        """Return the end of a call, once, if it has ended."""
        with self._changed:
            self._calls.expire(self._clock())
            self._note_ends()
            return self._ends.pop(id, None)

    def next_due(self) -> float | None:
        """Return when a call ends by itself."""
        with self._changed:
            return self._calls.next_due()

    def wait(self, id: str, secs: float) -> End:
        """Wait for the end of a call in real time; a call ends by itself by its deadline."""
        with self._changed:
            while (end := self._ends.pop(id, None)) is None:
                self._calls.expire(self._clock())
                self._note_ends()
                if id not in self._ends:
                    self._changed.wait(min(secs, _LOOK_SECS))
        return end

    def gone(self, id: str) -> None:
        """Forget a call that nobody waits for any more."""
        with self._changed:
            self._calls.gone(id)

    def close(self) -> None:
        """End all calls."""
        with self._changed:
            self._calls.close()
            self._note_ends()

    @property
    def figures(self) -> Figures:
        with self._changed:
            return self._calls.figures

    def _note_ends(self) -> None:
        ends = dict(self._calls.take_ends())
        if ends:
            self._ends.update(ends)
            self._changed.notify_all()

    # -- tasks --------------------------------------------------------------------------------

    def line(
        self, holder: Holder, committed: int, gathers: bool, wake: Callable[[], None]
    ) -> DeskLine:
        """Return a task's line; an earlier one of the same task ends."""
        with self._changed:
            self._calls.attach(holder, committed, self._clock(), gathers=gathers)
            self._wakes[holder] = wake
        return DeskLine(self, holder)

    @property
    def number(self) -> str:
        return self._calls.number

    def take(self, holder: Holder) -> list[Request]:
        with self._changed:
            self._calls.expire(self._clock())
            self._note_ends()
            return self._calls.take(holder, self._clock())

    def grant(self, holder: Holder, credit: int) -> None:
        with self._changed:
            self._calls.grant(holder, credit)

    def done(self, id: str, part: str, parts: Iterable[str]) -> None:
        with self._changed:
            self._calls.done(id, self._clock(), part, parts)
            self._note_ends()

    def fail(self, id: str, reason: str) -> None:
        with self._changed:
            self._calls.fail(id, reason)
            self._note_ends()

    def settle_anew(self, holder: Holder) -> None:
        with self._changed:
            self._calls.settle_anew(holder, self._clock())

    def detach(self, holder: Holder) -> None:
        with self._changed:
            self._calls.detach(holder)

    def answer(self, results: Iterable[tuple[str, str]]) -> int:
        """Take results; return how many of them were the answer of a call."""
        with self._changed:
            now = self._clock()
            answered = sum(self._calls.answer(id, result, now) for id, result in results)
            self._note_ends()
            return answered


class DeskLine:
    """A `Line` to a desk."""

    def __init__(self, desk: Desk, holder: Holder) -> None:
        self._desk, self._holder = desk, holder

    @property
    def number(self) -> str:
        return self._desk.number

    def take(self) -> list[Request]:
        return self._desk.take(self._holder)

    def grant(self, credit: int) -> None:
        self._desk.grant(self._holder, credit)

    def done(self, id: str, part: str, parts: Iterable[str]) -> None:
        self._desk.done(id, part, parts)

    def fail(self, id: str, reason: str) -> None:
        self._desk.fail(id, reason)

    def settle_anew(self) -> None:
        self._desk.settle_anew(self._holder)

    def close(self) -> None:
        self._desk.detach(self._holder)


class DeskAnswers:
    """`Answers` to a desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._answered = 0

    def send(self, results: Iterable[tuple[str, str]]) -> None:
        self._answered += self._desk.answer(results)

    def deliver(self, results: list[tuple[str, str]]) -> list[tuple[str, str]]:
        self.send(results)
        return []

    def take_answered(self) -> int:
        answered, self._answered = self._answered, 0
        return answered

    def close(self) -> None:
        pass


_LOOK_SECS = 0.05
_desks: WeakValueDictionary[str, Desk] = WeakValueDictionary()


def open_desk(checkpoint: str, clock: Callable[[], float], functions: Iterable[str]) -> Desk:
    """Open the desk of a run in this process; its components find it by their checkpoint's id."""
    desk = _desks[checkpoint] = Desk(clock, functions)
    return desk


def desk_of(checkpoint: str) -> Desk | None:
    """Return the desk of a run in this process, if there is one."""
    return _desks.get(checkpoint)
