"""The change of the text of a hook: what it reads, emits and settles, said with values."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topo.columns import field_name
from topo.tracking.trees import NO_ANCHOR, NOT_ANCHORED
from topo.tuples import DEFAULT_STREAM, RESERVED_FIELD_NAMES

_LOOKS_AT_FRAMES = frozenset(
    {"locals", "vars", "dir", "eval", "exec", "super", "__class__", "breakpoint", "pdb"}
)
OWN = "_topo_"
_ORDER = f"{OWN}order"
_LINK = f"{OWN}link"


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
class Style:
    """The way a function is written: where its tuple comes, if it yields, if it acks by hand."""

    tuple_at: int
    """-1: it is a `process`, which gets no tuple; what it returns is a row."""
    owner: int = 0
    """The number of parameters in front of those of a `process` that are values: its bolt."""
    yields: bool = False
    """It is a generator function, and what it yields is emitted."""
    by_hand: bool = False
    """It anchors and acks: it gets its input's link, and returns what became of it."""
    tracking: bool = False
    keeps_order: bool = False

    @property
    def notes_parents(self) -> bool:
        return self.by_hand and self.tracking


class NotUnderstood(Exception):
    """The text does something that only the original can do."""

    def __init__(self, node: ast.AST, what: str) -> None:
        super().__init__(f"{what} (line {getattr(node, 'lineno', '?')})")


