"""Reads the messages of a websocket, and writes them.

Reading is at most once, unless the server resumes where it is told. Writing is at least once, if
the server answers each message. Its answer to a ping would not do: that comes as soon as frames
have arrived, and a server that closes the connection then drops those that nobody has read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from topo.config.secrets import Secret, revealed
from topo.connectors.addresses import (
    check_headers,
    check_tls,
    check_url,
    parsed,
    tls_context,
)
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_positive, load_client
from topo.connectors.brokers import BrokerSink
from topo.connectors.feeds import Feed, FeedSpout, Item, Receiver
from topo.connectors.formats import Decode, Encode, Format, check_form, requirements_of
from topo.connectors.outbox import Outgoing, Refused
from topo.connectors.picking import Missing
from topo.connectors.remote import Remote, passes
from topo.connectors.retries import Backoff
from topo.errors import ComponentError, TopoError
from topo.takeover import Shared
from topo.tuples import Tuple

_NAME = "WebSocketSpout"
_SCHEMES = {"ws": 80, "wss": 443}
_CONNECT_SECS = 10.0
_ANSWER_SECS = 10.0
_MOST_ANSWER = 1_000_000  # bytes
_TOO_BIG = ("max_message= sets the limit", "the server takes no message as large")
REQUIRES = "websockets>=15.0"


class Message(NamedTuple):
    """A message, its value decoded; what `translate` is given."""

    value: Any


class WebSocketSpout(FeedSpout):
    """A spout of the messages of a websocket.

    `hello` is what is sent once connected: a text, or several. With `resume`, a function of the
    position, the server is asked to go on there: it returns what is sent instead of `hello`, and
    `position`, a function of a message, says where that is. The position is saved with the batch.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME

    @answering()
    def __init__(
        self,
        url: str | Secret,
        *,
        hello: str | bytes | Iterable[str | bytes] = (),
        resume: Callable[[Any], Any] | None = None,
        position: Callable[[Any], Any] | None = None,
        headers: Mapping[str, str | Secret] | None = None,
        value: str | Format | Decode = "str",
        fields: str | Iterable[str] = (),
        translate: Callable[[Message], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        max_message: int = 1_000_000,
        max_in_flight: int = 10_000,
        tls: Mapping[str, Any] | None = None,
        missing: Missing = "null",
        on_bad: OnBad = "stop",
        track: bool | None = None,
        retry: Backoff | None = None,
    ) -> None:
        check_url(_NAME, url, _SCHEMES)
        check_tls(_NAME, tls)
        check_positive(_NAME, max_message=max_message, max_in_flight=max_in_flight)
        if (resume is None) != (position is None):
            raise ComponentError(
                f"{_NAME}: resume and position belong together",
                hint="position=lambda text: json.loads(text)['id'], "
                "resume=lambda id: json.dumps({'after': id})",
            )
        self.url, self.hello, self.resume, self.position_of = url, _listed(hello), resume, position
        self.headers, self.max_message = dict(headers or {}), max_message
        self.tls = None if tls is None else dict(tls)
        self.set_up(
            Message,
            ("value",),
            most=max_in_flight,
            track=track,
            retry=retry,
            value=value,
            fields=fields,
            translate=translate,
            streams=streams,
            missing=missing,
            on_bad=on_bad,
        )

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        load_client("websockets.sync.client", _NAME, "http")
        super().open(conf, context, collector)

    def source(self) -> _Messages:
        server = _Server(_NAME, self.url, self.headers, self.tls, self.max_message)
        return _Messages(server, self.hello, self.resume, self.position_of)


class _Server(Remote):
    """A server's address, and what it takes to connect to it."""

    def __init__(
        self,
        connector: str,
        url: str | Secret,
        headers: Mapping[str, str | Secret],
        tls: Mapping[str, Any] | None,
        max_message: int,
    ) -> None:
        address = parsed(connector, url, _SCHEMES)
        super().__init__(connector, address.shown)
        self._url: str = revealed(url)
        own = revealed(dict(headers))
        check_headers(connector, own)
        self._options: dict[str, Any] = {"additional_headers": own, "max_size": max_message}
        if address.scheme == "wss":
            self._options["ssl"] = tls_context(connector, tls)
        self._client = load_client("websockets.sync.client", connector, "http")
        self._errors = load_client("websockets.exceptions", connector, "http")

    def connect(self) -> Any:
        """Return the context of a connection; raise what its library raises."""
        return self._client.connect(
            self._url, open_timeout=_CONNECT_SECS, close_timeout=1, **self._options
        )

    def in_words(self, error: BaseException) -> Exception:
        errors = self._errors
        if isinstance(error, errors.InvalidStatus):
            status = error.response.status_code
            text = f"the server refuses the handshake: HTTP {status}"
            if passes(status):
                return self.unavailable(text)
            return self.refused(text, "headers= has what it may want, such as a token")
        closed = getattr(error, "rcvd", None) or getattr(error, "sent", None)
        if isinstance(error, errors.ConnectionClosed) and closed is not None:
            text = f"the connection is closed: {closed}"
            if closed.code == 1009:
                return self.refused(text, _TOO_BIG[error.rcvd is not None])
            return self.unavailable(text)
        if isinstance(error, errors.WebSocketException | OSError | EOFError):
            return self.connecting_failed(error)
        return self.refused(f"{type(error).__name__}: {error}")


class _Messages(Receiver):
    """Connects to a server and receives its messages."""

    def __init__(
        self,
        server: _Server,
        hello: list[str | bytes],
        resume: Callable[[Any], Any] | None,
        position_of: Callable[[Any], Any] | None,
    ) -> None:
        self._server, self.where, self._hello = server, server.shown, hello
        self._resume, self._position_of = resume, position_of
        self._connection: Any = None

    def receive(self, feed: Feed, position: Any) -> None:
        with self._server.connect() as connection:
            self._connection = connection
            if feed.is_closed:
                return
            resumes = self._resume is not None and position is not None
            assert self._resume is not None or not resumes
            for message in _listed(self._resume(position)) if resumes else self._hello:  # type: ignore[misc]
                connection.send(message)
            feed.connected()
            for message in connection:
                at = None if self._position_of is None else self._position_of(message)
                raw = message.encode() if isinstance(message, str) else message
                if not feed.put(Item(raw, Message, at, self.where, len(raw))):
                    return

    def interrupt(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):  # it is lost, or closed
                self._connection.close_socket()

    def in_words(self, error: Exception) -> Exception:
        return self._server.in_words(error)


class WebSocketBolt(BrokerSink):
    """A sink that sends a message for each tuple.

    A message is a dict of the tuple's fields, or what `map` makes of the tuple, encoded by `value`:
    a text for "json" and "str", binary otherwise. With `guarantee="at_least_once"` the server has
    to answer each message by one of its own, whatever it says: a batch commits when it has. With
    `after_commit` messages are sent once the batch has committed.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = "WebSocketBolt"
    schemes = _SCHEMES
    client = ("websockets.sync.client", "http")
    refused = {
        "exactly_once": "a websocket has no transactions; use after_commit=True, and an id in each "
        "message by which the server drops what it knows",
        "by_batch": "what was sent is not replaced; use 'at_least_once'",
    }

    @answering()
    def __init__(
        self,
        url: str | Secret,
        *,
        headers: Mapping[str, str | Secret] | None = None,
        value: str | Format | Encode = "json",
        map: Callable[[Tuple], Any] | None = None,
        guarantee: str = "at_least_once",
        after_commit: bool = False,
        tls: Mapping[str, Any] | None = None,
        retry_secs: float = 30.0,
        on_bad: OnBad = "stop",
    ) -> None:
        self.set_access(url, tls)
        check_form(value, self.connector, "value", writes=True)
        self.headers, self.value = dict(headers or {}), value
        self.requires = (*self.requires, *requirements_of(value))
        self.set_up(
            guarantee=guarantee,
            after_commit=after_commit,
            map=map,
            on_bad=on_bad,
            retry_secs=retry_secs,
        )

    def outgoing(self, tup: Tuple) -> Outgoing:
        return Outgoing("", self._encode(self.as_record(tup)))

    def connect(self) -> Shared:
        server = _Server(self.connector, self.url, self.headers, self.tls, _MOST_ANSWER)
        return _Sender(server, is_text=self.value in ("json", "str"), waits=self.is_patient)

    def send(self, records: Sequence[Outgoing]) -> Refused:
        sender: _Sender = self.publisher()
        self.deliver(partial(sender.send, records), records)
        return []


class _Sender(Shared):
    """A connection that is made when it is needed, and lives from batch to batch."""

    def __init__(self, server: _Server, *, is_text: bool, waits: bool) -> None:
        self._server, self._is_text, self._waits = server, is_text, waits
        self._connection: Any = None
        self._stack = contextlib.ExitStack()
        """What ends the connection."""

    def send(self, records: Sequence[Outgoing]) -> None:
        """Send records; wait until each is answered, unless nothing is waited for."""
        try:
            with self._server.reaching():
                if self._connection is None:
                    self._connection = self._stack.enter_context(self._server.connect())
                for record in records:
                    self._connection.send(record.body, text=self._is_text)
                if self._waits:
                    self._wait(len(records))
                else:
                    self._skip()
        except TopoError:
            self.close()
            raise

    def _wait(self, count: int) -> None:
        """Wait for as many answers as there are messages."""
        for number in range(count):
            try:
                self._connection.recv(timeout=_ANSWER_SECS)
            except TimeoutError:
                raise self._server.unavailable(
                    f"{count - number} of {count} messages are not answered; a server that answers "
                    "none is for guarantee='none'"
                ) from None

    def _skip(self) -> None:
        """Drop what the server has said."""
        with contextlib.suppress(TimeoutError):
            while True:
                self._connection.recv(timeout=0)

    def close(self) -> None:
        self._connection = None
        self._stack.close()


def _listed(messages: Any) -> list[str | bytes]:
    return [messages] if isinstance(messages, str | bytes) else list(messages or ())
