"""Takes data in by HTTP: a request is answered with 200 once its data is durable.

A client that gets another answer, or none, sends again; with an Idempotency-Key what was taken is
not taken twice. The server outlives an instance that is rebuilt: requests of a batch that was
rolled back are emitted again, and their clients notice nothing.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from topo.components import StatefulSpout
from topo.config.secrets import Secret, revealed
from topo.connectors.addresses import check_tls, tls_context
from topo.connectors.arguments import answering
from topo.connectors.base import check_choice, check_positive
from topo.connectors.formats import Format
from topo.connectors.http.connection import Limits
from topo.connectors.http.server import Arrived, Ingest
from topo.connectors.inflight import InflightSpout
from topo.connectors.picking import Missing
from topo.connectors.retries import Backoff
from topo.connectors.translation import Arrival, Page
from topo.errors import ComponentError, Unavailable, words_of
from topo.takeover import close_earlier, held_by, hold

_NAME = "HttpSpout"
_MOST = 5_000  # records a call of next_tuple
REQUIRES = "h11>=0.16"
_BY_LINES = (
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/jsonlines",
)


class Request(NamedTuple):
    """A record of a request; what `translate` is given."""

    value: Any
    path: str
    headers: dict[str, str]
    """By their names in small letters."""
    client: str


class HttpSpout(InflightSpout, StatefulSpout):
    """A spout of the records that are posted to a URL.

    `bind` is "host:port". With `value="json"` a body is one record, a list of records, or, as
    `application/x-ndjson`, one a line; "lines" are texts, "str" and "bytes" whole bodies. By
    default a tuple is the value; `fields` names others of a `Request`, or keys of its value.

    `remember` is how many Idempotency-Keys are known: a request whose key is known is answered, and
    not emitted. There is one task.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    transient = (
        *InflightSpout.transient,
        "_ingest",
        "_claim",
        "_is_active",
        "_keys",
        "_nonce",
        "_count",
    )

    @answering()
    def __init__(
        self,
        bind: str = "127.0.0.1:8080",
        path: str = "/",
        *,
        token: str | Secret | None = None,
        value: str | Format | Callable[[bytes], Any] = "json",
        fields: str | Iterable[str] = (),
        translate: Callable[[Request], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        missing: Missing = "null",
        on_bad: str = "refuse",
        remember: int = 100_000,
        max_body: int = 1_000_000,
        max_in_flight: int = 1_000,
        max_waiting_bytes: int = 64_000_000,
        max_connections: int = 500,
        read_secs: float = 10.0,
        answer_secs: float = 30.0,
        tls: Mapping[str, Any] | None = None,
        track: bool | None = None,
        retry: Backoff | None = None,
    ) -> None:
        check_tls(_NAME, tls)
        check_positive(
            _NAME,
            remember=remember,
            max_body=max_body,
            max_in_flight=max_in_flight,
            max_waiting_bytes=max_waiting_bytes,
            max_connections=max_connections,
            read_secs=read_secs,
            answer_secs=answer_secs,
        )
        if tls is not None and not tls.get("cert"):
            raise ComponentError(f'{_NAME}: tls={dict(tls)!r}; a server needs "cert", and "key"')
        if not path.startswith("/"):
            raise ComponentError(f"{_NAME}: path={path!r}; it begins with a slash")
        if on_bad == "stop":
            raise ComponentError(
                f"{_NAME}: on_bad='stop' would let any client stop the topology",
                hint="'refuse' answers 422, 'stream' emits such records on the stream 'bad'",
            )
        check_choice(_NAME, "on_bad", on_bad, ("refuse", "stream", "skip"))
        self.bind, self.path, self.token = _checked_bind(bind), path, token
        self.limits = Limits(
            max_body, max_in_flight, max_waiting_bytes, max_connections, read_secs, answer_secs
        )
        self.remember, self.value = remember, value
        self.tls = None if tls is None else dict(tls)
        self.on_bad = on_bad
        self.set_up_reading(
            Request,
            ("value",),
            track=track,
            retry=retry,
            value="str" if value == "lines" else value,
            fields=fields,
            translate=translate,
            streams=streams,
            missing=missing,
            on_bad="stop" if on_bad == "refuse" else on_bad,
        )
        self.taken = ("", -1)
        """The server, and its last request that was emitted: saved with the batch."""

    # -- life ---------------------------------------------------------------------------------

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        if len(context.component_tasks(context.this_component_id)) > 1:
            raise ComponentError(
                f"{_NAME}: one task listens at {self.bind[0]}:{self.bind[1]}, and there are more",
                hint="set parallelism=1; bolts behind it share the work",
            )
        self.open_reading(conf)
        self._ingest: Ingest | None = None
        self._is_active = False
        self._keys: deque[str] = deque()

    def restored(self) -> None:
        """Take over the server of an earlier instance, and the requests that wait there."""
        known = sorted((at, key) for key, at in self.state.raw().items())
        self._count = known[-1][0] if known else 0
        self._keys = deque(key for _, key in known)
        earlier = held_by(self.context)
        if isinstance(earlier, Ingest) and earlier.error is None:
            self._is_active = earlier.is_active  # or requests were refused until `activate`
            self._adopt(earlier)
            nonce, serial = self.taken
            earlier.rewind(serial if nonce == self._nonce else -1)

    def close(self) -> None:
        self._ingest = None
        close_earlier(self.context)

    def activate(self) -> None:
        self._is_active = True
        if self._ingest is not None:
            self._ingest.is_active = True

    def deactivate(self) -> None:
        self._is_active = False
        if self._ingest is not None:
            self._ingest.is_active = False

    def _adopt(self, ingest: Ingest) -> None:
        self._ingest, self._claim = ingest, hold(self.context, ingest)
        self._nonce = ingest.nonce
        ingest.is_active = self._is_active

    def _listening(self) -> Ingest:
        if self._ingest is None:
            close_earlier(self.context)
            token: str | None = revealed(self.token)
            ingest = Ingest(
                self.bind,
                self.path,
                Bodies(self._reader.decode, self.value),
                self.limits,
                token=token,
                context=None if self.tls is None else server_context(self.tls),
                wake=self.context.wake,
            )
            if ingest.error is not None:
                raise _not_bound(self.bind, ingest.error)
            self._adopt(ingest)
            self.context.gauge("port", ingest.port)
            self.context.end_batch()
        assert self._ingest is not None
        return self._ingest

    # -- requests -----------------------------------------------------------------------------

    def next_tuple(self) -> None:
        ingest = self._listening()
        if self.emit_again():
            return
        requests = ingest.take(self.most(_MOST))
        rows: list[Any] = []
        places: list[str] = []
        for arrived in requests:
            page = self._read(ingest, arrived)
            rows += page.rows
            places += page.places
            self.taken = (self._nonce, arrived.serial)
            arrived.batch = self.context.batch_id
        if rows:
            self.emit_rows(rows, places)
        if requests:
            self.context.counter("requests", len(requests))
            if not rows:
                self.context.end_batch()  # or those that wait would wait until something is emitted

    def _read(self, ingest: Ingest, arrived: Arrived) -> Page:
        """Return the rows of a request; emit those of other streams, if the request is taken."""
        key, page = arrived.key, Page()
        if key is not None and key in self.state:
            self.context.counter("repeated")
            return page
        others: list[tuple[str, Any]] = []
        record, where = partial(_request, arrived), f"from {arrived.client}"
        arrivals = (Arrival(value, record, where) for value in arrived.records)

        def other(stream: str, values: Any, _: Arrival) -> None:
            others.append((stream, values))

        try:
            self._reader.read_page(self, arrivals, page, other, is_decoded=True)
        except ComponentError as error:
            reason = error.__cause__
            if self.on_bad != "refuse" or reason is None:
                raise
            said = f"a record cannot be taken: {type(reason).__name__}: {reason}"
            ingest.refuse(arrived, 422, said)
            return Page()
        for stream, values in others:
            self.emit_row(values, where, stream=stream)
        if key is not None:
            self._note(key)
        return page

    def _note(self, key: str) -> None:
        """Remember a key; forget the oldest beyond the limit."""
        self._count += 1
        self.state[key] = self._count
        self._keys.append(key)
        while len(self._keys) > self.remember:
            self.state.pop(self._keys.popleft(), None)

    # -- the end of a batch -------------------------------------------------------------------

    def pre_commit(self, batch_id: int) -> None:
        """Show how much waits, and what was refused."""
        ingest = self._ingest
        if ingest is not None:
            self.context.gauge("waiting", ingest.waiting)
            refused, ingest.refused = ingest.refused, 0
            if refused:
                self.context.counter("refused", refused)

    def committed(self, batch_id: int) -> None:
        """Answer the requests of the batch."""
        if self._ingest is not None:
            self._ingest.commit(batch_id)


class Bodies:
    """A reader of bodies: a list of records of each."""

    def __init__(self, decode: Callable[[bytes], Any], form: Any) -> None:
        self._decode, self._form = decode, form

    def __call__(self, body: bytes, content_type: str) -> list[Any]:
        kind = content_type.partition(";")[0].strip().lower()
        if self._form == "lines" or (self._form == "json" and kind in _BY_LINES):
            return [self._decode(line) for line in body.splitlines() if line.strip()]
        found = self._decode(body)
        return found if self._form == "json" and isinstance(found, list) else [found]


def server_context(tls: Mapping[str, Any]) -> Any:
    """Return the TLS context of a server."""
    import ssl

    checked = tls_context(_NAME, tls)  # says which file cannot be used
    del checked
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls["cert"], tls.get("key"))
    return context


def _request(arrived: Arrived, value: Any) -> Request:
    return Request(value, arrived.path, arrived.headers, arrived.client)


def _checked_bind(bind: Any) -> tuple[str, int]:
    host, _, port = str(bind).rpartition(":")
    if not port.isdigit() or int(port) > 65_535 or not host:
        raise ComponentError(
            f'{_NAME}: bind={bind!r}; it is "host:port"',
            hint='"127.0.0.1:8080" for this machine alone, "0.0.0.0:8080" for all; with a token',
        )
    return host.strip("[]"), int(port)


def _not_bound(bind: tuple[str, int], error: OSError) -> Exception:
    said = f"{_NAME}: {bind[0]}:{bind[1]}: {words_of(error)}"
    if error.errno in (errno.EADDRINUSE, errno.EAGAIN):
        return Unavailable(said)
    return ComponentError(f"{said}: this machine cannot listen there", hint="another bind=")
