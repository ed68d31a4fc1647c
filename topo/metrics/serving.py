"""Figures over HTTP without web pages: for Prometheus, where an acker or a driver runs alone.

The pages show names and counts of topologies and need no token, so the address must be reachable
only for those who may know these; it is never opened by default. A connection has seconds for all
of its request and answer, and the oldest makes room if there are many: strangers can neither take
the files of the process that serves nor keep others out. On loop-back, a web page of another site
is refused, which could give its own name to this address and read the figures through a browser.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from topo.config.masters import is_loopback
from topo.errors import TopoError, words_of

REQUEST_SECS = 10.0
_MOST_CONNECTIONS = 64

Answer: TypeAlias = tuple[bytes, str, int]
"""A body, its content type, and the status of HTTP's."""
Page: TypeAlias = Callable[[str, Mapping[str, list[str]]], tuple[bytes, str] | Answer]
"""Makes an answer, without a status if all is well, from the Accept header and the query."""


class BindError(TopoError):
    """Nothing can be served at an address."""

    code = "os"


class FigureServer:
    """A server of pages that are made at the time of the request; `stop` ends it."""

    def __init__(
        self, host: str, port: int, pages: Mapping[str, Page], *, request_secs: float = REQUEST_SECS
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            disable_nagle_algorithm = True  # else the body waits 40 ms for the head's receipt

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                page = pages.get(url.path)
                if not _may_ask(host, self.headers.get("Host", "")):
                    self.send_error(421)
                    return
                if page is None:
                    self.send_error(404)
                    return
                body, kind, *status = page(self.headers.get("Accept", ""), parse_qs(url.query))
                self.send_response(status[0] if status else 200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: a scrape comes every few seconds."""

        try:
            self._server = _Bounded((host.strip("[]"), port), Handler, request_secs)
        except OSError as error:
            raise BindError(
                f"cannot serve figures on {host}:{port}: {words_of(error)}",
                hint="is the port taken? port 0 takes any free one",
            ) from None
        self.address = f"{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the server; requests in work are finished."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Bounded(ThreadingHTTPServer):
    """A server with limits on the number of its connections, and on the time of each."""

    request_queue_size = 128  # of connections not accepted yet; 5 would have others wait seconds

    def __init__(self, address: tuple[str, int], handler: Any, request_secs: float) -> None:
        self._request_secs = request_secs
        self._guard = threading.Lock()
        self._since: dict[Any, float] = {}  # when each open connection came, the oldest first
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            if len(self._since) >= _MOST_CONNECTIONS:
                self._cut(next(iter(self._since)))
            self._since[request] = time.perf_counter()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._since.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut the connections whose time is over; called twice a second."""
        with self._guard:
            due = time.perf_counter() - self._request_secs
            for request in [each for each, since in self._since.items() if since <= due]:
                self._cut(request)

    def _cut(self, request: Any) -> None:
        """End a connection's reads and writes; its thread closes it."""
        del self._since[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of mistakes of the pages only: who asked may have gone, or was cut off."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _may_ask(bound: str, given: str) -> bool:
    """Return True unless a server on loop-back is asked for by the name of another host."""
    try:
        name = urlsplit(f"//{given}").hostname
    except ValueError:
        return False
    return name is None or is_loopback(name) or not is_loopback(bound)
