"""`DrpcClient`: calls of functions by gRPC, from anywhere."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import grpc

import topo.forks  # noqa: F401 - before gRPC is imported
from topo._pb import drpc_pb2 as pb
from topo.drpc.calls import DEFAULT_SECS, LARGEST
from topo.drpc.errors import CODES, FAILED_REQUEST, SERVER_TIMEOUT, UNREACHABLE, DrpcError
from topo.tracking.security import TOKEN_KEY, Tls

CALL = "/topo.drpc.v1.Drpc/Call"
CODE_KEY = "topo-drpc-code"


class DrpcClient:
    """A client of one server; every thread may call it."""

    def __init__(self, address: str, *, token: str, tls_ca: str | None = None) -> None:
        self._address = address
        self._channel = channel_to(address, Tls.read(ca=tls_ca) if tls_ca else None)
        self._metadata = ((TOKEN_KEY, token),)
        self._call: Any = self._channel.unary_unary(
            CALL, pb.CallRequest.SerializeToString, pb.CallReply.FromString
        )

    def call(self, function: str, args: str = "", timeout: float = DEFAULT_SECS) -> str:
        """Call a function and wait for its result; raise a DrpcError for every other end."""
        try:
            reply = self._call(
                pb.CallRequest(function=function, args=args),
                timeout=timeout,
                metadata=self._metadata,
            )
        except grpc.RpcError as error:
            raise _in_words(error, self._address, timeout) from None
        return str(reply.result)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def channel_to(address: str, tls: Tls | None) -> grpc.Channel:
    """Return a channel to a server."""
    options = [
        ("grpc.max_receive_message_length", 16 * LARGEST),
        ("grpc.enable_http_proxy", 0),
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]
    if tls is None:
        return grpc.insecure_channel(address, options)
    credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate)
    return grpc.secure_channel(address, credentials, options)


def _in_words(error: Any, address: str, timeout: float) -> DrpcError:
    code = dict(error.trailing_metadata() or ()).get(CODE_KEY, "")
    details = error.details() or ""
    if code in CODES:
        return DrpcError(str(code), details)
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DrpcError(SERVER_TIMEOUT, f"no result within {timeout:g} s")
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        why = details.rpartition(": ")[2][:300].lower()
        return DrpcError(
            UNREACHABLE,
            f"no server of calls answers at {address}: {why}",
            hint="`topo drpc` starts one; that of a topology is found by `topo drpc call --name`",
        )
    return DrpcError(FAILED_REQUEST, f"{error.code().name.lower()}: {details}")