class TextChange(ast.NodeTransformer):
    """The change of one definition."""

    def __init__(
        self,
        tup: str,
        others: Sequence[str],
        values: Sequence[str],
        reading: Reading,
        writings: Mapping[str, Writing],
        style: Style,
    ) -> None:
        self.reads: set[int] = set()
        self.writes: dict[str, None] = {}
        self._tup = tup
        self._others = others
        self._parameters = values
        self._reading = reading
        self._writings = writings
        self._returns_rows = style.tuple_at < 0 and not style.yields
        self._keeps_order = style.keeps_order
        self._by_hand = style.by_hand
        self._notes_parents = style.notes_parents
        self._ends = False
        """Whether `execute` ends after the statement at hand."""
        self._may_settle = True
        """False inside of loops, `with` and `try`."""

    def definition(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Return the changed definition."""
        body = self._block(node.body, ends=True)
        reads = [_parameter(place) for place in sorted(self.reads)]
        link = [_LINK] if self._by_hand else []
        appends = []
        for writing in (self._writings[stream] for stream in self.writes):
            appends += [_append(writing.index, place) for place in range(writing.width)]
            appends += [_parent(writing.index)] if self._notes_parents else []
        order = [_ORDER] if self._keeps_order and self.writes else []
        names = [*self._others, *self._parameters, *reads, *link, *appends, *order]
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

    # -- blocks -------------------------------------------------------------------------------

    def _block(self, statements: list[ast.stmt], *, ends: bool) -> list[ast.stmt]:
        """Return the changed statements; `ends`: `execute` ends after them."""
        made: list[ast.stmt] = []
        for place, statement in enumerate(statements):
            following = statements[place + 1] if place + 1 < len(statements) else None
            self._ends = ends if following is None else _only_returns(following)
            changed = self.visit(statement)
            made += changed if isinstance(changed, list) else [changed]
        return made

    def visit_If(self, node: ast.If) -> ast.AST:
        ends = self._ends
        node.test = self.visit(node.test)
        node.body = self._block(node.body, ends=ends)
        node.orelse = self._block(node.orelse, ends=ends)
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        node.items = [self.visit(item) for item in node.items]
        node.body = self._inside(node.body)
        return node

    def visit_Try(self, node: ast.Try) -> ast.AST:
        node.body = self._inside(node.body)
        for handler in node.handlers:
            if handler.type is not None:
                handler.type = self.visit(handler.type)
            handler.body = self._inside(handler.body)
        node.orelse = self._inside(node.orelse)
        node.finalbody = self._inside(node.finalbody)
        return node

    def visit_Match(self, node: ast.Match) -> ast.AST:
        ends = self._ends
        node.subject = self.visit(node.subject)
        for case in node.cases:
            case.pattern = self.visit(case.pattern)
            case.guard = None if case.guard is None else self.visit(case.guard)
            case.body = self._block(case.body, ends=ends)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        node.target, node.iter = self.visit(node.target), self.visit(node.iter)
        return self._looping(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        node.test = self.visit(node.test)
        return self._looping(node)

    def _looping(self, node: ast.For | ast.While) -> ast.AST:
        node.body = self._inside(node.body)
        node.orelse = self._inside(node.orelse)
        return node

    def _inside(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return the changed statements of a block that is left with code of its own.

        What that does, after the last statement too, comes after an ack that is written in it: a
        commit may fail. So none may be.
        """
        before, self._may_settle = self._may_settle, False
        changed = self._block(statements, ends=False)
        self._may_settle = before
        return changed

    def visit_Return(self, node: ast.Return) -> Any:
        if self._returns_rows:
            return self._returned(node)
        if not self._by_hand or node.value is None:
            return self.generic_visit(node)
        settled = self._settled(node.value)
        if settled is not None:
            if not self._may_settle:
                raise NotUnderstood(
                    node, "settles its tuple before its end, or inside of a block"
                )  # the block that it leaves has the last word
            return ast.copy_location(ast.Return(settled), node)
        value = ast.copy_location(ast.Expr(self.visit(node.value)), node)
        return [value, ast.copy_location(ast.Return(None), node)]

    def _returned(self, node: ast.Return) -> Any:
        """Return the statements that emit the row which is returned, if it is one plainly."""
        if node.value is None or (
            isinstance(node.value, ast.Constant) and node.value.value is None
        ):
            return node
        row = self._row(node.value, DEFAULT_STREAM)
        if row is None or not self._may_settle:  # the block that it leaves has the last word
            raise NotUnderstood(node, "returns what is plainly no row, or inside of a block")
        done = ast.copy_location(ast.Return(None), node)
        return [*self._appended(node, DEFAULT_STREAM, row, None), done]

    # -- what is read -------------------------------------------------------------------------

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not self._is_tuple(node.value):
            return self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            raise NotUnderstood(node, "changes its tuple")
        fields = self._reading.fields
        if node.attr in RESERVED_FIELD_NAMES:
            return self._reserved(node)
        if node.attr not in fields or node.attr.startswith(("__", OWN)):
            raise NotUnderstood(
                node, "reads a field that its input lacks"
            )  # it raises an error, which the tuple words
        return self._value(fields.index(node.attr), node)

    def _reserved(self, node: ast.Attribute) -> ast.AST:
        match node.attr:
            case "values":
                return self._all_values(node)
            case "is_tick":
                return ast.copy_location(ast.Constant(value=False), node)
            case "source_component":
                return ast.copy_location(ast.Constant(value=self._reading.component), node)
            case "source_stream":
                return ast.copy_location(ast.Constant(value=self._reading.stream), node)
        raise NotUnderstood(node, "asks its tuple for more than values")

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        of_values = (
            isinstance(node.value, ast.Attribute)
            and node.value.attr == "values"
            and self._is_tuple(node.value.value)
        )
        if not of_values and not self._is_tuple(node.value):
            return self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            raise NotUnderstood(node, "changes its tuple")
        place = self._place(node.slice, by_name=not of_values)
        if place is None:
            raise NotUnderstood(node, "reads its tuple by what is no plain name or place")
        return self._value(place, node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        unpacks = isinstance(node.targets[0], ast.Tuple | ast.List) and len(node.targets) == 1
        if unpacks and self._is_tuple(node.value):
            node.value = self._all_values(node.value)
        return self.generic_visit(node)

    def _all_values(self, node: ast.expr) -> ast.List:
        values = [self._value(place, node) for place in range(len(self._reading.fields))]
        return ast.copy_location(ast.List(elts=values, ctx=ast.Load()), node)

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
        settled = self._settled(node.value) if self._by_hand else None
        if settled is not None:
            if not (self._ends and self._may_settle):
                raise NotUnderstood(
                    node, "settles its tuple before its end, or inside of a block"
                )  # it may be settled twice, or emit once more
            return ast.copy_location(ast.Return(settled), node)
        emitted = self._emitted(node.value)
        if emitted is None:
            return self.generic_visit(node)
        return self._appended(node, *emitted)

    def _appended(
        self, node: ast.stmt, stream: str, values: list[ast.expr], parent: ast.expr | None
    ) -> list[ast.stmt]:
        """Return the statements that append values to the columns of a stream."""
        writing = self._writings[stream]
        self.writes[stream] = None
        values = [self.visit(value) for value in values]
        names = [ast.Name(id=f"{OWN}v{place}", ctx=ast.Load()) for place in range(len(values))]
        made: list[ast.stmt] = []
        if len(values) > 1:  # all of them first: one may raise, or emit something itself
            for name, value in zip(names, values, strict=True):
                target = ast.Name(id=name.id, ctx=ast.Store())
                made.append(ast.Assign(targets=[target], value=value))
            values = list(names)
        for place, value in enumerate(values):
            append = ast.Name(id=_append(writing.index, place), ctx=ast.Load())
            made.append(ast.Expr(ast.Call(func=append, args=[value], keywords=[])))
        if self._notes_parents and parent is not None:
            note = ast.Name(id=_parent(writing.index), ctx=ast.Load())
            made.append(ast.Expr(ast.Call(func=note, args=[parent], keywords=[])))
        if self._keeps_order:
            order = ast.Name(id=_ORDER, ctx=ast.Load())
            number = ast.Constant(value=writing.index)
            made.append(ast.Expr(ast.Call(func=order, args=[number], keywords=[])))
        return [ast.fix_missing_locations(ast.copy_location(one, node)) for one in made]

    def _emitted(self, node: ast.expr) -> tuple[str, list[ast.expr], ast.expr] | None:
        """Return the stream, the values and the parent of what is plainly an emit."""
        stream = DEFAULT_STREAM
        parent: ast.expr = ast.Constant(value=NOT_ANCHORED)
        if isinstance(node, ast.Yield):
            values = node.value
        elif isinstance(node, ast.Call) and self._calls(node.func, "emit_values"):
            values = ast.List(elts=node.args, ctx=ast.Load())
            if node.keywords:
                return None
        elif isinstance(node, ast.Call) and self._calls(node.func, "emit") and len(node.args) == 1:
            values = node.args[0]
            for keyword in node.keywords:
                if keyword.arg == "anchors" and self._by_hand:
                    found = self._parent_of(keyword.value)
                    if found is None:
                        return None
                    parent = found
                    continue
                if keyword.arg != "stream" or not isinstance(keyword.value, ast.Constant):
                    return None
                named = keyword.value.value
                stream = named if isinstance(named, str) else ""
        else:
            return None
        row = None if values is None else self._row(values, stream)
        return None if row is None else (stream, row, parent)

    def _row(self, values: ast.expr, stream: str) -> list[ast.expr] | None:
        """Return the values of what is plainly a row of a stream."""
        if not isinstance(values, ast.List | ast.Tuple):
            return None
        if any(isinstance(value, ast.Starred) for value in values.elts):
            return None
        writing = self._writings.get(stream)
        if writing is None or len(values.elts) != writing.width:
            return None  # the error is the emit's to raise
        return values.elts

    def _parent_of(self, anchors: ast.expr) -> ast.expr | None:
        """Return what stands for these anchors among parents, if it is plain."""
        several = anchors.elts if isinstance(anchors, ast.List | ast.Tuple) else [anchors]
        if len(several) == 1 and self._is_tuple(several[0]):
            return ast.Name(id=_LINK, ctx=ast.Load())
        if not several:
            return ast.Constant(value=NO_ANCHOR)
        is_none = isinstance(anchors, ast.Constant) and anchors.value is None
        return ast.Constant(value=NOT_ANCHORED) if is_none else None

    def _settled(self, node: ast.expr) -> ast.expr | None:
        """Return what to return where the input is acked or failed by this expression."""
        if not isinstance(node, ast.Call) or not node.args or not self._is_tuple(node.args[0]):
            return None
        if self._calls(node.func, "ack") and len(node.args) == 1 and not node.keywords:
            return ast.copy_location(ast.Constant(value=True), node)
        if not self._calls(node.func, "fail"):
            return None
        named = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
        reasons = [*node.args[1:], *named]
        if len(reasons) > 1 or len(named) < len(node.keywords):
            return None
        reason = self.visit(reasons[0]) if reasons else ast.Constant(value=None)
        made = ast.Tuple(elts=[reason], ctx=ast.Load())
        return ast.fix_missing_locations(ast.copy_location(made, node))

    def _calls(self, node: ast.expr, name: str) -> bool:
        """True iff this is the call of the bolt, or of its collector, with that name."""
        if not (isinstance(node, ast.Attribute) and node.attr == name):
            return False
        of = node.value
        if isinstance(of, ast.Attribute) and of.attr == "collector":
            of = of.value
        return isinstance(of, ast.Name) and of.id in self._others

    # -- what is not understood ---------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> ast.AST:
        is_own = node.id in self._others and not isinstance(node.ctx, ast.Load)
        if node.id in _LOOKS_AT_FRAMES or self._is_tuple(node) or is_own:
            raise NotUnderstood(node, "passes its tuple on, or looks at its frame")
        return node

    def _refuse(self, node: ast.AST) -> ast.AST:
        raise NotUnderstood(node, "has a statement or a yield that is not plain")

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _refuse
    visit_Yield = visit_YieldFrom = visit_Import = visit_ImportFrom = _refuse
    visit_TryStar = visit_AsyncFor = visit_AsyncWith = _refuse


def _parameter(position: int) -> str:
    """Return the parameter for the value at a position."""
    return f"{OWN}{field_name(position)}"


def _append(index: int, place: int) -> str:
    return f"{OWN}emit{index}_{place}"


def _parent(index: int) -> str:
    return f"{OWN}parent{index}"


def _only_returns(node: ast.stmt) -> bool:
    return isinstance(node, ast.Return) and isinstance(node.value, ast.Constant | None)
