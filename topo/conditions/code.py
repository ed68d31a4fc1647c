"""Conditions as Python text, and functions made of it.

The text is written anew from the tree: names of the user's become what `read` returns for them,
constants their `repr`. None is dealt with where a value may be None: a comparison is preceded by
`is not None`, arithmetic chosen away, and what is used twice is kept in a variable.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, TypeAlias

from topo.conditions.condition import Condition
from topo.conditions.grammar import AGGREGATES, ARITHMETIC, COMPARISONS, is_none
from topo.conditions.reads import Read
from topo.conditions.terms import Comparison, terms
from topo.errors import ConditionError, sentence_of, shown
from topo.operators.codegen import functions

ReadText: TypeAlias = Callable[[Read], str]
Lookup: TypeAlias = Callable[[Any, str, str], Any]
Masks: TypeAlias = Callable[[Sequence[Sequence[Any]], Sequence[Any], Any, int], list[int]]

_REPEATED = (str, bytes, bytearray, list, tuple)


def _product(left: Any, right: Any) -> Any:
    if isinstance(left, _REPEATED) or isinstance(right, _REPEATED):
        raise TypeError("* takes numbers, not text or lists")
    return left * right


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(left, _REPEATED):
        raise TypeError("% takes numbers, not text")
    return left % right


def _length(value: Any) -> Any:
    return None if value is None else len(value)


def _magnitude(value: Any) -> Any:
    return None if value is None else abs(value)


def _lower(value: Any) -> Any:
    return None if value is None else value.lower()


def _upper(value: Any) -> Any:
    return None if value is None else value.upper()


def _contains(value: Any, part: Any) -> bool:
    return value is not None and part is not None and part in value


def _starts_with(value: Any, part: Any) -> bool:
    return value is not None and part is not None and value.startswith(part)


def _ends_with(value: Any, part: Any) -> bool:
    return value is not None and part is not None and value.endswith(part)


_CALLED: dict[str, Callable[..., Any]] = {
    "abs": _magnitude, "len": _length, "lower": _lower, "upper": _upper, "contains": _contains,
    "starts_with": _starts_with, "ends_with": _ends_with,
}  # fmt: skip
_ASKING = {"is": "is", "==": "is", "is not": "is not", "!=": "is not"}
"""The comparisons with None itself, and how they are written."""

NAMES: Mapping[str, Any] = {
    "product": _product,
    "remainder": _remainder,
    "infinity": math.inf,
    **{f"do_{name}": function for name, function in _CALLED.items()},
}
"""The names of a generated text, apart from what `read` returns; `lookup` comes beside them."""


def text_of(condition: Condition, read: ReadText, prefix: str = "t") -> str:
    """Return the text of an expression with the condition's value.

    `read` returns an expression without effects for each read; the text may evaluate it twice. The
    variables that the text assigns begin with the prefix.
    """
    return _Writer(condition, read, prefix).text(condition.tree)


def value_function(
    condition: Condition, read: ReadText, parameters: str, lookup: Lookup | None = None
) -> Callable[..., Any]:
    """Return a condition as a function of what `read` makes texts of."""
    text = f"def value({parameters}):\n    return {text_of(condition, read)}\n"
    value: Callable[..., Any] = _compiled(text, {"lookup": lookup})["value"]
    return value


def row_function(
    condition: Condition, fields: Sequence[str], lookup: Lookup | None = None
) -> Callable[[Sequence[Any]], Any]:
    """Return the condition as a function of a row, whose values are those of the fields."""
    places = {name: place for place, name in enumerate(fields)}
    value = value_function(condition, lambda read: f"row[{places[str(read)]}]", "row", lookup)

    def checked(row: Sequence[Any]) -> Any:
        try:
            return value(row)
        except Exception as error:
            values = {name: row[places[name]] for name in condition.fields}
            raise raised_by(condition, error, values) from error

    return checked


def mask_function(
    conditions: Sequence[Condition], fields: Sequence[str], lookup: Lookup | None = None
) -> Masks:
    """Return the function of (columns, times, source, count) that gives a mask for each row.

    Bit n is set if condition n holds. `ts` is the row's time, and `source` is the same for all.
    """
    places = {name: place for place, name in enumerate(fields)}
    used = sorted(
        {places[name] for condition in conditions for name in condition.fields if name in places}
    )

    def read(what: Read) -> str:
        return f"f{places[str(what)]}" if str(what) in places else str(what)

    texts = [text_of(condition, read) for condition in conditions]
    variables = [*(f"f{place}" for place in used), "ts"]
    columns = [*(f"columns[{place}]" for place in used), "times"]
    lines = [
        "def masks(columns, times, source, count):",
        "    out = [0] * count",
        "    place = -1",
        f"    for {', '.join(variables)} in zip({', '.join(columns)}):",
        "        place += 1",
        *(f"        if {text}: out[place] |= {1 << bit}" for bit, text in enumerate(texts)),
        "    return out",
    ]
    masks: Masks = _compiled("\n".join(lines) + "\n", {"lookup": lookup})["masks"]
    by_value = masks_by_value(conditions, places)

    def checked(
        columns: Sequence[Sequence[Any]], times: Sequence[Any], source: Any, count: int
    ) -> list[int]:
        if by_value is not None:
            place, table = by_value
            try:
                return list(map(table.get, columns[place], repeat(0)))
            except TypeError:  # a value that has no hash: each is compared
                pass
        try:
            return masks(columns, times, source, count)
        except Exception:
            _blame(conditions, fields, columns, times, source, lookup)
            raise

    return checked


def masks_by_value(
    conditions: Sequence[Condition], places: Mapping[str, int]
) -> tuple[int, dict[Any, int]] | None:
    """Return the place of a field that conditions compare for equality, and a mask by value.

    `kind == 'a'`, `kind in ('b', 'c')`: that is what most patterns ask, and one look-up answers all
    of it. None if a condition asks anything else.
    """
    table: dict[Any, int] = {}
    names = set()
    for bit, condition in enumerate(conditions):
        for term in terms(condition) or [()]:
            [atom] = term if len(term) == 1 else [None]
            if not isinstance(atom, Comparison) or atom.operator not in ("==", "in"):
                return None
            names.add(atom.field)
            for value in atom.value if atom.operator == "in" else (atom.value,):
                if isinstance(value, tuple):  # it may stand for a list
                    return None
                table[value] = table.get(value, 0) | 1 << bit
    return (places[names.pop()], table) if len(names) == 1 and names <= places.keys() else None


def _blame(
    conditions: Sequence[Condition],
    fields: Sequence[str],
    columns: Sequence[Sequence[Any]],
    times: Sequence[Any],
    source: Any,
    lookup: Lookup | None,
) -> None:
    """Raise the error of the first row and condition that have one."""
    names = [*dict.fromkeys([*fields, "ts", "source"])]
    functions = [row_function(condition, names, lookup) for condition in conditions]
    for place, ts in enumerate(times):
        values = {"ts": ts, "source": source}
        values |= {name: columns[n][place] for n, name in enumerate(fields)}
        row = [values[name] for name in names]
        for function in functions:
            function(row)


def raised_by(
    condition: Condition, error: BaseException, values: Mapping[str, Any]
) -> ConditionError:
    """Return the error of a condition that raised on an event."""
    listed = ", ".join(f"{name}={shown(value, 40)}" for name, value in values.items())
    return ConditionError(
        f"{condition.what}: {condition.text!r:.200} raised {type(error).__name__}: "
        f"{sentence_of(error)}{'; the values are ' if listed else ''}{listed}",
        hint="compare only what has one type, or ask first: x is not None and ...",
    )


def _compiled(text: str, names: Mapping[str, Any]) -> dict[str, Any]:
    return functions(text, {**NAMES, **names, "__builtins__": {"len": len, "zip": zip}})


class _Writer:
    """Writes the text of one condition."""

    def __init__(self, condition: Condition, read: ReadText, prefix: str) -> None:
        self._condition = condition
        self._read = read
        self._prefix = prefix
        self._variables = 0

    def text(self, node: ast.expr) -> str:
        """Return the expression of a node, in parentheses where it needs them."""
        if isinstance(node, ast.Constant):
            return _constant(node.value)
        if isinstance(node, ast.BoolOp):
            word = " and " if isinstance(node.op, ast.And) else " or "
            return f"({word.join(map(self.text, node.values))})"
        if isinstance(node, ast.Compare):
            return self._compared(node)
        if isinstance(node, ast.BinOp):
            return self._computed(node)
        if isinstance(node, ast.UnaryOp):
            return self._signed(node)
        if isinstance(node, ast.IfExp):
            test, body, rest = map(self.text, (node.test, node.body, node.orelse))
            return f"({body} if {test} else {rest})"
        if isinstance(node, ast.Tuple | ast.List):
            values = "".join(f"{self.text(part)}, " for part in node.elts)
            return f"[{values}]" if isinstance(node, ast.List) else f"({values})"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._called(node, node.func.id)
        return self._read(self._condition.read_of(node))

    def _called(self, node: ast.Call, name: str) -> str:
        if name in AGGREGATES:
            return self._read(self._condition.read_of(node))
        texts = list(map(self.text, node.args))
        if name == "coalesce":
            text = texts.pop()
            while texts:
                variable = self.variable()
                text = f"({variable} if ({variable} := {texts.pop()}) is not None else {text})"
            return text
        return f"{name if name == 'lookup' else 'do_' + name}({', '.join(texts)})"

    def _compared(self, node: ast.Compare) -> str:
        parts: list[str] = []
        operands = _Operands(self)
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            word = COMPARISONS[type(operator)]
            if word in _ASKING and (is_none(left) or is_none(right)):
                value = operands.any(left if is_none(right) else right)
                parts.append(f"{value} {_ASKING[word]} None")
            else:
                texts = [operands.not_none(operand, parts) for operand in (left, right)]
                parts.append(f" {word} ".join(texts))
            left = right
        return f"({' and '.join(parts)})"

    def operand(self, node: ast.expr, checks: list[str]) -> str:
        """Return the text of a value that is no None; add to the checks what holds then."""
        text = self.text(node)
        if is_none(node):
            checks.append("False")
        elif isinstance(node, ast.Name):
            checks.append(f"{text} is not None")
        elif not isinstance(node, ast.Constant | ast.Tuple | ast.List):
            variable = self.variable()
            checks.append(f"({variable} := {text}) is not None")
            return variable
        return text

    def _computed(self, node: ast.BinOp) -> str:
        checks: list[str] = []
        left, right = self.operand(node.left, checks), self.operand(node.right, checks)
        word = ARITHMETIC[type(node.op)]
        calls = {"*": "product", "%": "remainder"}
        text = f"{calls[word]}({left}, {right})" if word in calls else f"{left} {word} {right}"
        return f"({text} if {' and '.join(checks)} else None)" if checks else f"({text})"

    def _signed(self, node: ast.UnaryOp) -> str:
        if isinstance(node.op, ast.Not):
            return f"(not {self.text(node.operand)})"
        checks: list[str] = []
        operand = self.operand(node.operand, checks)
        text = f"{'-' if isinstance(node.op, ast.USub) else '+'}{operand}"
        return f"({text} if {' and '.join(checks)} else None)" if checks else f"({text})"

    def variable(self) -> str:
        """Return a new variable."""
        self._variables += 1
        return f"{self._prefix}{self._variables}"


class _Operands:
    """The operands of one chain of comparisons, each of which is evaluated once."""

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer
        self._texts: dict[int, str] = {}
        self._checked: set[int] = set()

    def any(self, node: ast.expr) -> str:
        """Return the text of a value that may be None."""
        if id(node) in self._texts:
            return self._texts[id(node)]
        variable = self._texts[id(node)] = self._writer.variable()
        return f"({variable} := {self._writer.text(node)})"

    def not_none(self, node: ast.expr, checks: list[str]) -> str:
        """Return the text of a value that is no None, once the checks hold."""
        place = id(node)
        if place not in self._texts:
            self._texts[place] = self._writer.operand(node, checks)
        elif place not in self._checked:
            checks.append(f"{self._texts[place]} is not None")
        self._checked.add(place)
        return self._texts[place]


def _constant(value: Any) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "infinity"
    return repr(value)
