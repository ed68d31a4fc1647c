"""Reads a table as it grows, and misses no row that commits late.

A reader that asks for keys above the last one it saw never sees a row with a lower key whose
transaction ends later. PostgreSQL says which rows no running transaction can precede; only those
are read. From other databases the last `settle_secs` are read again and again, and what was
emitted is known by its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from topo.components import StatefulSpout
from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_choice, check_positive
from topo.connectors.inflight import InflightSpout
from topo.connectors.retries import Backoff
from topo.connectors.sql.database import REQUIRES, Database, check_url
from topo.connectors.translation import Arrival
from topo.errors import ComponentError
from topo.tuples import Fields

_NAME = "SqlSpout"
_SETTLED = "age({table}.xmin) > age(pg_snapshot_xmin(pg_current_snapshot())::xid)"


class _Row(NamedTuple):
    """A row has no parts but its columns."""


class SqlSpout(InflightSpout, StatefulSpout):
    """A spout of the rows of a table, in the order of the columns `by`.

    `by` has to be unique together, and to grow: `"id"`, or `("updated_at", "id")`. The last key is
    saved with the batch that emitted up to it: every row counts once in the state of bolts.
    `translate` is given a row as a dict of all columns. `mode="once"` ends when there are no more
    rows. Rows are tracked if there are ackers, unless `track=False`: one that fails is emitted
    again after a pause, `retry`.
    """

    requires: Iterable[str] = (REQUIRES,)
    transient = (*InflightSpout.transient, "_database", "_table", "_next_look", "_ended")
    connector = _NAME

    @answering()
    def __init__(
        self,
        url: str | Secret,
        table: str,
        *,
        by: str | Iterable[str],
        fields: str | Iterable[str],
        where: str | None = None,
        mode: Literal["watch", "once"] = "watch",
        page: int = 10_000,
        poll_secs: float = 1.0,
        settle_secs: float = 2.0,
        translate: Callable[[dict[str, Any]], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        on_bad: OnBad = "stop",
        track: bool | None = None,
        retry: Backoff | None = None,
    ) -> None:
        check_url(_NAME, url)
        check_choice(_NAME, "mode", mode, ("watch", "once"))
        check_positive(_NAME, page=page, poll_secs=poll_secs)
        self.url, self.table_name, self.where = url, table, where
        self.by, self.fields = tuple(Fields(by)), tuple(Fields(fields))
        self.set_up_reading(
            _Row,
            (),
            track=track,
            retry=retry,
            value="json",  # no bytes: the database has rows
            fields=self.fields,
            translate=translate,
            streams=streams,
            missing="null",
            on_bad=on_bad,
        )
        if not self.by:
            raise ComponentError(f"{_NAME}: by={by!r} names no column")
        self.mode, self.page = mode, page
        self.poll_secs, self.settle_secs = poll_secs, settle_secs

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.open_reading(conf)
        self._database: Database | None = None
        self._table: Any = None
        self._next_look = 0.0
        self._ended = False

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def is_exhausted(self) -> bool:
        """Return True if the table was read to its end, where that is meant to be the end."""
        if self.failed:
            return False
        return self.mode == "once" and (self._ended or not self.owns(self.table_name))

    def next_tuple(self) -> None:
        if self.emit_again():
            return
        now = self.context.now()
        if now < self._next_look or self._ended or not self.owns(self.table_name):
            return
        records = self._records(now)
        if records:
            self._emit(records)
        else:
            self._next_look = now + self.poll_secs
            self._ended = self.mode == "once"

    def _emit(self, records: list[dict[str, Any]]) -> None:
        arrivals = (
            Arrival(record, dict, f"{self.table_name} at {self._key(record)}") for record in records
        )
        self.emit_page(arrivals, is_decoded=True)

    def _records(self, now: float) -> list[dict[str, Any]]:
        """Return the next page, and note its last key."""
        if self._database is None:
            self._database = Database(_NAME, self.url)
            self._table = self._database.table(self.table_name)
        entry = dict(self.state.raw().get(self.table_name, {"floor": None, "recent": {}}))
        is_postgres = self._database.dialect == "postgresql"
        settles = self.mode == "watch" and not is_postgres
        recent: dict[Any, float] = dict(entry["recent"])
        records = self._page(entry["floor"], self.most(self.page) + len(recent))
        fresh = [one for one in records if self._key(one) not in recent]
        if settles:
            recent |= {self._key(one): now for one in fresh}
            for key in sorted(recent):
                if now - recent[key] < self.settle_secs:
                    break
                entry["floor"] = key
                del recent[key]
        elif records:
            entry["floor"] = self._key(records[-1])
        entry["recent"] = recent
        if entry != self.state.raw().get(self.table_name):
            self.state[self.table_name] = entry
        self.context.counter("rows", len(fresh))
        return fresh

    def _page(self, floor: Any, most: int) -> list[dict[str, Any]]:
        assert self._database is not None
        database, table = self._database, self._table
        alchemy = database.alchemy
        keys = database.columns(table, self.by)
        wanted = self.fields if self.translation.translate is None else tuple(table.columns.keys())
        listed = database.columns(table, dict.fromkeys([*wanted, *self.by]))
        query = alchemy.select(*listed).order_by(*keys).limit(most)
        if floor is not None:
            if len(keys) == 1:
                query = query.where(keys[0] > floor[0])
            else:
                query = query.where(alchemy.tuple_(*keys) > alchemy.tuple_(*floor))
        if self.where is not None:
            query = query.where(alchemy.text(self.where))
        if database.dialect == "postgresql":
            query = query.where(alchemy.text(_SETTLED.format(table=table.fullname)))
        with database.reaching(), database.engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def _key(self, record: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(record[name] for name in self.by)
