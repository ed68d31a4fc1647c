"""The way of a call into a gRPC service of topo's, such as an acker's.

gRPC gives each call a thread, which then waits for the call's message: a stranger who sends a head
and never a message would hold a thread for ever, and with enough of them every thread. So the
metadata are checked by the thread that accepts calls, before another is taken; a call that is
refused, and a health check, is answered without its message; and the message of a caller who is let
in has to come within seconds.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health_pb2

MESSAGE_SECS = 10.0
"""How long a message may take at least; a client of topo's gives up a whole call by then."""
_MOST_WATCHERS = 64
_LAST_WORD_SECS = 1.0

Metadata: TypeAlias = Mapping[str, str | bytes]
Refusal: TypeAlias = tuple[str, str]
"""The name of a gRPC status code, and what is wrong."""
Answer: TypeAlias = Callable[[bytes, Any], bytes]
"""Makes a reply from a message and the context of its call."""
Send: TypeAlias = Callable[[Any], None]
"""Sends one more response of a call."""


class Doorkeeper(grpc.ServerInterceptor):  # type: ignore[misc]
    """Turns calls of one service away by their metadata.

    `refusal_of` returns why a call of a method is refused, or None. It runs in the thread that
    accepts calls, and must not wait for anything.
    """

    def __init__(self, service: str, refusal_of: Callable[[str, Metadata], Refusal | None]) -> None:
        self._service = service
        self._refusal_of = refusal_of

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        service, _, method = details.method.lstrip("/").partition("/")
        if service == self._service:
            refusal = self._refusal_of(method, dict(details.invocation_metadata))
            if refusal is not None:
                return grpc.stream_unary_rpc_method_handler(functools.partial(_turn_away, refusal))
        return continuation(details)


def _turn_away(refusal: Refusal, messages: object, context: Any) -> bytes:
    status, words = refusal
    context.abort(grpc.StatusCode[status], words)
    raise AssertionError("abort raises")


class Service:
    """The handlers of a service's methods; from `start` to `stop` silent callers are cancelled."""

    def __init__(
        self, name: str, answers: Mapping[str, Answer], message_secs: float = MESSAGE_SECS
    ) -> None:
        self._lock = threading.Lock()
        self._unread: set[Any] = set()  # the contexts of calls whose message has not come
        self._stopped = threading.Event()
        handlers = {
            method: grpc.stream_unary_rpc_method_handler(functools.partial(self._handle, answer))
            for method, answer in answers.items()
        }
        self.handler = grpc.method_handlers_generic_handler(name, handlers)
        self._watch = threading.Thread(
            target=self._cancel_silent, args=(message_secs,), name="rpc-messages", daemon=True
        )

    def start(self) -> None:
        self._watch.start()

    def stop(self) -> None:
        self._stopped.set()
        self._watch.join()

    def _handle(self, answer: Answer, messages: Iterator[bytes], context: Any) -> bytes:
        with self._lock:
            self._unread.add(context)
        try:
            message = next(messages, None)
        finally:
            with self._lock:
                self._unread.discard(context)
        if message is None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a message")
            raise AssertionError("abort raises")
        return answer(message, context)

    def _cancel_silent(self, secs: float) -> None:
        """Cancel each call that was without its message a turn ago, and is so now."""
        before: set[Any] = set()
        while not self._stopped.wait(secs):
            with self._lock:
                unread = set(self._unread)
            for context in unread & before:
                context.cancel()
            before = unread


class Health:
    """The standard health service of a server, for every service name alike.

    A health check is open to everybody, so it is answered without a look at its message. One thread
    sends whatever watchers get, between `start` and `stop`: gRPC loses the end of a message that is
    sent while another of the same call is under way, and its sender waits for ever; and a watcher
    that does not read holds up other watchers at most.
    """

    def __init__(self) -> None:
        self._is_serving = True
        self._watchers: set[Send] = set()
        self._lock = threading.Lock()
        self._due: queue.SimpleQueue[Send | None] = queue.SimpleQueue()  # None: nothing comes
        self._sender = threading.Thread(target=self._send_due, name="rpc-health", daemon=True)
        watch: Any = functools.partial(self._watch)  # whose attributes can be set
        watch.experimental_non_blocking = True  # a watcher holds no thread
        serialize = health_pb2.HealthCheckResponse.SerializeToString
        handlers = {
            "Check": grpc.stream_unary_rpc_method_handler(
                lambda messages, context: self._status(), response_serializer=serialize
            ),
            "Watch": grpc.stream_stream_rpc_method_handler(watch, response_serializer=serialize),
        }
        self.handler = grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers)

    def start(self) -> None:
        self._sender.start()

    def stop(self) -> None:
        """Tell all who ask or watch that nothing is served any more; watchers have to be quick."""
        with self._lock:
            self._is_serving = False
            watchers = list(self._watchers)
        for send in watchers:
            self._due.put(send)
        self._due.put(None)
        self._sender.join(_LAST_WORD_SECS)  # the end of the server ends the others' calls

    def _send_due(self) -> None:
        while (send := self._due.get()) is not None:
            send(self._status())

    def _status(self) -> Any:
        response = health_pb2.HealthCheckResponse
        return response(status=response.SERVING if self._is_serving else response.NOT_SERVING)

    def _watch(self, messages: object, context: Any, send: Send) -> None:
        with self._lock:
            is_full = len(self._watchers) >= _MOST_WATCHERS
            if not is_full:
                self._watchers.add(send)
        if is_full:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watch this server")
        leave = functools.partial(self._leave, send)
        if context.add_callback(leave):
            self._due.put(send)
        else:
            leave()

    def _leave(self, send: Send) -> None:
        with self._lock:
            self._watchers.discard(send)
