"""Pub/Sub over gRPC on loop-back: topics that are subscriptions of the same name, and no more.

What is lent comes back when it is given back or when the test says so, and never by the clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

import grpc
import pytest

pubsub = pytest.importorskip("google.pubsub_v1")


@dataclass
class Stored:
    """A message, and to whom it is lent."""

    message: Any
    attempt: int = 0
    handle: str = ""


class PubSubServer:
    """The server: messages by the last part of the names of topics and subscriptions."""

    def __init__(self) -> None:
        self.messages: dict[str, list[Stored]] = {}
        self.dead: list[Stored] = []
        self.dead_after = 0
        """Messages that were given back so often are buried, if it is not 0."""
        self.requests: list[list[tuple[str, bytes]]] = []
        """The ordering keys and values of each request to publish."""
        self.extended: list[tuple[str, int]] = []
        self.fails: dict[str, Callable[[Any, Any], None]] = {}
        """Called for a method with the request and the context, which it may abort."""
        self.loses_answer = 0
        """So many requests to publish are done, and their answers lost."""
        self.open_pulls = 0
        self._changed = threading.Condition()
        self._handles, self._numbers = count(1), count(1)
        self._is_closed = False
        self._server = grpc.server(ThreadPoolExecutor(16))
        self._server.add_generic_rpc_handlers(
            (
                self._handler("Publisher", Publish=(self._publish, pubsub.PublishRequest)),
                self._handler(
                    "Subscriber",
                    Pull=(self._pull, pubsub.PullRequest),
                    Acknowledge=(self._acknowledge, pubsub.AcknowledgeRequest),
                    ModifyAckDeadline=(self._modify, pubsub.ModifyAckDeadlineRequest),
                ),
            )
        )
        self.emulator = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._server.stop(0).wait()

    def _handler(self, name: str, **methods: Any) -> Any:
        def handled(method: str, work: Callable[..., Any], request: Any) -> Any:
            def answer(asked: Any, context: Any) -> Any:
                if method in self.fails:
                    self.fails[method](asked, context)
                return work(asked, context)

            return grpc.unary_unary_rpc_method_handler(
                answer, request.deserialize, lambda each: type(each).serialize(each)
            )

        made = {method: handled(method, *both) for method, both in methods.items()}
        return grpc.method_handlers_generic_handler(f"google.pubsub.v1.{name}", made)

    # -- what tests do ------------------------------------------------------------------------

    def write(self, *values: bytes, name: str = "t", key: str = "", **attributes: str) -> None:
        with self._changed:
            for value in values:
                message = pubsub.PubsubMessage(
                    data=value, ordering_key=key, attributes=attributes,
                    message_id=str(next(self._numbers)), publish_time={"seconds": 1_700_000_000},
                )  # fmt: skip
                self.messages.setdefault(name, []).append(Stored(message))
            self._changed.notify_all()

    def values(self, name: str = "t") -> list[bytes]:
        return [each.message.data for each in self.messages.get(name, [])]

    def lent(self, name: str = "t") -> int:
        return sum(bool(each.handle) for each in self.messages.get(name, []))

    # -- the methods --------------------------------------------------------------------------

    def _publish(self, request: Any, context: Any) -> Any:
        self.requests.append([(each.ordering_key, each.data) for each in request.messages])
        for each in request.messages:
            self.write(each.data, name=request.topic.rpartition("/")[2], key=each.ordering_key,
                       **dict(each.attributes))  # fmt: skip
        if self.loses_answer:
            self.loses_answer -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "as scripted")
        return pubsub.PublishResponse(message_ids=["1" for _ in request.messages])

    def _pull(self, request: Any, context: Any) -> Any:
        there = self.messages.setdefault(request.subscription.rpartition("/")[2], [])
        context.add_callback(self._notify)

        def free() -> list[Stored]:
            return [each for each in there if not each.handle]

        with self._changed:
            self.open_pulls += 1
            self._changed.wait_for(lambda: free() or self._is_closed or not context.is_active())
            self.open_pulls -= 1
            lent = free()[: request.max_messages] if context.is_active() else []
            for each in lent:
                each.attempt += 1
                each.handle = f"handle-{next(self._handles)}"
        return pubsub.PullResponse(
            received_messages=[
                {"ack_id": each.handle, "message": each.message, "delivery_attempt": each.attempt}
                for each in lent
            ]
        )

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _acknowledge(self, request: Any, context: Any) -> Any:
        with self._changed:
            there = self.messages[request.subscription.rpartition("/")[2]]
            there[:] = [each for each in there if each.handle not in request.ack_ids]
        return pubsub.PullResponse()  # empty, as the answer of this method is

    def _modify(self, request: Any, context: Any) -> Any:
        self.extended += [(handle, request.ack_deadline_seconds) for handle in request.ack_ids]
        if request.ack_deadline_seconds == 0:
            self.expire(request.ack_ids, request.subscription.rpartition("/")[2])
        return pubsub.PullResponse()

    def expire(self, handles: Sequence[str], name: str = "t") -> None:
        """End the leases of messages."""
        with self._changed:
            for each in [one for one in self.messages[name] if one.handle in handles]:
                each.handle = ""
                if self.dead_after and each.attempt >= self.dead_after:
                    self.messages[name].remove(each)
                    self.dead.append(each)
            self._changed.notify_all()


def failing(code: str, words: str) -> Callable[[Any, Any], None]:
    """Return what aborts a call with a status."""
    return lambda request, context: context.abort(getattr(grpc.StatusCode, code), words)
