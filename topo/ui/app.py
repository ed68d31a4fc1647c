"""The web application: every path, and what all requests have in common.

What a request may do is decided before anything of it is handled, and every answer carries the
headers of `security.HEADERS`. An error is a JSON document that says what to do.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from topo.distribution import VERSION
from topo.errors import CheckpointError, ConfigError, RunError, TopoError
from topo.logs.search import SearchTooSlow
from topo.manage.api import Management, UnknownComponent, UnknownTopology
from topo.manage.built import InvalidSubmission
from topo.manage.documents import plain
from topo.serving.access import Refused
from topo.serving.endpoints import Endpoint
from topo.serving.requests import arguments_of, body_of, problem, query_of
from topo.ui.api import (
    EVENTS,
    LOG_EVENTS,
    TOPOLOGY_EVENTS,
    SessionView,
    endpoints,
    log_lines_wanted,
)
from topo.ui.events import Check, Shared, Streams
from topo.ui.metrics import exposition
from topo.ui.openapi import openapi
from topo.ui.security import HEADERS, SAFE_METHODS, SESSION_SECS, Guard, Session

STATIC = Path(__file__).with_name("static")
log = logging.getLogger("topo.ui")
_OPEN_PATHS = ("/", "/login", "/healthz", "/favicon.ico")
"""What needs no session: the pages themselves say nothing of any topology."""


@dataclass(frozen=True)
class Site:
    """Everything the handlers of one server share."""

    management: Management
    guard: Guard
    environment: str = ""
    allow_submit: bool = False
    streams: Streams = field(default_factory=Streams)
    more: Sequence[BaseRoute] = ()
    """The routes of other APIs, behind the same guard."""


def application(site: Site) -> ASGIApp:
    """Return the application of a site."""
    table = endpoints(site.management, allow_submit=site.allow_submit)
    document = openapi([*table, EVENTS, TOPOLOGY_EVENTS, LOG_EVENTS])
    routes = [
        Route("/", _page),
        Route("/favicon.ico", lambda request: FileResponse(STATIC / "icon.svg")),
        Route("/login", _log_in(site), methods=["GET", "POST"]),
        Route("/logout", _log_out(site), methods=["POST"]),
        Route("/healthz", lambda request: JSONResponse({"status": "ok"})),
        Route("/metrics", _metrics(site)),
        Route("/api/openapi.json", lambda request: JSONResponse(document)),
        Route("/api/session", _session(site)),
        Route(EVENTS.path, _events(site)),
        Route(TOPOLOGY_EVENTS.path, _topology_events(site)),
        Route(LOG_EVENTS.path, _log_events(site)),
        *(
            Route(endpoint.path, _handler(endpoint, site.streams.shared), methods=[endpoint.method])
            for endpoint in table
        ),
        *site.more,
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    app = Router(routes, redirect_slashes=False)
    return Protected(app, site.guard, changed=site.streams.shared.forget)


class Protected:
    """The application behind its guard."""

    def __init__(self, app: ASGIApp, guard: Guard, changed: Callable[[], None]) -> None:
        self._app = app
        self._guard = guard
        self._changed = changed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":  # a websocket: there are none
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive)
        path = scope["path"]  # not of the URL, which an odd Host keeps from being parsed
        is_change = request.method not in SAFE_METHODS and path != "/login"
        session: Session | None = None
        has_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                message["headers"] = _with_headers(message.get("headers", []))
                if is_change:  # it is noted before anybody is told
                    self._changed()
                    await self._note(request, session, message["status"])
            await send(message)

        try:
            session = await self._sender(request)
            if is_change and session and path != "/logout":
                self._guard.check_change(session, request.headers)
            scope["state"] = {"session": session}
            scope["app"] = self  # or the router would answer what it does not know itself
            await self._app(scope, receive, send_with_headers)
        except ClientDisconnect:
            return  # before the body was there
        except Exception as error:
            if has_begun:
                raise
            await _problem_answer(request, error)(scope, receive, send_with_headers)

    async def _note(self, request: Request, session: Session | None, status: int) -> None:
        address = request.client.host if request.client else ""
        who = session or Session("", "", by_cookie=False)
        action = f"{request.method} {request.scope['path']}"
        await run_in_threadpool(self._guard.note, who, address, action, status)

    async def _sender(self, request: Request) -> Session | None:
        self._guard.check_host(request.headers.get("host", ""))
        path = request.scope["path"]
        if path in _OPEN_PATHS or path.startswith("/static/"):
            self._guard.user_of(request.headers)
            return None
        return await run_in_threadpool(self._guard.session, request.headers, request.cookies)


def _with_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    ours = {name.lower().encode(): value.encode() for name, value in HEADERS.items()}
    return [*((name, value) for name, value in headers if name.lower() not in ours), *ours.items()]


def _handler(endpoint: Endpoint, shared: Shared) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        arguments = await arguments_of(endpoint, request)
        if endpoint.is_shared:
            key = (endpoint.name, *sorted(arguments.items()))
            body = await shared.ask(key, lambda: _encoded(endpoint.handle(**arguments)))
            return Response(body, media_type="application/json")
        answer = await run_in_threadpool(endpoint.handle, **arguments)
        session: Session = request.state.session
        if endpoint.for_viewers is not None and not session.may_operate:
            answer = endpoint.for_viewers(answer)
        return JSONResponse(plain(answer), status_code=endpoint.status)

    return handle


def _encoded(answer: object) -> bytes:
    """Return an answer as JSON, once for all who share it."""
    return bytes(JSONResponse(plain(answer)).body)


async def _page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html")


def _log_in(site: Site) -> Callable[[Request], Awaitable[Response]]:
    """GET with a token is the link that `topo ui` prints; POST is the form of the pages."""

    async def log_in(request: Request) -> Response:
        if request.method == "POST":
            site.guard.check_origin(request.headers)
            token = _token_in(await body_of(request))
            answer: Response = JSONResponse({"status": "ok"})
        else:
            token = request.query_params.get("token", "")
            answer = RedirectResponse("/", status_code=303)
        try:
            cookie = await run_in_threadpool(site.guard.log_in, token)
        except Refused:
            if request.method == "POST":
                raise
            return answer  # the page asks for a token
        answer.set_cookie(
            site.guard.cookie,
            cookie,
            max_age=int(SESSION_SECS),
            httponly=True,
            samesite="strict",
            secure=site.guard.secure,
        )
        return answer

    return log_in


def _token_in(body: bytes) -> str:
    try:
        token = json.loads(body)["token"]
    except (ValueError, KeyError, TypeError, RecursionError):
        token = None
    if not isinstance(token, str):
        raise Refused(400, 'the body is not {"token": "..."}')
    return token


def _log_out(site: Site) -> Callable[[Request], Awaitable[Response]]:
    async def log_out(request: Request) -> Response:
        site.guard.log_out(request.cookies)
        answer = JSONResponse({"status": "ok"})
        answer.delete_cookie(site.guard.cookie)
        return answer

    return log_out


def _session(site: Site) -> Callable[[Request], Awaitable[Response]]:
    async def session(request: Request) -> Response:
        found: Session = request.state.session
        view = SessionView(
            role=found.role,
            user=found.user,
            csrf=found.csrf,
            read_only=site.guard.read_only or not found.may_operate,
            allows_submit=site.allow_submit,
            version=VERSION,
            environment=site.environment,
        )
        return JSONResponse(plain(view))

    return session


def _metrics(site: Site) -> Callable[[Request], Awaitable[Response]]:
    async def metrics(request: Request) -> Response:
        by_task = request.query_params.get("by") == "task"
        accept = request.headers.get("accept", "")
        body, kind = await run_in_threadpool(exposition, site.management, accept, by_task)
        return Response(body, headers={"Content-Type": kind})

    return metrics


def _events(site: Site) -> Callable[[Request], Awaitable[Response]]:
    async def events(request: Request) -> Response:
        EVENTS.arguments({}, query_of(request))
        return site.streams.figures(
            ("topologies",), site.management.topologies, _session_check(site, request)
        )

    return events


def _topology_events(site: Site) -> Callable[[Request], Awaitable[Response]]:
    async def events(request: Request) -> Response:
        given = TOPOLOGY_EVENTS.arguments(request.path_params, query_of(request))
        await run_in_threadpool(site.management.find, given["name"])
        return site.streams.figures(
            ("topology", given["name"], given["window"]),
            lambda: site.management.topology(given["name"], given["window"]),
            _session_check(site, request),
        )

    return events


def _log_events(site: Site) -> Callable[[Request], Awaitable[Response]]:
    async def events(request: Request) -> Response:
        given = LOG_EVENTS.arguments(request.path_params, query_of(request))
        name, count = given.pop("name"), given.pop("count")
        wanted = log_lines_wanted(**given)
        reader = await run_in_threadpool(site.management.log_reader, name, wanted)
        return site.streams.lines(reader, count, _session_check(site, request))

    return events


def _session_check(site: Site, request: Request) -> Check:
    return partial(site.guard.session, request.headers, request.cookies)


def _problem_answer(request: Request, error: Exception) -> Response:
    status, code = 500, "internal"
    if isinstance(error, HTTPException):
        return _http_problem(error)
    if isinstance(error, Refused):
        status = error.status
    elif isinstance(error, UnknownTopology | UnknownComponent):
        status = 404
    elif isinstance(error, InvalidSubmission | ConfigError | SearchTooSlow):
        status = 400
    elif isinstance(error, RunError | CheckpointError):
        status = 409
    elif isinstance(error, TopoError):
        status = 503
    if isinstance(error, TopoError):
        code, message, hint = error.code, error.message, error.hint
    else:
        log.error("%s %s failed", request.method, request.scope["path"], exc_info=error)
        message, hint = f"internal error: {type(error).__name__}", "see the log of topo ui"
    return problem(status, code, message, hint)


def _http_problem(error: HTTPException) -> Response:
    answer = problem(error.status_code, "http", str(error.detail), "/api/openapi.json")
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer
