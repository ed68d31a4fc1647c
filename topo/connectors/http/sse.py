"""Reads server-sent events; the server resumes after the last id that is saved with a batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from topo.config.secrets import Secret
from topo.connectors.addresses import check_tls, check_url
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_positive
from topo.connectors.feeds import Feed, FeedSpout, Item, Receiver
from topo.connectors.formats import Decode, Format
from topo.connectors.http.client import REQUIRES, SCHEMES, Target
from topo.connectors.picking import Missing
from topo.connectors.retries import Backoff
from topo.errors import ComponentError

_NAME = "SseSpout"


class Event(NamedTuple):
    """An event, its value decoded; what `translate` is given."""

    value: Any
    event: str
    id: str | None


class SseSpout(FeedSpout):
    """A spout of the events of a stream of server-sent events.

    By default a tuple is `(event, value)`; `fields` names others of an `Event`, or, with
    `value="json"`, keys of its value. The last id is sent as Last-Event-ID when the stream is read
    again: a server that resumes there loses nothing, and each event counts once.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME

    @answering()
    def __init__(
        self,
        url: str | Secret,
        *,
        headers: Mapping[str, str | Secret] | None = None,
        value: str | Format | Decode = "str",
        fields: str | Iterable[str] = (),
        translate: Callable[[Event], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        max_event: int = 1_000_000,
        max_in_flight: int = 10_000,
        idle_secs: float = 300.0,
        tls: Mapping[str, Any] | None = None,
        missing: Missing = "null",
        on_bad: OnBad = "stop",
        track: bool | None = None,
        retry: Backoff | None = None,
    ) -> None:
        check_url(_NAME, url, SCHEMES)
        check_tls(_NAME, tls)
        check_positive(_NAME, max_event=max_event, max_in_flight=max_in_flight, idle_secs=idle_secs)
        self.url, self.headers, self.max_event = url, dict(headers or {}), max_event
        self.idle_secs, self.tls = idle_secs, None if tls is None else dict(tls)
        self.set_up(
            Event,
            ("event", "value"),
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

    def source(self) -> _Events:
        target = Target(
            _NAME, self.url, self.headers, self.tls, timeout_secs=self.idle_secs, follows=True
        )
        return _Events(target, self.max_event)


class _Events(Receiver):
    """Reads a stream of events, as the HTML standard says."""

    def __init__(self, target: Target, max_event: int) -> None:
        self._target, self._max_event = target, max_event
        self.where = target.shown
        self._response: Any = None

    def receive(self, feed: Feed, position: Any) -> None:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if position is not None:
            headers["Last-Event-ID"] = position
        target = self._target
        with target.client.stream("GET", target.url, headers=headers) as response:
            if response.status_code != 200:
                raise target.answered(response)
            kind = response.headers.get("content-type", "")
            if not kind.startswith("text/event-stream"):
                raise ComponentError(
                    f"{_NAME}: {self.where}: the answer is {kind or 'of no type'}, and no "
                    "text/event-stream",
                    hint="HttpPollSpout reads documents",
                )
            self._response = response
            feed.connected()
            for item in self._items(response.iter_bytes(), position):
                if feed.is_closed or not feed.put(item):
                    return

    def _items(self, chunks: Iterable[bytes], last: str | None) -> Iterable[Item]:
        name, size = "", 0
        data: list[bytes] = []
        for line in _lines(chunks, self._max_event):
            size += len(line)
            if size > self._max_event:
                raise self._too_large()
            if not line:
                if data:
                    raw = b"\n".join(data)
                    event, at = name or "message", last

                    def record(value: Any, event: str = event, at: str | None = at) -> Event:
                        return Event(value, event, at)

                    yield Item(raw, record, last, f"{self.where} at {last}", len(raw))
                name, data, size = "", [], 0
                continue
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value.decode("utf-8", "replace")
            elif field == b"id" and b"\0" not in value:
                last = value.decode("utf-8", "replace")

    def _too_large(self) -> ComponentError:
        return ComponentError(
            f"{_NAME}: {self.where}: an event of more than {self._max_event:,} bytes",
            hint="max_event= sets the limit",
        )

    def interrupt(self) -> None:
        response = self._response
        if response is not None:
            with contextlib.suppress(Exception):  # it is closed, or closes just now
                stream = response.extensions["network_stream"]
                stream.get_extra_info("socket").shutdown(2)

    def in_words(self, error: Exception) -> Exception:
        return self._target.in_words(error)


def _lines(chunks: Iterable[bytes], most: int) -> Iterable[bytes]:
    """Yield lines without their ends, which are LF, CR LF or CR."""
    rest = b""
    skips_lf = False
    for chunk in chunks:
        if skips_lf and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        skips_lf = False
        rest += chunk
        if rest.endswith(b"\r"):
            skips_lf = True
        whole = rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *found, rest = whole.split(b"\n")
        yield from found
        if len(rest) > most:
            yield rest  # whoever reads it finds it too large
            rest = b""
