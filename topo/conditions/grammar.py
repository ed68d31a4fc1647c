"""The grammar of conditions: what of Python's may be written, and the message for the rest.

A text is parsed by Python and then looked through, every node of it: a node that is not listed is
refused, so that what a later Python adds is refused too. Depth and length are limited before
anything walks the tree by recursion.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from topo.conditions.reads import Aggregate, Field, PartField, Read
from topo.errors import ConditionError, did_you_mean, printable

EVENT, PATTERN, HAVING = "event", "pattern", "having"

MOST_CHARACTERS = 4_000
MOST_LEVELS = 50

FUNCTIONS: dict[str, tuple[int, int]] = {
    "abs": (1, 1), "len": (1, 1), "lower": (1, 1), "upper": (1, 1), "contains": (2, 2),
    "starts_with": (2, 2), "ends_with": (2, 2), "coalesce": (1, 100), "lookup": (3, 3),
}  # fmt: skip
"""The functions, with how many arguments they take."""
AGGREGATES = ("count", "sum", "min", "max", "avg", "first", "last", "distinct")

ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip
_UNARY: tuple[type[ast.unaryop], ...] = (ast.Not, ast.USub, ast.UAdd)

_ALLOWED = (
    "allowed are comparisons, and, or, not, + - * / // %, x if c else y, constants, fields, and "
    f"calls of {', '.join(FUNCTIONS)}"
)
_WORDS: dict[type[ast.AST], str] = {
    ast.Lambda: "a lambda", ast.NamedExpr: ":=", ast.JoinedStr: "an f-string",
    ast.ListComp: "a comprehension", ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension", ast.GeneratorExp: "a comprehension", ast.Await: "await",
    ast.Yield: "yield", ast.YieldFrom: "yield", ast.Starred: "*", ast.Dict: "a dict",
    ast.Set: "a set", ast.Slice: "a slice", ast.Pow: "**", ast.MatMult: "@", ast.LShift: "<<",
    ast.RShift: ">>", ast.BitOr: "|", ast.BitAnd: "&", ast.BitXor: "^", ast.Invert: "~",
}  # fmt: skip


def is_none(node: ast.AST) -> bool:
    """Return True for the constant None."""
    return isinstance(node, ast.Constant) and node.value is None


class Reader:
    """Parses one text, and looks through what it says."""

    def __init__(self, text: object, what: str, kind: str) -> None:
        if not isinstance(text, str):
            raise ConditionError(
                f"{what}: a condition is text; got a {type(text).__name__}",
                hint='write it as "price < 100"',
            )
        self.text = text.strip()
        self.what = what
        self.kind = kind
        self.places: dict[Read, ast.expr] = {}
        """What is read, in the order of the text, and where first."""
        self.tables: dict[tuple[str, str], None] = {}
        """The tables and fields that are looked up."""

    def tree(self) -> ast.expr:
        """Return the tree of the text, all of which is allowed; raise a ConditionError."""
        if len(self.text) > MOST_CHARACTERS:
            raise ConditionError(
                f"{self.what}: the condition has {len(self.text):,} characters; at most "
                f"{MOST_CHARACTERS:,} are allowed",
                hint="compare with a list, or make several conditions of it",
            )
        if not self.text:
            raise ConditionError(f"{self.what}: the condition is empty", hint='write "True"')
        tree = self._parsed()
        self._check_depth(tree)
        self._look_at(tree)
        return tree

    def refusal(self, node: ast.AST | None, reason: str, hint: str = "") -> ConditionError:
        """Return the error for a node of the text."""
        line, column = 1, 0
        if node is not None:
            line, at = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
            column = len(self._line(line).encode()[:at].decode(errors="ignore"))
        return self._refusal(line, column, reason, hint)

    def _refusal(self, line: int, column: int, reason: str, hint: str) -> ConditionError:
        text = self._line(line)
        start = max(0, column - 60)
        window = printable(text[start : column + 40]).replace("\t", " ")
        before = printable(text[start:column])
        shown_text = f"{'...' if start else ''}{window}{'...' if column + 40 < len(text) else ''}"
        caret = " " * (len(before) + (3 if start else 0)) + "^"
        return ConditionError(f"{self.what}: {reason}\n    {shown_text}\n    {caret}", hint=hint)

    def _line(self, number: int) -> str:
        lines = self.text.split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def _parsed(self) -> ast.expr:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of an escape such as '\\d', which means itself
                return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            line, column = error.lineno or 1, max(0, (error.offset or 1) - 1)
            is_assignment = self._line(line)[column : column + 1] == "="
            hint = "write == to compare" if is_assignment else _ALLOWED
            raise self._refusal(line, column, f"syntax error: {error.msg}", hint) from None
        except (MemoryError, RecursionError):
            raise self._too_deep() from None
        except ValueError as error:  # a zero byte, a lone surrogate, an int of 5,000 digits
            raise ConditionError(f"{self.what}: syntax error: {printable(str(error))}") from None

    def _check_depth(self, tree: ast.AST) -> None:
        layer, level = [tree], 0
        while layer:
            level += 1
            if level > MOST_LEVELS:
                raise self._too_deep()
            layer = [child for node in layer for child in ast.iter_child_nodes(node)
                     if isinstance(child, ast.expr)]  # fmt: skip

    def _too_deep(self) -> ConditionError:
        return ConditionError(
            f"{self.what}: the condition is nested more than {MOST_LEVELS} levels deep",
            hint="compare with a list, or make several conditions of it",
        )

    # -- the nodes ----------------------------------------------------------------------------

    def _look_at(self, node: ast.expr) -> None:
        """Look through a node and all below it."""
        for child in self._children(node):
            self._look_at(child)

    def _children(self, node: ast.expr) -> Iterator[ast.expr]:
        """Yield the operands of a node that is allowed."""
        if isinstance(node, ast.Constant):
            self._check_constant(node)
        elif isinstance(node, ast.Name):
            self._read(Field(node.id), node, node.id)
        elif isinstance(node, ast.Attribute):
            self._read(self.part_field(node), node, node.attr)
        elif isinstance(node, ast.BoolOp):
            yield from node.values
        elif isinstance(node, ast.Compare):
            yield from self._compared(node)
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            self._check_arithmetic(node)
            yield from (node.left, node.right)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, _UNARY):
            yield node.operand
        elif isinstance(node, ast.IfExp):
            yield from (node.test, node.body, node.orelse)
        elif isinstance(node, ast.Tuple | ast.List):
            yield from node.elts
        elif isinstance(node, ast.Call):
            yield from self._called(node)
        elif isinstance(node, ast.Subscript):
            raise self.refusal(node, "[...] is only for the first event of a part: b[0].price")
        else:
            operator = getattr(node, "op", node)
            word = _WORDS.get(type(operator), _WORDS.get(type(node), type(node).__name__))
            raise self.refusal(node, f"{word} is not allowed in a condition", _ALLOWED)

    def _check_constant(self, node: ast.Constant) -> None:
        if node.value is not None and not isinstance(node.value, bool | int | float | str):
            raise self.refusal(node, "a constant is a number, text, True, False or None")

    def _read(self, what: Read, node: ast.expr, name: str) -> None:
        if name.startswith("__"):
            raise self.refusal(node, f"{name!r} is no field: no name begins with __")
        self.places.setdefault(what, node)

    def _compared(self, node: ast.Compare) -> Iterator[ast.expr]:
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.Is | ast.IsNot) and not is_none(right):
                raise self.refusal(right, "is compares with None only", "write == to compare")
        yield from (node.left, *node.comparators)

    def _check_arithmetic(self, node: ast.BinOp) -> None:
        operator = ARITHMETIC[type(node.op)]
        if operator in "*%" and any(map(_is_text, (node.left, node.right))):
            raise self.refusal(node, f"{operator} takes numbers, not text or lists")

    def _called(self, node: ast.Call) -> Iterator[ast.expr]:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        stars = [argument for argument in node.args if isinstance(argument, ast.Starred)]
        if name in AGGREGATES:
            if node.keywords or stars:
                raise self.refusal(node, f"{name} takes no such argument")
            self._read(self.aggregate(node), node, "")
            return
        if name not in FUNCTIONS:
            names = [*FUNCTIONS, *(AGGREGATES if self.kind != EVENT else ())]
            hint = did_you_mean(name, names) or f"the functions are {', '.join(names)}"
            raise self.refusal(node, f"{name or 'this'} is no function of conditions", hint)
        least, most = FUNCTIONS[name]
        if node.keywords or stars or not least <= len(node.args) <= most:
            number = str(least) if least == most else f"{least} to {most}"
            raise self.refusal(node, f"{name} takes {number} argument{'s' * (number != '1')}")
        if name == "lookup":
            self._note_lookup(node)
        yield from node.args

    def _note_lookup(self, node: ast.Call) -> None:
        names = [arg.value for arg in node.args[1:] if isinstance(arg, ast.Constant)]
        texts = [name for name in names if isinstance(name, str)]
        if len(texts) != 2:
            raise self.refusal(
                node, "lookup takes a key and the names of a table and of a field, as text",
                "write lookup(route, 'ROUTES', 'name')",
            )  # fmt: skip
        self.tables.setdefault((texts[0], texts[1]))

    # -- parts and aggregates -----------------------------------------------------------------

    def part_field(self, node: ast.Attribute) -> PartField:
        """Return the field of a taken event that a node names."""
        of, first = node.value, False
        if isinstance(of, ast.Subscript) and isinstance(of.value, ast.Name):
            index = of.slice
            if not isinstance(index, ast.Constant) or type(index.value) is not int or index.value:
                raise self.refusal(
                    of, "only the first event of a part has a number: b[0]",
                    "b.price is the last one's, and sum, min, max, avg are over all",
                )  # fmt: skip
            of, first = of.value, True
        if self.kind != PATTERN or not isinstance(of, ast.Name):
            place = f"no attribute of a value can be read: .{node.attr}"
            raise self.refusal(node, place, "name a field, as in: price < 100")
        self._refuse_dunder(of)
        return PartField(of.id, node.attr, first)

    def _refuse_dunder(self, node: ast.Name) -> None:
        if node.id.startswith("__"):
            raise self.refusal(node, f"{node.id!r} is no part: no name begins with __")

    def aggregate(self, node: ast.Call) -> Aggregate:
        """Return the aggregate that a call names."""
        assert isinstance(node.func, ast.Name), "it was looked at"
        name, args = node.func.id, node.args
        if self.kind == EVENT:
            raise self.refusal(
                node, f"{name} is an aggregate; a condition of one event has none",
                "aggregates go into patterns, and into having= of a rule",
            )  # fmt: skip
        argument = args[0] if len(args) == 1 else None
        if self.kind == HAVING:
            if name == "count" and not args:
                return Aggregate(name)
            if name != "count" and isinstance(argument, ast.Name):
                self._refuse_dunder(argument)
                return Aggregate(name, None, argument.id)
            write = "count()" if name == "count" else f"{name}(price)"
            raise self.refusal(node, f"{name} takes a field; count takes nothing", f"write {write}")
        if name == "count" and isinstance(argument, ast.Name):
            self._refuse_dunder(argument)
            return Aggregate(name, argument.id)
        if name != "count" and isinstance(argument, ast.Attribute):
            read = self.part_field(argument)
            if not read.first and not read.field.startswith("__"):
                return Aggregate(name, read.part, read.field)
        write = "count(b)" if name == "count" else f"{name}(b.price)"
        raise self.refusal(
            node, f"{name} takes a field of a part; count takes a part", f"write {write}"
        )


def _is_text(node: ast.expr) -> bool:
    """Return True if a node is surely text or a list, whatever the event."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and (_is_text(node.left) or _is_text(node.right))
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) or _is_text(node.orelse)
    if isinstance(node, ast.BoolOp):
        return any(map(_is_text, node.values))
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("lower", "upper")
    return isinstance(node, ast.Tuple | ast.List)
