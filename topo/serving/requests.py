"""The reading of requests that several servers have in common: host, query, body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from topo.config.masters import is_loopback, split_address
from topo.serving.access import Refused
from topo.serving.endpoints import MOST_BODY_BYTES, Endpoint


class OwnHost:
    """An application that answers to no other host's name, if it is bound to loop-back.

    A web page of another site could else give its own name to this address, and read the answers
    through a browser.
    """

    def __init__(self, app: ASGIApp, bind: str) -> None:
        self._app = app
        self._is_local = is_loopback(split_address(bind)[0])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it with 421."""
        app = self._app
        if scope["type"] == "http" and self._is_local and not _names_loopback(Request(scope)):
            app = PlainTextResponse("this host has another name\n", 421)
        await app(scope, receive, send)


def _names_loopback(request: Request) -> bool:
    try:
        name = urlsplit(f"//{request.headers.get('host', '')}").hostname
    except ValueError:
        return False
    return name is None or is_loopback(name)


async def arguments_of(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    """Return the values of a request's path, query and body, checked; raise Refused."""
    arguments = endpoint.arguments(request.path_params, query_of(request))
    if endpoint.method != "GET":
        arguments |= endpoint.body_arguments(await body_of(request, endpoint.most_bytes))
    return arguments


def query_of(request: Request) -> Mapping[str, str]:
    """Return the query; raise Refused if a name is given twice."""
    query: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in query:
            raise Refused(400, f"{name[:100]!r} is given twice")
        query[name] = value
    return query


async def body_of(request: Request, most_bytes: int = MOST_BODY_BYTES) -> bytes:
    """Return a request's body; raise Refused as soon as it has too many bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise Refused(413, f"the body has more than {most_bytes} bytes")
    return bytes(body)


def problem(status: int, code: str, message: str, hint: str = "") -> Response:
    """Return an error as a JSON document."""
    return JSONResponse({"error": code, "message": message, "hint": hint}, status_code=status)
