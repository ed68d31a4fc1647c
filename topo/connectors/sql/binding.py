"""Values as drivers of databases take them: Python's, for numpy's scalars.

sqlite3 takes whatever has a buffer for bytes, so that a number of numpy's would be a BLOB of its
memory, of which nobody is told; others refuse it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from topo.wire.arrow import ArrowColumn


def bindable(column: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a column; raise ValueError for one that is no value of SQL."""
    if isinstance(column, ArrowColumn):
        return column
    if not any(issubclass(kind, np.generic | np.ndarray) for kind in set(map(type, column))):
        return column
    return [_plain(value) if isinstance(value, np.generic) else value for value in column]


def refuse_arrays(column: Sequence[Any]) -> None:
    """Raise ValueError if a column has an array of numpy, for a driver that takes its memory."""
    if not isinstance(column, ArrowColumn) and any(
        isinstance(value, np.ndarray) for value in column
    ):
        raise ValueError("an array of numpy is no value of SQL; tolist() or tobytes() makes one")


def _plain(value: np.generic) -> Any:
    if isinstance(value, np.datetime64 | np.timedelta64):
        exact = value.astype(f"{np.dtype(value.dtype).name.split('[')[0]}[us]")
        if exact != value and not np.isnat(value):
            raise ValueError(f"{value!r} is finer than a microsecond")
        return exact.item()
    plain = value.item()
    if isinstance(plain, np.generic):
        raise ValueError(f"{value!r} is no value of SQL; float() makes one")
    return plain
