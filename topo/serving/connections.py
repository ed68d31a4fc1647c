"""Connections of a server, with limits on what a stranger can hold.

uvicorn refuses everybody once it has so many connections, and waits for ever for a request's head
and body, and for a reader. So each of these has its time here, and when there are many connections
the one that has kept the server waiting for longest makes room.
"""

from __future__ import annotations

import asyncio
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


class LimitedConnection(H11Protocol):
    """A connection that is closed if it keeps the server waiting."""

    def __init__(self, *arguments: Any, most: int | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._most = MOST_CONNECTIONS if most is None else most
        self._awaited: Any = None  # the state of the client's side, while it is waited for
        self._awaited_since = 0.0
        self._too_late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_client()
        if len(self.connections) > self._most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._too_late, self._unread):
            if timer is not None:
                timer.cancel()
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
        self._unread = self.loop.call_later(READ_SECS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _await_client(self) -> None:
        """Start the time of a head or a body when it is waited for; stop it when it is there."""
        state = self.conn.their_state
        awaited = state if state in (h11.IDLE, h11.SEND_BODY) else None
        if awaited is self._awaited:
            return
        if self._too_late is not None:
            self._too_late.cancel()
            self._too_late = None
        self._awaited = awaited
        if awaited is not None:
            secs = HEAD_SECS if awaited is h11.IDLE else BODY_SECS
            self._awaited_since = self.loop.time()
            self._too_late = self.loop.call_later(secs, self.transport.abort)

    def _make_room(self) -> None:
        waiting = [
            each
            for each in self.connections
            if isinstance(each, LimitedConnection) and each._awaited is not None
        ]
        if waiting:
            min(waiting, key=lambda each: each._awaited_since).transport.abort()
