"""Figures over HTTP without web pages: for Prometheus, where an acker or a driver runs alone.

The pages show names and counts of topologies and need no token, so the address must be reachable
only for those who may know these; it is never opened by default.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from topo.serving.listening import address_of, listening
from topo.serving.requests import OwnHost
from topo.serving.server import ServerThread, WebServer

MOST_CONNECTIONS = 64
"""Of a process with other work: strangers must not take all of its files."""
MOST_PAGES = 16
"""In work at a time: they share threads with a driver's control, which must have some left."""
Answer: TypeAlias = tuple[bytes, str, int]
"""A body, its content type, and the status of HTTP's."""
Page: TypeAlias = Callable[[str, Mapping[str, list[str]]], tuple[bytes, str] | Answer]
"""Makes an answer, without a status if all is well, from the Accept header and the query."""


def page_app(pages: Mapping[str, Page], bind: str) -> ASGIApp:
    """Return the application of pages by their paths, for a server that is bound to HOST:PORT."""
    in_work: set[object] = set()
    routes = [Route(path, _answering(page, in_work)) for path, page in pages.items()]
    return OwnHost(Router(routes, redirect_slashes=False), bind)


class FigureServer:
    """A server of pages that are made at the time of the request; `stop` ends it."""

    def __init__(self, bind: str, pages: Mapping[str, Page]) -> None:
        listener = listening(bind)
        self.address = address_of(listener, bind)
        server = WebServer(page_app(pages, bind), [listener], connections=MOST_CONNECTIONS)
        self._thread = ServerThread(server, "topo-figures")

    def stop(self) -> None:
        """End the server; requests in work are finished."""
        self._thread.stop()


def _answering(page: Page, in_work: set[object]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        if len(in_work) >= MOST_PAGES:
            return PlainTextResponse("too many requests are in work\n", 503)
        accept = request.headers.get("accept", "")
        query = parse_qs(request.scope["query_string"].decode("latin-1"))
        in_work.add(request)
        try:
            body, kind, *status = await run_in_threadpool(page, accept, query)
        finally:
            in_work.remove(request)
        return Response(body, status[0] if status else 200, {"Content-Type": kind})

    return answer
