"""Adds many rows to a table of PostgreSQL by COPY, encoded a column at a time.

Row by row, psycopg converts each value by itself. Here a column of numbers, or of text in which
nothing has to be escaped, is encoded by a few calls in all, and values of other types are given to
psycopg's own dumpers one by one. COPY's binary format takes as long to write (0.2 us for a row of a
number and a text; 0.3 us as text), and would need the types of the table's columns.

If a column is Arrow's, the lines are made by Arrow, and the values of such columns never become
Python's: what the database gets is the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any

from topo.connectors.sql.rows import Column, Rows
from topo.wire.arrow import ArrowColumn, pyarrow

LEAST = 100
"""Fewer rows are not worth it."""
_CHUNK = 4_000  # rows that are encoded while the server reads the ones before
_NULL = "\\N"

_SPECIAL = re.compile(r"[\b\t\n\v\f\r\\]")
_ESCAPES = str.maketrans(
    {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v", "\f": "\\f", "\r": "\\r", "\\": "\\\\"}
)
_TEXTS: dict[type, Callable[[Any], str]] = {
    int: str,
    float: repr,
    bool: {True: "t", False: "f"}.__getitem__,
    datetime: str,
    date: str,
}
"""Types whose text is the same for psycopg, and has nothing to escape."""


def can_copy(connection: Any, rows: Rows) -> bool:
    """Return True if so many rows are to be copied: by psycopg, which alone is known to."""
    driver = connection.engine.dialect.driver
    return len(rows) >= LEAST and bool(rows.columns) and driver == "psycopg"


def copy_rows(alchemy: Any, connection: Any, table: Any, rows: Rows) -> None:
    """Copy rows into columns of a table, in the connection's transaction.

    What the database refuses is raised as by a statement of SQLAlchemy's.
    """
    from psycopg import Error, sql

    dialect = connection.engine.dialect
    driver = connection.connection.driver_connection
    kinds = [table.columns[name].type for name in rows.columns]
    encoder = _Encoder(alchemy.types, driver, kinds, [_maker(kind, dialect) for kind in kinds])
    place = sql.Identifier(*filter(None, (table.schema, table.name)))
    listed = sql.SQL(", ").join(map(sql.Identifier, rows.columns))
    statement = sql.SQL("copy {} ({}) from stdin").format(place, listed)
    cursor = connection.connection.cursor()
    try:
        with cursor.copy(statement) as copy:
            for start in range(0, len(rows), _CHUNK):
                copy.write(encoder.encoded(rows.part(start, start + _CHUNK)))
    except Error as error:
        raise alchemy.exc.DBAPIError.instance(
            f"COPY {table.name}",
            None,
            error,
            Error,
            connection_invalidated=dialect.is_disconnect(error, connection.connection, cursor),
            dialect=dialect,
        ) from error
    finally:
        cursor.close()


def _maker(kind: Any, dialect: Any) -> Callable[[Any], Any] | None:
    """Return what makes of a value for a column of a type the driver's; None if it takes it."""
    make: Callable[[Any], Any] | None = kind.dialect_impl(dialect).bind_processor(dialect)
    return make


