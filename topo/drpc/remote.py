"""The lines of a topology's tasks to servers elsewhere, by gRPC.

A line has a thread that connects, and again when the stream breaks: what it was sent before is told
by serial, so that nothing comes twice. A server that is away stops nothing else.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import grpc

import topo.forks  # noqa: F401 - before gRPC is imported
from topo._pb import drpc_pb2 as pb
from topo.drpc.calls import SETTLED, Holder, Request
from topo.drpc.client import channel_to
from topo.tracking.clock import monotonic
from topo.tracking.security import TOKEN_KEY, Tls

_FETCH = "/topo.drpc.v1.Invocations/Fetch"
_ANSWER = "/topo.drpc.v1.Invocations/Answer"
_FIRST_PAUSE_SECS, _LONGEST_PAUSE_SECS = 0.1, 5.0
_DELIVER_SECS = 2.0
_REMEMBERED = 1_000
"""How many of the latest ends are told again after a break: they may not have arrived."""


class RemoteLine:
    """A `Line` to a server. `take` and the others are for the task's thread."""

    def __init__(
        self,
        address: str,
        token: str,
        tls: Tls | None,
        holder: Holder,
        committed: Mapping[str, int],
        gathers: bool,
        wake: Callable[[], None],
    ) -> None:
        self._channel = channel_to(address, tls)
        self._token, self._holder, self._gathers, self._wake = token, holder, gathers, wake
        self._taken = dict(committed)
        self._number = ""
        self._lock = threading.Lock()
        self._requests: deque[tuple[float, Request]] = deque()
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._received = 0  # on this stream
        self._upto = 0
        self._credit = 0
        self._concluded: deque[Any] = deque(maxlen=_REMEMBERED)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topo-drpc-line", daemon=True)
        self._thread.start()

    @property
    def number(self) -> str:
        return self._number

    def take(self) -> list[Request]:
        with self._lock:
            requests, self._requests = self._requests, deque()
        now = monotonic()
        return [request for until, request in requests if until > now]

    def grant(self, credit: int) -> None:
        with self._lock:
            self._credit = credit
            upto = self._received + credit
            is_worth_it = upto - self._upto >= max(1, credit // 2) or upto < self._upto
            if is_worth_it:
                self._upto = upto
                self._outgoing.put(pb.FetchMessage(upto=upto))

    def done(self, id: str, part: str, parts: Iterable[str]) -> None:
        self._conclude(pb.Concluded(id=id, part=part, parts=list(parts)))

    def settle_anew(self) -> None:
        self._conclude(pb.Concluded(part=SETTLED))

    def fail(self, id: str, reason: str) -> None:
        self._conclude(pb.Concluded(id=id, failed=True, reason=reason[:4000]))

    def _conclude(self, concluded: Any) -> None:
        message = pb.FetchMessage(concluded=concluded)
        with self._lock:
            self._concluded.append(message)
            self._outgoing.put(message)

    def close(self) -> None:
        self._closed.set()
        self._outgoing.put(None)
        self._channel.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(5)

    # -- the line's thread --------------------------------------------------------------------

    def _run(self) -> None:
        fetch: Any = self._channel.stream_stream(
            _FETCH, pb.FetchMessage.SerializeToString, pb.FetchReply.FromString
        )
        pause = _FIRST_PAUSE_SECS
        while not self._closed.is_set():
            try:
                outgoing = self._begin()
                stream = fetch(_until_none(outgoing), metadata=((TOKEN_KEY, self._token),))
                for reply in stream:
                    pause = _FIRST_PAUSE_SECS
                    self._receive(reply)
            except (grpc.RpcError, ValueError):  # ValueError: the channel was closed
                pass
            with self._lock:
                self._outgoing.put(None)  # its reader ends
            self._closed.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECS)

    def _begin(self) -> queue.SimpleQueue[Any]:
        """Return the messages of a new stream, with those that it begins with."""
        holder = self._holder
        attach = pb.Attach(
            checkpoint=holder.checkpoint,
            function=holder.function,
            task=holder.task,
            taken=self._taken,
            gathers=self._gathers,
        )
        with self._lock:
            self._outgoing = queue.SimpleQueue()
            self._received, self._upto = 0, self._credit
            messages = [pb.FetchMessage(attach=attach), pb.FetchMessage(upto=self._credit)]
            for message in (*messages, *self._concluded):
                self._outgoing.put(message)
            return self._outgoing

    def _receive(self, reply: Any) -> None:
        if reply.WhichOneof("kind") == "number":
            self._number = reply.number
            return
        sent = reply.request
        request = Request(sent.id, sent.args, sent.serial, sent.left_secs)
        with self._lock:
            self._received += 1
            self._taken[self._number] = request.serial
            self._requests.append((monotonic() + request.left_secs, request))
        self._wake()


