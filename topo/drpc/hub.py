"""The machine of `calls` in an asyncio loop: futures of callers, streams of tasks, one timer.

Everything here runs in the loop's thread. The fronts, gRPC and HTTP, are coroutines of that loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from topo.drpc.calls import Calls, End, Figures, Holder, Request
from topo.tracking.clock import monotonic


class TaskStream:
    """A task's stream: requests are sent when `wake` is set."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.wake = asyncio.Event()
        self.is_over = False
        self.sent = 0

    def end(self) -> None:
        self.is_over = True
        self.wake.set()


class Hub:
    """A server's calls in its loop."""

    def __init__(self, calls: Calls, clock: Callable[[], float] = monotonic) -> None:
        self.calls = calls
        self._clock = clock
        self._futures: dict[str, asyncio.Future[End]] = {}
        self._streams: dict[Holder, TaskStream] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    async def call(self, function: str, args: str, secs: float) -> End:
        """Take a call in and wait for its end; a client that goes cancels this."""
        id = self.calls.call(function, args, self._clock(), secs)
        future: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._futures[id] = future
        self.settle()
        try:
            return await future
        except asyncio.CancelledError:
            self.calls.gone(id)
            raise
        finally:
            self._futures.pop(id, None)

    def settle(self) -> None:
        """Pass on what has come of a change: ends, requests, the time of the next."""
        for id, end in self.calls.take_ends():
            future = self._futures.get(id)
            if future is not None and not future.done():
                future.set_result(end)
        for holder in self.calls.to_send:
            stream = self._streams.get(holder)
            if stream is not None:
                stream.wake.set()
        due = self.calls.next_due()
        if due is None or (self._timer is not None and self._timer_at <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        left = max(0.0, due - self._clock())
        self._timer = asyncio.get_running_loop().call_later(left, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self.calls.expire(self._clock())
        self.settle()

    # -- tasks --------------------------------------------------------------------------------

    def attach(self, holder: Holder, committed: int, gathers: bool) -> TaskStream:
        """Begin a task's stream; an earlier one of the same task ends."""
        before = self._streams.get(holder)
        if before is not None:
            before.end()
        stream = self._streams[holder] = TaskStream(holder)
        self.calls.attach(holder, committed, self._clock(), gathers=gathers)
        self.settle()
        return stream

    def leave(self, stream: TaskStream) -> None:
        """Take note that a stream has ended."""
        if self._streams.get(stream.holder) is stream:
            del self._streams[stream.holder]
            self.calls.detach(stream.holder)

    def allow(self, stream: TaskStream, upto: int) -> None:
        """Let so many requests in all be sent on a stream."""
        if self._streams.get(stream.holder) is stream:
            self.calls.grant(stream.holder, max(0, upto - stream.sent))
            self.settle()

    def take(self, stream: TaskStream) -> list[Request]:
        """Return what is to be sent on a stream."""
        if self._streams.get(stream.holder) is not stream:
            return []
        requests = self.calls.take(stream.holder, self._clock())
        stream.sent += len(requests)
        return requests

    def conclude(self, id: str, part: str, parts: Iterable[str], reason: str | None) -> None:
        """Hear that a tree of a request is done; with a reason, that it has failed."""
        if reason is None:
            self.calls.done(id, self._clock(), part, parts)
        else:
            self.calls.fail(id, reason)
        self.settle()

    def settle_anew(self, stream: TaskStream) -> None:
        """Hear that the first batch of a task that came back has committed."""
        if self._streams.get(stream.holder) is stream:
            self.calls.settle_anew(stream.holder, self._clock())
            self.settle()

    def answer(self, results: Iterable[tuple[str, str]]) -> int:
        """Take results; return how many came after their call's end."""
        late = sum(not self.calls.answer(id, text, self._clock()) for id, text in results)
        self.settle()
        return late

    @property
    def figures(self) -> Figures:
        return self.calls.figures

    def close(self) -> None:
        """End all calls and streams."""
        self.calls.close()
        self.settle()
        for stream in list(self._streams.values()):
            stream.end()
        if self._timer is not None:
            self._timer.cancel()
