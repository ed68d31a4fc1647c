"""A look, at the source, for components that keep what they know in a container of their class.

`counts = {}` in the body of a class is one object for all tasks of a process, and is never saved.
Only a change through `self` is pointed out: who writes `Counts.seen.append` means the class.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from functools import lru_cache

from topo.components import Component
from topo.topology.class_text import class_text
from topo.tuples import Fields

_CONTAINERS = (dict, list, set, deque, bytearray)
_CHANGING = frozenset(
    {
        "append", "appendleft", "add", "clear", "discard", "extend", "extendleft", "insert", "pop",
        "popitem", "popleft", "remove", "setdefault", "subtract", "update",
    }
)  # fmt: skip


def shared_containers(component: Component, where: str) -> Iterator[str]:
    """Yield a warning for each container of the class that a method changes through `self`."""
    start = "open" if where.startswith("spout") else "prepare"
    for name in sorted(_changed(component)):
        yield (
            f"{where}: self.{name} is a container of the class, which is never saved and which all "
            f"tasks in a process share; make it in {start}, or name it in transient = ({name!r},)"
        )


def _changed(component: Component) -> set[str]:
    names: set[str] = set()
    assigned: set[str] = set(vars(component)) | set(Fields(component.transient)) | {"outputs"}
    for cls in type(component).__mro__:
        if cls.__module__.startswith("topo.") or cls is object:
            continue
        try:
            in_class = _attributes_in(class_text(cls))
        except (OSError, TypeError, SyntaxError):
            continue
        names |= in_class[0]
        assigned |= in_class[1]
    found = {name: getattr(type(component), name, None) for name in names - assigned}
    return {name for name, value in found.items() if isinstance(value, _CONTAINERS)}


@lru_cache(maxsize=256)
def _attributes_in(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the attributes of `self` whose content a class changes, and those that it assigns."""
    changed: set[str] = set()
    assigned: set[str] = set()
    for method in ast.walk(ast.parse(text)):
        if isinstance(method, ast.FunctionDef) and method.args.args:
            me = method.args.args[0].arg
            for node in ast.walk(method):
                changed |= _changed_in(node, me)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    assigned |= _attribute_of(node, me)
    return frozenset(changed), frozenset(assigned)


def _changed_in(node: ast.AST, me: str) -> set[str]:
    """Return the attribute of `me` whose content this node changes."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return _attribute_of(node.value, me)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _attribute_of(node.func.value, me) if node.func.attr in _CHANGING else set()
    return set()


def _attribute_of(node: ast.AST, me: str) -> set[str]:
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    if is_own and node.value.id == me:  # type: ignore[attr-defined]
        return {node.attr}  # type: ignore[attr-defined]
    return set()
