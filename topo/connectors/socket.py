"""Reads lines from a TCP socket, as `nc -lk PORT` serves them; at most once."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from topo.connectors.addresses import check_tls, connecting_failed, tls_context
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_positive
from topo.connectors.feeds import Feed, FeedSpout, Item, Receiver
from topo.connectors.formats import Decode, Format
from topo.connectors.picking import Missing
from topo.connectors.retries import Backoff
from topo.errors import ComponentError

_NAME = "SocketSpout"
_CONNECT_SECS = 10.0


class Line(NamedTuple):
    """A line, its value decoded; what `translate` is given."""

    value: Any


class SocketSpout(FeedSpout):
    """A spout of the lines that a server sends.

    By default a tuple is the line without its end; with `value="json"`, `fields` names keys of it.
    A connection that ends is made again. What a process that dies had read is lost.
    """

    connector = _NAME

    @answering()
    def __init__(
        self,
        host: str,
        port: int,
        *,
        value: str | Format | Decode = "str",
        fields: str | Iterable[str] = (),
        translate: Callable[[Line], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        max_line: int = 1_000_000,
        max_in_flight: int = 10_000,
        tls: Mapping[str, Any] | None = None,
        missing: Missing = "null",
        on_bad: OnBad = "stop",
        track: bool | None = None,
        retry: Backoff | None = None,
    ) -> None:
        if not isinstance(host, str) or not host:
            raise ComponentError(f"{_NAME}: host={host!r}; it is a name or an address")
        check_positive(_NAME, port=port, max_line=max_line, max_in_flight=max_in_flight)
        check_tls(_NAME, tls)
        self.host, self.port, self.max_line = host, port, max_line
        self.tls = None if tls is None else dict(tls)
        self.set_up(
            Line,
            ("value",),
            most=max_in_flight,
            track=track,
            retry=retry,
            value=value,
            fields=fields,
            translate=translate,
            streams=streams,
            missing=missing,
            on_bad=on_bad,
        )

    def source(self) -> _Lines:
        return _Lines(self.host, self.port, self.max_line, self.tls)


class _Lines(Receiver):
    """Connects to a server and reads its lines."""

    def __init__(self, host: str, port: int, max_line: int, tls: Mapping[str, Any] | None) -> None:
        self._address, self._max_line = (host, port), max_line
        self.where = f"{host}:{port}"
        self._context = None if tls is None else tls_context(_NAME, tls)
        self._socket: socket.socket | None = None

    def receive(self, feed: Feed, position: Any) -> None:
        with socket.create_connection(self._address, timeout=_CONNECT_SECS) as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._context is None:
                self._read(feed, plain)
                return
            with self._context.wrap_socket(plain, server_hostname=self._address[0]) as secure:
                self._read(feed, secure)

    def _read(self, feed: Feed, connection: socket.socket) -> None:
        connection.settimeout(None)
        self._socket = connection
        if feed.is_closed:
            return
        feed.connected()
        with connection.makefile("rb") as lines:
            while line := lines.readline(self._max_line + 1):
                if len(line) > self._max_line and not line.endswith(b"\n"):
                    raise ComponentError(
                        f"{_NAME}: {self.where}: a line of more than {self._max_line:,} bytes",
                        hint="max_line= sets the limit",
                    )
                raw = line.rstrip(b"\r\n")
                if not feed.put(Item(raw, Line, None, self.where, len(raw))):
                    return

    def interrupt(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def in_words(self, error: Exception) -> Exception:
        return connecting_failed(_NAME, self.where, error)
