"""Reads the changes of PostgreSQL's tables from its log, by a logical replication slot.

A look at the slot changes nothing, so that a batch that runs again sees the same. The place up to
which changes were emitted commits with the batch; then, in `committed`, the slot is advanced.

The rows that are there already come first, page by page, each page as it was in a snapshot of the
database. The slot is older than any of them: it has transactions that a page shows already, and
these are left out for the rows of that page. So what a row becomes is seen once, also if the
process dies between two pages and the others are read in a later snapshot.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterable
from typing import Any

from topo.components import StatefulSpout
from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import check_positive
from topo.connectors.inflight import InflightSpout, dead_fields
from topo.connectors.retries import Backoff
from topo.connectors.sql.database import check_url
from topo.connectors.sql.pgoutput import Change, Relation, Row, Transaction, decoded, transactions
from topo.connectors.sql.replication import Page, Server, Shown, is_shown, lsn_text
from topo.connectors.sql.slots import leaves, slot_name
from topo.errors import ComponentError
from topo.tuples import Fields

_NAME = "PostgresChanges"
log = logging.getLogger("topo.connectors")
_AT = "at"
"""In the state: the end of the last transaction, and how much of the next one was emitted."""
_SHOWN = "shown"
"""In the state: what pages have shown, until the slot has passed all of it."""
_ROWS_AT_ONCE = 2_000
_QUIET_BYTES = 1 << 20


class PostgresChanges(InflightSpout, StatefulSpout):
    """A spout of the changes of tables: (op, table, key, before, after, lsn).

    `op` is "read" (a row that was there), "insert", "update", "delete" or "truncate"; `key` the
    value of the primary key, a tuple if it has several columns; `before` and `after` are dicts of
    columns or None; `lsn` the place of the commit in the log. The stream `schema` has
    (table, columns) when a table's columns are seen first, or have changed. One task reads a slot.

    Changes are tracked if there are ackers, unless `track=False`: one that fails is emitted again
    after a pause, `retry`, and then behind later ones, which have a higher `lsn`.
    """

    requires: Iterable[str] = ("psycopg>=3.2",)
    connector = _NAME
    transient = (*InflightSpout.transient, "_server", "_waiting", "_next_look", "_peeked")

    @answering()
    def __init__(
        self,
        url: str | Secret,
        tables: str | Iterable[str],
        *,
        snapshot: bool = True,
        slot: str | None = None,
        publication: str | None = None,
        page: int = 10_000,
        poll_secs: float = 0.5,
        track: bool | None = None,
        retry: Backoff | None = None,
    ) -> None:
        check_url(_NAME, url)
        check_positive(_NAME, page=page, poll_secs=poll_secs)
        for name in (slot, publication):
            if name is not None and not re.fullmatch(r"[a-z0-9_]{1,63}", name):
                raise ComponentError(
                    f"{_NAME}: {name!r} is no name of a slot or publication",
                    hint="such a name has small letters, digits and underscores",
                )
        self.url, self.snapshot, self.slot, self.publication = url, snapshot, slot, publication
        self.leaves = leaves(url, slot, publication)
        self.tables = tuple(name if "." in name else f"public.{name}" for name in Fields(tables))
        if not self.tables:
            raise ComponentError(f"{_NAME}: tables={tables!r} names no table")
        self.page, self.poll_secs = page, poll_secs
        self.set_up_inflight(track, retry)
        self.outputs: Any = {
            "default": ("op", "table", "key", "before", "after", "lsn"),
            "schema": ("table", "columns"),
            **({"dead": dead} if (dead := dead_fields(self.retry)) else {}),
        }

    # -- life ---------------------------------------------------------------------------------

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.open_inflight(conf)
        self._server: Server | None = None
        self._waiting: deque[Transaction] = deque()
        self._peeked = 0  # the end of what was read of the slot, and is not committed
        self._next_look = 0.0

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            log.info(
                "the replication slot %r is kept, with the log behind it; "
                "if this topology will not be resumed: topo kill --purge, "
                "or select pg_drop_replication_slot('%s')",
                self._name,
                self._name,
            )

    def deactivate(self) -> None:
        if self._server is not None:
            self._server.end_snapshot()

    @property
    def _name(self) -> str:
        context = self.context
        return slot_name(self.slot, context.checkpoint_id, context.this_component_id)

    def _opened(self) -> Server:
        if self._server is None:
            made = Server(_NAME, self.url, self._name, self.publication or self._name)
            made.prepare(self.tables, is_new=_AT not in self.state, snapshot=self.snapshot)
            self._server = made
            if _AT not in self.state:
                self.state[_AT] = (made.confirmed(), 0)
                self.state["todo"] = list(self.tables) if self.snapshot else []
        return self._server

    # -- reading ------------------------------------------------------------------------------

    def next_tuple(self) -> None:
        if self.emit_again() or not self.owns(self._name):
            return
        now = self.context.now()
        if now < self._next_look and not self._waiting:
            return
        server = self._opened()
        if self.state.raw()["todo"]:
            self._read_page(server)
            return
        if not self._waiting and not self._peeked:
            self._peek(server)
            if not self._waiting:
                self._next_look = now + self.poll_secs
        self._emit_changes(server)

    def _read_page(self, server: Server) -> None:
        """Emit the next rows of a table that were there before."""
        todo = self.state.raw()["todo"]
        table, shown = todo[0], self._shown
        last = shown[-1].upto if shown and shown[-1].table == table else None
        page: Page = server.page(table, last, self.most(self.page))
        self._tell_schema(server, page.relation)
        lsn = lsn_text(page.lsn)
        rows = (decoded(row, page.relation, server.load) for row in page.rows)
        values = [["read", table, server.key_of(table, row), None, row, lsn] for row in rows]
        self.emit_rows(values, f"{table} at {lsn}")
        if shown and shown[-1].table == table and shown[-1].snapshot == page.snapshot:
            shown.pop()
        shown.append(Shown(table, page.upto, page.snapshot, page.lsn))
        self.state[_SHOWN] = [tuple(vars(one).values()) for one in shown]
        if page.upto is None:
            self.state["todo"] = todo[1:]
            if not todo[1:]:
                server.end_snapshot()
        self.context.counter("read", len(page.rows))

    @property
    def _shown(self) -> list[Shown]:
        return [Shown(*values) for values in self.state.raw().get(_SHOWN, [])]

    def _peek(self, server: Server) -> None:
        """Look what the slot has; leave out what was emitted."""
        done, _ = self.state.raw()[_AT]
        before = server.log_end()
        there = list(transactions(server.peek(self.page)))
        found = [one for one in there if one.end > done]
        self._waiting = deque(found)
        self._peeked = found[-1].end if found else 0
        self.context.gauge("behind_bytes", max(0, before - (found[0].end if found else before)))
        if not there and before - done > _QUIET_BYTES:
            server.advance(before)  # nothing before it is ours, and the log need not be kept

    def _emit_changes(self, server: Server) -> None:
        done, part = self.state.raw()[_AT]
        shown = self._shown
        rows: list[list[Any]] = []
        most = self.most(_ROWS_AT_ONCE)
        while self._waiting and len(rows) < most:
            transaction = self._waiting[0]
            lsn = lsn_text(transaction.end)
            piece = transaction.changes[part : part + most]
            for change in piece:
                rows += self._rows(server, change, transaction.xid, lsn, shown)
            part += len(piece)
            if part >= len(transaction.changes):
                done, part = transaction.end, 0
                self._waiting.popleft()
        if (done, part) == self.state.raw()[_AT]:
            return
        self.state[_AT] = (done, part)
        if shown and all(one.lsn < done for one in shown):
            self.state[_SHOWN] = []
        if rows:
            self.emit_rows(rows, f"the log up to {lsn_text(done)}")
        else:
            self.context.end_batch()
        self.context.counter("changes", len(rows))

    def _rows(
        self, server: Server, change: Change, xid: int, lsn: str, shown: list[Shown]
    ) -> list[list[Any]]:
        """Return the rows to emit for a change, less what pages have shown."""
        relation = change.relation
        if relation.name not in self.tables:
            return []
        self._tell_schema(server, relation)
        parts = [change]
        if shown and change.op == "update" and self._has_new_key(server, change):
            # It may have been shown under one of its keys.
            parts = [
                Change("delete", relation, before=change.before),
                Change("insert", relation, after=change.after),
            ]
        made = []
        for part in parts:
            row: Row | None = part.after or part.before
            key = server.key_text(relation.name, row) if shown else None
            if is_shown(shown, relation.name, key, xid):
                continue
            before = decoded(part.before, relation, server.load)
            after = decoded(part.after, relation, server.load)
            value = server.key_of(relation.name, after or before)
            made.append([part.op, relation.name, value, before, after, lsn])
        return made

    @staticmethod
    def _has_new_key(server: Server, change: Change) -> bool:
        table, before = change.relation.name, change.before
        return before is not None and (
            server.key_text(table, before) != server.key_text(table, change.after)
        )

    def _tell_schema(self, server: Server, relation: Relation) -> None:
        known = self.state.raw().get(("columns", relation.name))
        columns = [[name, server.type_name(number)] for name, number in relation.columns]
        if known != columns:
            self.state["columns", relation.name] = columns
            self.emit_row([relation.name, columns], relation.name, stream="schema")

    # -- what is durable ----------------------------------------------------------------------

    def committed(self, batch_id: int) -> None:
        """Let the slot forget what has been emitted."""
        if _AT not in self.state or self.state.raw()["todo"] or not self.owns(self._name):
            return
        done, _ = self.state.raw()[_AT]
        server = self._opened()
        if server.advanced < done:
            server.advance(done)
        if self._peeked and done >= self._peeked:
            self._peeked = 0
        self.context.gauge("retained_bytes", server.retained())
