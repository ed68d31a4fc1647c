"""A guess, from its source, that a bolt is stateless though it does not declare so.

`topo explain` points such bolts out, since a level whose bolts all declare `stateless = True` needs
no state stage. A wrong guess only costs a remark: the declaration is checked at run time.
"""

from __future__ import annotations

import ast
import inspect

from topo.components import Component
from topo.topology.class_text import class_text

_CONSTANTS = (str, bytes, int, float, bool, tuple, frozenset, type(None))
_SETTING_UP = frozenset({"__init__", "prepare"})


def seems_stateless(component: Component) -> bool:
    """True iff no method uses an attribute that could hold a value between calls."""
    own = [cls for cls in type(component).__mro__ if not cls.__module__.startswith("topo.")]
    try:
        trees = [ast.parse(class_text(cls)) for cls in own if cls is not object]
    except (OSError, TypeError, SyntaxError):
        return False
    methods = [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name not in _SETTING_UP and node.args.args
    ]
    return bool(methods) and all(_keeps_nothing(method, component) for method in methods)


def _keeps_nothing(method: ast.FunctionDef, component: Component) -> bool:
    me = method.args.args[0].arg
    harmless = 0
    for node in ast.walk(method):
        if isinstance(node, ast.Global | ast.Nonlocal):
            return False
        if isinstance(node, ast.Attribute) and _is_name(node.value, me):
            if not (isinstance(node.ctx, ast.Load) and _is_harmless(node.attr, component)):
                return False
            harmless += 1
    # Any other use of the instance, for example as an argument, may have any effect.
    return harmless == sum(_is_name(node, me) for node in ast.walk(method))


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_harmless(name: str, component: Component) -> bool:
    """True iff it is a method, a constant, or an attribute that the runtime sets."""
    if name in ("collector", "context"):
        return True
    if name in vars(component):
        return isinstance(vars(component)[name], _CONSTANTS)
    found = inspect.getattr_static(type(component), name, None)
    return callable(found) or (found is not None and isinstance(found, _CONSTANTS))
