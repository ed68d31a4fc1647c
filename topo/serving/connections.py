"""Connections of a server, with limits on what a stranger can hold.

uvicorn refuses everybody once it has so many connections, and waits for ever for a request's head
and body, and for a reader. So each of these has its time here, and when there are many connections
the one that has kept the server waiting for longest makes room.

uvicorn also writes a line or two for each malformed request. The log may be that of a topology's
driver, which is cut to a size: strangers must not fill it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECS = 10.0
BODY_SECS = 60.0
READ_SECS = 60.0
"""How long a client may leave unread what it was sent."""
MOST_CONNECTIONS = 400
"""Of the pages, which keep streams open; a process with other work allows fewer."""
MOST_AT_ONCE = 500
"""Requests in work and connections, beyond which uvicorn itself answers 503."""
_UNREAD = "unread"
_log = logging.getLogger("topo.serving.connections")
_log.setLevel(logging.ERROR)  # mistakes of the application, and not the warnings about requests
_log.addFilter(lambda record: not _is_of_the_end(record))


class LimitedConnection(H11Protocol):
    """A connection that is closed if it keeps the server waiting."""

    def __init__(self, *arguments: Any, most: int | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.logger = _log
        self._most = MOST_CONNECTIONS if most is None else most
        self._awaited: Any = None  # the client's state, while it is waited for; or _UNREAD
        self._awaited_since = 0.0
        self._too_late: asyncio.TimerHandle | None = None
        self._is_unread = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_client()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._too_late is not None:
            self._too_late.cancel()
        self._awaited = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_client()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_client()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._is_unread = True
        self._await_client()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_unread = False
        self._await_client()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is malformed, or end the connection if it has had its answer already."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()
        if self.cycle is not None:  # the application, which has none to answer any more
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _await_client(self) -> None:
        """Start the time of what is waited for; stop it when it is there.

        Nobody owes the head of a next request before the last answer is read, which has a time of
        its own.
        """
        state: Any = _UNREAD if self._is_unread else self.conn.their_state
        secs = {h11.IDLE: HEAD_SECS, h11.SEND_BODY: BODY_SECS, _UNREAD: READ_SECS}.get(state)
        awaited = None if secs is None else state
        if awaited is self._awaited:
            return
        if self._too_late is not None:
            self._too_late.cancel()
            self._too_late = None
        self._awaited = awaited
        if secs is not None:
            self._awaited_since = self.loop.time()
            self._too_late = self.loop.call_later(secs, self.transport.abort)

    def _make_room(self) -> None:
        """Abort the connection that is waited for the longest, if there are too many.

        One that is aborted is counted until the loop's next turn, and many may be made in one turn.
        """
        if len(self.connections) <= self._most:
            return
        open_ones = [each for each in self.connections if not each.transport.is_closing()]
        waiting = [
            each
            for each in open_ones
            if isinstance(each, LimitedConnection) and each._awaited is not None
        ]
        if waiting and len(open_ones) > self._most:
            min(waiting, key=lambda each: each._awaited_since).transport.abort()


def _is_of_the_end(record: logging.LogRecord) -> bool:
    """True iff a request was cut off since its server has ended, which is nobody's mistake."""
    return record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
