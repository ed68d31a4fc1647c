"""The walls of the house: which room may import which.

A room is a package of `topo/`, or a module beside them; `engine` is the seam (`engine/base.py`),
and each engine is a room of its own. Imports inside functions count as well; imports under
`TYPE_CHECKING` do not, since nothing runs through them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import topo

ROOT = Path(topo.__file__).parent
API = ("columns", "components", "functions", "collectors", "context", "event_time", "state",
       "groupings", "timed")  # fmt: skip
"""The modules that users write against; they know each other."""

_BELOW_RUNTIME = {
    "api", "config", "errors", "forks", "logs", "metrics", "routing", "running", "shipping",
    "storage", "topology", "traces", "tracing", "tracking", "tuples", "wire",
}  # fmt: skip
_ENGINE = {*_BELOW_RUNTIME, "engine", "runtime", "windows"}
_ABOVE = {"_pb", "builder", "config", "engine", "errors", "forks", "logs", "metrics", "running"}
_ABOVE |= {"shipping", "storage", "topology", "traces"}

_STREAMS = {
    "api",
    "builder",
    "config",
    "errors",
    "joins",
    "storage",
    "tables",
    "topology",
    "traces",
    "tuples",
    "windows",
}

ALLOWED: dict[str, set[str]] = {
    # What everything else is said in.
    "errors": set(),
    "forks": set(),
    "traces": set(),
    "tuples": {"errors"},
    "config": {"errors"},
    "_pb": set(),
    # The topology as data, and its components on their way.
    "api": {"config", "errors", "tuples"},
    "topology": {"_pb", "api", "config", "errors", "routing", "shipping", "tuples"},
    "builder": {"api", "config", "errors", "routing", "shipping", "topology", "traces", "tuples"},
    "shipping": {"api", "errors"},
    # A tuple's way, in its order.
    "wire": {"errors"},
    "routing": {"api", "errors", "wire"},
    "tracking": {"_pb", "config", "errors", "forks", "metrics", "tuples", "wire"},
    "tracing": {"errors", "tracking", "wire"},
    "storage": {"api", "errors", "shipping", "tuples", "wire"},
    "running": {"metrics"},
    "metrics": {"errors", "topology"},
    "logs": set(),
    "runtime": {*_BELOW_RUNTIME, "windows"},
    "windows": {"api", "config", "errors", "running", "storage", "topology", "tuples"},
    "joins": {"api", "errors", "storage", "tuples", "windows"},
    # What runs it.
    "engine": {"config", "errors", "running", "topology"},
    "engine.inline": _ENGINE,
    "engine.spark": {*_ENGINE, "builder"},
    # What people hold in their hands.
    "cluster": {"engine", "errors", "running", "topology"},
    "manage": _ABOVE,
    "ui": {*_ABOVE, "manage", "tracking"},
    "cli": {*_ABOVE, "api", "manage", "streamparse", "tracking", "ui"},
    "testing": {*_ABOVE, "api", "runtime", "tuples"},
    "streams": _STREAMS,
    "tables": {"api", "errors", "storage", "traces", "tuples", "windows"},
    "streamparse": {"api", "builder", "errors", "topology", "tuples"},
    "connectors": {"api", "config", "errors", "storage", "topology", "tuples"},
    "_pytest": {"testing"},
    "topo": {"api", "builder", "cluster", "config", "errors", "topology", "tuples"},
}


PYSPARK_ROOMS = {"engine.spark"}
STARTER = ROOT / "cli" / "starter"
"""Files that `topo quickstart` copies: a user's, not the command line's."""


def test_no_room_imports_what_it_may_not() -> None:
    wrong = [
        f"{where} imports {module}: {room} may not know {other}"
        for room, other, where, module in _edges()
        if other not in ALLOWED[room]
    ]
    assert wrong == []


def test_every_room_has_its_line() -> None:
    assert {_room(_name(path)) for path in _sources()} <= set(ALLOWED)


def test_rooms_lie_in_one_order() -> None:
    """Else a change in one room would reach another one that it cannot see."""
    open_rooms: dict[str, set[str]] = {room: set(below) for room, below in ALLOWED.items()}
    while done := {room for room, below in open_rooms.items() if not below & set(open_rooms)}:
        open_rooms = {room: below for room, below in open_rooms.items() if room not in done}
    assert open_rooms == {}


def test_only_the_spark_engine_imports_pyspark() -> None:
    wrong = [
        f"{_name(path)} imports {module}"
        for path in _sources()
        for module in _imported(path)
        if module.split(".")[0] in ("pyspark", "py4j") and _room(_name(path)) not in PYSPARK_ROOMS
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "code",
    [
        "import topo.engine.spark.plan",
        "from topo.engine.spark import plan",
        "def f():\n    from topo.engine.spark.plan import Plan",
        "from ..engine.spark.plan import Plan",
        "import importlib\nimportlib.import_module('topo.engine.spark.plan')",
    ],
)
def test_an_import_is_seen_however_it_is_written(code: str) -> None:
    rooms = {_room(module) for module in _imports_of(ast.parse(code), "topo.cli.stats")}
    assert "engine.spark" in rooms


def test_an_import_for_types_alone_is_none() -> None:
    code = "if TYPE_CHECKING:\n    from topo.engine.spark import plan\nelse:\n    import topo.wire"
    assert list(_imports_of(ast.parse(code), "topo.cli.stats")) == ["topo.wire"]


def _edges() -> Iterator[tuple[str, str, str, str]]:
    """Yield (room, imported room, module, imported module) for each import between two rooms."""
    for path in _sources():
        name = _name(path)
        for module in _imported(path):
            if module.split(".")[0] == "topo" and _room(module) != _room(name):
                yield _room(name), _room(module), name, module


def _sources() -> list[Path]:
    return [path for path in sorted(ROOT.rglob("*.py")) if STARTER not in path.parents]


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room(module: str) -> str:
    parts = module.split(".")
    if len(parts) == 1:
        return parts[0]
    if parts[1] == "engine":
        is_engine = len(parts) > 2 and (ROOT / "engine" / parts[2]).is_dir()
        return f"engine.{parts[2]}" if is_engine else "engine"
    return "api" if parts[1] in API else parts[1]


def _imported(path: Path) -> Iterator[str]:
    is_package = path.name == "__init__.py"
    name = f"{_name(path)}.__init__" if is_package else _name(path)
    return _imports_of(ast.parse(path.read_text(encoding="utf-8")), name)


def _imports_of(tree: ast.AST, name: str) -> Iterator[str]:
    """Yield the full name of every module that the module `name` imports when it runs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from _imports_of(ast.Module([other], []), name)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _imports_from(node, name)
        else:
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                yield from _literals(node)
            yield from _imports_of(node, name)


def _imports_from(node: ast.ImportFrom, name: str) -> Iterator[str]:
    above = name.split(".")[: -node.level] if node.level else []
    base = ".".join([*above, *([node.module] if node.module else [])])
    for alias in node.names:
        path = ROOT.parent.joinpath(*base.split("."), alias.name)
        is_module = path.is_dir() or path.with_suffix(".py").is_file()
        yield f"{base}.{alias.name}" if is_module else base


def _literals(call: ast.Call) -> Iterator[str]:
    for argument in call.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield argument.value.partition(":")[0]
