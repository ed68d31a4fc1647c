"""Texts that try to run code, to loop, to eat memory or to recurse: each is refused.

Those that only the value of a field makes harmful are refused when they meet it.
"""

from __future__ import annotations

import tracemalloc

import pytest

from topo.conditions import PATTERN, parse, row_function
from topo.errors import ConditionError

_CALLS = [
    f"{name}({argument})"
    for name in (
        "__import__", "eval", "exec", "compile", "open", "input", "print", "getattr", "setattr",
        "delattr", "vars", "globals", "locals", "dir", "type", "object", "super", "id", "hash",
        "breakpoint", "help", "exit", "quit", "memoryview", "bytearray", "range", "list", "dict",
        "set", "map", "filter", "zip", "iter", "next", "sorted", "str", "bytes", "format", "repr",
        "pow", "int", "float", "isinstance", "callable", "classmethod", "property", "product",
        "do_len", "row", "value",
    )
    for argument in ("'x'", "x")
]  # fmt: skip
_REACHING = [
    "().__class__", "''.__class__.__mro__", "x.__class__ is None", "x.__dict__ is None",
    "(1).real", "'a'.join(x)", "'{0.__class__}'.format(x)", "x.format(x)", "x.upper()",
    "[].append(1)", "x.y", "x[0]", "x['a']", "x[0:5]", "(x)[0]", "[1, 2][0]", "'abc'[0]",
    "().__class__.__bases__[0].__subclasses__()", "x.__init__.__globals__",
    "x.__reduce__()", "len.__self__", "len.__call__(x)", "(lambda: 0).__code__",
    "abs.__class__", "coalesce.__globals__", "f'{x}'", "f'{x.__class__}'", "f'{x!r:>1000000}'",
    "len(*x)", "len(**x)", "abs(x=1)", "coalesce(*x)", "lookup(*x)", "lookup(x, x, x)",
    "len((yield))", "await x", "(x := 1)", "[y for y in x]", "{y for y in x}", "{y: 1 for y in x}",
    "(y for y in x)", "len([y for y in x])", "lambda: x", "(lambda: x)()", "lambda x: x",
    "{1: 2}", "{1, 2}", "{**x}", "[*x]", "(*x,)", "x if x else (yield)", "...", "b'x'", "1j",
    "x @ x", "x | x", "x & x", "x ^ x", "~x", "x << 9", "x >> 9", "1 << 10 ** 9",
    "__name__", "__builtins__", "__file__ == x", "__debug__", "x is x", "x is 5", "x is not 'a'",
    "x; x", "x\nx", "import os", "del x", "assert x", "x = 1", "x += 1", "raise x", "pass",
    "return x", "def f(): pass", "class A: pass", "global x", "while 1: pass", "x if x",
    "for y in x: y", "with x: pass", "try: x", "@x", "print x", "exec 'x'", "x ? 1 : 2", "x &&& x",
    "x) or (x", "# x", "'", "\"\"\"", "'\n'", "\\", "$x", "`x`", "x!", "!x", "x <> 1",
    "\x00", "x\x00", "x == '\ud800'", "\ud800", "x ==\u2028 1 1", "０x１ z",
]  # fmt: skip
_MEMORY = [
    "2 ** 10 ** 9", "9 ** 9 ** 9", "x ** x", "'a' * 10 ** 9", "'a' * 1000000000",
    "1000000000 * 'a'", "[0] * 1000000000", "(0,) * 1000000000", "1000000000 * [0]",
    "('a' + 'b') * 1000000000", "'%1000000000d' % x", "'%s' % x", "('a' if x else 'b') * 99999999",
    "('a' or x) * 1000000000", "lower(x) * 1000000000", "upper('a') * x", "'a' * x", "x * 'a'",
    "[x] * x", "('%' + 'd') % x", "1" * 5000, "x" * 4001, "x" + " or x" * 2000,
    "'" + "a" * 4000 + "'", "[" + "1, " * 2000 + "]",
]  # fmt: skip
_RECURSION = [
    "(" * 100 + "x" + ")" * 100, "(" * 1500 + "x" + ")" * 1500, "not " * 60 + "x",
    "not " * 900 + "x", "-" * 60 + "x", "-" * 3900 + "x", "+" * 3900 + "x", "~" * 3900 + "x",
    "[" * 60 + "]" * 60, "[" * 1900 + "]" * 1900, "abs(" * 60 + "x" + ")" * 60,
    "abs(" * 700 + "x" + ")" * 700, "x" + " + x" * 60, "x" + " + x" * 900, "x" + ".y" * 900,
    "x" + "[0]" * 900, "x" + "()" * 900, "1 if x else " * 60 + "x", "1 if x else " * 300 + "x",
    "x if " * 300 + "x", "lambda: " * 400 + "x", "(" * 4000, "[" * 4000, "{" * 4000, ")" * 4000,
    "(x, " * 60 + "x" + ")" * 60, "(x and " * 60 + "x" + ")" * 60,
    "(x or not " * 60 + "x" + ")" * 60,
]  # fmt: skip
# Parentheses alone are no levels: they leave nothing behind.
_HARMLESS = {"(" * 100 + "x" + ")" * 100}
HOSTILE = [text for text in [*_CALLS, *_REACHING, *_MEMORY, *_RECURSION] if text not in _HARMLESS]


def test_there_are_many() -> None:
    assert len(set(HOSTILE)) >= 200


def refusal(text: str, kind: str) -> str:
    """Return why a text is refused; "" if it is not."""
    try:
        condition = parse(text, "a rule", kind)
        if condition.fields or not condition.reads:  # `x.y` is of a part
            condition.check_fields(["x"])
            return ""
    except ConditionError as error:
        return str(error)
    return "of a part"


@pytest.mark.parametrize("kind", ["event", PATTERN])
def test_hostile_texts_are_refused(kind: str) -> None:
    tracemalloc.start()
    try:
        refusals = {text: refusal(text, kind) for text in HOSTILE}
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [text for text, reason in refusals.items() if not reason] == []
    assert most < 50_000_000
    reasons = [reason for reason in refusals.values() if reason != "of a part"]
    assert all(reason.startswith("a rule: ") and len(reason) < 1_000 for reason in reasons)
    "".join(reasons).encode()  # no lone surrogate


@pytest.mark.parametrize(
    ("text", "given_value"),
    [
        ("x * 1000000000", "a"),
        ("1000000000 * x", "a"),
        ("x * 1000000000", [0]),
        ("x * 1000000000", b"a"),
        ("x % 5", "%1000000000d"),
        ("x % x", "%1000000000d"),
        ("coalesce(x, 1) * 1000000000", "a"),
    ],
)
def test_what_a_value_makes_of_it_is_refused_when_it_comes(text: str, given_value: object) -> None:
    with pytest.raises(ConditionError, match="takes numbers, not text"):
        row_function(parse(text, "a rule"), ["x"])([given_value])


@pytest.mark.parametrize("text", [None, 5, b"x > 1", ["x"], object()])
def test_what_is_no_text_is_refused(text: object) -> None:
    with pytest.raises(ConditionError, match="a condition is text"):
        parse(text, "a rule")


def test_control_characters_of_a_text_do_not_reach_a_terminal() -> None:
    with pytest.raises(ConditionError) as caught:
        parse("x == \x1b[31m'red'", "a rule")
    assert "\x1b" not in str(caught.value)
