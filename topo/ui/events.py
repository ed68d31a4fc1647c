"""Server-sent events: figures and log lines as they come, to pages that are open.

Nothing is asked of registry and drivers while no page is open. Pages that show the same share one
answer. A stream ends with the session it was opened in, and with the server.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from topo.errors import TopoError
from topo.logs.reader import LogReader
from topo.manage.documents import plain

FIGURES_SECS = 2.0
SHARED_SECS = 1.0
"""How old an answer to somebody else may be."""
LOGS_SECS = 0.5
ALIVE_SECS = 15.0
"""How often a stream says something at least, so that one whose page has gone is noticed."""
_MOST_LINES = 500
"""Of one event; of more the last are sent."""
MOST_STREAMS = 100
Check: TypeAlias = Callable[[], object]
"""Raises a TopoError if the sender of a request may not have its answer, or not any more."""


class TooManyStreams(TopoError):
    """More pages are open than one server is meant for."""

    code = "too-many-streams"


class Shared:
    """Answers that several requests may have in common; used from one event loop.

    Twenty pages that show the same cost a driver what two cost. A failure is nobody else's answer:
    what was not there may be by now.
    """

    def __init__(self, max_age: float = SHARED_SECS) -> None:
        self._max_age = max_age
        self._answers: dict[tuple[Any, ...], tuple[float, asyncio.Task[Any]]] = {}

    def forget(self) -> None:
        """Have everything asked anew, since something was changed."""
        self._answers.clear()

    async def ask(self, key: tuple[Any, ...], question: Callable[[], Any]) -> Any:
        """Return the answer to `question`, which runs in a thread unless one is fresh enough."""
        now = time.monotonic()
        self._answers = {
            kept: (at, task)
            for kept, (at, task) in self._answers.items()
            if not task.done() or (now - at < self._max_age and task.exception() is None)
        }
        if key not in self._answers:
            task = asyncio.ensure_future(run_in_threadpool(question))
            self._answers[key] = (now, task)
        return await asyncio.shield(self._answers[key][1])


class Streams:
    """The open event streams of one server."""

    def __init__(self, shared_secs: float = SHARED_SECS) -> None:
        self.shared = Shared(shared_secs)
        self._open = 0
        self._over = asyncio.Event()

    def figures(
        self, key: tuple[Any, ...], question: Callable[[], Any], check: Check
    ) -> StreamingResponse:
        """Return a stream of the answers to `question`, one each two seconds."""
        return self._response(self._figures(key, question), check)

    def lines(self, reader: LogReader, count: int, check: Check) -> StreamingResponse:
        """Return a stream of the last `count` lines of a reader, and of those that come."""
        return self._response(self._lines(reader, count), check, reader.close)

    def close(self) -> None:
        """End every stream; called in the event loop."""
        self._over.set()

    def _response(
        self, events: AsyncIterator[str], check: Check, done: Callable[[], None] = lambda: None
    ) -> StreamingResponse:
        if self._open >= MOST_STREAMS:
            raise TooManyStreams(f"{self._open} pages are open already", hint="close some")
        return StreamingResponse(
            self._checked(events, check, done),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    async def _checked(
        self, events: AsyncIterator[str], check: Check, done: Callable[[], None]
    ) -> AsyncIterator[str]:
        self._open += 1
        over = asyncio.ensure_future(self._over.wait())
        step: asyncio.Future[str] | None = None
        try:
            yield "retry: 1000\n\n"
            while True:
                step = asyncio.ensure_future(_next(events))
                await asyncio.wait({step, over}, return_when=asyncio.FIRST_COMPLETED)
                if over.done():
                    return
                try:
                    await run_in_threadpool(check)
                except TopoError:
                    return
                yield step.result()
        finally:
            self._open -= 1
            over.cancel()
            if step is not None:
                step.cancel()
            done()

    async def _figures(
        self, key: tuple[Any, ...], question: Callable[[], Any]
    ) -> AsyncIterator[str]:
        while True:
            try:
                yield await self.shared.ask(key, lambda: event("figures", plain(question())))
            except TopoError as error:
                yield _problem(error)
            except Exception as error:  # the page is told, and goes on to ask
                yield event("problem", {"message": f"{type(error).__name__}: {error}", "hint": ""})
            await asyncio.sleep(FIGURES_SECS)

    async def _lines(self, reader: LogReader, count: int) -> AsyncIterator[str]:
        most, quiet_secs = count, 0.0
        try:
            while True:
                lines = await run_in_threadpool(reader.last, most)
                if lines or most == count:
                    yield event("lines", lines)
                    quiet_secs = 0.0
                elif quiet_secs >= ALIVE_SECS:
                    yield _ALIVE
                    quiet_secs = 0.0
                most = _MOST_LINES
                await asyncio.sleep(LOGS_SECS)
                quiet_secs += LOGS_SECS
        except TopoError as error:  # of the search: another try would come to the same
            yield _problem(error)
        while True:
            await asyncio.sleep(ALIVE_SECS)
            yield _ALIVE


async def _next(events: AsyncIterator[str]) -> str:
    return await anext(events)


_ALIVE = ": alive\n\n"


def _problem(error: TopoError) -> str:
    return event("problem", {"message": error.message, "hint": error.hint})


def event(kind: str, document: object) -> str:
    """Return one event as it is sent; JSON has no line breaks of its own."""
    return f"event: {kind}\ndata: {json.dumps(document)}\n\n"
