"""The user's `execute`, written anew to take the values of fields in place of a tuple.

Much of what a small bolt costs is the tuple object, its attributes, the list and the call of each
emit. Where the text of `execute` shows that it only reads fields of its tuple, its code is compiled
once more: a field read becomes a parameter, `self.emit([a, b])` becomes an append to a column for
each value, `yield [a, b]` of a function too. The rest stays as it is, with its lines, names,
globals and closure, so that what it does and how its errors read is the same.

`tests/property/test_rewriting_laws.py` compares both ways. Whatever is not understood, or would be
seen (`locals()`, a debugger, a tuple that is passed on), leaves the bolt as it was written; so does
text that no longer is that of the code which runs.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import (
    CO_ASYNC_GENERATOR,
    CO_COROUTINE,
    CO_GENERATOR,
    CO_VARARGS,
    CO_VARKEYWORDS,
)
from types import CodeType, FunctionType
from typing import Any

from topo.columns import field_name
from topo.runtime.function_text import compiled, definition_of, names_in
from topo.tuples import DEFAULT_STREAM, RESERVED_FIELD_NAMES

_LOOKS_AT_FRAMES = frozenset(
    {"locals", "vars", "dir", "eval", "exec", "super", "__class__", "breakpoint", "pdb"}
)
_OWN = "_topo_"
_ORDER = f"{_OWN}order"
_NOT_PLAIN = CO_VARARGS | CO_VARKEYWORDS | CO_COROUTINE | CO_ASYNC_GENERATOR


@dataclass(frozen=True)
class Reading:
    """The tuples that `execute` gets: of one stream of a component, with fields of these names."""

    component: str
    stream: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Writing:
    """A stream that `execute` emits on: its name, number and width."""

    stream: str
    index: int
    width: int


@dataclass(frozen=True)
class Rewritten:
    """The code of `execute` that takes values, and what it is to be called with.

    The parameters are those of the original without the tuple, the values of the fields at `reads`,
    the appends to the columns of the streams at `writes` in turn, and that to the order of emits if
    there is a common one.
    """

    function: FunctionType
    reads: tuple[int, ...]
    writes: tuple[str, ...]


class _NotUnderstood(Exception):
    """The text does something that only the original can do."""


def rewritten(
    function: FunctionType,
    reading: Reading,
    writings: tuple[Writing, ...],
    *,
    tuple_at: int,
    yields: bool = False,
    keeps_order: bool = False,
) -> Rewritten | None:
    """Return the function with its parameter at `tuple_at` replaced, or None if it cannot be.

    With `yields` it is a generator function, and what it yields is emitted.
    """
    code = function.__code__
    asked = (reading, writings, tuple_at, yields, keeps_order)
    key = (code, code.co_filename, function.__qualname__, asked)  # equal code may be of two files
    if key not in _known:
        _known[key] = _rewritten(function, *asked)
    made = _known[key]
    if made is None:
        return None
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in made.code.co_freevars)
    new = FunctionType(made.code, function.__globals__, function.__name__, None, closure)
    return Rewritten(new, made.reads, made.writes)


@dataclass(frozen=True)
class _NewCode:
    code: CodeType
    reads: tuple[int, ...]
    writes: tuple[str, ...]


_known: dict[Any, _NewCode | None] = {}
"""All that was asked for: tasks of one component ask for the same."""


def _rewritten(
    function: FunctionType,
    reading: Reading,
    writings: tuple[Writing, ...],
    tuple_at: int,
    yields: bool,
    keeps_order: bool,
) -> _NewCode | None:
    code = function.__code__
    parameters = code.co_varnames[: code.co_argcount]
    plain = not (code.co_kwonlyargcount or code.co_posonlyargcount or function.__defaults__)
    if not plain or code.co_flags & _NOT_PLAIN or "__class__" in code.co_freevars:
        return None
    if bool(code.co_flags & CO_GENERATOR) != yields or tuple_at >= len(parameters):
        return None
    if any(name.startswith(_OWN) for name in names_in(code)):
        return None
    definition = definition_of(function)
    if definition is None:
        return None
    tup = parameters[tuple_at]
    others = [name for place, name in enumerate(parameters) if place != tuple_at]
    work = _Work(tup, others, reading, {one.stream: one for one in writings}, keeps_order)
    try:
        new = compiled(work.definition(copy.deepcopy(definition)), function)
    except (_NotUnderstood, SyntaxError, RecursionError):
        return None
    if tup in names_in(new):  # it is passed on
        return None
    new = new.replace(co_qualname=code.co_qualname)
    return _NewCode(new, tuple(sorted(work.reads)), tuple(work.writes))


class _Work(ast.NodeTransformer):
    """The change of one definition."""

    def __init__(
        self,
        tup: str,
        others: Sequence[str],
        reading: Reading,
        writings: Mapping[str, Writing],
        keeps_order: bool,
    ) -> None:
        self.reads: set[int] = set()
        self.writes: dict[str, None] = {}
        self._tup = tup
        self._others = others
        self._reading = reading
        self._writings = writings
        self._keeps_order = keeps_order

    def definition(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Return the changed definition."""
        body = [part for statement in node.body for part in self._statements(statement)]
        reads = [_parameter(place) for place in sorted(self.reads)]
        appends = [
            _append(self._writings[stream].index, place)
            for stream in self.writes
            for place in range(self._writings[stream].width)
        ]
        order = [_ORDER] if self._keeps_order and self.writes else []
        names = [*self._others, *reads, *appends, *order]
        made = ast.FunctionDef(
            name=node.name,
            args=ast.arguments(
                posonlyargs=[],
                args=[ast.copy_location(ast.arg(arg=name), node) for name in names],
                kwonlyargs=[],
                kw_defaults=[],
                defaults=[],
            ),
            body=body,
            decorator_list=[],
        )
        return ast.fix_missing_locations(ast.copy_location(made, node))

    def _statements(self, node: ast.stmt) -> list[ast.stmt]:
        made = self.visit(node)
        return made if isinstance(made, list) else [made]

    # -- what is read -------------------------------------------------------------------------

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not self._is_tuple(node.value):
            return self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            raise _NotUnderstood
        fields = self._reading.fields
        if node.attr in RESERVED_FIELD_NAMES:
            return self._reserved(node)
        if node.attr not in fields or node.attr.startswith(("__", _OWN)):
            raise _NotUnderstood  # it raises an error, which the tuple words
        return self._value(fields.index(node.attr), node)

    def _reserved(self, node: ast.Attribute) -> ast.AST:
        match node.attr:
            case "values":
                values = [self._value(place, node) for place in range(len(self._reading.fields))]
                return ast.copy_location(ast.List(elts=values, ctx=ast.Load()), node)
            case "is_tick":
                return ast.copy_location(ast.Constant(value=False), node)
            case "source_component":
                return ast.copy_location(ast.Constant(value=self._reading.component), node)
            case "source_stream":
                return ast.copy_location(ast.Constant(value=self._reading.stream), node)
        raise _NotUnderstood

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        of_values = (
            isinstance(node.value, ast.Attribute)
            and node.value.attr == "values"
            and self._is_tuple(node.value.value)
        )
        if not of_values and not self._is_tuple(node.value):
            return self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            raise _NotUnderstood
        place = self._place(node.slice, by_name=not of_values)
        if place is None:
            raise _NotUnderstood
        return self._value(place, node)

    def _place(self, key: ast.expr, *, by_name: bool) -> int | None:
        fields = self._reading.fields
        try:
            value = ast.literal_eval(key)
        except ValueError:
            return None
        if by_name and type(value) is str and value in fields:
            return fields.index(value)
        if type(value) is int and -len(fields) <= value < len(fields):
            return value % len(fields)
        return None

    def _value(self, place: int, node: ast.expr) -> ast.expr:
        self.reads.add(place)
        return ast.copy_location(ast.Name(id=_parameter(place), ctx=ast.Load()), node)

    def _is_tuple(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self._tup

    # -- what is written ----------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> Any:
        emitted = self._emitted(node.value)
        if emitted is None:
            return self.generic_visit(node)
        stream, values = emitted
        writing = self._writings[stream]
        self.writes[stream] = None
        values = [self.visit(value) for value in values]
        names = [ast.Name(id=f"{_OWN}v{place}", ctx=ast.Load()) for place in range(len(values))]
        made: list[ast.stmt] = []
        if len(values) > 1:  # all of them first: one may raise, or emit something itself
            for name, value in zip(names, values, strict=True):
                target = ast.Name(id=name.id, ctx=ast.Store())
                made.append(ast.Assign(targets=[target], value=value))
            values = list(names)
        for place, value in enumerate(values):
            append = ast.Name(id=_append(writing.index, place), ctx=ast.Load())
            made.append(ast.Expr(ast.Call(func=append, args=[value], keywords=[])))
        if self._keeps_order:
            order = ast.Name(id=_ORDER, ctx=ast.Load())
            number = ast.Constant(value=writing.index)
            made.append(ast.Expr(ast.Call(func=order, args=[number], keywords=[])))
        return [ast.fix_missing_locations(ast.copy_location(one, node)) for one in made]

    def _emitted(self, node: ast.expr) -> tuple[str, list[ast.expr]] | None:
        """Return the stream and the values of what is plainly an emit."""
        stream = DEFAULT_STREAM
        if isinstance(node, ast.Yield):
            values = node.value
        elif isinstance(node, ast.Call) and self._is_emit(node.func) and len(node.args) == 1:
            values = node.args[0]
            for keyword in node.keywords:
                if keyword.arg != "stream" or not isinstance(keyword.value, ast.Constant):
                    return None
                named = keyword.value.value
                stream = named if isinstance(named, str) else ""
        else:
            return None
        if not isinstance(values, ast.List | ast.Tuple):
            return None
        if any(isinstance(value, ast.Starred) for value in values.elts):
            return None
        writing = self._writings.get(stream)
        if writing is None or len(values.elts) != writing.width:
            return None  # the error is the emit's to raise
        return stream, values.elts

    def _is_emit(self, node: ast.expr) -> bool:
        if not (isinstance(node, ast.Attribute) and node.attr == "emit"):
            return False
        of = node.value
        if isinstance(of, ast.Attribute) and of.attr == "collector":
            of = of.value
        return isinstance(of, ast.Name) and of.id in self._others

    # -- what is not understood ---------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> ast.AST:
        is_own = node.id in self._others and not isinstance(node.ctx, ast.Load)
        if node.id in _LOOKS_AT_FRAMES or self._is_tuple(node) or is_own:
            raise _NotUnderstood
        return node

    def _refuse(self, node: ast.AST) -> ast.AST:
        raise _NotUnderstood

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _refuse
    visit_Yield = visit_YieldFrom = visit_Import = visit_ImportFrom = _refuse


def _parameter(position: int) -> str:
    """Return the parameter for the value at a position."""
    return f"{_OWN}{field_name(position)}"


def _append(index: int, place: int) -> str:
    return f"{_OWN}emit{index}_{place}"
