"""Storm's REST API, `/api/v1`: its paths, names and formats, for scripts made for Storm UI.

What is odd there is kept: latencies are strings with three decimals, every error is HTTP 500. What
topo has nothing to say of is null or 0; `storm_documents` makes the documents.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from topo.errors import TopoError
from topo.manage.api import Management
from topo.serving.requests import body_of
from topo.storm_rest.documents import StormDocuments

log = logging.getLogger("topo.ui")
_PREFIX = "/api/v1"
Answer = Callable[[Request], Any]


class NotHere(TopoError):
    """Something that Storm offers and topo does not."""

    code = "not-here"


def routes(management: Management) -> list[Route]:
    """Return the routes of Storm's API."""
    documents = StormDocuments(management)
    gets: dict[str, Answer] = {
        "/cluster/configuration": lambda request: documents.configuration(),
        "/cluster/summary": lambda request: documents.cluster(),
        "/nimbus/summary": lambda request: documents.nimbus(),
        "/supervisor/summary": lambda request: documents.supervisors(),
        "/supervisor": lambda request: documents.supervisor(),
        "/owner-resources": lambda request: documents.owners(),
        "/owner-resources/{id}": lambda request: documents.owners(_id(request)),
        "/history/summary": lambda request: documents.history(),
        "/topology/summary": lambda request: documents.topologies(),
        "/topology-workers/{id}": lambda request: documents.ports(_id(request)),
        "/topology/{id}": lambda request: documents.topology(_id(request), _window(request)),
        "/topology/{id}/metrics": lambda request: documents.metrics(_id(request), _window(request)),
        "/topology/{id}/component/{component}": lambda request: documents.component(
            _id(request), request.path_params["component"], _window(request)
        ),
        "/topology/{id}/visualization-init": lambda request: documents.streams(_id(request)),
        "/topology/{id}/visualization": lambda request: documents.visualization(
            _id(request), _window(request)
        ),
        "/topology/{id}/lag": lambda request: documents.lag(_id(request)),
        "/topology/{id}/logconfig": lambda request: documents.log_levels(_id(request)),
    }
    posts: dict[str, Answer] = {
        "/topology/{id}/activate": lambda request: documents.change(
            _id(request), "activate", lambda: management.activate(_id(request))
        ),
        "/topology/{id}/deactivate": lambda request: documents.change(
            _id(request), "deactivate", lambda: management.deactivate(_id(request))
        ),
        "/topology/{id}/rebalance/{wait}": lambda request: documents.rebalance(
            _id(request), request.state.body
        ),
        "/topology/{id}/kill/{wait}": lambda request: documents.change(
            _id(request), "kill", lambda: management.kill(_id(request), _wait(request))
        ),
    }
    debug: Answer = lambda request: documents.debug(  # noqa: E731
        _id(request),
        request.path_params.get("component"),
        _is_enabled(request),
        _number(request.path_params["percent"]),
    )
    for tail in ("", "/component/{component}"):
        posts[f"/topology/{{id}}{tail}/debug/{{verb}}/{{percent}}"] = debug
    posts["/topology/{id}/logconfig"] = lambda request: documents.set_log_levels(
        _id(request), request.state.body
    )
    missing = {
        f"/topology/{{id}}/profiling/{action}": "its workers page shows threads and flame graphs"
        for action in ("start", "stop", "dumpprofile", "dumpjstack", "dumpheap", "restartworker")
    }
    return [
        *(Route(f"{_PREFIX}{path}", _answer(answer)) for path, answer in gets.items()),
        *(
            Route(f"{_PREFIX}{path}", _answer(answer), methods=["POST"])
            for path, answer in posts.items()
        ),
        *(
            Route(f"{_PREFIX}{path}{tail}", _missing(hint), methods=["GET", "POST"])
            for path, hint in missing.items()
            for tail in ("", "/{more:path}")
        ),
        Route(f"{_PREFIX}/{{path:path}}", _answer(_unknown), methods=["GET", "POST"]),
    ]


def _answer(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        try:
            if request.method == "POST":
                request.state.body = await _read(request)
            return JSONResponse(await run_in_threadpool(answer, request))
        except TopoError as error:
            words = f"{error.message} ({error.hint})" if error.hint else error.message
            return _failure(words)
        except Exception as error:
            log.error("%s failed", request.scope["path"], exc_info=error)
            return _failure(f"internal error: {type(error).__name__}")

    return handle


def _missing(hint: str) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        words = f"topo does not profile workers; {hint}"
        return JSONResponse({"error": "Not Implemented", "errorMessage": words}, status_code=501)

    return handle


def _failure(words: str) -> Response:
    return JSONResponse({"error": "500 Server Error", "errorMessage": words}, status_code=500)


def _unknown(request: Request) -> Any:
    raise NotHere(f"no {request.method} {request.scope['path']}")


async def _read(request: Request) -> Any:
    """Return the body of a change."""
    body = await body_of(request)
    try:
        return json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        return {}  # some scripts send a form


def _id(request: Request) -> str:
    found: str = request.path_params["id"]
    return found


def _window(request: Request) -> str:
    return request.query_params.get("window", ":all-time")


def _wait(request: Request) -> float:
    return _number(request.path_params["wait"])


def _number(text: str) -> float:
    if not (text.isascii() and text.replace(".", "", 1).isdigit() and len(text) < 9):
        raise NotHere(f"no number: {text[:100]!r}")
    return float(text)


def _is_enabled(request: Request) -> bool:
    verb: str = request.path_params["verb"]
    if verb not in ("enable", "disable"):
        raise NotHere(f"debug is enabled or disabled, not {verb[:100]!r}")
    return verb == "enable"
