"""A server's gRPC front: callers, and the tasks of topologies.

A handler is a coroutine in the hub's loop, so that a thousand callers that wait cost no thread. The
token is looked at before anything else; a message has at most the size of a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

from topo._pb import drpc_pb2 as pb
from topo.drpc.access import Access
from topo.drpc.calls import DEFAULT_SECS, LARGEST, Holder
from topo.drpc.errors import (
    FAILED_REQUEST,
    NOT_ALLOWED,
    SERVER_SHUTDOWN,
    SERVER_TIMEOUT,
    TOO_LARGE,
    TOO_MANY,
    UNKNOWN_FUNCTION,
    DrpcError,
)
from topo.drpc.hub import Hub, TaskStream
from topo.tracking.security import TOKEN_KEY

CALLS, INVOCATIONS = "topo.drpc.v1.Drpc", "topo.drpc.v1.Invocations"
CODE_KEY = "topo-drpc-code"
MESSAGE_BYTES = 16 << 20
"""Results come many in a message."""
_STATUS = {
    FAILED_REQUEST: grpc.StatusCode.ABORTED,
    SERVER_SHUTDOWN: grpc.StatusCode.UNAVAILABLE,
    SERVER_TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    UNKNOWN_FUNCTION: grpc.StatusCode.NOT_FOUND,
    TOO_MANY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    NOT_ALLOWED: grpc.StatusCode.UNAUTHENTICATED,
}
_ANSWER_IN_SECS = 0.25
"""How long before a caller's own deadline its call ends here, so that the caller hears why."""


class GrpcFront:
    """The handlers of both services."""

    def __init__(self, hub: Hub, access: Access, timeout_secs: float = DEFAULT_SECS) -> None:
        self._hub, self._access, self._timeout_secs = hub, access, timeout_secs

    @property
    def handlers(self) -> list[Any]:
        return [
            grpc.method_handlers_generic_handler(
                CALLS,
                {
                    "Call": grpc.unary_unary_rpc_method_handler(
                        self._call, pb.CallRequest.FromString, pb.CallReply.SerializeToString
                    )
                },
            ),
            grpc.method_handlers_generic_handler(
                INVOCATIONS,
                {
                    "Fetch": grpc.stream_stream_rpc_method_handler(
                        self._fetch, pb.FetchMessage.FromString, pb.FetchReply.SerializeToString
                    ),
                    "Answer": grpc.unary_unary_rpc_method_handler(
                        self._answer, pb.Answers.FromString, pb.AnswersReply.SerializeToString
                    ),
                },
            ),
        ]

    # -- callers ------------------------------------------------------------------------------

    async def _call(self, request: Any, context: Any) -> Any:
        token = await self._token_of(context)
        if not self._access.may_call(request.function, token):
            await _end(context, DrpcError(NOT_ALLOWED, "this token may not call this function"))
        left = context.time_remaining()
        secs = self._timeout_secs if left is None else max(0.0, left - _ANSWER_IN_SECS)
        try:
            end = await self._hub.call(request.function, request.args, secs)
            return pb.CallReply(result=end.value())
        except DrpcError as error:
            await _end(context, error)

    async def _token_of(self, context: Any) -> str:
        """Return the token of a call; end the call of one that is none."""
        token = str(dict(context.invocation_metadata()).get(TOKEN_KEY, ""))
        if not self._access.knows(token):
            await _end(context, DrpcError(NOT_ALLOWED, "the token is wrong, or there is none"))
        return token

    # -- tasks --------------------------------------------------------------------------------

    async def _fetch(self, messages: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        token = await self._token_of(context)
        first: Any = await anext(aiter(messages), None)
        if first is None or first.WhichOneof("kind") != "attach":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a stream begins with Attach")
        attach = first.attach
        if not self._access.may_serve(attach.function, token):
            await _end(context, DrpcError(NOT_ALLOWED, "this token may not serve this function"))
        number = self._hub.calls.number
        holder = Holder(attach.checkpoint, attach.function, attach.task)
        stream = self._hub.attach(holder, attach.taken.get(number, 0), attach.gathers)
        reading = asyncio.ensure_future(self._read(messages, stream))
        try:
            yield pb.FetchReply(number=number)
            while not stream.is_over:
                for request in self._hub.take(stream):
                    yield pb.FetchReply(request=pb.Request(**request._asdict()))
                await stream.wake.wait()
                stream.wake.clear()
        finally:
            reading.cancel()
            self._hub.leave(stream)

    async def _read(self, messages: AsyncIterator[Any], stream: TaskStream) -> None:
        try:
            async for message in messages:
                match message.WhichOneof("kind"):
                    case "upto":
                        self._hub.allow(stream, message.upto)
                    case "concluded":
                        self._conclude(message.concluded, stream)
        finally:
            stream.end()

    def _conclude(self, concluded: Any, stream: TaskStream) -> None:
        if not concluded.id:
            self._hub.settle_anew(stream)
            return
        if self._hub.calls.function_of(concluded.id) != stream.holder.function:
            return  # another's request, or one that has ended
        reason = concluded.reason if concluded.failed else None
        self._hub.conclude(concluded.id, concluded.part, concluded.parts, reason)

    async def _answer(self, answers: Any, context: Any) -> Any:
        token = await self._token_of(context)
        allowed = []
        for result in answers.results:
            function = self._hub.calls.function_of(result.id)
            if function is not None and not self._access.may_serve(function, token):
                await _end(context, DrpcError(NOT_ALLOWED, "an answer to another's function"))
            allowed.append((result.id, result.result))
        return pb.AnswersReply(late=self._hub.answer(allowed), number=self._hub.calls.number)


async def _end(context: Any, error: DrpcError) -> None:
    with suppress(Exception):
        context.set_trailing_metadata(((CODE_KEY, error.code),))
    await context.abort(_STATUS.get(error.code, grpc.StatusCode.UNKNOWN), error.reason[:4000])


OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", LARGEST + MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
]
