"""A server of one URL that takes data in: each request is answered once its data is durable.

It runs in a thread of its own and trusts nobody: a request has limits of size and of time before
it is looked at, a connection that is slow is closed, and no more of them are open than it allows.
A general server would do too much here, and has no limit of time for the head of a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import secrets
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from topo.connectors.base import load_client
from topo.connectors.http.connection import CHUNK, Connection, Limits, Refusal
from topo.takeover import Shared

_RETRY_SECS = 1
_INACTIVE_SECS = 5
_VALUE_BYTES = 64
MOST_KEY = 200
"""Bytes of an Idempotency-Key: as many keys as the spout remembers are in the topology's state."""


@dataclass(eq=False)
class Arrived:
    """A request whose data waits to be emitted, or to become durable."""

    records: list[Any]
    size: int
    headers: dict[str, str]
    path: str
    client: str
    key: str | None
    answer: asyncio.Future[tuple[int, Any]]
    serial: int = -1
    batch: int = -1
    """The batch that emitted it."""


Decode = Callable[[bytes, str], list[Any]]
"""Makes records of a body and its content type; raises Refusal or ValueError."""


class Ingest(Shared):
    """The server and its queue. The task's thread takes and commits; the server's does the rest."""

    def __init__(
        self,
        bind: tuple[str, int],
        path: str,
        decode: Decode,
        limits: Limits,
        *,
        token: str | None,
        context: ssl.SSLContext | None,
        wake: Callable[[], None],
    ) -> None:
        self._h11 = load_client("h11", "HttpSpout", "http")
        self._bind, self._path, self._decode, self._limits = bind, path, decode, limits
        self._token, self._context, self._wake = token, context, wake
        self._lock = threading.Lock()
        self._queue: deque[Arrived] = deque()
        self._emitted: deque[Arrived] = deque()
        self._bytes = 0
        self._serial = 0
        self._is_local = _is_loopback(bind[0])
        self._connections: set[asyncio.Task[None]] = set()
        self.is_active = False
        self.nonce = secrets.token_hex(8)
        """A name that no other server has."""
        self.refused = 0
        """Requests that were answered with an error, since they were last counted."""
        self.port = 0
        self.error: OSError | None = None
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="topo-http", daemon=True
        )
        self._thread.start()
        started.wait()

    # -- the task's thread --------------------------------------------------------------------

    def take(self, most: int) -> list[Arrived]:
        """Take requests, until they have so many records; those that gave up are gone."""
        taken: list[Arrived] = []
        count = 0
        with self._lock:
            while self._queue and count < most:
                arrived = self._queue.popleft()
                count += len(arrived.records) or 1
                taken.append(arrived)
                self._emitted.append(arrived)
        return taken

    def commit(self, batch: int) -> None:
        """Answer the requests that this batch, or an earlier one, has emitted."""
        done: list[Arrived] = []
        with self._lock:
            while self._emitted and self._emitted[0].batch <= batch:
                done.append(self._emitted.popleft())
        self._settle(done)

    def rewind(self, serial: int) -> None:
        """Answer what is committed, up to this number; have the rest taken again."""
        done: list[Arrived] = []
        with self._lock:
            while self._emitted:
                arrived = self._emitted.pop()
                if arrived.serial <= serial:
                    done.append(arrived)
                else:
                    arrived.batch = -1
                    self._queue.appendleft(arrived)
        self._settle(done)

    def refuse(self, arrived: Arrived, status: int, reason: str) -> None:
        """Answer a request whose data is not taken after all."""
        with self._lock:
            self._emitted.remove(arrived)
        self._settle([arrived], (status, {"error": reason}))

    def _settle(self, done: Sequence[Arrived], answer: Any = None) -> None:
        if not done:
            return
        with self._lock:
            self._bytes -= sum(arrived.size for arrived in done)

        def tell() -> None:
            for arrived in done:
                if not arrived.answer.done():
                    arrived.answer.set_result(answer or (200, {"accepted": len(arrived.records)}))

        with contextlib.suppress(RuntimeError):  # the server is closed
            self._loop.call_soon_threadsafe(tell)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for their commit."""
        return len(self._queue) + len(self._emitted)

    def close(self) -> None:
        """Stop listening, close every connection, and end the thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(10)

    # -- the server's thread ------------------------------------------------------------------

    def _run(self, started: threading.Event) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            listening = _listening(*self._bind)
        except OSError as error:
            self.error = error
            started.set()
            loop.close()
            return
        self.port = listening[0].getsockname()[1]
        started.set()
        accepting = [loop.create_task(self._accept_from(each)) for each in listening]
        try:
            loop.run_forever()
        finally:
            tasks = {*accepting, *asyncio.all_tasks(loop)}
            for task in tasks:
                task.cancel()
            loop.run_until_complete(_ended(tasks))
            loop.run_until_complete(loop.shutdown_asyncgens())
            for each in listening:
                each.close()
            loop.close()

    async def _accept_from(self, listening: socket.socket) -> None:
        """Accept connections for ever; close at once those beyond the limit.

        They count from here on: asyncio's servers hear of a connection after its TLS handshake
        only, which a silent one never begins.
        """
        while True:
            try:
                connection, _ = await self._loop.sock_accept(listening)
            except OSError:  # the process has no more files, perhaps
                await asyncio.sleep(0.1)
                continue
            if len(self._connections) >= self._limits.connections:
                connection.close()
                continue
            task = self._loop.create_task(self._connect(connection))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        """Shake hands, and serve the connection."""
        secs = None if self._context is None else self._limits.read_secs
        reader = asyncio.StreamReader(CHUNK)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._context, ssl_handshake_timeout=secs
            )
        except OSError:
            self.refused += 1
            accepted.close()
            return
        await self._serve(reader, asyncio.StreamWriter(transport, protocol, reader, self._loop))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, whatever comes by it."""
        peer = writer.get_extra_info("peername")
        connection = Connection(self._h11, reader, writer, self._limits, str(peer and peer[0]))
        aborts = True
        try:
            while await connection.next_request():
                await self._answer(connection)
            aborts = connection.is_hostile
        except (OSError, TimeoutError, EOFError, self._h11.ProtocolError):
            self.refused += 1
            aborts = connection.is_hostile
        finally:
            with contextlib.suppress(Exception):
                writer.transport.abort() if aborts else writer.close()

    async def _answer(self, connection: Connection) -> None:
        try:
            self._check_head(connection)
            body = await connection.body()
            status, document = await self._accept(connection, body)
            headers: dict[str, str] = {}
        except Refusal as refusal:
            status, document, headers = refusal.status, {"error": refusal.reason}, refusal.headers
        if status != 200:
            self.refused += 1
        if status in (503, 504):
            headers = {"Retry-After": str(_RETRY_SECS), **headers}
        await connection.respond(status, document, headers)

    def _check_head(self, connection: Connection) -> None:
        """Raise Refusal for what is refused before a body is read."""
        if connection.path.partition("?")[0] != self._path:
            raise Refusal(404, f"there is only {self._path}")
        if self._token is None:
            self._check_not_a_page(connection.headers)
        else:
            kind, _, given = connection.headers.get("authorization", "").partition(" ")
            known = hmac.compare_digest(given.strip().encode(), self._token.encode())
            if kind.lower() != "bearer" or not known:
                raise Refusal(401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})
        if connection.method != "POST":
            raise Refusal(405, "data is posted", {"Allow": "POST"})
        if len(connection.headers.get("idempotency-key", "")) > MOST_KEY:
            raise Refusal(400, f"an Idempotency-Key has at most {MOST_KEY} bytes")
        if connection.headers.get("content-encoding", "identity") != "identity":
            raise Refusal(415, "a body has no content encoding here")
        self._check_room()

    def _check_not_a_page(self, headers: dict[str, str]) -> None:
        """Raise Refusal for a request that a web page makes: its user has not asked for it.

        A browser sends a simple POST to any address that it reaches, and asks nobody. A page may
        also give its own host's name a new address, that of this machine.
        """
        site = headers.get("sec-fetch-site", "none")
        if "origin" in headers or site not in ("none", "same-origin"):
            raise Refusal(403, "pages may post here with a token only: token=")
        if self._is_local and not _is_loopback(_host_of(headers.get("host", ""))):
            raise Refusal(
                403, "the Host is none of this machine, which a token would allow: token="
            )

    def _check_room(self) -> None:
        if not self.is_active:
            retry = {"Retry-After": str(_INACTIVE_SECS)}
            raise Refusal(503, "the topology is not active", retry)
        if self.waiting >= self._limits.waiting or self._bytes >= self._limits.waiting_bytes:
            raise Refusal(429, "too much is waiting", {"Retry-After": str(_RETRY_SECS)})

    async def _accept(self, connection: Connection, body: bytes) -> tuple[int, Any]:
        """Queue the data of a request, and wait until it is durable."""
        try:
            records = self._decode(body, connection.headers.get("content-type", ""))
        except (ValueError, RecursionError) as error:
            raise Refusal(400, f"the body cannot be read: {error}") from error
        self._check_room()
        if not records:
            return 200, {"accepted": 0}
        arrived = Arrived(
            records,
            decoded_size(body, records),
            connection.headers,
            connection.path,
            connection.client,
            connection.headers.get("idempotency-key"),
            self._loop.create_future(),
        )
        with self._lock:
            self._serial += 1
            arrived.serial = self._serial
            self._bytes += arrived.size
            self._queue.append(arrived)
        self._wake()
        try:
            async with asyncio.timeout(self._limits.answer_secs):
                return await arrived.answer
        except TimeoutError:
            with self._lock:
                was_taken = arrived not in self._queue
                if not was_taken:
                    self._queue.remove(arrived)
                    self._bytes -= arrived.size
            if was_taken:
                raise Refusal(504, "the data is not known to be durable yet") from None
            raise Refusal(503, "the data was not taken in time, and will not be") from None


def decoded_size(body: bytes, records: Sequence[Any]) -> int:
    """Return about how many bytes a body takes, once it is decoded.

    That is more than its length if it has many small values: `{},` is 3 bytes, an empty dict 64.
    """
    if all(isinstance(record, str | bytes) for record in records):
        return len(body) + _VALUE_BYTES * len(records)
    values = sum(map(body.count, (b",", b":", b"{", b"[")))
    return len(body) + _VALUE_BYTES * (values + len(records))


def _listening(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen at each address of a host."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listening: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(addresses):
            listening.append(socket.create_server(address, family=family, backlog=256))
            listening[-1].setblocking(False)
    except OSError:
        for each in listening:
            each.close()
        raise
    return listening


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _host_of(header: str) -> str:
    """Return the host of a Host header, without its port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.01)  # transports close in the loop's next turns
