"""The values that a file's records are emitted as.

Records come decoded, in pieces of a file, and columnar ones by the column: those stay columns,
unless a function translates them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from topo.components import Spout
from topo.connectors import translation
from topo.connectors.files.readers import Piece
from topo.connectors.translation import Columns, Reader, stream_and_values
from topo.errors import ComponentError
from topo.tuples import DEFAULT_STREAM

_NAME = "FileSpout"
_COLUMNAR = ("parquet", "arrow")


class _Line(NamedTuple):
    line: str


class _Value(NamedTuple):
    value: Any


class Translation(translation.Translation):
    """A rule that makes values of a file's records."""

    def __init__(self, form: str, fields: tuple[str, ...], **more: Any) -> None:
        if not fields and form in ("csv", *_COLUMNAR):
            raise ComponentError(
                f"{_NAME}: the fields of what it emits are not known",
                hint='name them: fields=("user", "url")',
            )
        record = _Line if form == "lines" else _Value
        super().__init__(_NAME, record, record._fields, value="json", fields=fields, **more)
        self.form, self.is_whole = form, not fields


class RecordReader(Reader):
    """The translation of records that are decoded already."""

    def __init__(self, rule: Translation, spout: Spout) -> None:
        super().__init__(rule, spout)
        self._is_whole = rule.is_whole
        self._is_columnar = rule.form in _COLUMNAR

    def values_of(self, value: Any, record: Callable[[Any], Any]) -> Any:
        if self._of.translate is not None:
            return self._of.translate(value)
        if self._is_columnar:
            return value
        return [value] if self._is_whole or isinstance(value, str) else self._pick(value)

    def rows(
        self, spout: Spout, path: str, piece: Piece, other: Callable[[str, Any, int], None]
    ) -> tuple[Any, list[int]]:
        """Return the rows of a piece, or its columns, and where each row's record begins.

        What goes to another stream is given to `other`, with where its record begins. Tell of the
        records that cannot be read.
        """
        for bad in piece.bad:
            self.tell(spout, bad)
        if self._of.translate is None:
            columns = self._columns_in(piece)
            if columns is not None:
                return columns, piece.starts
            try:
                return [self.values_of(record, _same) for record in piece.rows()], piece.starts
            except Exception:  # one by one below, which says which one it is
                pass
        rows: list[Any] = []
        starts: list[int] = []
        for record, start in zip(piece.rows(), piece.starts, strict=True):
            try:
                values = self.values_of(record, _same)
            except Exception as error:
                self.tell_bad(spout, record, error, f"{path} at {start}")
                continue
            if values is None:
                continue
            stream, own = stream_and_values(values)
            if stream == DEFAULT_STREAM:
                rows.append(own)
                starts.append(start)
            else:
                other(stream, own, start)
        return rows, starts

    def _columns_in(self, piece: Piece) -> Columns | None:
        """Return by field what is emitted of a piece; None if its rows are to be made."""
        if piece.columns is None:
            return self.columns_of(piece.records)
        if self._is_columnar:
            return {**piece.columns}
        return self.columns_by_name(piece.columns, piece.count)


def _same(value: Any) -> Any:
    return value
