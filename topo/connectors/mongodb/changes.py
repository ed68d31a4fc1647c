"""Reads the changes of collections by a change stream, from a position in the topology's state.

A change stream names each change by a token, and can be opened again after any token that its oplog
still has. The token of the last change commits with the batch that emitted it, so that each change
counts once in the state of bolts. While nothing changes, the server's own token is noted once a
minute: or the position of a quiet collection would fall out of the oplog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, NamedTuple

from topo.components import StatefulSpout
from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_choice, check_positive, load_client
from topo.connectors.inflight import InflightSpout
from topo.connectors.mongodb.server import REQUIRES, Server, check_access, check_name
from topo.connectors.mongodb.values import decode_bson, decode_plain, raw_options
from topo.connectors.picking import Missing
from topo.connectors.retries import Backoff
from topo.connectors.translation import Arrival
from topo.errors import ComponentError
from topo.tuples import Fields

_NAME = "MongoChanges"
_NOTED_SECS = 60.0
_NO_DOCUMENT = b"\x05\0\0\0\0"


class Change(NamedTuple):
    """A change; what `translate` is given."""

    op: str
    """MongoDB's `operationType`: "insert", "update", "replace", "delete", "drop" and others."""
    collection: str
    key: Any
    """The document's `_id`; None if the change is not of a document."""
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    update: dict[str, Any] | None
    """Of an update `updatedFields`, `removedFields` and `truncatedArrays`."""
    at: datetime | None
    """None, as `op` is "", if the pipeline has left out what says it."""


