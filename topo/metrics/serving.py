"""Figures over HTTP without web pages: for Prometheus, where an acker or a driver runs alone.

The pages show names and counts of topologies and need no token, so the address must be reachable
only for those who may know these; it is never opened by default.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

from topo.errors import TopoError, words_of

Page: TypeAlias = Callable[[str, Mapping[str, list[str]]], tuple[bytes, str]]
"""Makes a body and its content type from the Accept header and the query of a request."""


class BindError(TopoError):
    """Nothing can be served at an address."""

    code = "os"


class FigureServer:
    """A server of pages that are made at the time of the request; `stop` ends it."""

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = urlsplit(self.path)
                page = pages.get(asked.path)
                if page is None:
                    self.send_error(404)
                    return
                body, kind = page(self.headers.get("Accept", ""), parse_qs(asked.query))
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: a scrape comes every few seconds."""

        try:
            self._server = ThreadingHTTPServer((host.strip("[]"), port), Handler)
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
