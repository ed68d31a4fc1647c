"""The seam between a client's calls and the ackers, and its implementation on gRPC.

A transport starts a call at one of the ackers, at the latest when its result is asked for. That is
the reply, `Refused` (it arrived and was turned down) or `Unreachable` (nobody knows whether it
arrived: the caller repeats it).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import grpc

from topo.tracking.refusals import Refusal, Refused
from topo.tracking.security import ADMISSION_KEY, TOKEN_KEY, TOPOLOGY_KEY, Tls

_SERVICE = "/topo.acker.v1.Acker/"
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
_AGAIN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
_REFUSALS = {grpc.StatusCode[kind.value]: kind for kind in Refusal}


@dataclass(frozen=True)
class AckerTarget:
    """The addresses of a topology's ackers and access to them; travels to the slots."""

    topology: str
    token: str = field(repr=False)
    addresses: tuple[str, ...]
    tls: Tls | None = None
    admission: str | None = field(default=None, repr=False)
    """The admission token of an acker that runs in a process of its own."""
    call_secs: float = 10.0
    """Seconds that one try of a call may take."""
    give_up_secs: float = 30.0
    """Seconds for which a call is repeated before the batch fails."""

    def for_workers(self) -> AckerTarget:
        """Return the target without what only the driver needs, which registers topologies."""
        return replace(self, admission=None)


class Unreachable(Exception):
    """A call without an answer; it may or may not have arrived."""


class AckerFailed(Exception):
    """An answer that a correct acker never gives."""


class PendingCall(Protocol):
    def result(self) -> bytes: ...


class Transport(Protocol):
    def start(self, shard: int, method: str, request: bytes, timeout: float) -> PendingCall: ...


class GrpcTransport:
    """Channels to a target's ackers. They do not survive a fork: see `transport_of`."""

    def __init__(self, target: AckerTarget) -> None:
        self._channels = [_channel(address, target.tls) for address in target.addresses]
        self._metadata = metadata_of(target)
        self._methods: dict[tuple[int, str], Any] = {}

    def start(self, shard: int, method: str, request: bytes, timeout: float) -> PendingCall:
        call = self._methods.get((shard, method))
        if call is None:
            call = self._channels[shard].unary_unary(_SERVICE + method)
            self._methods[shard, method] = call
        options = {"timeout": timeout, "metadata": self._metadata}
        if len(self._channels) == 1:  # none runs beside it, and gRPC starts a thread for a future
            return _GrpcCall(partial(call, request, **options))
        return _GrpcCall(call.future(request, **options).result)

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


def metadata_of(target: AckerTarget) -> tuple[tuple[str, str | bytes], ...]:
    """Return what a call shows to the ackers of a target."""
    topology = (TOPOLOGY_KEY, target.topology.encode())
    token = (TOKEN_KEY, target.token)
    if target.admission is None:
        return topology, token
    return topology, token, (ADMISSION_KEY, target.admission)


class _GrpcCall:
    """A call of which `reply` gives the reply; it has begun by then, or begins with it."""

    def __init__(self, reply: Callable[[], bytes]) -> None:
        self._reply = reply

    def result(self) -> bytes:
        try:
            reply = self._reply()
        except grpc.FutureCancelledError:
            raise Unreachable("the call was cancelled") from None
        except grpc.RpcError as error:
            failed: Any = error
            code, details = failed.code(), failed.details() or ""
            if code is grpc.StatusCode.CANCELLED:  # by who has closed the channel meanwhile
                raise Unreachable("the call was cancelled") from None
            if code in _AGAIN:
                raise Unreachable(_why(code, details)) from None
            if code in _REFUSALS:
                raise Refused(_REFUSALS[code], details) from None
            raise AckerFailed(f"{code.name.lower()}: {details}") from None
        return reply


def _why(code: Any, details: str) -> str:
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "no answer in time"
    return details.rpartition("last error: ")[2][:300]


def _channel(address: str, tls: Tls | None) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(address, _OPTIONS)
    credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate)
    return grpc.secure_channel(address, credentials, _OPTIONS)


_transports: dict[tuple[int, str], tuple[AckerTarget, GrpcTransport]] = {}
_making = threading.Lock()


def transport_of(target: AckerTarget) -> GrpcTransport:
    """Return this process's channels to a target; make them at the first call.

    Those to the ackers of an earlier run of the topology are closed. Any thread may call it.
    """
    key = (os.getpid(), target.topology)
    known = _transports.get(key)
    if known is not None and known[0] == target:
        return known[1]
    with _making:
        known = _transports.get(key)
        if known is not None and known[0] == target:
            return known[1]
        transport = GrpcTransport(target)
        _transports[key] = target, transport
    if known is not None:
        known[1].close()
    return transport
