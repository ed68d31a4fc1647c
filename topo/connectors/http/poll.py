"""Asks a URL again and again for what is new; what it knows of it is part of the topology's state.

A document is asked for with the ETag, or the date, of the one that was emitted, so that the same is
not emitted twice; a list that grows is asked for from a cursor on. A request runs in a thread of
its own: `next_tuple` never waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from topo.components import StatefulSpout
from topo.config.secrets import Secret
from topo.connectors.addresses import check_tls, check_url
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_positive
from topo.connectors.formats import Decode, Format
from topo.connectors.http.client import REQUIRES, SCHEMES, Target
from topo.connectors.inflight import InflightSpout
from topo.connectors.picking import Missing
from topo.connectors.retries import Backoff
from topo.connectors.translation import Arrival
from topo.errors import ComponentError
from topo.tuples import Fields

_NAME = "HttpPollSpout"


class Response(NamedTuple):
    """A record of an answer; what `translate` is given."""

    value: Any
    url: str
    headers: dict[str, str]
    """By their names in small letters."""


class HttpPollSpout(InflightSpout, StatefulSpout):
    """A spout of what URLs answer, every so many seconds.

    With `value="json"` an answer that is a list is as many records. By default a tuple is the
    value; `fields` names others of a `Response`, or keys of its value. `cursor`, a function of an
    answer's records, says where the next request begins, and `params`, a function of it, what is
    asked; while records come, the next request follows at once. Several URLs are dealt over the
    tasks.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    transient = (
        *InflightSpout.transient,
        "_targets",
        "_asking",
        "_threads",
        "_due",
    )

    @answering()
    def __init__(
        self,
        url: str | Secret | Iterable[str],
        *,
        every_secs: float = 60.0,
        headers: Mapping[str, str | Secret] | None = None,
        cursor: Callable[[list[Any]], Any] | None = None,
        params: Callable[[Any], Mapping[str, Any]] | None = None,
        value: str | Format | Decode = "json",
        fields: str | Iterable[str] = (),
        translate: Callable[[Response], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        timeout_secs: float = 30.0,
        max_bytes: int = 64_000_000,
        tls: Mapping[str, Any] | None = None,
        missing: Missing = "null",
        on_bad: OnBad = "stop",
        track: bool | None = None,
        retry: Backoff | None = None,
    ) -> None:
        self.urls: tuple[Any, ...] = (url,) if isinstance(url, Secret) else tuple(Fields(url))
        for one in self.urls or ("",):
            check_url(_NAME, one, SCHEMES)
        check_tls(_NAME, tls)
        check_positive(_NAME, every_secs=every_secs, timeout_secs=timeout_secs, max_bytes=max_bytes)
        if cursor is not None and params is None:
            raise ComponentError(
                f"{_NAME}: cursor= without params=: nothing would ask from there on",
                hint="params=lambda id: {'after': id}",
            )
        self.every_secs, self.headers = every_secs, dict(headers or {})
        self.cursor, self.params = cursor, params
        self.timeout_secs, self.max_bytes = timeout_secs, max_bytes
        self.tls = None if tls is None else dict(tls)
        self.set_up_reading(
            Response,
            ("value",),
            track=track,
            retry=retry,
            value=value,
            fields=fields,
            translate=translate,
            streams=streams,
            missing=missing,
            on_bad=on_bad,
        )

    # -- life ---------------------------------------------------------------------------------

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.open_reading(conf)
        self._targets = [
            Target(_NAME, url, self.headers, self.tls, timeout_secs=self.timeout_secs, follows=True)
            for url in self.urls
        ]
        self._asking: dict[int, Future[Any]] = {}
        self._due = dict.fromkeys(range(len(self.urls)), 0.0)
        self._threads = ThreadPoolExecutor(4, "topo-http-poll")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for number, target in enumerate(self._targets):
            asking = self._asking.get(number)
            if asking is None:
                target.close()
            else:  # its connection is closed when its answer has come
                asking.add_done_callback(partial(_close, target))

    # -- asking -------------------------------------------------------------------------------

    def next_tuple(self) -> None:
        if self.emit_again():
            return
        now = self.context.now()
        for number in self._due:
            asking = self._asking.get(number)
            if asking is None:
                if self._due[number] <= now and self.owns(number):
                    self._ask(number)
            elif asking.done():
                del self._asking[number]
                self._due[number] = now + self.every_secs
                if self._take(number, asking):
                    self._due[number] = now

    def _ask(self, number: int) -> None:
        target, wake = self._targets[number], self.context.wake
        known = self.state.raw().get(number, {})
        headers = dict(known.get("validators", {}))
        params = dict(self.params(known.get("cursor"))) if self.params is not None else None
        if self.params is not None:
            headers = {}  # it is another document each time
        asking = self._threads.submit(_ask, target, headers, params, self.max_bytes)
        asking.add_done_callback(lambda _: wake())
        self._asking[number] = asking

    def _take(self, number: int, asking: Future[Any]) -> bool:
        """Emit an answer; return True if the next request is to follow at once."""
        target = self._targets[number]
        with target.reaching():
            response, content = asking.result()
        self.context.counter("requests")
        if response.status_code == 304:
            return False
        if not response.is_success:
            raise target.answered(response, content)
        if response.status_code == 204 or not content:
            return False
        return self._emit(number, target, response, content)

    def _emit(self, number: int, target: Target, response: Any, content: bytes) -> bool:
        headers = {name.lower(): value for name, value in response.headers.items()}

        def record(value: Any) -> Response:
            return Response(value, target.shown, headers)

        try:
            found = self._reader.decode(content)
        except Exception as error:
            self._reader.tell_bad(self, content, error, target.shown)
            return False
        by_parts = self.translation.value == "json" and isinstance(found, list)
        records = found if by_parts else [found]
        known = dict(self.state.raw().get(number, {}))
        arrivals = (Arrival(value, record, target.shown) for value in records)
        self.emit_page(arrivals, is_decoded=True)
        if self.cursor is not None and records:
            known["cursor"] = self.cursor(records)
        validators = {"If-None-Match": headers.get("etag"),
                      "If-Modified-Since": headers.get("last-modified")}  # fmt: skip
        known["validators"] = {name: value for name, value in validators.items() if value}
        is_new = known != self.state.raw().get(number)
        if is_new:
            self.state[number] = known
        if is_new and not records:
            self.context.end_batch()
        self.context.counter("records", len(records))
        return self.cursor is not None and bool(records) and is_new


def _close(target: Target, asking: Future[Any]) -> None:
    target.close()


def _ask(
    target: Target, headers: Mapping[str, str], params: Mapping[str, Any] | None, most: int
) -> tuple[Any, bytes]:
    """Ask, and read the answer; in a thread."""
    with target.client.stream("GET", target.url, headers=headers, params=params) as response:
        parts: list[bytes] = []
        size = 0
        for part in response.iter_bytes():
            size += len(part)
            if size > most:
                raise target.refused(
                    f"an answer of more than {most:,} bytes", "max_bytes= sets the limit"
                )
            parts.append(part)
        return response, b"".join(parts)
