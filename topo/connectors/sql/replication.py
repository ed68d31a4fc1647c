"""A replication slot of PostgreSQL's, its publication, and pages of tables as of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from topo.config.secrets import Secret, revealed, without_password
from topo.connectors.base import load_client
from topo.connectors.remote import Remote
from topo.connectors.sql.pgoutput import Relation, Row
from topo.connectors.sql.slots import driver_url
from topo.errors import ComponentError, Unavailable, did_you_mean

_CREATE_SECS = 30
_INTEGERS = (20, 21, 23)  # the type numbers of int8, int2, int4

Key = tuple[int | str, ...]
"""The values of a primary key as they are ordered in pages: numbers, and texts by their bytes."""


@dataclass
class Shown:
    """The rows of a table that pages of one snapshot have shown: up to a key, or all of them."""

    table: str
    upto: Key | None
    snapshot: str
    lsn: int
    """The end of the log when the snapshot was taken."""

    def covers(self, table: str, key: Key | None) -> bool:
        """Return True if these pages are those of a row, or, of key None, of all rows."""
        return table == self.table and (self.upto is None or (key is not None and key <= self.upto))


@dataclass
class Page:
    """Some rows of a table, in the order of its key; `upto` None: its last ones."""

    relation: Relation
    rows: list[Row]
    upto: Key | None
    snapshot: str
    lsn: int


def is_shown(shown: list[Shown], table: str, key: Key | None, xid: int) -> bool:
    """Return True if the page that a row was in shows what a transaction did to it."""
    own = next((one for one in shown if one.covers(table, key)), None)
    return own is not None and _is_visible(xid, own.snapshot)


def _is_visible(xid: int, snapshot: str) -> bool:
    """Return True if a snapshot ("xmin:xmax:running") shows what a transaction has done.

    The log has the low 32 bits of a transaction's number.
    """
    first, after, running = snapshot.split(":")
    whole = int(after) + (xid - int(after) + (1 << 31)) % (1 << 32) - (1 << 31)
    if whole < int(first):
        return True
    return whole < int(after) and whole not in map(int, filter(None, running.split(",")))


def lsn_text(lsn: int) -> str:
    """Return a place in the log as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _lsn(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


class Server(Remote):
    """Connections to a server: one for the slot, one for the snapshot while there is one."""

    def __init__(self, connector: str, url: str | Secret, slot: str, publication: str) -> None:
        super().__init__(connector, without_password(revealed(url)))
        self._slot, self._publication = slot, publication
        self._psycopg = load_client("psycopg", connector, "postgres")
        self._url = driver_url(url)
        self._connection: Any = None
        self._snapshot: Any = None
        self._taken: Any = None
        self._keys: dict[str, tuple[str, ...]] = {}
        self._known_types: dict[str, dict[str, int]] = {}
        self._types: dict[int, str] = {}
        self._made_at = 0  # transactions from here on are all in the slot
        self.advanced = 0
        with self.reaching():
            self._connection = self._connect()
            self._loaders = self._psycopg.adapt.Transformer(self._connection)

    def _connect(self) -> Any:
        made = self._psycopg.connect(self._url, autocommit=True, connect_timeout=10)
        self.close_at_last(made.close)
        return made

    def close(self) -> None:
        self.end_snapshot()
        self._connection.close()

    def in_words(self, error: BaseException) -> Exception | None:
        """Return what to raise for an error; a connection that is lost is made anew."""
        errors = self._psycopg.errors
        if isinstance(error, (errors.ObjectInUse, errors.QueryCanceled)):
            return self._off(error)
        if isinstance(error, (self._psycopg.OperationalError, self._psycopg.InterfaceError)):
            self._renew()
            return self._off(error)
        if isinstance(error, self._psycopg.Error):
            return self.refused(
                str(error).strip(),
                "it needs wal_level=logical, the right of replication, and for a publication "
                "that is not there yet the ownership of the tables",
            )
        return None

    def _off(self, error: BaseException) -> Unavailable:
        said = str(error).strip().partition("\n")[0]
        return self.unavailable(f"slot {self._slot}: {said}")

    def _renew(self) -> None:
        self.end_snapshot()
        if self._connection is None or not (self._connection.closed or self._connection.broken):
            return
        try:
            self._connection = self._connect()
        except self._psycopg.Error as error:
            raise self._off(error) from error
        self._loaders = self._psycopg.adapt.Transformer(self._connection)

    def _ask(self, query: str, *values: Any) -> list[Any]:
        if self._connection.closed:
            self._renew()
        with self.reaching():
            return list(self._connection.execute(query, values).fetchall())

    # -- the slot -----------------------------------------------------------------------------

    def prepare(self, tables: Iterable[str], *, is_new: bool, snapshot: bool) -> None:
        """Find the slot, or make it for a reader that has read nothing."""
        for table in tables:
            self._keys[table] = self._key_of_table(table)
            if snapshot and not self._keys[table]:
                raise ComponentError(
                    f"{self.connector}: table {table!r} has no primary key, by which its rows are "
                    "read in pages",
                    hint="give it one, or start with snapshot=False",
                )
        found = self._ask(
            "select coalesce(wal_status, ''), plugin from pg_replication_slots "
            "where slot_name = %s",
            self._slot,
        )
        if found and found[0][1] != "pgoutput":
            raise ComponentError(
                f"{self.connector}: the slot {self._slot!r} is of the plugin {found[0][1]!r}",
                hint="it has to be one of pgoutput's, or not there",
            )
        if not is_new and (not found or found[0][0] == "lost"):
            raise ComponentError(
                f"{self.place} has lost the slot {self._slot!r}, and with it "
                "the changes since the last batch",
                hint="start with a fresh checkpoint, which reads the tables again",
            )
        self._publish(list(tables))
        if not found:
            self._create()
        if is_new:
            self._made_at = self._ask(
                "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
            )[0][0]

    def _key_of_table(self, table: str) -> tuple[str, ...]:
        if self._ask("select to_regclass(%s)", table)[0][0] is None:
            schema = table.partition(".")[0]
            known = self._ask(
                "select schemaname || '.' || tablename from pg_tables where schemaname = %s", schema
            )
            raise ComponentError(
                f"{self.place} has no table {table!r}",
                hint=did_you_mean(table, [name for (name,) in known]) or "write 'schema.table'",
            )
        found = self._ask(
            "select attname from pg_index join pg_attribute on attrelid = indrelid "
            "and attnum = any(indkey) where indrelid = %s::regclass and indisprimary "
            "order by array_position(indkey::int2[], attnum)",
            table,
        )
        return tuple(name for (name,) in found)

    def _publish(self, tables: list[str]) -> None:
        named = "select 1 from pg_publication where pubname = %s"
        if self._ask(named, self._publication):
            self._check_published(tables)
            return
        sql = self._psycopg.sql
        listed = sql.SQL(", ").join(sql.Identifier(*table.split(".", 1)) for table in tables)
        with self.reaching():
            self._connection.execute(
                sql.SQL("create publication {} for table {}").format(
                    sql.Identifier(self._publication), listed
                )
            )

    def _check_published(self, tables: list[str]) -> None:
        found = self._ask(
            "select schemaname || '.' || tablename from pg_publication_tables where pubname = %s",
            self._publication,
        )
        for table in tables:
            if (table,) not in found:
                raise ComponentError(
                    f"{self.connector}: the publication {self._publication!r} has no table "
                    f"{table!r}",
                    hint=f"alter publication {self._publication} add table {table}",
                )

    def _create(self) -> None:
        """Make the slot, which waits for the transactions that are open now."""
        with self.reaching():
            self._connection.execute(f"set statement_timeout = '{_CREATE_SECS}s'")
            try:
                self._connection.execute(
                    "select pg_create_logical_replication_slot(%s, 'pgoutput')", (self._slot,)
                )
            finally:
                if not self._connection.broken:
                    self._connection.execute("reset statement_timeout")

    def confirmed(self) -> int:
        """Return the place in the log from which the slot has transactions."""
        (found,) = self._ask(
            "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s",
            self._slot,
        )
        return _lsn(found[0])

    def log_end(self) -> int:
        """Return the place up to which the log is written for good."""
        return _lsn(self._ask("select pg_current_wal_flush_lsn()::text")[0][0])

    def peek(self, most: int) -> list[tuple[int, bytes]]:
        """Return about so many messages of the slot, up to the end of a transaction."""
        found = self._ask(
            "select xid::text::bigint, data from pg_logical_slot_peek_binary_changes("
            "%s, null, %s, 'proto_version', '1', 'publication_names', %s)",
            self._slot,
            most,
            self._publication,
        )
        return [(int(xid), bytes(data)) for xid, data in found]

    def advance(self, lsn: int) -> None:
        """Let the slot forget what is before a place in the log."""
        if lsn > self.confirmed():
            self._ask(
                "select pg_replication_slot_advance(%s, %s::pg_lsn)", self._slot, lsn_text(lsn)
            )
        self.advanced = lsn

    def retained(self) -> int:
        """Return the bytes of log that the server keeps for the slot."""
        (found,) = self._ask(
            "select pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint "
            "from pg_replication_slots where slot_name = %s",
            self._slot,
        )
        return int(found[0] or 0)

    # -- pages --------------------------------------------------------------------------------

    def page(self, table: str, last: Key | None, most: int) -> Page:
        """Return the rows of a table after a key, as of the snapshot."""
        sql = self._psycopg.sql
        with self.reaching():
            if self._snapshot is None:
                self._snapshot = self._connect()
                self._snapshot.execute("begin isolation level repeatable read read only")
                self._taken = self._snapshot.execute(
                    "select pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"
                ).fetchone()
                self._check_settled()
            described = self._snapshot.execute(
                "select attname, atttypid::int from pg_attribute where attrelid = %s::regclass "
                "and attnum > 0 and not attisdropped order by attnum",
                (table,),
            ).fetchall()
            relation = Relation(table, tuple(described), self._keys[table])
            types = dict(relation.columns)
            key = [
                sql.SQL("{}" if types[name] in _INTEGERS else '{}::text collate "C"').format(
                    sql.Identifier(name)
                )
                for name in relation.key
            ]
            ordered = sql.SQL(", ").join(key)
            after = sql.SQL("")
            if last is not None:
                marks = sql.SQL(", ").join([sql.Placeholder()] * len(last))
                after = sql.SQL("where ({}) > ({})").format(ordered, marks)
            columns = sql.SQL(", ").join(
                sql.SQL("{}::text").format(sql.Identifier(name)) for name, _ in relation.columns
            )
            query = sql.SQL("select {} from {} {} order by {} limit {}").format(
                columns, sql.Identifier(*table.split(".", 1)), after, ordered, sql.Literal(most)
            )
            found = self._snapshot.execute(query, last or ()).fetchall()
        names = [name for name, _ in relation.columns]
        rows: list[Row] = [
            dict(zip(names, (None if v is None else v.encode() for v in values), strict=True))
            for values in found
        ]
        snapshot, lsn = self._taken
        upto = self.key_text(table, rows[-1], types) if len(rows) == most else None
        return Page(relation, rows, upto, snapshot, _lsn(lsn))

    def _check_settled(self) -> None:
        """Wait, by another try, for transactions that were open when the slot was made.

        One may be in the log before the slot's first place, and yet not be in the snapshot.
        """
        if int(self._taken[0].split(":")[0]) < self._made_at:
            self.end_snapshot()
            raise Unavailable(
                f"{self.place}: transactions are open that began before the "
                f"slot {self._slot!r} was there",
                after_secs=0.2,
            )

    def end_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    # -- values -------------------------------------------------------------------------------

    def key_text(
        self, table: str, row: Row | None, types: dict[str, int] | None = None
    ) -> Key | None:
        """Return a row's key as pages order it; None if it is not known."""
        if row is None or not self._keys[table]:
            return None
        if types is None:
            types = self._key_types(table)
        made: list[int | str] = []
        for name in self._keys[table]:
            value = row.get(name)
            if value is None:
                return None
            made.append(int(value) if types[name] in _INTEGERS else value.decode())
        return tuple(made)

    def _key_types(self, table: str) -> dict[str, int]:
        known = self._known_types.get(table)
        if known is None:
            found = self._ask(
                "select attname, atttypid::int from pg_attribute "
                "where attrelid = %s::regclass and attnum > 0",
                table,
            )
            known = self._known_types[table] = dict(found)
        return known

    def key_of(self, table: str, row: dict[str, Any] | None) -> Any:
        """Return the value of a row's primary key, a tuple if it has several columns."""
        if row is None:
            return None
        values = tuple(row.get(name) for name in self._keys[table])
        return values[0] if len(values) == 1 else values or None

    def load(self, number: int, text: bytes) -> Any:
        """Return a value of a type from its text, as the client reads it."""
        loader = self._loaders.get_loader(number, self._psycopg.pq.Format.TEXT)
        try:
            return loader.load(text)
        except self._psycopg.DataError:  # such as the date "infinity", which Python has not
            return text.decode()

    def type_name(self, number: int) -> str:
        """Return the name of a type, such as "integer"."""
        if number not in self._types:
            self._types[number] = self._ask("select format_type(%s, null)", number)[0][0]
        return self._types[number]
