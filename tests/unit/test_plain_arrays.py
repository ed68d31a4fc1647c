"""An Arrow array is a column that nobody can tell from the list of its values, or is that list."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from topo.wire.arrow import ArrowColumn
from topo.wire.plain_arrays import column_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ZONED = pa.timestamp("s", "Europe/Berlin")
NESTED = pa.list_(pa.list_(pa.int16()))
# In the order of the alphabet, in which older versions of Arrow have the names of dictionaries.
SHOP = pa.struct([("at", pa.timestamp("ms")), ("name", pa.large_string()), ("sizes", NESTED)])
SHOPS = [{"at": datetime(2026, 1, 1), "name": "a", "sizes": [[1], None]}, None]

KEPT: list[tuple[list[Any], Any]] = [
    ([None, None], pa.null()),
    ([True, None], pa.bool_()),
    ([1, None, -128], pa.int8()),
    ([2**32 - 1, 0], pa.uint32()),
    ([2**62, 7], pa.int64()),
    ([1.5, float("nan"), None, -0.0], pa.float32()),
    ([float("inf"), 1.0], pa.float64()),
    (["a", None, "é\0"], pa.string()),
    (["a", "b"], pa.large_string()),
    ([b"\xff", None], pa.binary()),
    ([b"abcd", b"1234"], pa.binary(4)),
    ([date(2026, 1, 1), None], pa.date32()),
    ([datetime(1, 1, 1), datetime(9999, 12, 31)], pa.timestamp("us")),
    ([NOON, None], ZONED),
    ([time(1, 2, 3), None], pa.time32("s")),
    ([[[1, None], None, []], None], NESTED),
    (SHOPS, SHOP),
]
LISTED: list[tuple[list[Any], Any]] = [
    ([2**64 - 1, 1], pa.uint64()),
    ([Decimal("1.50"), None], pa.decimal128(10, 2)),
    ([NOON.replace(tzinfo=None), None], pa.timestamp("ns")),
    ([date(2026, 1, 1), None], pa.date64()),
    ([timedelta(seconds=1), None], pa.duration("ms")),
    ([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
    ([[1, 2], None], pa.list_(pa.int8(), 2)),
    ([[Decimal("1.5")]], pa.list_(pa.decimal128(4, 1))),
]


def shapes(array: pa.Array) -> list[Any]:
    """Return an array as it is, as a slice, in several pieces, and in none."""
    return [
        array,
        pa.concat_arrays([array, array])[1 : len(array) + 1],
        pa.chunked_array([array[:1], array[1:], array]),
        pa.chunked_array([array])[1:],
    ]


@pytest.mark.parametrize(("values", "kind"), KEPT, ids=[str(kind) for _, kind in KEPT])
def test_a_column_that_stays_has_the_values_and_the_type_of_its_list(
    values: list[Any], kind: Any
) -> None:
    for given in shapes(pa.array(values, kind)):
        column = column_of(given)
        assert isinstance(column, ArrowColumn)
        assert repr(column.tolist()) == repr(given.to_pylist())
        assert column.array.type == pa.array(pa.array(values, kind).to_pylist()).type


@pytest.mark.parametrize(("values", "kind"), LISTED, ids=[str(kind) for _, kind in LISTED])
def test_a_column_that_is_not_exact_is_the_list_of_its_values(values: list[Any], kind: Any) -> None:
    for given in shapes(pa.array(values, kind)):
        column = column_of(given)
        assert isinstance(column, list)
        assert repr(column) == repr(given.to_pylist())


def test_a_dictionary_is_the_values_that_it_stands_for() -> None:
    for values in (["a", None, "b", "a"], [1, 2, None, 1]):
        for given in shapes(pa.array(values).dictionary_encode()):
            column = column_of(given)
            assert isinstance(column, ArrowColumn)
            assert column.tolist() == given.to_pylist()
            assert column.array.type == pa.array(values).type


def bad_text() -> Any:
    offsets = np.array([0, 1, 2], np.int32).tobytes()
    return pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"a\xff")]
    )


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (pa.array([0, 2**62], pa.timestamp("us")), OverflowError),
        (pa.array([0], pa.timestamp("us", "Nowhere/At_All")), LookupError),
        (pa.array([2**31 - 1], pa.int32()).cast(pa.date32()), OverflowError),
        (pa.array([[2**62]], pa.list_(pa.timestamp("us"))), OverflowError),
        (pa.array([{"at": 2**62}], pa.struct([("at", pa.timestamp("us"))])), OverflowError),
        (bad_text(), pa.ArrowException),
    ],
    ids=["time", "zone", "date", "list", "struct", "text"],
)
def test_a_value_that_cannot_be_read_is_the_error_of_who_brought_it(
    array: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        column_of(array)


def test_a_column_shares_no_memory_with_what_it_was_made_of() -> None:
    numbers = np.arange(3)
    column = column_of(pa.array(numbers))
    numbers[:] = 7
    assert list(column) == [0, 1, 2]
