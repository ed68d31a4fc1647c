"""Framed messages (`process.framing`) over sockets that never block.

Both ends of the slots' pipes with Spark's JVM and with the coordinator speak it. A call of gRPC
takes a millisecond in Python and has to be asked for; here whoever has something says so. An
address is the path of a unix socket, or HOST:PORT between machines, where TLS may encrypt it.

A stream belongs to one thread.
"""

from __future__ import annotations

import hmac
import selectors
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from topo.config.masters import split_address
from topo.engine.spark.process.framing import (
    HEAD,
    close_in_children,
    listen_at,
    pack_head,
    widen,
)

if TYPE_CHECKING:
    import ssl

_READ_BYTES = 1 << 18
_STRANGERS_BYTES = 1 << 16
_WRITTEN_BYTES = 1 << 18  # at a time: TLS has to be given the same bytes again if it cannot
_MOST_STRANGERS = 64
_CONNECT_SECS = 30.0
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class MessageStream:
    """One connection. `receive` gives what has come; `send` collects, `flush` writes.

    Whoever announces a first message of more than `most_bytes` is hung up on, until `trust`.
    """

    def __init__(
        self,
        connection: socket.socket,
        selector: selectors.BaseSelector,
        most_bytes: int | None = None,
    ) -> None:
        close_in_children(connection)
        connection.setblocking(False)
        if connection.family == socket.AF_UNIX:
            widen(connection)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.is_open = True
        self._most_bytes = most_bytes
        self._on_event: Callable[[], None] = _nothing
        self._unread: list[tuple[int, bytes]] = []
        self._connection = connection
        self._selector = selector
        self._in = bytearray()
        self._out = bytearray()
        self._interest = READ
        self._is_reading = True
        selector.register(connection, READ, self)

    @property
    def waiting(self) -> int:
        """The number of bytes that are still to be written."""
        return len(self._out)

    def listen(self, on_event: Callable[[], None]) -> None:
        """Have this called when something can be received."""
        self._on_event = on_event

    def trust(self, unread: list[tuple[int, bytes]]) -> None:
        """Take messages of any size from now on; `receive` returns these first."""
        self._most_bytes = None
        self._unread = unread

    def event(self, mask: int) -> None:
        """Do what the selector says is possible."""
        if mask & WRITE:
            self.flush()
        if mask & READ and self.is_open:
            self._on_event()

    def send(self, key: int, *parts: Any) -> None:
        """Add a message; it goes out with the next flush."""
        self._out += pack_head(key, sum(map(len, parts)))
        for part in parts:
            self._out += part

    def flush(self) -> None:
        """Write what can be written now; the rest goes when the selector says so."""
        while self._out and self.is_open:
            try:
                written = self._connection.send(memoryview(self._out)[:_WRITTEN_BYTES])
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return
            del self._out[:written]
        self._watch()

    def read(self, is_reading: bool) -> None:
        """Stop reading, so that the other end waits, or read again."""
        self._is_reading = is_reading
        self._watch()

    def receive(self) -> list[tuple[int, bytes]]:
        """Return the messages that are here. At the end of the stream it closes."""
        try:
            data = self._connection.recv(_READ_BYTES)
        except BlockingIOError:
            data = None
        except OSError:
            data = b""
        if data == b"":
            self.close()
        messages, self._unread = self._unread, []
        if not data:
            return messages
        self._in += data
        at, end = 0, len(self._in)
        while end - at >= HEAD.size:
            key, size = HEAD.unpack_from(self._in, at)
            if self._most_bytes is not None and size > self._most_bytes and not messages:
                self.close()
                return []
            start = at + HEAD.size
            if end - start < size:
                break
            at = start + size
            messages.append((key, bytes(memoryview(self._in)[start:at])))
        del self._in[:at]
        return messages

    def close(self) -> None:
        """Close; what was not written yet is lost."""
        if self.is_open:
            self.is_open = False
            if self._interest:
                self._selector.unregister(self._connection)
            self._connection.close()

    def _watch(self) -> None:
        interest = (READ if self._is_reading else 0) | (WRITE if self._out else 0)
        if interest == self._interest or not self.is_open:
            return
        if not interest:
            self._selector.unregister(self._connection)
        elif not self._interest:
            self._selector.register(self._connection, interest, self)
        else:
            self._selector.modify(self._connection, interest, self)
        self._interest = interest


class Listener:
    """A listening socket that hands each stream on once its first message has shown the token."""

    def __init__(
        self,
        address: str,
        token: str,
        selector: selectors.BaseSelector,
        accepted: Callable[[MessageStream, int], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._token = token
        self._tls = tls
        self._selector = selector
        self._accepted = accepted
        self._strangers: list[MessageStream] = []
        self._socket = _listening_at(address)
        self._socket.setblocking(False)
        selector.register(self._socket, READ, self)

    @property
    def port(self) -> int:
        """The port of a socket between machines."""
        return int(self._socket.getsockname()[1])

    def event(self, mask: int) -> None:
        """Take in whoever connects."""
        try:
            connection, _ = self._socket.accept()
            if self._tls is not None:
                connection = self._tls.wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
        except OSError:  # it is gone again
            return
        stream = MessageStream(connection, self._selector, _STRANGERS_BYTES)
        stream.listen(lambda: self._greet(stream))
        self._strangers = [stranger for stranger in self._strangers if stranger.is_open]
        if len(self._strangers) >= _MOST_STRANGERS:
            self._strangers.pop(0).close()
        self._strangers.append(stream)

    def close(self) -> None:
        """Accept nobody any more."""
        self._selector.unregister(self._socket)
        self._socket.close()
        for stream in self._strangers:
            stream.close()

    def _greet(self, stream: MessageStream) -> None:
        messages = stream.receive()
        if not messages:
            return
        (key, token), unread = messages[0], messages[1:]
        if not hmac.compare_digest(token, self._token.encode()):
            stream.close()
            return
        self._strangers.remove(stream)
        stream.trust(unread)
        self._accepted(stream, key)
        if unread:
            stream.event(READ)


def _listening_at(address: str) -> socket.socket:
    if address.startswith("/"):
        return listen_at(address)
    where = _plain(split_address(address))
    server = socket.create_server(where, family=_family(where[0]), backlog=256)
    close_in_children(server)
    return server


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def connect(
    address: str,
    token: str,
    key: int,
    selector: selectors.BaseSelector,
    tls: ssl.SSLContext | None = None,
) -> MessageStream:
    """Connect to a listener, as `key`; an OSError says why not."""
    if address.startswith("/"):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(address)
        except OSError:
            connection.close()
            raise
    else:
        where = _plain(split_address(address))
        connection = socket.create_connection(where, _CONNECT_SECS)
        if tls is not None:
            connection = tls.wrap_socket(connection, server_hostname=where[0])
    stream = MessageStream(connection, selector)
    stream.send(key, token.encode())
    stream.flush()
    return stream


def _plain(where: tuple[str, int]) -> tuple[str, int]:
    """Return an address without the brackets of an IPv6 host."""
    return where[0].strip("[]"), where[1]


def _nothing() -> None:
    pass
