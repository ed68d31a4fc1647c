"""The text of a function that runs: its definition, and changed ones compiled in its place."""

from __future__ import annotations
import __future__

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache
from inspect import CO_NESTED
from types import CodeType, FunctionType

_FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_COMPARED = (
    "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars",
    "co_firstlineno", "co_linetable", "co_exceptiontable", "co_argcount",
)  # fmt: skip


def definition_of(function: FunctionType) -> ast.FunctionDef | None:
    """Return the definition of a function, if its text is still the one that was compiled."""
    code = function.__code__
    for node in _definitions(_text_of(function)):
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        if node.name == code.co_name and first == code.co_firstlineno:
            try:
                return node if _is_same(compiled(node, function), code) else None
            except SyntaxError:
                return None
    return None


def _text_of(function: FunctionType) -> str:
    """Return the text of the file that a function comes of; empty if there is none."""
    return "".join(linecache.getlines(function.__code__.co_filename, function.__globals__))


@lru_cache(maxsize=16)
def _definitions(text: str) -> tuple[ast.FunctionDef, ...]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@lru_cache(maxsize=16)
def _names_imported(text: str) -> tuple[str, ...]:
    """Return the names that a module imports outside of its functions and classes."""
    names: dict[str, None] = {}
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= dict.fromkeys(a.asname or a.name.partition(".")[0] for a in node.names)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return tuple(name for name in names if name != "*")


def compiled(definition: ast.FunctionDef, function: FunctionType) -> CodeType:
    """Compile a definition as if it stood in the class and in the function around the original.

    The names that its module imports are imported here too, in code that never runs: a call of
    `json.loads` is compiled in another way than one of a method.
    """
    code = function.__code__
    inner: ast.stmt = definition
    path = [definition.name]
    around = function.__qualname__.split(".")[-2:-1]
    if around and around[0].isidentifier():  # names like __private are those of the class
        inner = ast.ClassDef(name=around[0], bases=[], keywords=[], body=[inner], decorator_list=[])
        path.insert(0, around[0])
    free = [ast.arg(arg=name) for name in code.co_freevars]
    outer = ast.FunctionDef(
        name="around",
        args=ast.arguments(posonlyargs=[], args=free, kwonlyargs=[], kw_defaults=[], defaults=[]),
        body=[inner],
        decorator_list=[],
    )
    imports: list[ast.stmt] = [
        ast.Import(names=[ast.alias(name=name)]) for name in _names_imported(_text_of(function))
    ]
    module = ast.fix_missing_locations(ast.Module(body=[*imports, outer], type_ignores=[]))
    flags = code.co_flags & _FUTURES
    made: CodeType = compile(module, code.co_filename, "exec", flags=flags, dont_inherit=True)
    for name in ["around", *path]:
        made = [one for one in _codes_in(made) if one.co_name == name][-1]
    return made


def _is_same(one: CodeType, other: CodeType) -> bool:
    """True iff both do the same at the same lines, wherever they stand."""
    if any(getattr(one, name) != getattr(other, name) for name in _COMPARED):
        return False
    if (one.co_flags ^ other.co_flags) & ~CO_NESTED or len(one.co_consts) != len(other.co_consts):
        return False
    return all(
        _is_same(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else _is_equal(a, b)
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )


def _is_equal(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _codes_in(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]


def names_in(code: CodeType) -> Iterator[str]:
    """Yield every name that the code, or code in it, uses."""
    for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
        yield from names
    for inner in _codes_in(code):
        yield from names_in(inner)
