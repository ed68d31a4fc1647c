"""The HTTP server of one driver: control for commands such as `topo kill`, and its open pages.

One application with two doors. The one for control is a port of loop-back, and answers only callers
with the topology's token, of whom no more than the head is read before. The other one is where
`topology.metrics.bind` says, and has figures and health alone, since a token that is sent there
would cross the network in plain text.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from topo.errors import TopoError, encodable, sentence_of
from topo.manage.control import (
    MOST_WAIT_SECS,
    NUMBERS,
    PAGING,
    PREFIX,
    Changed,
    DriverStatus,
    bearer_for,
)
from topo.serving.access import Refused, bearer_of
from topo.serving.endpoints import Endpoint, Parameter
from topo.serving.figures import MOST_CONNECTIONS, Page, page_app
from topo.serving.listening import address_of, listening
from topo.serving.requests import OwnHost, arguments_of, problem
from topo.serving.server import ServerThread, WebServer
from topo.tracking.security import same_token

log = logging.getLogger("topo.manage")
_LOOPBACK = "127.0.0.1:0"
_GRACE_SECS = 1.0
_PATH_CHARS = 4096
_SAVEPOINT = "savepoint"
_TURNS = 4  # accepted, read, its end read, its end told


class DriverControl(Protocol):
    """The interface of the driver that the server controls."""

    def status(self) -> DriverStatus: ...
    def stats(self, window_secs: float | None) -> dict[str, Any]: ...
    def errors(self) -> list[dict[str, Any]]: ...
    def history(self, window_secs: float) -> dict[str, Any]: ...
    def batches(self, before: int | None, limit: int) -> list[dict[str, Any]]: ...
    def scale(self) -> dict[str, Any]: ...
    def executors(self) -> list[dict[str, Any]]: ...
    def activate(self) -> str:
        """Activate the topology; return its previous status."""
        ...

    def deactivate(self) -> str: ...
    def begin_rebalance(
        self, workers: int | None, tasks: Mapping[str, int], *, explain: bool = False
    ) -> str: ...
    def save(self, directory: str) -> dict[str, Any]: ...
    def begin_kill(self, wait_secs: float) -> str: ...


class DriverServer:
    """The server of a driver, until `stop`.

    `address` is that of its control, where callers show what the token makes of it (`bearer_for`);
    `pages` are served at `pages_bind`, if that is given.
    """

    def __init__(
        self,
        driver: DriverControl,
        token: str,
        pages: Mapping[str, Page] | None = None,
        pages_bind: str | None = None,
    ) -> None:
        control = listening(_LOOPBACK)
        self.address = address_of(control, _LOOPBACK)
        listeners = [control]
        bearer = bearer_for(token, self.address) if token else ""  # a full disk may have emptied it
        app: ASGIApp = OwnHost(_Guarded(_control_app(driver), bearer), _LOOPBACK)
        self.pages_address = ""
        if pages_bind is not None:
            try:
                listeners.append(listening(pages_bind))
            except BaseException:
                control.close()
                raise
            self.pages_address = address_of(listeners[1], pages_bind)
            app = _Doors(control.getsockname(), app, page_app(pages or {}, pages_bind))
        server = WebServer(app, listeners, connections=MOST_CONNECTIONS, grace_secs=_GRACE_SECS)
        self._thread = ServerThread(server, "topo-control")

    def stop(self) -> None:
        self._thread.stop()


class _Doors:
    """An application that is another one at one of its server's sockets."""

    def __init__(self, door: tuple[str, int], behind: ASGIApp, elsewhere: ASGIApp) -> None:
        self._door, self._behind, self._elsewhere = door, behind, elsewhere

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        at = scope.get("server") or ()
        app = self._behind if tuple(at) == self._door else self._elsewhere
        await app(scope, receive, send)


class _Guarded:
    """An application for those who show this; errors are documents."""

    def __init__(self, app: ASGIApp, bearer: str) -> None:
        self._app = app
        self._bearer = bearer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            bearer = bearer_of(request.headers)
            if not bearer or not same_token(bearer, self._bearer):
                raise Refused(401, "a wrong token, or none")
            scope["app"] = self  # or the router would answer what it does not know itself
            await self._app(scope, receive, send)
        except ClientDisconnect:
            return
        except Exception as error:
            await _problem(error)(scope, receive, send)


def _control_app(driver: DriverControl) -> ASGIApp:
    changing = asyncio.Lock()  # one change at a time, so that `was` is true
    return Router(
        [
            Route(PREFIX + each.path, _answering(each, changing), methods=[each.method])
            for each in _endpoints(driver)
        ],
        redirect_slashes=False,
    )


