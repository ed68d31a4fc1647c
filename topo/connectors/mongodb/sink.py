"""Writes tuples as documents, by bulk writes.

A document is there once under its `_id`, whoever writes it again. So each gets one as soon as it is
made, if it has none: a write whose answer is lost is repeated and changes nothing. `exactly_once`
keeps a batch with its ids in state until it has committed, and writes it then; no transaction is
needed, and no replica set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_choice, load_client
from topo.connectors.mongodb.server import REQUIRES, Server, check_access, check_name, passes
from topo.connectors.mongodb.values import encode, raw_options
from topo.connectors.outbox import Chosen, OutboxSink, Outgoing, Refused, chosen, parts, size_of
from topo.errors import ComponentError
from topo.tuples import Tuple

_NAME = "MongoBolt"
_MOST = 1_000  # writes of a request
_MOST_BYTES = 16 << 20
_MOST_LEVELS = 180  # of what is stored; a request with more is refused as a whole
_CONTAINERS = (Mapping, list, tuple, set, frozenset)
_DUPLICATE = 11000


class MongoBolt(OutboxSink):
    """A sink of documents.

    `collection` is a name, or a function of the tuple; one that returns None skips it. A document
    is a dict of the tuple's fields, or what `map` makes of the tuple. `id`, a field's name or a
    function of the tuple, is its `_id`; without it the document's own, or a new one. `mode` is
    "upsert" (the document replaces the one of its id), "insert" (the first one stays), "update"
    (its fields are set, the document is made if there is none) or "delete". With `version`, the
    name of a field of the document, an upsert replaces only what has a lower one.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    transient: Iterable[str] = ("_server", *OutboxSink.transient)
    guarantees = ("none", "at_least_once", "exactly_once")
    refused = {
        "by_batch": "a collection does not know what a batch wrote; use 'exactly_once'",
    }

    @answering({"uri": "url", "collections": "collection", "key": "id"})
    def __init__(
        self,
        url: str | Secret,
        database: str,
        collection: str | Callable[[Tuple], str | None],
        *,
        id: Chosen | None = None,
        version: str | None = None,
        mode: str = "upsert",
        map: Callable[[Tuple], Any] | None = None,
        guarantee: str = "at_least_once",
        tls: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        retry_secs: float = 30.0,
        on_bad: OnBad = "stop",
    ) -> None:
        check_access(_NAME, url, tls, settings)
        check_choice(_NAME, "mode", mode, ("upsert", "insert", "update", "delete"))
        if mode in ("update", "delete") and id is None and map is None:
            raise ComponentError(
                f"{_NAME}: mode={mode!r} of which document?", hint='id="user" names the field'
            )
        if version is not None and mode != "upsert":
            raise ComponentError(f"{_NAME}: version= goes with mode='upsert'")
        check_name(_NAME, "database", database)
        if not callable(collection):
            check_name(_NAME, "collection", collection)
        self.url, self.tls, self.settings = url, tls, dict(settings or {})
        self.database, self.collection = database, collection
        self.id, self.version, self.mode = id, version, mode
        self.set_up(
            guarantee=guarantee,
            after_commit=guarantee == "exactly_once",
            map=map,
            on_bad=on_bad,
            retry_secs=retry_secs,
        )

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        load_client("pymongo", _NAME, "mongodb")
        self._server: Server | None = None

    def cleanup(self) -> None:
        if self._server is not None:
            self._server.close()

    def outgoing(self, tup: Tuple) -> Outgoing | None:
        name = self.collection if isinstance(self.collection, str) else self.collection(tup)
        if name is None:
            return None
        if not isinstance(self.collection, str):
            check_name(_NAME, "collection", name)
        record = self.as_record(tup)
        if not isinstance(record, Mapping):
            raise ValueError(f"a document is a dict; got a {type(record).__name__}")
        document = dict(record)
        number = document.pop("_id", None) if self.id is None else chosen(self.id, tup)
        if number is None or number == "":
            if self.id is not None or self.mode in ("update", "delete"):
                raise ValueError("a document without an id")
            number = load_client("bson", _NAME, "mongodb").ObjectId()
        _check_id(number)
        if self.version is not None:
            version = document.get(self.version)
            if version is None or version != version:  # nothing is lower or higher than NaN
                raise ValueError(f"a document without its version, {self.version!r}")
        # What is only deleted is encoded too: an id that is no BSON is refused here.
        body = encode({"_id": number, **({} if self.mode == "delete" else document)})
        if len(body) > _MOST_BYTES:
            raise ValueError(f"a document of {len(body):,} bytes; MongoDB takes {_MOST_BYTES:,}")
        if _is_too_deep(document, body):
            raise ValueError(f"a document of more than {_MOST_LEVELS} levels; MongoDB has no more")
        return Outgoing(name, body)

    # -- sending ------------------------------------------------------------------------------

    def send(self, records: Sequence[Outgoing]) -> Refused:
        refused: Refused = []
        for _, group in groupby(sorted(records, key=_collection_of), key=_collection_of):
            for part in parts(group, size_of, most=_MOST, most_bytes=_MOST_BYTES):
                self.deliver(partial(self._write, part, refused), part)
        return refused

    def _write(self, left: list[Outgoing], refused: Refused) -> None:
        """Write what is left; take out what is done or refused, raise for the rest."""
        if self._server is None:
            self._server = Server(_NAME, self.url, self.tls, self.settings, self.database)
        server = self._server
        errors = load_client("pymongo.errors", _NAME, "mongodb")
        base = server.client.get_database(self.database, codec_options=raw_options())
        collection = base[left[0].where]
        while left:
            requests = [self._request(record) for record in left]
            with server.reaching():
                try:
                    collection.bulk_write(requests, ordered=self._is_ordered)
                    left.clear()
                except errors.BulkWriteError as error:
                    reason = self._take_out(left, error.details, refused)
                    if reason:
                        raise server.unavailable(
                            f"{len(left)} documents are not taken: {reason}"
                        ) from error

    @property
    def _is_ordered(self) -> bool:
        """True if a document might end as an earlier write leaves it, were they done in any order.

        What is compared, or stays as it was first, ends the same.
        """
        return self.mode != "insert" and self.version is None

    def _take_out(self, left: list[Outgoing], answer: Mapping[str, Any], refused: Refused) -> str:
        """Take out what is done or refused; return why the rest has to wait, or ""."""
        for concern in answer.get("writeConcernErrors") or ():
            return str(concern.get("errmsg", "not confirmed"))  # it may be undone: all once more
        faults = {fault["index"]: fault for fault in answer.get("writeErrors", ())}
        last = max(faults, default=-1) if self._is_ordered else len(left)
        again: list[Outgoing] = []
        reason = ""
        for place, record in enumerate(left):
            fault = faults.get(place)
            if fault is None:
                if place > last:
                    again.append(record)  # not tried: the one before it has ended the request
                continue
            if self._is_known(fault):
                continue
            words = str(fault.get("errmsg") or f"code {fault.get('code')}")
            if passes(fault.get("code")) or _is_same_id(fault):  # made by another meanwhile
                again.append(record)
                reason = words
            else:
                refused.append((record, ValueError(words)))
        left[:] = again
        return reason

    def _is_known(self, fault: Mapping[str, Any]) -> bool:
        """Return True for an answer that says that there is nothing to do."""
        if not _is_same_id(fault) or (self.mode != "insert" and self.version is None):
            return False
        self.context.counter("known" if self.mode == "insert" else "older")
        return True

    def _request(self, record: Outgoing) -> Any:
        pymongo = load_client("pymongo", _NAME, "mongodb")
        raw = load_client("bson.raw_bson", _NAME, "mongodb")
        document = raw.RawBSONDocument(record.body, raw_options())
        by_id = {"_id": document["_id"]}
        if self.mode == "insert":
            return pymongo.InsertOne(document)
        if self.mode == "delete":
            return pymongo.DeleteOne(by_id)
        if self.mode == "update":
            changed = {name: value for name, value in document.items() if name != "_id"}
            return pymongo.UpdateOne(by_id, {"$set": changed}, upsert=True)
        if self.version is not None:
            older = [{self.version: {"$lt": document[self.version]}}, {self.version: None}]
            return pymongo.ReplaceOne({**by_id, "$or": older}, document, upsert=True)
        return pymongo.ReplaceOne(by_id, document, upsert=True)


