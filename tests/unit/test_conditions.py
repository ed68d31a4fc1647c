"""The language of conditions: what is allowed, what it means, and what is said of the rest."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import pytest

from topo.conditions import (
    HAVING,
    PATTERN,
    Aggregate,
    Comparison,
    Field,
    PartField,
    Rest,
    mask_function,
    parse,
    row_function,
    terms,
    text_of,
)
from topo.errors import ConditionError

FIELDS = ["price", "city", "n", "tags", "x"]


def value(text: str, **values: Any) -> Any:
    row = [values.get(name) for name in FIELDS]
    return row_function(parse(text, "a test"), FIELDS)(row)


@pytest.mark.parametrize(
    ("text", "values", "result"),
    [
        ("price < 100 and city == 'Rome'", {"price": 5, "city": "Rome"}, True),
        ("1 < n < 3", {"n": 2}, True),
        ("1 < n < 3", {"n": 3}, False),
        ("n in (1, 2)", {"n": 2}, True),
        ("n not in [1, 2]", {"n": 2}, False),
        ("'a' in tags", {"tags": ["a"]}, True),
        ("n * 2 + 7 // 2 - n / n % 5", {"n": 4}, 10.0),
        ("-n if n > 0 else +n", {"n": 4}, -4),
        ("abs(n)", {"n": -4}, 4),
        ("len(tags) == 2", {"tags": [1, 2]}, True),
        ("upper(city) == 'ROME' and lower(city) == 'rome'", {"city": "Rome"}, True),
        ("contains(city, 'om')", {"city": "Rome"}, True),
        ("starts_with(city, 'Ro') and ends_with(city, 'me')", {"city": "Rome"}, True),
        ("coalesce(x, n, 7)", {"n": 3}, 3),
        ("coalesce(x, n, 7)", {}, 7),
        ("not n", {"n": 0}, True),
        ("city + '!'", {"city": "Rome"}, "Rome!"),
        ("n < 1e999", {"n": 3}, True),
        ("True", {}, True),
        ("  n == 1\n", {"n": 1}, True),
    ],
)
def test_a_condition_means_what_it_does_in_python(
    text: str, values: dict[str, Any], result: Any
) -> None:
    assert value(text, **values) == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("x < 5", False),
        ("x > 5", False),
        ("x == 5", False),
        ("x != 5", False),
        ("5 != x", False),
        ("x in (1, 2)", False),
        ("x not in (1, 2)", False),
        ("1 in x", False),
        ("0 < x < 5", False),
        ("0 < n < x", False),
        ("x == n", False),
        ("not x < 5", True),
        ("x is None", True),
        ("x is not None", False),
        ("x == None", True),
        ("None == x", True),
        ("x != None", False),
        ("None != x", False),
        ("n + x is None", True),
        ("n is None", False),
        ("None < 5", False),
        ("1 is None", False),
        ("x + 1 < 5", False),
        ("-x is None", True),
        ("x * 2 is None", True),
        ("None + 1 is None", True),
        ("abs(x) is None and len(x) is None and lower(x) is None and upper(x) is None", True),
        ("contains(x, 'a') or starts_with(x, 'a') or ends_with(x, 'a')", False),
        ("contains(city, x)", False),
        ("x is None == n", False),
    ],
)
def test_none_compares_as_false_and_computes_as_none(text: str, result: bool) -> None:
    assert bool(value(text, n=1, city="Rome")) is result


def test_what_a_condition_reads_is_known() -> None:
    one = parse("price > 5 and city == 'x' or price < 2", "a test")
    assert one.reads == (Field("price"), Field("city"))
    assert one.fields == ("price", "city")
    two = parse("a.x > b[0].x and count(a) < sum(b.x) and ts > 1", "a test", PATTERN)
    assert two.reads == (
        PartField("a", "x"),
        PartField("b", "x", first=True),
        Aggregate("count", "a"),
        Aggregate("sum", "b", "x"),
        Field("ts"),
    )
    assert list(map(str, two.reads)) == ["a.x", "b[0].x", "count(a)", "sum(b.x)", "ts"]
    three = parse("count() >= 20 and distinct(event) > 5", "a test", HAVING)
    assert three.reads == (Aggregate("count"), Aggregate("distinct", None, "event"))
    four = parse("lookup(route, 'ROUTES', 'name') == 'x'", "a test")
    assert four.tables == (("ROUTES", "name"),)


def test_equal_texts_are_equal_and_travel_as_texts() -> None:
    one = parse("a.x > 5", "a test", PATTERN)
    again = pickle.loads(pickle.dumps(one))
    assert again == one == parse(" a.x > 5 ", "another", PATTERN)
    assert hash(again) == hash(one)
    assert one != parse("x > 5", "a test")


def test_a_lookup_is_the_callers() -> None:
    rows = {("R1", "ROUTES", "name"): "north"}
    one = parse("coalesce(lookup(city, 'ROUTES', 'name'), 'none')", "a test")
    asked = row_function(one, ["city"], lambda *key: rows.get(key))
    assert [asked(["R1"]), asked(["R2"])] == ["north", "none"]


def test_own_loops_say_how_a_read_is_written() -> None:
    one = parse("a.x > 2 * count(a) - n", "a test", PATTERN)
    words = {"a.x": "taken", "count(a)": "number", "n": "row[0]"}
    text = text_of(one, lambda read: words[str(read)], prefix="v")
    assert "taken" in text
    assert "number" in text
    assert "row[0]" in text


def test_masks_of_columns() -> None:
    conditions = [parse(text, text) for text in ("n > 1", "city == 'Rome'", "ts > 5", "x is None")]
    masks = mask_function(conditions, ["n", "city", "x"])
    columns: list[list[Any]] = [[1, 2, None], ["Rome", "Oslo", "Rome"], [None, 1, 2]]
    assert masks(columns, [9, 9, 1], "payments", 3) == [0b1110, 0b0101, 0b0010]
    by_source = mask_function([parse("source == 'payments'", "s")], ["n"])
    assert by_source([[1, 2]], [0, 0], "payments", 2) == [1, 1]
    assert by_source([[1, 2]], [0, 0], "orders", 2) == [0, 0]


@pytest.mark.parametrize("odd", [[], [[1], {"Rome": 1}, bytearray(b"Rome")]])
def test_conditions_that_a_look_up_answers_hold_where_they_hold_by_themselves(
    odd: list[Any],
) -> None:
    texts = ["x == 'Rome'", "x in ('Oslo', 1)", "x == True or 2 == x", "x in (-0.0, 'Rome')"]
    conditions = [parse(text, "a test") for text in texts]
    values = ["Rome", "Oslo", 1, 1.0, True, False, 0, 2, Decimal(2), None, float("nan"), ()]
    column = [*values, *odd]
    masks = mask_function(conditions, ["n", "x"])([column, column], column, "s", len(column))
    functions = [row_function(condition, ["x"]) for condition in conditions]
    wanted = [
        sum(1 << bit for bit, holds in enumerate(functions) if holds([each])) for each in column
    ]
    assert masks == wanted
    assert {*masks} >= {0, 0b1001, 0b0010, 0b0110, 0b0100, 0b1000}


def test_an_error_on_an_event_names_text_and_values() -> None:
    with pytest.raises(ConditionError) as caught:
        value("city > 5 or n < 1", city="Rome", n=3)
    text = str(caught.value)
    for part in ("a test: 'city > 5 or n < 1' raised TypeError", "city='Rome'", "n=3"):
        assert part in text
    masks = mask_function([parse("n > 0", "first"), parse("ts / n > 1", "second")], ["n"])
    with pytest.raises(ConditionError, match=r"second: 'ts / n > 1' raised ZeroDivisionError.*n=0"):
        masks([[1, 0]], [5, 5], "s", 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("price <", ["a test: syntax error: invalid syntax", "price <", "^"]),
        ("price = 5", ["syntax error", "write == to compare"]),
        ("", ["the condition is empty"]),
        ("exec('x')", ["exec is no function of conditions", "the functions are abs"]),
        ("lne(city) > 1", ["did you mean 'len'?"]),
        ("len(city, 1)", ["len takes 1 argument"]),
        ("x.y > 1", ["no attribute of a value can be read: .y"]),
        ("x is 5", ["is compares with None only"]),
        ("x ** 5", ["** is not allowed in a condition", "allowed are comparisons"]),
        ("'a' * 5", ["* takes numbers, not text or lists"]),
        ("count() > 1", ["count is an aggregate; a condition of one event has none"]),
        ("lookup(x, y, 'z')", ["lookup takes a key and the names of a table and of a field"]),
        ("b'x' == x", ["a constant is a number, text, True, False or None"]),
        ("__name__ == 'x'", ["no name begins with __"]),
    ],
)
def test_a_refusal_says_what_and_where(text: str, words: list[str]) -> None:
    with pytest.raises(ConditionError) as caught:
        parse(text, "a test")
    assert str(caught.value).startswith("a test: ")
    for word in words:
        assert word in str(caught.value)


def test_the_caret_stands_below_the_mistake() -> None:
    text = f"city == 'ünïcødé' and {'n < 1 and ' * 20}exec(n)"
    with pytest.raises(ConditionError) as caught:
        parse(text, "a test")
    line, caret = caught.value.message.split("\n")[1:]
    assert line[caret.index("^") :].startswith("exec(n)")
    assert len(line) < 120


def test_a_field_that_is_not_there_has_a_hint() -> None:
    one = parse("price < 5 and citty == 'x'", "rule 'cheap'")
    one.check_fields(["price", "citty"])
    with pytest.raises(ConditionError, match=r"'citty' is no field of 'offers'") as caught:
        one.check_fields(["price", "city"], "'offers'")
    assert caught.value.hint == "did you mean 'city'?"


@pytest.mark.parametrize("kind", [PATTERN, HAVING])
@pytest.mark.parametrize(
    "text", ["sum() > 1", "sum(1) > 1", "sum(b.x, 1)", "count(*b)", "sum(x=1)"]
)
def test_an_aggregate_has_one_form(kind: str, text: str) -> None:
    with pytest.raises(ConditionError):
        parse(text, "a test", kind)


@pytest.mark.parametrize(
    ("text", "found_terms"),
    [
        ("city == 'Rome'", [(Comparison("city", "==", "Rome"),)]),
        ("5 <= n < 9", [(Comparison("n", ">=", 5), Comparison("n", "<", 9))]),
        ("n in (1, -2)", [(Comparison("n", "in", (1, -2)),)]),
        (
            "city == 'Rome' and (n < 5 or x is None)",
            [
                (Comparison("city", "==", "Rome"), Comparison("n", "<", 5)),
                (Comparison("city", "==", "Rome"), Rest("x is None")),
            ],
        ),
        ("not n < 5", [(Rest("not n < 5"),)]),
        ("n < price", [(Rest("n < price"),)]),
        ("n == None", [(Rest("n == None"),)]),
        ("n != 5", [(Rest("n != 5"),)]),
        ("n == 'a' or n == 'b'", [(Comparison("n", "==", "a"),), (Comparison("n", "==", "b"),)]),
    ],
)
def test_terms(text: str, found_terms: Any) -> None:
    assert terms(parse(text, "a test")) == found_terms


def test_too_many_terms_are_none() -> None:
    text = " and ".join(f"(n == {n} or x == {n})" for n in range(6))
    assert terms(parse(text, "a test")) is None
    assert terms(parse(" or ".join(f"n == {n}" for n in range(33)), "a test")) is None
