"""The client of a driver's control service.

It needs no extra: whoever has the core alone reads and stops what another environment runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import datetime
from http.client import BadStatusLine, HTTPConnection, HTTPException
from socket import gethostname
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlencode

from topo.config.masters import is_loopback, split_address
from topo.errors import RunError, TopoError, words_of
from topo.manage.control import MOST_WAIT_SECS, PREFIX, Changed, DriverStatus, bearer_for
from topo.manage.documents import made_of
from topo.manage.records import RunRecord

CALL_SECS = 10.0
SAVE_SECS = 600.0
"""How long a savepoint may take to be written."""
T = TypeVar("T")


class DriverUnreachable(TopoError):
    """The error of a driver that does not answer."""

    code = "driver"


class DriverFault(TopoError):
    """The error of a driver that answers, and has failed in making the answer."""

    code = "driver-fault"


class ControlClient:
    """A client of one run's control service."""

    def __init__(self, run: RunRecord, *, timeout_secs: float = CALL_SECS) -> None:
        self._run = run
        self._timeout = timeout_secs
        try:
            token = (run.directory / "token").read_bytes().decode("latin-1")
        except OSError as error:
            words = words_of(error)
            raise DriverUnreachable(
                f"cannot read the token of {run.name}: {words}",
                at=str(run.directory / "token"),
                hint="only its owner can command a topology",
            ) from None
        if not (token.isascii() and token.isalnum()):
            raise DriverUnreachable(
                f"the token of {run.name} is damaged",
                at=str(run.directory / "token"),
                hint=f"topo kill --force {run.name}",
            )
        address = run.state.address
        host, _ = split_address(address)
        if run.submission.host != gethostname() and is_loopback(host):
            # In a registry that machines share, another process of this one may have that port.
            raise DriverUnreachable(
                f"{run.name} runs on {run.submission.host}, whose driver listens there alone",
                hint=f"give the command on {run.submission.host}",
            )
        bearer = bearer_for(token, address)
        self._headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"}

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do nothing: each call has its connection, which on loop-back costs next to nothing."""

    def status(self) -> DriverStatus:
        return self._made(DriverStatus, self._ask("GET", "/status"))

    def stats(self, window_secs: float | None = None) -> dict[str, Any]:
        return self._document(dict, self._ask("GET", _path("/stats", window_secs=window_secs)))

    def errors(self) -> list[dict[str, Any]]:
        return self._document(list, self._ask("GET", "/errors"))

    def history(self, window_secs: float) -> dict[str, list[float | None]]:
        return self._document(dict, self._ask("GET", _path("/history", window_secs=window_secs)))

    def batches(self, before: int | None, limit: int) -> list[dict[str, Any]]:
        return self._document(list, self._ask("GET", _path("/batches", before=before, limit=limit)))

    def scale(self) -> dict[str, Any]:
        return self._document(dict, self._ask("GET", "/scale"))

    def executors(self) -> list[dict[str, Any]]:
        return self._document(list, self._ask("GET", "/executors"))

    def activate(self) -> Changed:
        return self._change("/activate", {})

    def deactivate(self) -> Changed:
        return self._change("/deactivate", {})

    def rebalance(
        self,
        workers: int | None,
        tasks: Mapping[str, int] | None = None,
        *,
        explain: bool = False,
    ) -> Changed:
        numbers = {"workers": workers, "tasks": dict(tasks or {})}
        document = {name: number for name, number in numbers.items() if number}
        return self._change("/rebalance", {**document, "explain": explain})

    def savepoint(self, directory: str) -> dict[str, Any]:
        document = self._ask("POST", "/savepoint", {"directory": directory}, SAVE_SECS)
        return self._document(dict, document)

    def kill(self, wait_secs: float) -> Changed:
        return self._change("/kill", {"wait_secs": min(wait_secs, MOST_WAIT_SECS)})

    def _change(self, path: str, body: Mapping[str, Any]) -> Changed:
        return self._made(Changed, self._ask("POST", path, body))

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, secs: float = 0.0
    ) -> Any:
        host, port = split_address(self._run.state.address)
        connection = HTTPConnection(host.strip("[]"), port, timeout=secs or self._timeout)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, PREFIX + path, sent, self._headers)
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
        except TimeoutError:
            raise unreachable(self._run, is_change=method != "GET") from None
        except OSError:  # which a connection is that ended without an answer
            raise unreachable(self._run) from None
        except BadStatusLine:
            raise self._of_another_release() from None
        except HTTPException:  # the driver died on half of its answer
            raise unreachable(self._run) from None
        finally:
            connection.close()
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            raise self._fault(f"{status}, and no JSON") from None
        if status != 200:
            raise self._refusal(status, document)
        return document

    def _refusal(self, status: int, document: Any) -> TopoError:
        message = str(document.get("message", "")) if isinstance(document, dict) else ""
        if status in (400, 409):
            return RunError(message)
        if status == 401:
            return DriverUnreachable(
                f"{possessive(self._run.name)} driver refuses the token",
                hint="it was started anew just now, so try again, or by another release of topo, "
                f"so use that; or: topo kill --force {self._run.name}",
            )
        if status == 404:
            return self._of_another_release()
        return self._fault(message or f"{status}")

    def _of_another_release(self) -> DriverUnreachable:
        return DriverUnreachable(
            f"{possessive(self._run.name)} driver is of another release of topo",
            hint=f"use that release, or: topo kill --force {self._run.name}",
        )

    def _fault(self, words: str) -> DriverFault:
        return DriverFault(
            f"{possessive(self._run.name)} driver cannot answer: {words}",
            hint="its log says where; please report it",
            at=str(self._run.log),
        )

    def _made(self, kind: type[T], document: Any) -> T:
        try:
            return made_of(kind, document)
        except (AttributeError, TypeError):
            raise self._fault(f"no {kind.__name__}: {str(document)[:100]}") from None

    def _document(self, kind: type[T], document: Any) -> T:
        if not isinstance(document, kind):
            raise self._fault(f"no {kind.__name__}: {str(document)[:100]}")
        return document


def _path(path: str, **query: float | None) -> str:
    values = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(values)}" if values else path


def unreachable(run: RunRecord, *, is_change: bool = False) -> DriverUnreachable:
    """Return the error of a driver that is silent; a change was sent to it whole."""
    fate = "what it has not begun, it will not do later; " if is_change else ""
    where = f" at {run.state.address}" if run.state.address else ""
    return DriverUnreachable(
        f"{possessive(run.name)} driver{where} does not answer (last seen {last_seen(run)})",
        hint=f"{fate}topo kill --force {run.name}",
    )


def last_seen(run: RunRecord) -> str:
    """Return when the driver last wrote its figures: 09:41, with the day if not today."""
    figures = run.directory / "stats.json"
    at = figures.stat().st_mtime if figures.exists() else run.submission.submitted_at
    then = datetime.fromtimestamp(at)
    is_today = then.date() == datetime.fromtimestamp(time.time()).date()
    return f"{then:%H:%M}" if is_today else f"{then:%Y-%m-%d %H:%M}"


def possessive(name: str) -> str:
    return f"{name}'" if name.endswith("s") else f"{name}'s"
