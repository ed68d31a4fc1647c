"""Writes tuples as rows of ClickHouse, by inserts over HTTP.

ClickHouse remembers the inserts of late by a token that goes with them, and drops one that it has
had. So an insert whose answer is lost is sent again under its token; and `exactly_once` keeps a
batch in state until it has committed, and then inserts it under tokens that name batch and place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from topo.config.secrets import Secret, revealed
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad
from topo.connectors.formats import dump_json
from topo.connectors.http.targets import TargetSink
from topo.connectors.outbox import Outgoing, Refused, parts, size_of
from topo.connectors.remote import passes
from topo.errors import ComponentError
from topo.tuples import Tuple

_NAME = "ClickHouseBolt"
_MOST = 50_000  # rows of an insert, which is one block there
_MOST_BYTES = 8_000_000
_NAME_OF_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_CODE = re.compile(r"Code: (\d+)")

_BAD_ROW = {6, 26, 27, 38, 41, 53, 62, 69, 72, 117, 130, 131, 349, 407, 469, 691}
"""Codes of values that do not fit their columns, and of columns that there are not."""
_PASSING = {74, 75, 159, 164, 201, 202, 203, 209, 210, 236, 241, 242, 243, 252, 279, 285, 286, 305,
            319, 335, 394, 425, 999}  # fmt: skip
"""Codes of what may pass: time-outs, limits, disks and keepers that are away, tables that are read
only for now."""
_OWNED = ("query", "database", "insert_deduplication_token", "insert_deduplicate", "async_insert",
          "wait_end_of_query", "input_format_skip_unknown_fields")  # fmt: skip
_WINDOW = re.compile(r"non_replicated_deduplication_window\s*=\s*[1-9]")


class ClickHouseBolt(TargetSink):
    """A sink of rows.

    `table` is a name, "base.name" as well, or a function of the tuple; one that returns None skips
    it. A row is a dict of the tuple's fields, or what `map` makes of the tuple; columns that it
    lacks have their defaults, one that the table lacks makes the row a bad one. `settings` are
    ClickHouse's own, of each insert.
    """

    transient = ("_checked", *TargetSink.transient)
    connector = _NAME
    refused = {
        "by_batch": "a table does not know what a batch wrote; use 'exactly_once'",
    }

    @answering({"host": "url", "username": "user", "database": "table"})
    def __init__(
        self,
        url: str | Secret,
        table: str | Callable[[Tuple], str | None],
        *,
        map: Callable[[Tuple], Any] | None = None,
        user: str | Secret | None = None,
        password: str | Secret | None = None,
        headers: Mapping[str, str | Secret] | None = None,
        tls: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        guarantee: str = "at_least_once",
        timeout_secs: float = 30.0,
        retry_secs: float = 30.0,
        on_bad: OnBad = "stop",
    ) -> None:
        if not callable(table):
            _check_table(table)
        for name in settings or {}:
            if name in _OWNED:
                raise ComponentError(f"{_NAME} sets {name!r} itself")
        self.table, self.settings = table, dict(settings or {})
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

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        super().prepare(conf, context, collector)
        self._checked: set[str] = set()  # tables that are known to drop what comes twice

    def outgoing(self, tup: Tuple) -> Outgoing | None:
        table = self.table if isinstance(self.table, str) else self.table(tup)
        if table is None:
            return None
        if not isinstance(self.table, str):
            _check_table(table)
        row = self.as_record(tup)
        if not isinstance(row, Mapping):
            raise ValueError(f"a row is a dict; got a {type(row).__name__}")
        return Outgoing(table, dump_json(row))

    # -- sending ------------------------------------------------------------------------------

    def send(self, records: Sequence[Outgoing]) -> Refused:
        refused: Refused = []
        for table, rows in _inserts(records):
            if self.guarantee == "exactly_once" and table not in self._checked:
                self.deliver(partial(self._check_memory, table), rows)
            self._insert(table, rows, refused)
        return refused

    def _insert(self, table: str, rows: list[Outgoing], refused: Refused) -> None:
        """Insert rows; halve them, until those alone are refused that do not fit the table."""
        token = f"{rows[0].id}+{len(rows)}"
        body = b"\n".join(row.body for row in rows)
        query = f"INSERT INTO {table} FORMAT JSONEachRow"
        own = {**revealed(self.settings), "insert_deduplication_token": token}
        try:
            self.deliver(partial(self._ask, query, body, own), rows)
        except ValueError as error:
            if len(rows) == 1:
                refused.append((rows[0], error))
                return
            middle = len(rows) // 2
            self._insert(table, rows[:middle], refused)
            self._insert(table, rows[middle:], refused)

    def _check_memory(self, table: str) -> None:
        """Raise ComponentError for a table that does not remember inserts."""
        base, _, name = table.rpartition(".")
        of_base = f"'{base}'" if base else "currentDatabase()"
        query = (
            "SELECT engine, create_table_query FROM system.tables "
            f"WHERE database = {of_base} AND name = '{name}' FORMAT TSVRaw"
        )
        engine, _, definition = self._ask(query, b"", {}).partition("\t")
        remembers = engine.startswith(("Replicated", "Shared")) or (
            engine.endswith("MergeTree") and _WINDOW.search(definition) is not None
        )
        if engine and not remembers:
            raise ComponentError(
                f"{_NAME}: the table {table} ({engine}) does not remember its inserts: one whose "
                "answer is lost would be there twice",
                hint=f"ALTER TABLE {table} MODIFY SETTING non_replicated_deduplication_window = "
                "1000; or guarantee='at_least_once'",
            )
        self._checked.add(table)

    def _ask(self, query: str, body: bytes, settings: Mapping[str, Any]) -> str:
        """Return an answer; raise Unavailable for what may pass, ValueError for rows."""
        target = self.target()
        params = {
            "insert_deduplicate": "1",
            "async_insert": "0",
            "wait_end_of_query": "1",
            "input_format_skip_unknown_fields": "0",
            "date_time_input_format": "best_effort",
            **settings,
            "query": query,
        }
        with target.reaching():
            response = target.client.post(target.url, params=params, content=body)
        if response.is_success and "x-clickhouse-exception-code" not in response.headers:
            return str(response.text)
        reason = " ".join(response.text.split())[:500]
        code = _code(response)
        if code in _BAD_ROW:
            raise ValueError(reason)
        if code in _PASSING or (code is None and passes(response.status_code)):
            raise target.unavailable(reason)
        if code is None:
            raise target.answered(response, response.content)
        hint = 'user= and password=Secret.env("NAME")' if code in (192, 193, 194, 516) else None
        raise target.refused(reason, hint or "")


def _check_table(table: Any) -> None:
    if not isinstance(table, str) or not _NAME_OF_TABLE.fullmatch(table):
        raise ComponentError(
            f'{_NAME}: table={table!r}; it is "name" or "base.name", of letters, digits and _'
        )


def _inserts(records: Sequence[Outgoing]) -> Iterator[tuple[str, list[Outgoing]]]:
    """Yield the rows of each insert, with their table."""
    for table, rows in groupby(sorted(records, key=_table_of), key=_table_of):
        for part in parts(rows, size_of, most=_MOST, most_bytes=_MOST_BYTES):
            yield table, part


def _table_of(record: Outgoing) -> str:
    return record.where


def _code(response: Any) -> int | None:
    text = response.headers.get("x-clickhouse-exception-code", "")
    if text.isdigit():
        return int(text)
    match = _CODE.match(response.text)
    return int(match[1]) if match else None
