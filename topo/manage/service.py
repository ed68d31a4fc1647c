"""The control service of one driver, which commands such as `topo kill` call.

It listens on loop-back only, and answers only callers with the topology's token.
"""

from __future__ import annotations

import hmac
import json
import logging
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, Protocol

import grpc

from topo._pb import control_pb2 as pb
from topo.errors import TopoError, encodable, sentence_of

log = logging.getLogger("topo.manage")
SERVICE = "topo.control.v1.Control"
TOKEN_KEY = "topo-token"


class DriverControl(Protocol):
    """The interface of the driver that the service controls."""

    def status(self) -> pb.StatusReply: ...
    def stats(self, window_secs: float | None) -> dict[str, Any]: ...
    def errors(self) -> list[dict[str, Any]]: ...
    def history(self, window_secs: float) -> dict[str, Any]: ...
    def batches(self) -> list[dict[str, Any]]: ...
    def activate(self) -> str:
        """Activate the topology; return its previous status."""
        ...

    def deactivate(self) -> str: ...
    def begin_kill(self, wait_secs: float) -> str: ...


class ControlServer:
    """The server of a driver's control service at `address`, until `stop`."""

    def __init__(self, driver: DriverControl, token: str) -> None:
        self._driver = driver
        self._token = token.encode()
        self._change = threading.Lock()
        pool = futures.ThreadPoolExecutor(max_workers=4, thread_name_prefix="control")
        self._server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
        handlers = {
            "Status": self._handler(pb.StatusRequest, lambda request: driver.status()),
            "Stats": self._handler(
                pb.StatsRequest,
                lambda request: _document(driver.stats(request.window_secs or None)),
            ),
            "Errors": self._handler(pb.ErrorsRequest, lambda request: _document(driver.errors())),
            "History": self._handler(
                pb.StatsRequest, lambda request: _document(driver.history(request.window_secs))
            ),
            "Batches": self._handler(pb.ErrorsRequest, lambda request: _document(driver.batches())),
            "Activate": self._handler(
                pb.ActivateRequest, lambda request: self._changed(driver.activate)
            ),
            "Deactivate": self._handler(
                pb.DeactivateRequest, lambda request: self._changed(driver.deactivate)
            ),
            "Kill": self._handler(
                pb.KillRequest,
                lambda request: self._changed(lambda: driver.begin_kill(request.wait_secs)),
            ),
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=1).wait()

    def _changed(self, change: Callable[[], str]) -> pb.ChangeReply:
        with self._change:  # one change at a time, so that `was` is true
            was = change()
            return pb.ChangeReply(was=was, status=self._driver.status().status)

    def _handler(self, request_type: Any, answer: Callable[[Any], Any]) -> Any:
        def handle(request: Any, context: Any) -> Any:
            given = dict(context.invocation_metadata()).get(TOKEN_KEY, "")
            if not hmac.compare_digest(str(given).encode(), self._token):
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "a wrong token, or none")
            try:
                return answer(request)
            except TopoError as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, encodable(str(error)))
            except Exception as error:  # a mistake of topo's, which is not to pass for silence
                log.exception("a call of the control service failed")
                said = f"{type(error).__name__}: {sentence_of(error)}"
                context.abort(grpc.StatusCode.INTERNAL, said)

        return grpc.unary_unary_rpc_method_handler(
            handle,
            request_deserializer=request_type.FromString,
            response_serializer=lambda reply: reply.SerializeToString(),
        )


def _document(document: object) -> pb.Document:
    return pb.Document(json=json.dumps(document))