class MongoChanges(InflightSpout, StatefulSpout):
    """A spout of the changes of collections: (op, collection, key, after, at).

    Without `collections` all of the database are read. `fields` names other parts of a Change, or
    keys of the document; `translate` is given a Change. `start` is "latest" or a time of the
    cluster, for the first start of the checkpoint. `pipeline` are stages that the server applies,
    which must leave `_id` as it is. `after` is by default the document as it is when it is read
    (`full_document`), `before` what the server has kept (`full_document_before_change`).

    With `plain=False` values have BSON's types. Changes are tracked if there are ackers, unless
    `track=False`: one that fails is emitted again after a pause, `retry`, and then behind later
    ones. One task reads; the server has to be a replica set or a sharded cluster.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    transient = (*InflightSpout.transient, "_server", "_stream", "_next_look", "_next_note")

    @answering({"collection": "collections", "uri": "url", "full_document_before": "before"})
    def __init__(
        self,
        url: str | Secret,
        database: str,
        collections: str | Iterable[str] = (),
        *,
        start: Literal["latest"] | datetime = "latest",
        pipeline: Sequence[Mapping[str, Any]] = (),
        full_document: str | None = "updateLookup",
        full_document_before_change: str | None = None,
        plain: bool = True,
        fields: str | Iterable[str] = (),
        translate: Callable[[Change], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        page: int = 1_000,
        poll_secs: float = 0.25,
        tls: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        missing: Missing = "null",
        on_bad: OnBad = "stop",
        track: bool | None = None,
        retry: Backoff | None = None,
    ) -> None:
        check_access(_NAME, url, tls, settings)
        check_positive(_NAME, page=page, poll_secs=poll_secs)
        if not isinstance(start, datetime):
            check_choice(_NAME, "start", start, ("latest",))
        elif not 1970 <= start.year <= 2105:
            raise ComponentError(f"{_NAME}: start={start}; times of a cluster begin in 1970")
        images = (None, "whenAvailable", "required")
        check_choice(_NAME, "full_document", full_document, (*images, "updateLookup"))
        check_choice(_NAME, "full_document_before_change", full_document_before_change, images)
        check_name(_NAME, "database", database)
        self.url, self.tls, self.settings = url, tls, dict(settings or {})
        self.database, self.collections = database, tuple(Fields(collections))
        self.start, self.pipeline = start, [dict(stage) for stage in pipeline]
        self.full_document, self.before = full_document, full_document_before_change
        self.page, self.poll_secs = page, poll_secs
        self.set_up_reading(
            Change,
            ("op", "collection", "key", "after", "at"),
            track=track,
            retry=retry,
            value=decode_plain if plain else decode_bson,
            fields=fields,
            translate=translate,
            streams=streams,
            missing=missing,
            on_bad=on_bad,
        )

    # -- life ---------------------------------------------------------------------------------

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        load_client("pymongo", _NAME, "mongodb")
        self.open_reading(conf)
        self._server: Server | None = None
        self._stream: Any = None
        self._next_look = self._next_note = 0.0

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def _place(self) -> str:
        return f"{self.database}.{','.join(self.collections) or '*'}"

    def _opened(self, server: Server) -> Any:
        """Return the change stream, after what the state has emitted."""
        if self._stream is None:
            base = server.client.get_database(self.database, codec_options=raw_options())
            stages = list(self.pipeline)
            if len(self.collections) == 1:
                base = base[self.collections[0]]
            elif self.collections:
                stages.insert(0, {"$match": {"ns.coll": {"$in": list(self.collections)}}})
            self._stream = base.watch(
                stages,
                full_document=self.full_document,
                full_document_before_change=self.before,
                batch_size=self.page,
                max_await_time_ms=1,
                **self._from(),
            )
            if self._place not in self.state:
                self._note(self._stream.resume_token)  # from now on "latest" is this
        return self._stream

    def _from(self) -> dict[str, Any]:
        token = self.state.raw().get(self._place)
        if token is not None:
            return {"start_after": token}  # also of a change that has ended the stream
        if self.start == "latest":
            return {}
        assert isinstance(self.start, datetime)
        timestamp = load_client("bson", _NAME, "mongodb").Timestamp
        aware = self.start if self.start.tzinfo is not None else self.start.replace(tzinfo=UTC)
        return {"start_at_operation_time": timestamp(max(0, int(aware.timestamp())), 0)}

    # -- reading ------------------------------------------------------------------------------

    def next_tuple(self) -> None:
        if self.emit_again() or not self.owns(self._place):
            return
        now = self.context.now()
        if now < self._next_look:
            return
        if self._server is None:
            self._server = Server(_NAME, self.url, self.tls, self.settings, self._place)
        tokens: list[Any] = []
        try:
            self.emit_page(self._arrivals(self._server, tokens))
        except BaseException:
            self._stream = None  # it is opened anew, after the last change that was emitted
            raise
        finally:
            if tokens:
                self.state[self._place] = _as_dict(tokens[-1])
                self.context.counter("changes", len(tokens))
        if not tokens:
            self._next_look = now + self.poll_secs
            if now >= self._next_note and self._stream is not None:
                self._next_note = now + _NOTED_SECS
                self._note(self._stream.resume_token)

    def _note(self, token: Any) -> None:
        """Have a position saved at which nothing is emitted."""
        if token is not None and self.state.raw().get(self._place) != (noted := _as_dict(token)):
            self.state[self._place] = noted
            self.context.end_batch()

    def _arrivals(self, server: Server, tokens: list[Any]) -> Iterator[Arrival]:
        """Yield the changes that are there, at most a page; add their tokens to `tokens`."""
        for _ in range(self.most(self.page)):
            with server.reaching():
                stream = self._opened(server)
                change = stream.try_next()
            if change is None:
                if not stream.alive:  # of an "invalidate" that the pipeline has left out
                    self._stream = None
                    self._note(stream.resume_token)
                return
            tokens.append(change["_id"])
            if change.get("operationType") == "invalidate":
                self._stream = None  # opened anew after it
                self.context.end_batch()
                return
            # No truth of a document is asked for, which would decode it.
            document = change.get("fullDocument")
            if document is None:
                document = change.get("documentKey")
            data = _NO_DOCUMENT if document is None else document.raw
            where = f"{self._place} at {change['_id'].get('_data')}"
            yield Arrival(data, partial(self._record, change), where)

    def _record(self, change: Any, document: Any) -> Change:
        decode: Any = self.translation.value

        def part(name: str) -> Any:
            value = change.get(name)
            return None if value is None else decode(value.raw)

        key, namespace = part("documentKey"), part("ns")
        return Change(
            change.get("operationType", ""),
            "" if namespace is None else namespace.get("coll", ""),
            None if key is None else key.get("_id"),
            part("fullDocumentBeforeChange"),
            None if change.get("fullDocument") is None else document,
            part("updateDescription"),
            change.get("wallTime") or _time_of(change.get("clusterTime")),
        )


def _time_of(timestamp: Any) -> datetime | None:
    return None if timestamp is None else timestamp.as_datetime().astimezone(UTC)


def _as_dict(token: Any) -> dict[str, Any]:
    return decode_bson(token.raw) if hasattr(token, "raw") else dict(token)
