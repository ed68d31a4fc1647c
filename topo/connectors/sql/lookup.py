"""Adds columns of a table to tuples, a query for many tuples at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from topo.components import Bolt
from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import check_choice, check_positive
from topo.connectors.sql.binding import bindable
from topo.connectors.sql.database import REQUIRES, Database, check_url
from topo.errors import ComponentError
from topo.tuples import Fields, Tuple

_NAME = "SqlLookupBolt"
_MOST = 500  # keys a query


class SqlLookupBolt(Bolt):
    """A bolt that looks up rows by a key and appends columns of them to its tuples.

    `on` is the tuple's field, by default the one named as the column `key`. `fields` are the fields
    of the input that are emitted again; then come `columns`. A key without a row gives nulls,
    drops the tuple, or goes to the stream `missing`.
    """

    requires: Iterable[str] = (REQUIRES,)
    transient = ("_database", "_table", "_cache", "_waiting")

    @answering()
    def __init__(
        self,
        url: str | Secret,
        table: str,
        *,
        key: str,
        columns: str | Iterable[str],
        fields: str | Iterable[str],
        on: str = "",
        on_missing: Literal["null", "drop", "stream"] = "null",
        cache_secs: float = 60.0,
        cache_rows: int = 10_000,
    ) -> None:
        check_url(_NAME, url)
        check_choice(_NAME, "on_missing", on_missing, ("null", "drop", "stream"))
        check_positive(_NAME, cache_secs=cache_secs or None, cache_rows=cache_rows)
        self.url, self.table_name, self.key, self.on = url, table, key, on or key
        self.columns, self.fields = tuple(Fields(columns)), tuple(Fields(fields))
        self.on_missing, self.cache_secs, self.cache_rows = on_missing, cache_secs, cache_rows
        if not self.columns:
            raise ComponentError(f"{_NAME}: columns={columns!r} names no column")
        default = (*self.fields, *self.columns)
        self.outputs: Any = (
            {"default": default, "missing": self.fields} if on_missing == "stream" else default
        )

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self._database = Database(_NAME, self.url)
        self._table = self._database.table(self.table_name)
        self._database.columns(self._table, (self.key, *self.columns))
        self._cache: dict[Any, tuple[float, list[Any] | None]] = {}
        self._waiting: list[Tuple] = []

    def cleanup(self) -> None:
        self._database.close()

    def execute(self, tup: Tuple) -> None:
        self._waiting.append(tup)
        if len(self._waiting) >= _MOST:
            self._answer()

    def pre_commit(self, batch_id: int) -> None:
        """Answer the tuples that are left: none waits for another batch."""
        self._answer()

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._look_up({tup[self.on] for tup in waiting})
        for tup in waiting:
            values = [tup[name] for name in self.fields]
            _, found = self._cache[tup[self.on]]
            if found is not None:
                self.emit([*values, *found], anchors=tup)
            elif self.on_missing == "null":
                self.emit([*values, *[None] * len(self.columns)], anchors=tup)
            elif self.on_missing == "stream":
                self.emit(values, stream="missing", anchors=tup)
            self.ack(tup)
        if len(self._cache) > self.cache_rows:
            for key in sorted(self._cache, key=lambda one: self._cache[one][0])[: -self.cache_rows]:
                del self._cache[key]

    def _look_up(self, keys: set[Any]) -> None:
        """Fill the cache with what is asked for and is not there, or is too old."""
        now = self.context.now()
        known = self._cache
        asked = [k for k in keys if k not in known or now - known[k][0] > self.cache_secs]
        self.context.counter("cached", len(keys) - len(asked))
        if not asked:
            return
        bound = bindable(asked)
        key, *columns = self._database.columns(self._table, (self.key, *self.columns))
        query = self._database.alchemy.select(key, *columns).where(key.in_(bound))
        with self._database.reaching(), self._database.engine.connect() as connection:
            found = {row[0]: list(row[1:]) for row in connection.execute(query)}
        self.context.counter("queries")
        known.update(
            {one: (now, found.get(plain)) for one, plain in zip(asked, bound, strict=True)}
        )
