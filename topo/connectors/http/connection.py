"""One connection of a client that sends data by HTTP: its requests and answers, within limits.

h11 does the protocol. Whatever a client sends has a limit of size and of time, the head of a
request as well: a few hundred idle connections would stop a server without one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

_HEAD_BYTES = 16_384
_IDLE_SECS = 75.0
CHUNK = 65_536
_WRITE_SECS = 10.0


@dataclass(frozen=True)
class Limits:
    """The bounds of what clients may ask of the server."""

    body_bytes: int
    waiting: int
    """Requests that wait for their commit."""
    waiting_bytes: int
    connections: int
    read_secs: float
    """For a whole request to arrive."""
    answer_secs: float
    """For its data to become durable."""


@dataclass(eq=False)
class Refusal(Exception):
    """A request that is not taken: the status, the reason, and other headers."""

    status: int
    reason: str
    headers: dict[str, str] = field(default_factory=dict)


class Connection:
    """The HTTP of one connection, with its limits."""

    def __init__(
        self,
        h11: Any,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limits: Limits,
        client: str,
    ) -> None:
        self._h11, self._reader, self._writer, self._limits = h11, reader, writer, limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._is_first = True
        self._until = 0.0
        self.client = client
        self.is_hostile = False
        self.method = self.path = ""
        self.headers: dict[str, str] = {}

    async def next_request(self) -> bool:
        """Read the head of the next request; return False at the connection's end."""
        http, h11 = self._http, self._h11
        if not self._is_first:
            if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                return False
            http.start_next_cycle()
        loop = asyncio.get_running_loop()
        idle = self._limits.read_secs if self._is_first else _IDLE_SECS
        self._until = loop.time() + idle
        self._is_first = False
        began = False
        try:
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    data = await self._read()
                    if not began and data:
                        began, self._until = True, loop.time() + self._limits.read_secs
                    http.receive_data(data)
                elif isinstance(event, h11.Request):
                    break
                else:
                    return False
        except TimeoutError:
            if began:
                await self._refuse(408, "the request did not arrive in time")
            return False
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint, str(error))
            return False
        self._until = min(self._until, loop.time() + self._limits.read_secs)
        self.method = event.method.decode("ascii")
        self.path = event.target.decode("ascii", "replace")
        self.headers = {
            name.decode("ascii"): value.decode("latin-1") for name, value in event.headers
        }
        return True

    async def body(self) -> bytes:
        """Read the body; raise Refusal if it is too large, too slow, or broken."""
        http, h11, most = self._http, self._h11, self._limits.body_bytes
        length = self.headers.get("content-length", "0")
        if int(length) > most:
            raise Refusal(413, f"a body has at most {most:,} bytes")
        if http.they_are_waiting_for_100_continue:
            await self._write(http.send(h11.InformationalResponse(status_code=100, headers=[])))
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    http.receive_data(await self._read())
                elif isinstance(event, h11.Data):
                    size += len(event.data)
                    if size > most:
                        raise Refusal(413, f"a body has at most {most:,} bytes")
                    parts.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    return b"".join(parts)
                else:
                    raise EOFError
        except TimeoutError:
            raise Refusal(408, "the body did not arrive in time") from None
        except h11.RemoteProtocolError as error:
            raise Refusal(error.error_status_hint, str(error)) from error

    async def respond(self, status: int, document: Any, headers: dict[str, str]) -> None:
        http, h11 = self._http, self._h11
        if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            raise EOFError
        body = json.dumps(document).encode()
        whole = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        whole += list(headers.items())
        if http.their_state is not h11.DONE:  # what is left of a body is not read
            whole.append(("Connection", "close"))
            self.is_hostile = status == 413
        sent = http.send(h11.Response(status_code=status, headers=whole))
        sent += http.send(h11.Data(data=body)) + http.send(h11.EndOfMessage())
        await self._write(sent)
        if self.is_hostile:
            await self._drain()

    async def _drain(self) -> None:
        """Read for a moment what is being sent, so that the client sees the answer."""
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(0.5):
                while await self._reader.read(CHUNK):
                    pass

    async def _refuse(self, status: int, reason: str) -> None:
        http, h11 = self._http, self._h11
        if http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            with contextlib.suppress(h11.LocalProtocolError):
                await self.respond(status, {"error": reason}, {})
        raise EOFError(reason)

    async def _read(self) -> bytes:
        async with asyncio.timeout_at(self._until):
            return await self._reader.read(CHUNK)

    async def _write(self, data: bytes | None) -> None:
        async with asyncio.timeout(_WRITE_SECS):
            self._writer.write(data or b"")
            await self._writer.drain()