class _Encoder:
    """A writer of rows in COPY's text format."""

    def __init__(
        self,
        types: Any,
        driver: Any,
        kinds: Sequence[Any],
        makers: Sequence[Callable[[Any], Any] | None],
    ) -> None:
        from psycopg import adapt

        self._types = types
        self._kinds = kinds
        self._makers = makers
        self._charset = driver.info.encoding
        self._transformer = adapt.Transformer(driver)

    def encoded(self, rows: Rows) -> bytes:
        """Return rows as they are sent."""
        if any(isinstance(column, ArrowColumn) for column in rows.values):
            return self._by_arrow(rows)
        texts = map(self._texts, rows.values, self._makers)
        lines = map("\t".join, zip(*texts, strict=True))
        return ("\n".join(lines) + "\n").encode(self._charset)

    def _by_arrow(self, rows: Rows) -> bytes:
        import pyarrow.compute as pc

        texts = map(self._array, rows.values, self._kinds, self._makers)
        lines = pc.binary_join_element_wise(
            *texts, "\t", null_handling="replace", null_replacement=_NULL
        )
        lines = pc.binary_join_element_wise(lines, "", "\n")
        letters, _ = _letters(lines)
        data: bytes = letters.tobytes()
        return data if self._charset == "utf-8" else data.decode().encode(self._charset)

    def _array(self, column: Column, kind: Any, make: Callable[[Any], Any] | None) -> Any:
        """Return the texts of a column as an array; NULL is a null in it, or the text of it."""
        texts = None
        if isinstance(column, ArrowColumn) and make is None:
            texts = self._texts_of_array(column.array, kind)
        if texts is None:
            texts = pyarrow().array(self._texts(list(column), make), pyarrow().string())
        return texts

    def _texts_of_array(self, array: Any, kind: Any) -> Any:
        """Return the texts of an array that the database reads as those of its values, or None.

        Arrow writes 1e-05 and the microseconds of a time in another way than Python, which is the
        same to columns of numbers and of times, and not to those of text.
        """
        import pyarrow.compute as pc

        pa = pyarrow()
        types = self._types
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        held = array.type
        if pa.types.is_boolean(held):
            return pc.if_else(array, "t", "f")
        if pa.types.is_string(held) or pa.types.is_large_string(held):
            letters, _ = _letters(array.fill_null(""))
            # Below 14 are the letters that are escaped, and NUL.
            return None if ((letters < 14) | (letters == ord("\\"))).any() else _as_text(array)
        is_exact = pa.types.is_integer(held) or pa.types.is_date32(held)
        is_exact = is_exact or pa.types.is_null(held)
        if pa.types.is_float64(held):
            is_exact = isinstance(kind, types.Float)
        if pa.types.is_timestamp(held) and held.unit != "ns" and held.tz is None:
            is_exact = isinstance(kind, types.DateTime)
        return _as_text(array) if is_exact else None

    def _texts(self, values: Sequence[Any], make: Callable[[Any], Any] | None) -> Sequence[str]:
        if make is not None:
            values = [None if value is None else make(value) for value in values]
        kinds = set(map(type, values))
        has_null = type(None) in kinds
        kinds.discard(type(None))
        if kinds == {str}:
            return self._escaped(values, has_null)
        text = _TEXTS.get(kinds.pop()) if len(kinds) == 1 else None
        if text is None:
            return list(map(self._dumped, values))
        if has_null:
            return [_NULL if value is None else text(value) for value in values]
        return list(map(text, values))

    def _escaped(self, values: Sequence[Any], has_null: bool) -> Sequence[str]:
        joined = "".join(filter(None, values) if has_null else values)
        if "\0" in joined:
            return list(map(self._dumped, values))  # which raises as for any statement
        if _SPECIAL.search(joined) is not None:
            return [_NULL if value is None else value.translate(_ESCAPES) for value in values]
        return [_NULL if value is None else value for value in values] if has_null else values

    def _dumped(self, value: Any) -> str:
        from psycopg.adapt import PyFormat

        if value is None:
            return _NULL
        dumped = self._transformer.get_dumper(value, PyFormat.TEXT).dump(value)
        if dumped is None:
            return _NULL
        return bytes(dumped).decode(self._charset).translate(_ESCAPES)


def _as_text(array: Any) -> Any:
    return array.cast(pyarrow().string())


def _letters(array: Any) -> tuple[Any, Any]:
    """Return the bytes of an array of text without nulls, and where in them its texts lie."""
    texts = ArrowColumn(array).texts()
    assert texts is not None, "it is text without nulls"
    letters, places = texts
    return letters[places[0] : places[-1]], places
