"""Writes tuples as documents, by bulk requests; Elasticsearch and OpenSearch have the same.

There are no transactions there, but documents have ids: one that is written twice under its id is
there once. So `exactly_once` keeps a batch in state until it has committed, and then writes it
under ids of its own, which are the same if the process dies meanwhile and it is written again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_choice
from topo.connectors.formats import dump_json
from topo.connectors.http.client import Target
from topo.connectors.http.targets import TargetSink
from topo.connectors.outbox import Chosen, Outgoing, Refused, chosen, parts, size_of
from topo.connectors.remote import passes
from topo.errors import ComponentError
from topo.tuples import Tuple

_NAME = "ElasticsearchBolt"
_MOST = 1_000  # documents of a request
_MOST_BYTES = 5_000_000
_FILTER = "errors,items.*.status,items.*.error.type,items.*.error.reason"


class _Action(NamedTuple):
    """What is done to a document."""

    id: str | None
    version: int | None


class ElasticsearchBolt(TargetSink):
    """A sink of documents.

    `index` is a name, or a function of the tuple; one that returns None skips it. A document is a
    dict of the tuple's fields, or what `map` makes of the tuple. `id` and `version` are a field's
    name or a function of the tuple; of a document with a `version`, which has to grow, the newest
    stays, whatever comes last. `mode` is "index" (the document replaces the one of its id),
    "create" (the first one stays; data streams want it), "update" (fields are merged, the document
    is made if there is none) or "delete".
    """

    connector = _NAME
    refused = {
        "by_batch": "an index does not know what a batch wrote; use 'exactly_once'",
    }

    @answering({"op_type": "mode", "doc_type": "index", "hosts": "url", "basic_auth": "user"})
    def __init__(
        self,
        url: str | Secret,
        index: str | Callable[[Tuple], str | None],
        *,
        id: Chosen | None = None,
        version: Chosen | None = None,
        mode: str = "index",
        map: Callable[[Tuple], Any] | None = None,
        user: str | Secret | None = None,
        password: str | Secret | None = None,
        headers: Mapping[str, str | Secret] | None = None,
        tls: Mapping[str, Any] | None = None,
        guarantee: str = "at_least_once",
        timeout_secs: float = 30.0,
        retry_secs: float = 30.0,
        on_bad: OnBad = "stop",
    ) -> None:
        check_choice(_NAME, "mode", mode, ("index", "create", "update", "delete"))
        if mode in ("update", "delete") and id is None:
            raise ComponentError(
                f"{_NAME}: mode={mode!r} of which document?", hint='id="user" names the field'
            )
        if version is not None and (id is None or mode in ("create", "update")):
            raise ComponentError(
                f"{_NAME}: version= goes with id= and mode='index' or 'delete'",
                hint="an update merges fields, and a document that is created has no version yet",
            )
        if not (isinstance(index, str) and index) and not callable(index):
            raise ComponentError(f"{_NAME}: index={index!r}; it is a name, or a function of tuples")
        self.index, self.id, self.version, self.mode = index, id, version, mode
        self.set_target(
            url,
            user=user,
            password=password,
            headers=headers,
            tls=tls,
            timeout_secs=timeout_secs,
            guarantee=guarantee,
            map=map,
            retry_secs=retry_secs,
            on_bad=on_bad,
        )

    def outgoing(self, tup: Tuple) -> Outgoing | None:
        index = self.index if isinstance(self.index, str) else self.index(tup)
        if index is None:
            return None
        name, version = chosen(self.id, tup), chosen(self.version, tup)
        if self.id is not None and (name is None or name == ""):
            raise ValueError("a document without an id")
        if self.version is not None and not (isinstance(version, int) and version >= 0):
            raise ValueError(f"version={version!r}; it is a whole number from 0 on")
        body = b"" if self.mode == "delete" else self._document(tup)
        return Outgoing(index, body, _Action(None if name is None else str(name), version))

    def _document(self, tup: Tuple) -> bytes:
        document = self.as_record(tup)
        if not isinstance(document, Mapping):
            raise ValueError(f"a document is a dict; got a {type(document).__name__}")
        return dump_json(document)

    # -- sending ------------------------------------------------------------------------------

    def send(self, records: Sequence[Outgoing]) -> Refused:
        refused: Refused = []
        for part in parts(records, size_of, most=_MOST, most_bytes=_MOST_BYTES):
            self.deliver(partial(self._write, part, refused), part)
        return refused

    def _write(self, left: list[Outgoing], refused: Refused) -> None:
        """Write what is left; take out what is done or refused, raise for the rest."""
        target = self.target()
        body = b"".join(self._lines(record) for record in left)
        with target.reaching():
            response = target.client.post(
                f"{target.url.rstrip('/')}/_bulk",
                params={"filter_path": _FILTER},
                content=body,
                headers={"Content-Type": "application/x-ndjson"},
            )
        if not response.is_success:
            raise target.answered(response, response.content)
        again: list[Outgoing] = []
        reason = ""
        for record, result in zip(left, self._results(target, response, len(left)), strict=True):
            status, fault = result.get("status", 0), result.get("error") or {}
            if status < 300 or self._is_done(status, record):
                continue
            reason = _words(fault) or f"status {status}"
            if passes(status):
                again.append(record)
            elif fault.get("type") == "index_not_found_exception":
                raise target.refused(
                    f"there is no index {record.where!r}: {reason}",
                    "make it, or let the cluster make it (action.auto_create_index)",
                )
            else:
                refused.append((record, ValueError(reason)))
        left[:] = again
        if again:
            raise target.unavailable(f"{len(again)} documents are not taken: {reason}")

    def _is_done(self, status: int, record: Outgoing) -> bool:
        """Return True for an answer that says that there is nothing to do."""
        if status == 404:
            return self.mode == "delete"
        if status == 409 and (self.mode == "create" or record.more.version is not None):
            self.context.counter("older" if record.more.version is not None else "known")
            return True
        return False

    def _lines(self, record: Outgoing) -> bytes:
        action: dict[str, Any] = {"_index": record.where}
        wish: _Action = record.more
        if wish.id is not None:
            action["_id"] = wish.id
        elif self.guarantee == "exactly_once":
            action["_id"] = record.id
        if wish.version is not None:
            action |= {"version": wish.version, "version_type": "external"}
        head = json.dumps({self.mode: action}).encode() + b"\n"
        if self.mode == "delete":
            return head
        if self.mode == "update":
            return head + b'{"doc":' + record.body + b',"doc_as_upsert":true}\n'
        return head + record.body + b"\n"

    def _results(self, target: Target, response: Any, count: int) -> list[dict[str, Any]]:
        try:
            items = response.json().get("items", [])
            results: list[dict[str, Any]] = [next(iter(item.values())) for item in items]
        except (ValueError, AttributeError, StopIteration):
            results = []
        if len(results) != count:
            raise ComponentError(
                f"{target.place} answers what is no answer to a bulk request: "
                f"{response.text[:100]!r}",
                hint="see url=",
            )
        return results


def _words(fault: Mapping[str, Any]) -> str:
    return f"{fault['type']}: {fault.get('reason')}"[:500] if "type" in fault else ""
