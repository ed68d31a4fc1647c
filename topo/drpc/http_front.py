"""A server's HTTP front, as in Storm: POST /drpc/F, GET /drpc/F/ARGS, GET /drpc/F.

The answer is text; an error has Storm's JSON, with the reason. Clients send their token as
`Authorization: Bearer TOKEN`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from topo.drpc.access import Access
from topo.drpc.calls import DEFAULT_SECS, LARGEST
from topo.drpc.errors import (
    FAILED_REQUEST,
    NOT_ALLOWED,
    SERVER_SHUTDOWN,
    SERVER_TIMEOUT,
    TOO_LARGE,
    TOO_MANY,
    UNKNOWN_FUNCTION,
    DrpcError,
)
from topo.drpc.hub import Hub
from topo.serving.access import Refused, bearer_of
from topo.serving.requests import OwnHost, body_of

_STATUS = {
    FAILED_REQUEST: 400,
    NOT_ALLOWED: 401,
    UNKNOWN_FUNCTION: 404,
    TOO_LARGE: 413,
    TOO_MANY: 429,
    SERVER_SHUTDOWN: 503,
    SERVER_TIMEOUT: 504,
}


def application(hub: Hub, access: Access, bind: str, timeout_secs: float = DEFAULT_SECS) -> ASGIApp:
    """Return the application that answers calls, for a server that is bound to HOST:PORT."""

    async def call(request: Request) -> Response:
        try:
            return Response(
                await _result(hub, access, request, timeout_secs), media_type="text/plain"
            )
        except DrpcError as error:
            return _refusal(error)
        except ClientDisconnect:
            return Response(status_code=400)

    routes = [
        Route("/drpc/{function}", call, methods=["GET", "POST"]),
        Route("/drpc/{function}/{args:path}", call, methods=["GET"]),
    ]
    return OwnHost(Starlette(routes=routes), bind)


async def _result(hub: Hub, access: Access, request: Request, secs: float) -> str:
    token = bearer_of(request.headers)
    if token is None or not access.knows(token):
        raise DrpcError(NOT_ALLOWED, "the token is wrong, or there is none")
    function = request.path_params["function"]
    if not access.may_call(function, token):
        raise DrpcError(NOT_ALLOWED, "this token may not call this function")
    args = request.path_params.get("args", "")
    if request.method == "POST":
        args = await _body(request)
    calling = asyncio.ensure_future(hub.call(function, args, secs))
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({calling, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not calling.done():
            raise ClientDisconnect
        return calling.result().value()
    finally:
        for task in (calling, leaving):
            task.cancel()


async def _gone(request: Request) -> None:
    """Return when the client has hung up."""
    while True:
        message: Any = await request.receive()
        if message["type"] == "http.disconnect":
            return


async def _body(request: Request) -> str:
    try:
        return (await body_of(request, LARGEST)).decode()
    except Refused:
        raise DrpcError(TOO_LARGE, f"the arguments have more than {LARGEST:,} bytes") from None
    except UnicodeDecodeError as error:
        raise DrpcError(FAILED_REQUEST, f"the arguments are no UTF-8: {error}") from None


def _refusal(error: DrpcError) -> Response:
    document = {"error": error.code, "errorMessage": error.reason}
    headers = {"WWW-Authenticate": "Bearer"} if error.code == NOT_ALLOWED else {}
    return Response(
        json.dumps(document),
        status_code=_STATUS.get(error.code, 500),
        media_type="application/json",
        headers=headers,
    )
