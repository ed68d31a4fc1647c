"""The text of a class, for looks at how a component is written.

Before Python 3.13, `inspect.getsource` parses the whole module for each class that it is asked
for, which takes tens of milliseconds for a component of a large module. Here a module is parsed
once, and what is kept of it is where its classes stand.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import textwrap
from collections.abc import Iterator
from functools import lru_cache

_HOLDS_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


def class_text(cls: type) -> str:
    """Return the definition of a class, from its decorators on.

    Raises:
        OSError: Its file is gone, or has other classes now.
        TypeError: No file is known for it.
        SyntaxError: Its file is no longer Python.
    """
    file = inspect.getsourcefile(cls)
    if file is None:
        raise OSError(f"no source of {cls.__qualname__}")
    linecache.checkcache(file)
    lines = linecache.getlines(file, getattr(sys.modules.get(cls.__module__), "__dict__", None))
    places = _classes("".join(lines)).get(cls.__qualname__, ())
    line = vars(cls).get("__firstlineno__")  # from Python 3.13 on
    for first, last in places:
        if line is None or first == line:
            return textwrap.dedent("".join(lines[first - 1 : last]))
    raise OSError(f"no class {cls.__qualname__} in {file}")


@lru_cache(maxsize=64)
def _classes(text: str) -> dict[str, list[tuple[int, int]]]:
    """Return the first and the last lines of all classes by qualified name."""
    places: dict[str, list[tuple[int, int]]] = {}
    for name, node in _classes_in(ast.parse(text), ""):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        places.setdefault(name, []).append((first, node.end_lineno or first))
    return places


def _classes_in(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _HOLDS_STATEMENTS):
            continue
        inner = prefix
        if isinstance(child, ast.ClassDef):
            yield prefix + child.name, child
            inner = f"{prefix}{child.name}."
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{prefix}{child.name}.<locals>."
        yield from _classes_in(child, inner)
