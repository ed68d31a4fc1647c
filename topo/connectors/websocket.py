"""Reads the messages of a websocket; at most once, unless the server resumes where it is told."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from topo.config.secrets import Secret, revealed
from topo.connectors.addresses import (
    check_headers,
    check_tls,
    check_url,
    connecting_failed,
    parsed,
    tls_context,
)
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_positive, load_client
from topo.connectors.feeds import Feed, FeedSpout, Item, Source
from topo.connectors.formats import Decode, Format
from topo.connectors.picking import Missing
from topo.connectors.retries import Backoff
from topo.connectors.translation import Translation
from topo.errors import ComponentError, Unavailable

_NAME = "WebSocketSpout"
_SCHEMES = {"ws": 80, "wss": 443}
_CONNECT_SECS = 10.0
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
        translation = Translation(
            _NAME,
            Message,
            ("value",),
            value=value,
            fields=fields,
            translate=translate,
            streams=streams,
            missing=missing,
            on_bad=on_bad,
        )
        self.set_up(translation, most=max_in_flight, track=track, retry=retry)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        load_client("websockets.sync.client", _NAME, "http")
        super().open(conf, context, collector)

    def source(self) -> _Messages:
        address = parsed(_NAME, self.url, _SCHEMES)
        url = self.url.reveal() if isinstance(self.url, Secret) else self.url
        secure = address.scheme == "wss"
        headers = revealed(self.headers)
        check_headers(_NAME, headers)
        return _Messages(
            url,
            address.shown,
            self.hello,
            self.resume,
            self.position_of,
            headers,
            self.max_message,
            tls_context(_NAME, self.tls) if secure else None,
        )


class _Messages(Source):
    """Connects to a server and receives its messages."""

    def __init__(
        self,
        url: str,
        shown: str,
        hello: list[str | bytes],
        resume: Callable[[Any], Any] | None,
        position_of: Callable[[Any], Any] | None,
        headers: Mapping[str, str],
        max_message: int,
        context: Any,
    ) -> None:
        self._url, self.where, self._hello = url, shown, hello
        self._resume, self._position_of = resume, position_of
        self._headers, self._max_message, self._context = headers, max_message, context
        self._client = load_client("websockets.sync.client", _NAME, "http")
        self._errors = load_client("websockets.exceptions", _NAME, "http")
        self._connection: Any = None

    def receive(self, feed: Feed, position: Any) -> None:
        more = {} if self._context is None else {"ssl": self._context}
        with self._client.connect(
            self._url,
            additional_headers=self._headers,
            max_size=self._max_message,
            open_timeout=_CONNECT_SECS,
            close_timeout=1,
            **more,
        ) as connection:
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
        errors = self._errors
        if isinstance(error, errors.InvalidStatus):
            status = error.response.status_code
            said = f"{_NAME}: {self.where}: the server refuses the handshake: HTTP {status}"
            if status in (408, 425, 429) or status >= 500:
                return Unavailable(said)
            return ComponentError(said, hint="headers= has what it may want, such as a token")
        closed = getattr(error, "rcvd", None) or getattr(error, "sent", None)
        if isinstance(error, errors.ConnectionClosed) and closed is not None:
            said = f"{_NAME}: {self.where}: the connection is closed: {closed}"
            if closed.code == 1009:
                return ComponentError(said, hint="max_message= sets the limit")
            return Unavailable(said)
        if isinstance(error, errors.WebSocketException | OSError | EOFError):
            return connecting_failed(_NAME, self.where, error)
        return ComponentError(f"{_NAME}: {self.where}: {type(error).__name__}: {error}")


def _listed(messages: Any) -> list[str | bytes]:
    return [messages] if isinstance(messages, str | bytes) else list(messages or ())
