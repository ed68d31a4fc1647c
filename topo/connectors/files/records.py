"""The values that a file's records are emitted as."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from topo.connectors.base import BadRecord
from topo.connectors.files.readers import Piece
from topo.connectors.picking import Picker
from topo.connectors.translation import stream_and_values
from topo.errors import ComponentError
from topo.tuples import DEFAULT_STREAM

Other: TypeAlias = tuple[str, Any, int]
"""A stream, the values that go there, and where their record begins."""


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

    def rows(self, path: str, piece: Piece, pick: Picker) -> tuple[Any, list[int], list[Other]]:
        """Return the rows of a piece, or its columns, and where each row's record begins.

        Apart from them come what goes to other streams. `pick` takes the fields of a record that is
        a mapping. Records that cannot be translated are added to the piece's bad ones.
        """
        if self._translate is None:
            if piece.columns is not None:
                return piece.columns, piece.starts, []
            try:
                rows = [self._values(record, pick) for record in piece.records]
                return rows, piece.starts, []
            except Exception:  # one by one below, which says which one it is
                pass
        rows = []
        starts: list[int] = []
        others: list[Other] = []
        for record, start in zip(piece.rows(), piece.starts, strict=True):
            try:
                values = self._values(record, pick)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                piece.bad.append(BadRecord(record, said, f"{path} at {start}"))
                continue
            if values is None:
                continue
            stream, own = stream_and_values(values)
            if stream == DEFAULT_STREAM:
                rows.append(own)
                starts.append(start)
            else:
                others.append((stream, own, start))
        return rows, starts, others

    def _values(self, record: Any, pick: Picker) -> Any:
        if self._translate is not None:
            return self._translate(record)
        if not self._fields:
            return [record]
        if self._form in ("parquet", "arrow"):
            return record
        if isinstance(record, str):
            return [record]
        return pick(record)
