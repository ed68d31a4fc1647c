"""Values as drivers of databases take them: Python's, for numpy's scalars.

sqlite3 takes whatever has a buffer for bytes, so that a number of numpy's would be a BLOB of its
memory, of which nobody is told; others refuse it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import MAXYEAR, MINYEAR, datetime, timedelta
from typing import Any

import numpy as np

from topo.wire.arrow import ArrowColumn

_FINE = ("ns", "ps", "fs", "as")


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
        return None if np.isnat(value) else _moment(value)
    plain = value.item()
    if isinstance(plain, np.generic):
        raise ValueError(f"{value!r} is no value of SQL; float() makes one")
    return plain


def _moment(value: np.datetime64 | np.timedelta64) -> datetime | timedelta:
    """Return a moment or a span of time as Python's; raise if it is none of these exactly.

    What Python cannot hold is an integer for numpy, or another time without a word.
    """
    unit, _ = np.datetime_data(value.dtype)
    plain: Any = None
    if isinstance(value, np.datetime64):
        if MINYEAR <= int(value.astype("datetime64[Y]").astype(int)) + 1970 <= MAXYEAR:
            exact: Any = value.astype("datetime64[us]")
            plain = exact.item()
    elif unit in ("generic", "Y", "M"):
        raise ValueError(f"{value!r} is no fixed span of time; numpy.timedelta64(5, 'D') is one")
    else:
        exact = value.astype("timedelta64[us]") if unit in _FINE else value
        plain = exact.item()
    if not isinstance(plain, datetime | timedelta):
        raise ValueError(f"{value!r} is out of the range of Python's times")
    if exact != value:
        raise ValueError(f"{value!r} is finer than a microsecond")
    return plain
