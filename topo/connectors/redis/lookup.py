"""Asks Redis about tuples, many at once: for a value, or whether they are known there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from topo.components import Bolt
from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import check_choice
from topo.connectors.redis.server import REQUIRES, Server, check_type, check_url
from topo.errors import ComponentError
from topo.tuples import Fields, Tuple

_MOST = 1_000  # questions at once

_LOOKUPS = {
    "string": "GET",
    "hash": "HGET",
    "list": "LRANGE",
    "set": "SMEMBERS",
    "sorted_set": "ZSCORE",
    "hyperloglog": "PFCOUNT",
    "geo": "GEOPOS",
}
_FILTERS = {**_LOOKUPS, "string": "EXISTS", "hash": "HEXISTS", "list": "EXISTS"}
_FILTERS |= {"set": "SISMEMBER", "sorted_set": "ZRANK"}


class _Asking(Bolt):
    """A bolt that gathers tuples, and asks for all of them at once."""

    requires: Iterable[str] = (REQUIRES,)
    transient = ("_server", "_waiting")
    commands = _LOOKUPS
    connector = ""

    def __init__(
        self,
        url: str | Secret,
        *,
        key: str,
        fields: str | Iterable[str],
        type: str = "string",
        name: str = "",
    ) -> None:
        check_url(self.connector, url)
        check_type(self.connector, type, name)
        self.url, self.key, self.type, self.name = url, key, type, name
        self.fields = tuple(Fields(fields))

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self._server = Server(self.connector, self.url)
        self._waiting: list[Tuple] = []

    def cleanup(self) -> None:
        self._server.close()

    def execute(self, tup: Tuple) -> None:
        self._waiting.append(tup)
        if len(self._waiting) >= _MOST:
            self._ask()

    def pre_commit(self, batch_id: int) -> None:
        """Answer the tuples that are left: none waits for another batch."""
        self._ask()

    def _ask(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        whole = [self.name] if self.name else []

        def fill(pipeline: Any) -> None:
            for tup in waiting:
                command = [self.commands[self.type], *whole, str(tup[self.key])]
                pipeline.execute_command(*command, *(["0", "-1"] if command[0] == "LRANGE" else []))

        for tup, answer in zip(waiting, self._server.pipelined(fill), strict=True):
            self.answer(tup, answer)
            self.ack(tup)

    def answer(self, tup: Tuple, found: Any) -> None:
        """Emit what comes of a tuple and the answer."""
        raise NotImplementedError


class RedisLookupBolt(_Asking):
    """A bolt that appends what Redis holds under a key: the tuple's field `key`.

    `fields` are the fields of the input that are emitted again; `column` names the value. A key
    that is not there gives null, drops the tuple, or goes to the stream `missing`.
    """

    connector = "RedisLookupBolt"

    @answering()
    def __init__(
        self,
        url: str | Secret,
        *,
        key: str,
        fields: str | Iterable[str],
        column: str = "value",
        type: str = "string",
        name: str = "",
        on_missing: Literal["null", "drop", "stream"] = "null",
    ) -> None:
        super().__init__(url, key=key, fields=fields, type=type, name=name)
        check_choice(self.connector, "on_missing", on_missing, ("null", "drop", "stream"))
        self.on_missing = on_missing
        default = (*self.fields, column)
        self.outputs: Any = (
            {"default": default, "missing": self.fields} if on_missing == "stream" else default
        )

    def answer(self, tup: Tuple, found: Any) -> None:
        values = [tup[name] for name in self.fields]
        if isinstance(found, set):
            found = sorted(found)
        if self.type == "geo":
            found = found[0] if found else None
        if found is not None and found != []:
            self.emit([*values, found], anchors=tup)
        elif self.on_missing == "null":
            self.emit([*values, None], anchors=tup)
        elif self.on_missing == "stream":
            self.emit(values, stream="missing", anchors=tup)


class RedisFilterBolt(_Asking):
    """A bolt that lets pass the tuples whose field `key` Redis knows.

    Of a set, a hash, a sorted set and geo data, `name` is the key of the whole.
    """

    connector = "RedisFilterBolt"
    commands = _FILTERS

    @answering()
    def __init__(
        self,
        url: str | Secret,
        *,
        key: str,
        fields: str | Iterable[str],
        type: str = "string",
        name: str = "",
    ) -> None:
        super().__init__(url, key=key, fields=fields, type=type, name=name)
        if type == "set" and not name:
            raise ComponentError(f"{self.connector}: type='set' needs name=, the key of the set")
        self.outputs = self.fields

    def answer(self, tup: Tuple, found: Any) -> None:
        if self.type == "geo":
            found = found and found[0]
        is_rank = self.type == "sorted_set"
        if (found is not None) if is_rank else bool(found):
            self.emit([tup[name] for name in self.fields], anchors=tup)
