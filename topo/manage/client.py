"""The client of a driver's control service.

gRPC is imported when there is a driver to call: without the extra `spark` there is none, and
commands that only read files work all the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import datetime
from socket import gethostname
from types import TracebackType
from typing import Any

from topo._pb import control_pb2 as pb
from topo.config.masters import is_loopback, split_address
from topo.distribution import load_client
from topo.errors import RunError, TopoError, words_of
from topo.manage.records import RunRecord

SERVICE = "topo.control.v1.Control"
TOKEN_KEY = "topo-token"
CALL_SECS = 10.0
SAVE_SECS = 600.0
"""How long a savepoint may take to be written."""
_OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
_SILENT = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"}


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
        host, _ = split_address(run.state.address)
        if run.submission.host != gethostname() and is_loopback(host):
            # In a registry that machines share, another process of this one may have that port.
            raise DriverUnreachable(
                f"{run.name} runs on {run.submission.host}, whose driver listens there alone",
                hint=f"give the command on {run.submission.host}",
            )
        self._metadata = ((TOKEN_KEY, token),)
        self._grpc = load_client("grpc", "a call to a topology's driver", "spark")
        self._channel = self._grpc.insecure_channel(run.state.address, _OPTIONS)

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()

    def status(self) -> pb.StatusReply:
        reply: pb.StatusReply = self._call("Status", pb.StatusRequest(), pb.StatusReply)
        return reply

    def stats(self, window_secs: float | None = None) -> dict[str, Any]:
        reply = self._call("Stats", pb.StatsRequest(window_secs=window_secs or 0), pb.Document)
        document: dict[str, Any] = json.loads(reply.json)
        return document

    def errors(self) -> list[dict[str, Any]]:
        reply = self._call("Errors", pb.ErrorsRequest(), pb.Document)
        document: list[dict[str, Any]] = json.loads(reply.json)
        return document

    def history(self, window_secs: float) -> dict[str, list[float | None]]:
        reply = self._call("History", pb.StatsRequest(window_secs=window_secs), pb.Document)
        document: dict[str, list[float | None]] = json.loads(reply.json)
        return document

    def batches(self) -> list[dict[str, Any]]:
        reply = self._call("Batches", pb.ErrorsRequest(), pb.Document)
        document: list[dict[str, Any]] = json.loads(reply.json)
        return document

    def scale(self) -> dict[str, Any]:
        reply = self._call("Scale", pb.StatusRequest(), pb.Document)
        document: dict[str, Any] = json.loads(reply.json)
        return document

    def activate(self) -> pb.ChangeReply:
        return self._change("Activate", pb.ActivateRequest())

    def deactivate(self) -> pb.ChangeReply:
        return self._change("Deactivate", pb.DeactivateRequest())

    def rebalance(
        self,
        workers: int | None,
        tasks: Mapping[str, int] | None = None,
        *,
        explain: bool = False,
    ) -> pb.ChangeReply:
        request = pb.RebalanceRequest(workers=workers or 0, tasks=tasks or {}, explain=explain)
        return self._change("Rebalance", request)

    def savepoint(self, directory: str) -> dict[str, Any]:
        request = pb.SavepointRequest(directory=directory)
        reply = self._call("Savepoint", request, pb.Document, SAVE_SECS)
        document: dict[str, Any] = json.loads(reply.json)
        return document

    def kill(self, wait_secs: float) -> pb.ChangeReply:
        return self._change("Kill", pb.KillRequest(wait_secs=wait_secs))

    def _change(self, method: str, request: Any) -> pb.ChangeReply:
        reply: pb.ChangeReply = self._call(method, request, pb.ChangeReply)
        return reply

    def _call(self, method: str, request: Any, reply_type: Any, secs: float = 0.0) -> Any:
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reply_type.FromString,
        )
        try:
            return call(request, timeout=secs or self._timeout, metadata=self._metadata)
        except self._grpc.RpcError as error:
            raise self._translated(error) from None

    def _translated(self, error: Any) -> TopoError:
        code = error.code().name
        if code == "FAILED_PRECONDITION":
            return RunError(error.details())
        if code == "UNAUTHENTICATED":
            return DriverUnreachable(f"{possessive(self._run.name)} driver refuses the token")
        if code in _SILENT:
            return unreachable(self._run)
        return DriverFault(
            f"{possessive(self._run.name)} driver cannot answer: {error.details()}",
            hint="its log says where; please report it",
            at=str(self._run.log),
        )


def unreachable(run: RunRecord) -> DriverUnreachable:
    where = f" at {run.state.address}" if run.state.address else ""
    return DriverUnreachable(
        f"{possessive(run.name)} driver{where} does not answer (last seen {last_seen(run)})",
        hint=f"topo kill --force {run.name}",
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