class RemoteAnswers:
    """`Answers` to servers by their addresses; an id names its server by number."""

    def __init__(self, addresses: Iterable[str], token: str, tls: Tls | None) -> None:
        self._channels = [channel_to(address, tls) for address in addresses]
        self._metadata = ((TOKEN_KEY, token),)
        self._calls: list[Any] = [
            channel.unary_unary(_ANSWER, pb.Answers.SerializeToString, pb.AnswersReply.FromString)
            for channel in self._channels
        ]
        self._numbers: dict[str, Any] = {}
        """By server number, the call that reaches it."""
        self._under_way: set[Any] = set()
        self._lock = threading.Lock()
        self._answered = 0

    def send(self, results: Iterable[tuple[str, str]]) -> None:
        for call, part in self._by_server(results):
            future = self._start(call, part)
            self._under_way.add(future)  # gRPC cancels a call that nobody refers to
            future.add_done_callback(partial(self._end, len(part)))

    def _end(self, count: int, future: Any) -> None:
        self._under_way.discard(future)
        self._note(count, _reply_of(future))

    def _note(self, count: int, reply: Any) -> None:
        if reply is not None:
            with self._lock:
                self._answered += count - reply.late

    def take_answered(self) -> int:
        with self._lock:
            answered, self._answered = self._answered, 0
        return answered

    def deliver(self, results: list[tuple[str, str]]) -> list[tuple[str, str]]:
        started = [(self._start(call, part), part) for call, part in self._by_server(results)]
        left: list[tuple[str, str]] = []
        for future, part in started:
            reply = _reply_of(future)
            self._note(len(part), reply)
            if reply is None:
                left += part
        return left

    def _start(self, call: Any, results: Iterable[tuple[str, str]]) -> Any:
        message = pb.Answers(results=[pb.Result(id=id, result=text) for id, text in results])
        return call.future(message, timeout=_DELIVER_SECS, metadata=self._metadata)

    def _by_server(
        self, results: Iterable[tuple[str, str]]
    ) -> list[tuple[Any, list[tuple[str, str]]]]:
        """Deal results over the servers; those of one that is gone for good go to nobody."""
        parts: dict[str, list[tuple[str, str]]] = {}
        for id, text in results:
            parts.setdefault(id.partition(".")[0], []).append((id, text))
        if len(self._calls) == 1:
            return [(self._calls[0], part) for part in parts.values()]
        if not parts.keys() <= self._numbers.keys():
            replies = [(call, _reply_of(self._start(call, ()))) for call in self._calls]
            self._numbers = {reply.number: call for call, reply in replies if reply is not None}
        return [
            (self._numbers[number], part)
            for number, part in parts.items()
            if number in self._numbers
        ]

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


def _reply_of(future: Any) -> Any:
    """Return the reply of a call; None if its server cannot be reached."""
    try:
        return future.result()
    except (grpc.RpcError, grpc.FutureCancelledError):
        return None


def _until_none(messages: queue.SimpleQueue[Any]) -> Iterator[Any]:
    while (message := messages.get()) is not None:
        yield message
