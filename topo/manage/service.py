"""The control service of one driver, which commands such as `topo kill` call.

It listens on loop-back only, and answers only callers with the topology's token; see `topo.rpc`.
"""

from __future__ import annotations

import hmac
import json
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError

from topo._pb import control_pb2 as pb
from topo.errors import TopoError, encodable, sentence_of
from topo.manage.client import SERVICE, TOKEN_KEY
from topo.rpc import Answer, Doorkeeper, Metadata, Refusal, Service

log = logging.getLogger("topo.manage")


class DriverControl(Protocol):
    """The interface of the driver that the service controls."""

    def status(self) -> pb.StatusReply: ...
    def stats(self, window_secs: float | None) -> dict[str, Any]: ...
    def errors(self) -> list[dict[str, Any]]: ...
    def history(self, window_secs: float) -> dict[str, Any]: ...
    def batches(self) -> list[dict[str, Any]]: ...
    def scale(self) -> dict[str, Any]: ...
    def activate(self) -> str:
        """Activate the topology; return its previous status."""
        ...

    def deactivate(self) -> str: ...
    def begin_rebalance(
        self, workers: int | None, tasks: Mapping[str, int], *, explain: bool = False
    ) -> str: ...
    def save(self, directory: str) -> dict[str, Any]: ...
    def begin_kill(self, wait_secs: float) -> str: ...


class ControlServer:
    """The server of a driver's control service at `address`, until `stop`."""

    def __init__(self, driver: DriverControl, token: str) -> None:
        self._driver = driver
        self._token = token.encode()
        self._change = threading.Lock()
        pool = futures.ThreadPoolExecutor(max_workers=4, thread_name_prefix="control")
        self._server = grpc.server(
            pool,
            options=[("grpc.so_reuseport", 0)],
            interceptors=[Doorkeeper(SERVICE, self._refusal_of)],
        )
        answers = {
            "Status": _answer(pb.StatusRequest, lambda request: driver.status()),
            "Stats": _answer(
                pb.StatsRequest,
                lambda request: _document(driver.stats(request.window_secs or None)),
            ),
            "Errors": _answer(pb.ErrorsRequest, lambda request: _document(driver.errors())),
            "History": _answer(
                pb.StatsRequest, lambda request: _document(driver.history(request.window_secs))
            ),
            "Batches": _answer(pb.ErrorsRequest, lambda request: _document(driver.batches())),
            "Scale": _answer(pb.StatusRequest, lambda request: _document(driver.scale())),
            "Activate": _answer(pb.ActivateRequest, lambda request: self._changed(driver.activate)),
            "Deactivate": _answer(
                pb.DeactivateRequest, lambda request: self._changed(driver.deactivate)
            ),
            "Rebalance": _answer(
                pb.RebalanceRequest,
                lambda request: self._changed(
                    lambda: driver.begin_rebalance(
                        request.workers or None, dict(request.tasks), explain=request.explain
                    )
                ),
            ),
            "Savepoint": _answer(
                pb.SavepointRequest, lambda request: _document(driver.save(request.directory))
            ),
            "Kill": _answer(
                pb.KillRequest,
                lambda request: self._changed(lambda: driver.begin_kill(request.wait_secs)),
            ),
        }
        self._calls = Service(SERVICE, answers)
        self._server.add_generic_rpc_handlers((self._calls.handler,))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        self._server.start()
        self._calls.start()

    def stop(self) -> None:
        self._server.stop(grace=1).wait()
        self._calls.stop()

    def _refusal_of(self, method: str, metadata: Metadata) -> Refusal | None:
        given = str(metadata.get(TOKEN_KEY, "")).encode()
        if hmac.compare_digest(given, self._token):
            return None
        return "UNAUTHENTICATED", "a wrong token, or none"

    def _changed(self, change: Callable[[], str]) -> pb.ChangeReply:
        with self._change:  # one change at a time, so that `was` is true
            was = change()
            return pb.ChangeReply(was=was, status=self._driver.status().status)


def _answer(request_type: Any, answer: Callable[[Any], Any]) -> Answer:
    """Return what parses a request, and tells of an error as what it is."""

    def reply_to(message: bytes, context: Any) -> bytes:
        try:
            request = request_type.FromString(message)
        except DecodeError:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"invalid {request_type.__name__}")
        try:
            reply: bytes = answer(request).SerializeToString()
            return reply
        except TopoError as error:
            status, words = grpc.StatusCode.FAILED_PRECONDITION, encodable(str(error))
        except Exception as error:  # a mistake of topo's, which is not to pass for silence
            log.exception("a call of the control service failed")
            status = grpc.StatusCode.INTERNAL
            words = f"{type(error).__name__}: {sentence_of(error)}"
        context.abort(status, words)
        raise AssertionError("abort raises")

    return reply_to


def _document(document: object) -> pb.Document:
    return pb.Document(json=json.dumps(document))
