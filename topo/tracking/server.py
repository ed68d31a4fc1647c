"""An acker on gRPC: the service bound to an address, with the standard health service beside it.

Calls carry bytes both ways and are parsed after the token check, so invalid bytes are answered like
any other unreadable message; `topo.rpc` keeps callers without a token from holding up anybody.
Loop-back without TLS is the default; an address that other machines
reach needs an admission token, so that not just anyone can register topologies there.
"""

from __future__ import annotations

import functools
import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from topo.config.masters import is_loopback, join_address, split_address
from topo.errors import AckerError, ConfigError, words_of
from topo.rpc import Doorkeeper, Health, Metadata, Refusal, Service
from topo.tracking.refusals import Refused
from topo.tracking.security import Tls
from topo.tracking.service import AckerService, Limits

SERVICE_NAME = "topo.acker.v1.Acker"
LOOPBACK = "127.0.0.1:0"

_THREADS_BESIDE_WAITING = 32
_CALLS_PER_WAITING = 4
_LOG = logging.getLogger("topo.tracking")


class AckerServer:
    """One acker at an address; `start` binds it, `stop` lets running calls finish."""

    def __init__(
        self,
        bind: str = LOOPBACK,
        *,
        tls: Tls | None = None,
        admission: str | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.host, self._port = split_address(bind)
        if admission is None and not is_loopback(self.host):
            raise ConfigError(
                f"an acker at {bind} would be open to everyone who reaches it",
                hint="give it an admission token, or bind to 127.0.0.1",
            )
        self.service = AckerService(limits, clock, admission)
        self._tls = tls
        self._health = Health()
        self._calls: Service | None = None
        self._server: grpc.Server | None = None

    @property
    def address(self) -> str:
        return join_address(self.host, self._port)

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> AckerServer:
        if problem := why_not_bound(self.host, self._port):
            raise self._cannot_listen(problem)
        limits = self.service.limits
        server = grpc.server(
            ThreadPoolExecutor(limits.waiting + _THREADS_BESIDE_WAITING, "topo-acker"),
            options=[
                ("grpc.max_receive_message_length", limits.message_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ],
            interceptors=[Doorkeeper(SERVICE_NAME, self._refusal_of)],
            maximum_concurrent_rpcs=_CALLS_PER_WAITING * limits.waiting,
        )
        calls = Service(
            SERVICE_NAME,
            {name: functools.partial(self._answer, name) for name in self.service.methods},
        )
        server.add_generic_rpc_handlers((calls.handler, self._health.handler))
        try:
            if self._tls is None:
                self._port = server.add_insecure_port(self.address)
            else:
                self._port = server.add_secure_port(self.address, server_credentials(self._tls))
        except (RuntimeError, ValueError) as error:
            raise self._cannot_listen(str(error)) from None
        server.start()
        calls.start()
        self._health.start()
        self._server, self._calls = server, calls
        return self

    def stop(self, grace_secs: float = 5.0) -> None:
        """Refuse new calls, end waiting ones, and give the others `grace_secs` to finish."""
        if self._server is None or self._calls is None:
            return
        self._health.stop()
        self.service.stop_waiting()
        self._server.stop(grace_secs).wait()
        self._calls.stop()
        self._server = self._calls = None

    def wait(self) -> None:
        """Block until the server has stopped."""
        if self._server is not None:
            self._server.wait_for_termination()

    def __enter__(self) -> AckerServer:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop(0.0)

    def _cannot_listen(self, why: str) -> AckerError:
        return AckerError(
            f"cannot listen on {self.address}: {why}",
            code="acker-bind",
            hint="is the port taken? port 0 takes any free one",
        )

    def _refusal_of(self, method: str, metadata: Metadata) -> Refusal | None:
        try:
            self.service.check_caller(method, metadata)
        except Refused as refused:
            return refused.kind.value, refused.message
        return None

    def _answer(self, method: str, request: bytes, context: Any) -> bytes:
        metadata = dict(context.invocation_metadata())
        try:
            return self.service.handle(method, request, metadata)
        except Refused as refused:
            kind, message = refused.kind.value, refused.message
        except Exception:
            _LOG.exception("%s failed", method)
            kind, message = "INTERNAL", "the acker failed; its log says why"
        context.abort(grpc.StatusCode[kind], message)
        raise AssertionError("abort raises")


def why_not_bound(host: str, port: int) -> str:
    """Return why this address cannot be bound, which gRPC does not tell; or ""."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        return words_of(error)
    return ""


def server_credentials(tls: Tls) -> grpc.ServerCredentials:
    if tls.certificate is None or tls.key is None:
        raise ConfigError("a server with TLS needs a certificate and its key")
    return grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)],
        root_certificates=tls.ca,
        require_client_auth=tls.ca is not None,
    )
