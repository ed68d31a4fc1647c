"""The disjunctive form of a condition, for those who look conditions up instead of asking each.

`city in ('Rome', 'Oslo') and (price < 10 or used)` has two terms; whoever files each under one of
its comparisons need not ask it of an event that does not fulfil that one. `not` is never taken
apart: a comparison with None is false, so `not price < 10` is not `price >= 10`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, TypeAlias

from topo.conditions.condition import Condition
from topo.conditions.grammar import COMPARISONS

MOST_TERMS = 32

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}
_FILED = {"==", "<", "<=", ">", ">=", "in"}


@dataclass(frozen=True)
class Comparison:
    """`field operator value`, with one of == < <= > >=, or `in` and a tuple of constants."""

    field: str
    operator: str
    value: Any


@dataclass(frozen=True)
class Rest:
    """A part of a term that only a row decides."""

    text: str


Term: TypeAlias = "tuple[Comparison | Rest, ...]"


def terms(condition: Condition, most: int = MOST_TERMS) -> list[Term] | None:
    """Return the terms of a condition, one of which holds if it does; None if there are more."""
    return _terms(condition.tree, most)


def _terms(node: ast.expr, most: int) -> list[Term] | None:
    if not isinstance(node, ast.BoolOp):
        return [_atoms(node)]
    parts = [_terms(value, most) for value in node.values]
    whole: list[Term] = [()] if isinstance(node.op, ast.And) else []
    for part in parts:
        if part is None:
            return None
        if isinstance(node.op, ast.And):
            if len(whole) * len(part) > most:
                return None
            whole = [a + b for a in whole for b in part]
        else:
            whole += part
    return whole if len(whole) <= most else None


def _atoms(node: ast.expr) -> Term:
    """Return the comparisons of a chain, of which all must hold."""
    if not isinstance(node, ast.Compare):
        return (Rest(ast.unparse(node)),)
    operands = [node.left, *node.comparators]
    pairs = zip(operands, node.ops, operands[1:], strict=False)
    return tuple(_atom(left, COMPARISONS[type(op)], right) for left, op, right in pairs)


def _atom(left: ast.expr, word: str, right: ast.expr) -> Comparison | Rest:
    if word in _FILED:
        is_constant, value = _constant(right)
        if (
            isinstance(left, ast.Name)
            and is_constant
            and isinstance(value, tuple) == (word == "in")
        ):
            return Comparison(left.id, word, value)
        is_constant, value = _constant(left)
        if isinstance(right, ast.Name) and is_constant and word in _MIRRORED:
            return Comparison(right.id, _MIRRORED[word], value)
    return Rest(f"{ast.unparse(left)} {word} {ast.unparse(right)}")


def _constant(node: ast.expr) -> tuple[bool, Any]:
    """Return whether a node is a constant that compares with values, and the constant."""
    if isinstance(node, ast.Constant):
        return node.value is not None, node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        is_constant, value = _constant(node.operand)
        if is_constant and type(value) in (int, float):
            return True, -value
    if isinstance(node, ast.Tuple | ast.List):
        parts = [_constant(part) for part in node.elts]
        return all(is_one for is_one, _ in parts), tuple(value for _, value in parts)
    return False, None
