"""Writes tuples to a table.

`exactly_once` keeps a batch's rows in state and writes them, once the batch has committed, in one
transaction with the batch's number in the table `topo_batches`. `by_batch` writes before the
commit, with the batch and the task in two columns: a batch that runs again removes what it wrote
before.

Without `map` nothing is done to a single tuple: the columns of frames are kept as they are, and
those of Arrow reach PostgreSQL's COPY without becoming values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

from topo.columns import TakesColumns
from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import Guarantee, OnBad, as_record, check_choice
from topo.connectors.publication import PublishingSink, Rejected
from topo.connectors.sql.binding import bindable, refuse_arrays
from topo.connectors.sql.copying import can_copy, copy_rows
from topo.connectors.sql.database import REQUIRES, Database, check_url, is_passing
from topo.connectors.sql.rows import Rows, count, from_state, halves, last_by_key, merged
from topo.errors import ComponentError, Unavailable
from topo.tuples import Fields, Tuple
from topo.ways import BY_BATCH, BY_TUPLE

_NAME = "SqlBolt"
MARKERS = "topo_batches"

_UNFIT = (TypeError, ValueError, ArithmeticError)
"""What drivers raise for a value that they cannot send."""
_UNFIT_NAMES = (TypeError, ValueError)

Row = dict[str, Any]


class SqlBolt(TakesColumns, PublishingSink):
    """A sink of rows: dicts of a tuple's fields, or what `map` makes of a tuple.

    `mode` is "append", "upsert" (by the columns `key`) or "delete" (by them). A row that the
    database refuses is found by halving its batch; the others are written.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    transient = ("_database", "_table", "_rows", "_unfit")

    @answering()
    def __init__(
        self,
        url: str | Secret,
        table: str,
        *,
        mode: Literal["append", "upsert", "delete"] = "append",
        key: str | Iterable[str] = (),
        map: Callable[[Tuple], Row] | None = None,
        guarantee: Guarantee = "at_least_once",
        batch_columns: tuple[str, str] = ("topo_batch", "topo_task"),
        on_bad: OnBad = "stop",
    ) -> None:
        check_url(_NAME, url)
        check_choice(_NAME, "mode", mode, ("append", "upsert", "delete"))
        choices = ("none", "at_least_once", "by_batch", "exactly_once")
        check_choice(_NAME, "guarantee", guarantee, choices)
        self.url, self.table_name, self.mode = url, table, mode
        self.key, self.map = tuple(Fields(key)), map
        by_columns = map is None and type(self).execute is SqlBolt.execute
        self.hook = BY_BATCH if by_columns else BY_TUPLE
        self.guarantee, self.on_bad, self.batch_columns = guarantee, on_bad, batch_columns
        if mode != "append" and not self.key:
            raise ComponentError(f"{_NAME}: mode={mode!r} needs the columns of a key: key=('id',)")
        if mode != "append" and guarantee == "by_batch":
            raise ComponentError(
                f"{_NAME}: guarantee='by_batch' replaces the rows of a batch, and mode={mode!r} "
                "changes rows of others",
                hint="use 'exactly_once', or 'at_least_once' if writing twice does no harm",
            )
        self.set_on_bad(on_bad)
        self.after_commit = guarantee == "exactly_once"

    # -- life ---------------------------------------------------------------------------------

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self._database = Database(_NAME, self.url)
        self._table = self._database.table(self.table_name)
        self._database.columns(self._table, self.key)
        if self.guarantee == "by_batch":
            self._database.columns(self._table, self.batch_columns)
        self._begin()

    def _begin(self) -> list[Rows]:
        """Return the rows that came, and begin with none."""
        came = getattr(self, "_rows", [])
        self._rows: list[Rows] = []
        self._unfit: Rejected = []
        """What has no place in the table, as its names say; it came by the column."""
        return came

    def restored(self) -> None:
        """Remove what batches have written that did not commit."""
        if self.guarantee != "by_batch":
            return
        batch, task = self._batch_of_table
        late = (task == self._task) & (batch > self.state.get("last", -1))
        with self._database.reaching(), self._database.engine.begin() as connection:
            connection.execute(self._table.delete().where(late))

    def cleanup(self) -> None:
        self._database.close()

    @property
    def _task(self) -> str:
        context = self.context
        name = f"{context.checkpoint_id}/{context.this_component_id}"
        return f"{name}/{context.this_task_index}"

    @property
    def _batch_of_table(self) -> list[Any]:
        return self._database.columns(self._table, self.batch_columns)

    # -- a batch ------------------------------------------------------------------------------

    def execute(self, tup: Tuple) -> None:
        try:
            row = dict(as_record(tup, self.map))
            columns = tuple(row)
            self._check(columns)
        except _UNFIT_NAMES as error:
            self.reject(list(tup.values), error)
            return
        if not self._rows or self._rows[-1].columns != columns:
            self._rows.append(Rows(columns))
        self._rows[-1].add(list(row.values()))

    def process_columns(
        self, fields: Sequence[str], columns: Sequence[Sequence[Any]], count: int
    ) -> None:
        rows = Rows(tuple(fields), list(columns), 0 if fields else count)
        try:
            self._check(rows.columns)
        except _UNFIT_NAMES as error:
            if self.on_bad == "stop":
                raise
            self._unfit += [(list(values), error) for values in rows]
        else:
            self._rows.append(rows)

    def _check(self, columns: tuple[str, ...]) -> None:
        """Raise an error if rows of these columns have no place in the table."""
        unknown = [name for name in columns if name not in self._table.columns]
        if unknown:
            self._database.columns(self._table, unknown)
        missing = [name for name in self.key if name not in columns]
        if missing:
            raise ValueError(f"no value for the key's column {missing[0]!r}")

    def on_tick(self, tup: Tuple) -> None:
        """Do nothing but work in this batch: `pre_commit` emits what was rejected late."""

    def pre_commit(self, batch_id: int) -> None:
        unfit, rows = self._unfit, self._begin()
        for values, error in unfit:
            self.reject(values, error)
        if self.guarantee == "exactly_once":
            self.emit_rejected()
            self.keep(batch_id, rows)
            return
        if not rows:
            return
        if self.guarantee == "by_batch":
            batch, task = self.batch_columns
            rows = [each.with_constants({batch: batch_id, task: self._task}) for each in rows]
            self.state["last"] = batch_id
        for values, error in self._written(rows, lambda connection: True):
            self.reject(values, error)

    def publish(self, number: int, batch: Any) -> Rejected:
        """Write the rows of a batch, unless its number is in the database."""
        return self._written(from_state(batch), partial(self._mark, batch=number))

    # -- the database -------------------------------------------------------------------------

    def _written(self, rows: list[Rows], begin: Callable[[Any], bool]) -> Rejected:
        """Write rows in one transaction; return those that the database refuses."""
        rows = merged(rows) if self.mode == "append" else last_by_key(rows, self.key)
        refused: Rejected = []
        with self._database.reaching(), self._database.engine.begin() as connection:
            if begin(connection):
                self._write(connection, rows, refused)
        self.context.counter("rows", count(rows) - len(refused))
        return refused

    def _write(self, connection: Any, rows: list[Rows], refused: Rejected) -> None:
        """Write rows; halve them to find those that the database refuses."""
        errors = self._database.alchemy.exc
        try:
            with connection.begin_nested():
                for each in rows:
                    self._execute(connection, each)
        except (errors.StatementError, *_UNFIT) as error:
            if isinstance(error, errors.DBAPIError) and is_passing(errors, error):
                raise
            if count(rows) == 1:
                reason = str(getattr(error, "orig", error)).strip()
                refused.append((list(next(iter(rows[0]))), ValueError(reason)))
                return
            for half in halves(rows):
                self._write(connection, half, refused)

    def _execute(self, connection: Any, rows: Rows) -> None:
        """Write rows of the same columns."""
        if self.mode == "append" and can_copy(connection, rows):
            alchemy = self._database.alchemy
            copy_rows(alchemy, connection, self._table, rows)
            return
        if self._database.dialect == "sqlite":
            for column in rows.values:
                refuse_arrays(column)
        plain = Rows(rows.columns, [*map(bindable, rows.values)], rows.empty)
        connection.execute(self._statement(rows.columns), self._parameters(plain.dicts()))

    def _statement(self, columns: tuple[str, ...]) -> Any:
        alchemy, table = self._database.alchemy, self._table
        if self.mode == "delete":
            keys = self._database.columns(table, self.key)
            return table.delete().where(
                alchemy.and_(*(column == alchemy.bindparam(f"k_{column.name}") for column in keys))
            )
        if self.mode == "append":
            return table.insert()
        others = [name for name in columns if name not in self.key]
        dialect = self._database.dialect
        if dialect in ("postgresql", "sqlite"):
            module = getattr(alchemy.dialects, dialect)
            insert = module.insert(table)
            if not others:
                return insert.on_conflict_do_nothing(index_elements=list(self.key))
            changed = {name: insert.excluded[name] for name in others}
            return insert.on_conflict_do_update(index_elements=list(self.key), set_=changed)
        if dialect in ("mysql", "mariadb"):
            insert = alchemy.dialects.mysql.insert(table)
            changed = {name: insert.inserted[name] for name in others or self.key}
            return insert.on_duplicate_key_update(changed)
        raise ComponentError(
            f"{_NAME}: mode='upsert' is not known for {dialect}",
            hint="it is for PostgreSQL, SQLite, MySQL and MariaDB",
        )

    def _parameters(self, rows: list[Row]) -> list[Row]:
        if self.mode == "delete":
            return [{f"k_{name}": row[name] for name in self.key} for row in rows]
        return rows

    def _mark(self, connection: Any, batch: int) -> bool:
        """Note the batch as written; return False if it is noted already."""
        markers = self._markers(connection)
        mine = markers.c.task == self._task
        later = mine & (markers.c.batch < batch)
        if connection.execute(markers.update().where(later).values(batch=batch)).rowcount:
            return True
        if connection.execute(markers.select().where(mine)).first() is not None:
            return False
        connection.execute(markers.insert().values(task=self._task, batch=batch))
        return True

    def _markers(self, connection: Any) -> Any:
        alchemy = self._database.alchemy
        markers = alchemy.Table(
            MARKERS,
            alchemy.MetaData(),
            alchemy.Column("task", alchemy.String(255), primary_key=True),
            alchemy.Column("batch", alchemy.BigInteger, nullable=False),
        )
        try:
            with connection.begin_nested():
                markers.create(connection, checkfirst=True)
        except alchemy.exc.DBAPIError as error:  # another task has made it meanwhile
            if not alchemy.inspect(connection).has_table(MARKERS):
                raise Unavailable(f"{_NAME}: {MARKERS} cannot be made: {error.orig}") from error
        return markers
