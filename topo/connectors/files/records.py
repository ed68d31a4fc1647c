"""The values that a file's records are emitted as."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topo.connectors.base import BadRecord, field_values
from topo.connectors.files.readers import Piece
from topo.errors import ComponentError


class Shape:
    """A rule that makes values of records: by their fields, or by a function."""

    def __init__(
        self,
        connector: str,
        form: str,
        fields: tuple[str, ...],
        translate: Callable[[Any], Any] | None,
    ) -> None:
        self._form, self._fields, self._translate = form, fields, translate
        self.names = fields
        """The fields of what is emitted."""
        if fields:
            return
        if translate is not None or form in ("csv", "parquet", "arrow"):
            raise ComponentError(
                f"{connector}: the fields of what it emits are not known",
                hint='name them: fields=("user", "url")',
            )
        self.names = ("line",) if form == "lines" else ("value",)

    def rows(self, path: str, piece: Piece) -> tuple[Any, list[int]]:
        """Return the rows of a piece, or its columns, and where each row's record begins.

        Records that cannot be translated are added to the piece's bad ones.
        """
        if self._translate is None:
            if piece.columns is not None:
                return piece.columns, piece.starts
            try:
                return list(map(self._values, piece.records)), piece.starts
            except Exception:  # one by one below, which says which one it is
                pass
        rows: list[Any] = []
        starts: list[int] = []
        for record, start in zip(piece.rows(), piece.starts, strict=True):
            try:
                values = self._values(record)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                piece.bad.append(BadRecord(record, said, f"{path} at {start}"))
                continue
            if values is not None:
                rows.append(values)
                starts.append(start)
        return rows, starts

    def _values(self, record: Any) -> Any:
        if self._translate is not None:
            return self._translate(record)
        if not self._fields:
            return [record]
        if self._form in ("parquet", "arrow"):
            return record
        if isinstance(record, str):
            return [record]
        return field_values(record, self._fields)
