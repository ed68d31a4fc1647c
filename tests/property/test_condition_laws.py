"""Laws of conditions: without None, a text means what Python makes of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from topo.conditions import Comparison, mask_function, parse, row_function, terms, text_of
from topo.errors import ConditionError

FIELDS = ["a", "b", "s", "t"]
_NUMBERS = st.integers(-3, 3).map(str) | st.sampled_from(["a", "b", "0.5", "True"])
_TEXTS = st.sampled_from(["s", "t", "'x'", "'xy'", "''"])


def _numbers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operator = st.sampled_from(["+", "-", "*", "/", "//", "%"])
    return st.one_of(
        st.builds("({} {} {})".format, inner, operator, inner),
        st.builds("(-{})".format, inner),
        st.builds("abs({})".format, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("len({})".format, _TEXTS),
    )


def _truths(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("(not {})".format, inner),
    )


_COMPARED = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
_NUMBER = st.recursive(_NUMBERS, _numbers, max_leaves=5)
_ATOM = st.one_of(
    st.builds("{} {} {}".format, _NUMBER, _COMPARED, _NUMBER),
    st.builds("({} {} {} {} {})".format, _NUMBER, _COMPARED, _NUMBER, _COMPARED, _NUMBER),
    st.builds("{} {} {}".format, _TEXTS, _COMPARED, _TEXTS),
    st.builds("{} in ({}, {})".format, _NUMBER, _NUMBER, _NUMBER),
    st.builds("{} not in {}".format, _TEXTS, _TEXTS),
    st.builds("{} is None".format, _NUMBER),
    _NUMBER,
)
TEXTS = st.recursive(_ATOM, _truths, max_leaves=5)
_ROWS = st.tuples(
    st.integers(-3, 3), st.floats(-2, 2), st.sampled_from(["", "x", "xy"]), st.just("y")
)


def _result(function: Callable[[], Any]) -> Any:
    """Return a result and its type, or that there is none."""
    try:
        result = function()
    except (ConditionError, TypeError, ZeroDivisionError, OverflowError):
        return "an error"
    return type(result), result


@given(TEXTS, _ROWS)
def test_a_condition_is_what_python_makes_of_it(text: str, row: tuple[Any, ...]) -> None:
    values = dict(zip(FIELDS, row, strict=True))
    one = parse(text, "a law")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # of "1 is None"
        code = compile(text, "a law", "eval")
    python = _result(lambda: eval(code, {**values, "__builtins__": {"abs": abs, "len": len}}))
    assert _result(lambda: row_function(one, FIELDS)(row)) == python


@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(_ROWS, max_size=4))
def test_masks_say_what_rows_do(texts: list[str], rows: list[tuple[Any, ...]]) -> None:
    conditions = [parse(text, "a law") for text in texts]
    functions = [row_function(one, FIELDS) for one in conditions]

    def by_row() -> list[int]:
        return [sum(bool(f(row)) << bit for bit, f in enumerate(functions)) for row in rows]

    columns = list(zip(*rows, strict=True)) or [()] * len(FIELDS)
    masks = mask_function(conditions, FIELDS)
    assert _result(lambda: masks(columns, [0] * len(rows), "s", len(rows))) == _result(by_row)


@given(TEXTS, _ROWS, st.integers(0, 15))
def test_none_never_raises_where_a_value_does_not(
    text: str, row: tuple[Any, ...], nones: int
) -> None:
    values = [None if nones >> n & 1 else one for n, one in enumerate(row)]
    function = row_function(parse(text, "a law"), FIELDS)
    try:
        function(values)
    except ConditionError as error:
        if "NoneType" in str(error.__cause__):
            raise


@given(TEXTS, _ROWS)
def test_a_row_that_holds_fulfils_the_comparisons_of_a_term(
    text: str, row: tuple[Any, ...]
) -> None:
    one = parse(text, "a law")
    whole = terms(one)
    if whole is None or _result(lambda: bool(row_function(one, FIELDS)(row))) != (bool, True):
        return
    values = dict(zip(FIELDS, row, strict=True))

    def holds(comparison: Comparison) -> bool:
        asked = f"value {comparison.operator} constant"
        return bool(eval(asked, {"value": values[comparison.field], "constant": comparison.value}))

    assert any(
        all(holds(part) for part in term if isinstance(part, Comparison)) for term in whole
    ), text_of(one, str)