def _collection_of(record: Outgoing) -> str:
    return record.where


def _is_too_deep(document: Any, body: bytes) -> bool:
    # Each level has its type in the bytes: most documents have too few for a second look.
    if body.count(b"\3") + body.count(b"\4") < _MOST_LEVELS:
        return False
    level = [document]
    for _ in range(_MOST_LEVELS):
        inner = (each.values() if isinstance(each, Mapping) else each for each in level)
        level = [value for values in inner for value in values if isinstance(value, _CONTAINERS)]
    return bool(level)


def _check_id(number: Any) -> None:
    """Raise ValueError for what asks for other documents, were it looked for: {"$gt": ""}."""
    bson = load_client("bson", _NAME, "mongodb")
    is_query = isinstance(number, Mapping) and any(str(name).startswith("$") for name in number)
    if is_query or isinstance(number, (re.Pattern, bson.Regex, bson.DBRef)):
        raise ValueError(f"an id that asks for documents: {number!r}"[:200])
    if isinstance(number, _CONTAINERS[1:]):
        raise ValueError(f"an id that is a {type(number).__name__}; MongoDB has none such")


def _is_same_id(fault: Mapping[str, Any]) -> bool:
    if fault.get("code") != _DUPLICATE:
        return False
    pattern = fault.get("keyPattern")
    if pattern is not None:
        return list(pattern) == ["_id"]
    return "_id_" in str(fault.get("errmsg", ""))
