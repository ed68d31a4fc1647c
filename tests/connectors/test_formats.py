"""JSON is written as the standard library writes it, value by value."""

from __future__ import annotations

import json
from collections import OrderedDict
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from topo.connectors.formats import dump_json, dump_json_rows


class Colour(IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


def _own(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else sorted(value)


PLAIN: list[Any] = [
    None,
    True,
    0,
    -(1 << 70),
    1.5,
    -0.0,
    1e300,
    float("nan"),
    float("-inf"),
    "",
    'a "quoted" \\ é \u2028 \x00\n',
    Text("text"),
    Colour.RED,
    datetime(2026, 1, 2, 3, tzinfo=UTC),
    date(2026, 1, 2),
    Decimal("1.50"),
    UUID(int=7),
    {3},
    frozenset(),
    (),
    [],
    {},
    OrderedDict(b=1, a=2),
    {1: "a", None: 2, False: 3, 1.5: 4},
]


def test_values_are_written_as_the_standard_library_writes_them() -> None:
    usual = json.JSONEncoder(default=_own, separators=(",", ":"), ensure_ascii=False).encode
    shared = [1, {"x": None}]
    values = [*PLAIN, [shared, shared], {"a": shared, "b": (shared, {"c": shared})}]
    values += [{"n": one, "m": [other, {"k": one}]} for one, other in product(PLAIN, PLAIN)]
    for value in values:
        assert dump_json(value) == usual(value).encode()


def _circle() -> list[Any]:
    circle: list[Any] = [1]
    circle.append({"again": circle})
    return circle


def _deep() -> list[Any]:
    deep: list[Any] = []
    for _ in range(200_000):
        deep = [deep]
    return deep


@pytest.mark.parametrize(
    ("value", "error", "reason"),
    [
        (_circle(), ValueError, "Circular reference"),
        (_deep(), RecursionError, "recursion"),
        ({"a": [object()]}, TypeError, "a object is no JSON"),
        ({(1,): 2}, TypeError, "keys must be str"),
        ("\ud800", UnicodeEncodeError, "surrogates"),
    ],
    ids=["circle", "deep", "object", "key", "surrogate"],
)
def test_what_is_no_json_is_refused_each_time(
    value: Any, error: type[Exception], reason: str
) -> None:
    for _ in range(2):
        with pytest.raises(error, match=reason):
            dump_json(value)
        assert dump_json({"a": [1]}) == b'{"a":[1]}'


COLUMNS: list[list[Any]] = [
    [1, -(1 << 70), 0],
    ["a", 'q"\\ é %s \u2028\n', ""],
    [1.5, -0.0, 1e300],
    [1.5, float("nan"), float("inf")],
    [True, False, True],
    [None, 1, "1"],
    [Text("text"), "a", "b"],
    [Colour.RED, 1, 2],
    [{"a": [1, None]}, [], {1: date(2026, 1, 2)}],
    [Decimal("1.50"), {3}, ()],
]


@pytest.mark.parametrize("names", [("n", "m"), ('a "quoted" %s \\ é', "%")])
def test_rows_of_columns_are_written_as_dicts_are(names: tuple[str, str]) -> None:
    for columns in product(COLUMNS, COLUMNS):
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        assert dump_json_rows(names, columns, 3) == [dump_json(row) for row in rows]
    assert dump_json_rows((), [], 2) == [b"{}", b"{}"]


def test_a_column_with_what_is_no_json_says_so() -> None:
    with pytest.raises(TypeError, match="a complex is no JSON"):
        dump_json_rows(("n",), [[1, 1j]], 2)
    with pytest.raises(UnicodeEncodeError):
        dump_json_rows(("n",), [["a", "\ud800"]], 2)
