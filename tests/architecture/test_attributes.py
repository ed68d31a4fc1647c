"""An object writes its own attributes: nobody pokes into one that is another module's.

Whoever reads a class must know all that changes its objects. So a function assigns to attributes
of `self`, of an object that it has made itself, and of records of its own module. A figure is
counted where things happen: `metrics.NAME += 1`. What no class of topo declares is a library's,
which may want to be set up like that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from functools import reduce

import pytest

from tests.architecture.exceptions import Offenders, check
from tests.architecture.source import Function, Source, topo_sources

_OWN = frozenset({"self", "cls"})
_MAKERS = {"copy", "deepcopy", "replace", "__new__", "cls", "type"}


def pokes(sources: Iterable[Source]) -> Offenders:
    """Return the assignments to attributes of other modules' objects, by module."""
    modules = list(sources)
    declared = {source.place: declared_by(source) for source in modules}
    of_topo: set[str] = reduce(set.union, declared.values(), set())
    offenders = {}
    for source in modules:
        foreign = of_topo - declared[source.place]
        if not may_poke(source, foreign):
            continue
        names = {target for target, attribute in assigned(source) if attribute in foreign}
        if names:
            offenders[source.place] = sorted(names)
    return offenders


def may_poke(source: Source, foreign: Set[str]) -> bool:
    """Return False for most modules at once: none of the attributes is assigned to."""
    return any(
        node.attr in foreign
        and not isinstance(node.ctx, ast.Load)
        and not (isinstance(node.value, ast.Name) and node.value.id in _OWN)
        for node in source.every(ast.Attribute)
    )


def declared_by(source: Source) -> set[str]:
    """Return the attributes that classes of a module have."""
    names = {
        node.attr
        for node in source.every(ast.Attribute)
        if isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    for cls in source.every(ast.ClassDef):
        for statement in cls.body:
            names |= set(_declared_in(statement))
    return names


def _declared_in(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a class gives to attributes."""
    if isinstance(statement, ast.AnnAssign):
        targets: list[ast.expr] = [statement.target]
    elif isinstance(statement, ast.Assign):
        targets = statement.targets
    else:
        return
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    yield from names
    if "__slots__" in names and statement.value is not None:
        parts = ast.walk(statement.value)
        yield from (str(part.value) for part in parts if isinstance(part, ast.Constant))


def assigned(source: Source) -> Iterator[tuple[str, str]]:
    """Yield target and attribute of each assignment to an attribute of another object."""
    yield from _assigned(source.tree, _OWN)


def _assigned(node: ast.AST, own: Set[str]) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Attribute) and not isinstance(child.ctx, ast.Load):
            of = ast.unparse(child.value)
            if of not in own and of.split(".")[-1] != "metrics":
                yield f"{of}.{child.attr}", child.attr
        inner = own | set(_made_in(child)) if isinstance(child, Function) else own
        yield from _assigned(child, inner)


def _made_in(function: Function) -> Iterator[str]:
    """Yield the names of what a function makes itself: objects of a class, functions, classes."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _makes(node.value):
            yield from map(ast.unparse, node.targets)
        elif isinstance(node, ast.AnnAssign) and node.value is not None and _makes(node.value):
            yield ast.unparse(node.target)
        elif isinstance(node, ast.withitem) and node.optional_vars and _makes(node.context_expr):
            yield ast.unparse(node.optional_vars)
        elif isinstance(node, Function | ast.ClassDef) and node is not function:
            yield node.name


def _makes(value: ast.expr) -> bool:
    """True iff a value is a call of a class, of one of its methods, or a copy."""
    if not isinstance(value, ast.Call):
        return False
    called = ast.unparse(value.func).split(".")
    is_of_class = any(name.lstrip("_")[:1].isupper() for name in called)
    return is_of_class or called[-1] in _MAKERS or isinstance(value.func, ast.Call)


OFFENDERS = {"attributes of others": lambda: pokes(topo_sources())}


def test_nobody_writes_attributes_of_another_modules_objects() -> None:
    check("attributes of others", OFFENDERS["attributes of others"]())


THINGS = Source(
    "things.py", "class Thing:\n    size: int\n    def f(self):\n        self.own = 1\n"
)


@pytest.mark.parametrize(
    "code",
    [
        "def f(thing): thing.size = 3",
        "def f(thing): thing.own += 3",
        "def f(self): self.thing.size = 3",
        "def f(thing): thing.other, thing.size = 1, 2",
        "def f(thing): del thing.own",
        "def f(things):\n    for thing.size in things: pass",
        "def f(thing):\n    with opened() as thing.size: pass",
        "thing = find()\nthing.size = 3",
    ],
)
def test_a_poke_is_seen_however_it_is_written(code: str) -> None:
    assert list(pokes([THINGS, Source("other.py", code)])) == ["other.py"]


@pytest.mark.parametrize(
    "code",
    [
        "class A:\n    def f(self): self.size = 3",
        "def f():\n    thing = Thing()\n    thing.size = 3",
        "def f():\n    thing = copy(other)\n    thing.size = 3",
        "def f(self):\n    self.thing = things.Thing()\n    self.thing.size = 3",
        "def f():\n    with Thing() as thing: thing.size = 3",
        "class Mine:\n    size: int\ndef f(mine): mine.size = 3",
        "def f(task): task.metrics.size += 1",
        "def f(context): context.check_hostname = False",
        "def f():\n    def g(): pass\n    g.size = 3",
    ],
)
def test_what_an_object_a_maker_or_a_records_module_writes_is_none(code: str) -> None:
    assert pokes([THINGS, Source("other.py", code)]) == {}
