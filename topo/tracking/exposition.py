"""An acker's figures over HTTP: `/metrics` for Prometheus, `/` for people.

The pages show names and counts of topologies and need no token, so the address must be reachable
only for those who may know these; it is never opened by default.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from topo.errors import AckerError
from topo.tracking.epochs import Figures
from topo.tracking.figures import for_people, for_prometheus
from topo.tracking.security import split_address

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """A server of the figures that `figures` returns at the time of the request."""

    def __init__(self, bind: str, figures: Callable[[], Mapping[str, Figures]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                pages = {"/metrics": (for_prometheus, _PROMETHEUS), "/": (for_people, "text/plain")}
                if self.path not in pages:
                    self.send_error(404)
                    return
                render, kind = pages[self.path]
                body = render(figures()).encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: a scrape comes every few seconds."""

        host, port = split_address(bind)
        try:
            self._server = ThreadingHTTPServer((host.strip("[]"), port), Handler)
        except OSError as error:
            raise AckerError(
                f"cannot serve figures on {bind}: {(error.strerror or str(error)).lower()}",
                code="acker-bind",
                hint="is the port taken? port 0 takes any free one",
            ) from None
        self.address = f"{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