def _endpoints(driver: DriverControl) -> list[Endpoint]:
    """Return the questions and changes that a driver answers."""

    def changed(change: Callable[[], str]) -> Changed:
        was = change()
        return Changed(driver.status().status, was)

    def rebalance(workers: int | None, tasks: Mapping[str, int] | None, explain: bool) -> Changed:
        return changed(lambda: driver.begin_rebalance(workers, tasks or {}, explain=explain))

    window = Parameter("window_secs", float, "The time that figures are of; None: all.")
    span = Parameter("window_secs", float, "The time that is looked back.", 600.0)
    kill_wait = Parameter(
        "wait_secs",
        float,
        "How long messages may take to end.",
        0.0,
        place="body",
        most=MOST_WAIT_SECS,
    )
    directory = Parameter(
        "directory", str, "Where to write it.", place="body", longest=_PATH_CHARS, is_required=True
    )
    explain = Parameter("explain", bool, "Only tell whether that can be.", False, place="body")

    def get(
        name: str, summary: str, handle: Callable[..., Any], *parameters: Parameter
    ) -> Endpoint:
        return Endpoint("GET", f"/{name}", name, summary, None, handle, parameters)

    def post(name: str, summary: str, handle: Callable[..., Any], *body: Parameter) -> Endpoint:
        return Endpoint("POST", f"/{name}", name, summary, None, handle, body=body)

    return [
        get("status", "Tell the status.", lambda: driver.status()),
        get("stats", "Tell the figures.", lambda window_secs: driver.stats(window_secs), window),
        get("errors", "Tell the errors.", lambda: driver.errors()),
        get(
            "history",
            "Tell the figures over time.",
            lambda window_secs: driver.history(window_secs),
            span,
        ),
        get(
            "batches",
            "Tell the latest batches.",
            lambda before, limit: driver.batches(before, limit),
            *PAGING,
        ),
        get("scale", "Tell the decisions on the number of slots.", lambda: driver.scale()),
        get("executors", "Tell the executors of its cluster.", lambda: driver.executors()),
        post("activate", "Resume the spouts.", lambda: changed(lambda: driver.activate())),
        post("deactivate", "Stop the spouts.", lambda: changed(lambda: driver.deactivate())),
        post("rebalance", "Begin to go over to other numbers.", rebalance, *NUMBERS, explain),
        post(_SAVEPOINT, "Write a savepoint.", lambda directory: driver.save(directory), directory),
        post(
            "kill",
            "Begin to deactivate, drain and stop.",
            lambda wait_secs: changed(lambda: driver.begin_kill(wait_secs)),
            kill_wait,
        ),
    ]


def _answering(
    endpoint: Endpoint, changing: asyncio.Lock
) -> Callable[[Request], Awaitable[Response]]:
    async def done(arguments: Mapping[str, Any]) -> Response:
        body = await run_in_threadpool(lambda: _json(endpoint.handle(**arguments)))
        return Response(body, media_type="application/json")

    async def answer(request: Request) -> Response:
        arguments = await arguments_of(endpoint, request)
        if endpoint.method == "GET":
            return await done(arguments)
        if endpoint.name == _SAVEPOINT:  # it changes nothing, and takes its time
            await _check_caller(request)
            return await done(arguments)
        async with changing:
            await _check_caller(request)
            return await done(arguments)

    return answer


async def _check_caller(request: Request) -> None:
    """Raise ClientDisconnect if the caller has hung up before its change was begun.

    It may have waited for another change. And a process that stood still reads what came meanwhile:
    commands that have failed for their users already. The loop's next turns see their ends.
    """
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    if await request.is_disconnected():
        raise ClientDisconnect


def _json(answer: Any) -> str:
    is_answer_of_ours = is_dataclass(answer) and not isinstance(answer, type)
    return json.dumps(asdict(answer) if is_answer_of_ours else answer)


def _problem(error: Exception) -> Response:
    """Return an error as what it is: 409 for one that the driver means, 500 for a mistake."""
    if isinstance(error, Refused):
        return problem(error.status, error.code, encodable(error.message), error.hint)
    if isinstance(error, TopoError):
        return problem(409, error.code, encodable(str(error)))
    if isinstance(error, HTTPException):
        return problem(error.status_code, "http", str(error.detail))
    log.error("a call of the control service failed", exc_info=error)
    return problem(500, "internal", encodable(f"{type(error).__name__}: {sentence_of(error)}"))
