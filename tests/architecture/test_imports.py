"""The walls of the house: which room may import which.

A room is a package of `topo/`, or a module beside them; `engine` is the seam (`engine/base.py`),
and each engine is a room of its own, Spark's seven. Programs of streams are written in one room and
compiled in another one, which know the graph between them. `connectors` are the modules that all
systems share, and each system is a room. Imports inside functions count as well. Those under
`TYPE_CHECKING` count for the same table: whoever has to know a type knows its room. No import of
either kind may hide a cycle of modules.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from functools import cache
from typing import NamedTuple

import pytest

from tests.architecture.exceptions import Offenders, check
from tests.architecture.source import TOPO, Function, Source, topo_sources

API = ("columns", "components", "durations", "functions", "collectors", "context", "event_time",
       "state", "groupings", "lists", "takeover", "timed", "ways")  # fmt: skip
"""The modules that users write against; they know each other."""

_BELOW_RUNTIME = {
    "api", "config", "distribution", "errors", "forks", "logs", "metrics", "routing", "running",
    "shipping", "storage", "systems", "topology", "traces", "tracing", "tracking", "tuples",
    "wire",
}  # fmt: skip
_ENGINE = {*_BELOW_RUNTIME, "drpc", "engine", "runtime", "windows"}
_SPARK = {*_ENGINE, "engine.spark.plan", "engine.spark.process", "engine.spark.worker"}
_CONNECTOR = {"api", "config", "connectors", "distribution", "errors", "storage"}
_CONNECTOR |= {"topology", "tuples"}
_ABOVE = {"_pb", "builder", "config", "distribution", "engine", "errors", "forks", "logs"}
_ABOVE |= {"metrics", "rpc", "running"}
_ABOVE |= {"shipping", "storage", "systems", "topology", "traces", "tracing"}

_OPERATORS = {"api", "conditions", "errors", "keyed", "operators", "patterns", "storage"}
_OPERATORS |= {"traces", "tuples", "windows"}
_STREAMS = {*_OPERATORS, "bolts", "config", "drpc", "joins", "streams", "tables", "topology"}

ALLOWED: dict[str, set[str]] = {
    # What everything else is said in.
    "errors": set(),
    "forks": set(),
    "distribution": {"errors"},
    "rpc": set(),
    "serving": {"config", "errors"},
    "systems": {"errors"},
    "traces": set(),
    "tuples": {"errors"},
    "config": {"errors", "systems"},
    "_pb": set(),
    # The topology as data, and its components on their way.
    "api": {"config", "errors", "tuples"},
    "topology": {"_pb", "api", "config", "errors", "routing", "shipping", "tuples"},
    "builder": {"api", "config", "errors", "routing", "shipping", "topology", "traces", "tuples"},
    "shipping": {"api", "distribution", "errors", "traces"},
    # A tuple's way, in its order.
    "wire": {"errors"},
    "routing": {"api", "errors", "wire"},
    "tracking": {"_pb", "config", "errors", "forks", "metrics", "rpc", "serving"}
    | {"tuples", "wire"},
    "tracing": {"distribution", "errors", "tracking", "wire"},
    "storage": {"api", "errors", "shipping", "tuples", "wire"},
    "running": {"metrics"},
    "metrics": {"api", "config", "errors", "topology"},
    "logs": {"errors"},
    "runtime": {*_BELOW_RUNTIME, "windows"},
    "operators": {"api", "errors", "storage", "traces", "tuples"},
    "windows": {"api", "errors", "operators", "storage", "tuples"},
    "joins": {"api", "errors", "operators", "storage", "windows"},
    "bolts": {
        "api",
        "conditions",
        "errors",
        "joins",
        "keyed",
        "learning",
        "operators",
        "patterns",
        "rules",
        "storage",
        "tables",
        "tuples",
        "windows",
    },
    "conditions": {"errors", "operators"},
    "keyed": {"api", "errors", "storage", "tuples"},
    "patterns": {"api", "conditions", "errors", "operators", "storage", "traces"},
    "drpc": {
        "_pb",
        "api",
        "builder",
        "config",
        "distribution",
        "errors",
        "forks",
        "keyed",
        "metrics",
        "serving",
        "topology",
        "tracking",
        "tuples",
    },
    # What runs it.
    "engine": {"config", "errors", "running", "topology"},
    "engine.inline": _ENGINE,
    "engine.spark.plan": {"errors", "storage", "topology"},
    "engine.spark.process": {"errors", "logs", "runtime", "systems", "tracking", "wire"},
    "engine.spark.worker": {
        *_BELOW_RUNTIME,
        "engine.spark.plan",
        "engine.spark.process",
        "runtime",
    },
    "engine.spark.datasets": _SPARK,
    "engine.spark.jvm": {"config", "errors", "logs", "storage"},
    "engine.spark.realtime": {*_SPARK, "engine.spark.jvm"},
    "engine.spark.driver": {
        *_SPARK,
        "engine.spark.datasets",
        "engine.spark.jvm",
        "engine.spark.realtime",
    },
    "engine.spark": {*_SPARK, "builder", "engine.spark.driver", "engine.spark.jvm"},
    # What people hold in their hands.
    "cluster": {"engine", "errors", "running", "topology"},
    "manage": {*_ABOVE, "serving", "tracking"},
    "ui": {*_ABOVE, "manage", "serving", "tracking"},
    "storm_rest": {"config", "distribution", "errors", "logs", "manage", "metrics", "serving"},
    "cli": {
        *_ABOVE,
        "api",
        "drpc",
        "flux",
        "manage",
        "rules",
        "storm_rest",
        "streamparse",
        "tracking",
        "ui",
    },
    "testing": {*_ABOVE, "api", "runtime", "streams", "tuples"},
    "streams": _OPERATORS,
    "streams.compile": {*_STREAMS, "builder"},
    "streams.api": {*_STREAMS, "streams.compile"},
    "topo.streams": {"streams", "streams.api", "tables"},
    "learning": {"api", "errors", "storage", "wire"},
    "rules": {"api", "conditions", "errors", "operators", "storage", "tables", "tuples"},
    "tables": {"api", "errors", "operators", "storage", "tuples"},
    "multilang": {"api", "config", "distribution", "errors", "systems", "traces", "tuples"},
    "flux": {
        "api",
        "builder",
        "config",
        "distribution",
        "errors",
        "multilang",
        "topology",
        "traces",
        "tuples",
    },
    "streamparse": {"api", "builder", "errors", "topology", "tuples"},
    "connectors": (_CONNECTOR | {"wire"}) - {"connectors"},  # columns of records
    **{f"connectors.{path.name}": _CONNECTOR for path in (TOPO / "connectors").glob("[a-z]*/")},
    "connectors.files": {*_CONNECTOR, "connectors.aws", "wire"},  # columns that stay Arrow
    "connectors.spark": {*_CONNECTOR, "wire"},  # the same
    "connectors.sql": {*_CONNECTOR, "wire"},  # the same
    "connectors.clickhouse": {*_CONNECTOR, "connectors.http"},
    "connectors.elasticsearch": {*_CONNECTOR, "connectors.http"},
    "connectors.schemas": {*_CONNECTOR, "connectors.http"},
    "_pytest": {"testing", "traces"},
    "topo": {*_STREAMS, "builder", "cli", "cluster", "distribution", "learning", "rules"},
}


_OWN_ROOMS = {"engine", "connectors", "streams"}
"""Rooms whose packages are rooms of their own."""

_SPARK_PLAN = {"plan", "slotkeys"}
"""The modules of Spark's engine that all its rooms know."""


class Import(NamedTuple):
    """One module imports another; hidden, if that happens in a function or for types alone."""

    by: str
    module: str
    for_types: bool
    in_function: bool


def beyond_walls(edges: Iterable[Import]) -> Offenders:
    """Return the modules that know a room they may not know, by the module that does."""
    offenders: dict[str, set[str]] = defaultdict(set)
    for by, module, *_ in edges:
        room, other = room_of(by), room_of(module)
        if room != other and other not in ALLOWED[room]:
            offenders[by].add(module)
    return {by: sorted(modules) for by, modules in offenders.items()}


def hidden_cycles(edges: Iterable[Import]) -> Offenders:
    """Return the imports for types alone, or within a function, that are part of a cycle."""
    edges = list(edges)
    below: dict[str, set[str]] = defaultdict(set)
    for by, module, *_ in edges:
        below[by].add(module)
    offenders: dict[str, set[str]] = defaultdict(set)
    for by, module, for_types, in_function in edges:
        if (for_types or in_function) and by in _reached(below, module):
            offenders[by].add(module)
    return {by: sorted(modules) for by, modules in offenders.items()}


OFFENDERS = {
    "walls": lambda: beyond_walls(imports_of_topo()),
    "hidden cycles": lambda: hidden_cycles(imports_of_topo()),
}


def test_no_room_knows_what_it_may_not() -> None:
    check("walls", OFFENDERS["walls"]())


def test_no_import_hides_a_cycle() -> None:
    check("hidden cycles", OFFENDERS["hidden cycles"]())


def test_every_room_has_its_line() -> None:
    assert {room_of(_name(source)) for source in topo_sources()} <= set(ALLOWED)


def test_rooms_lie_in_one_order() -> None:
    """Else a change in one room would reach another one that it cannot see."""
    open_rooms: dict[str, set[str]] = {room: set(below) for room, below in ALLOWED.items()}
    while done := {room for room, below in open_rooms.items() if not below & set(open_rooms)}:
        open_rooms = {room: below for room, below in open_rooms.items() if room not in done}
    assert open_rooms == {}


def test_storms_rest_api_is_known_where_it_is_added_alone() -> None:
    knowing = {
        by for by, module, *_ in imports_of_topo() if room_of(module) == "storm_rest" != room_of(by)
    }
    assert knowing == {"topo.cli.ui"}


def test_only_the_spark_engine_imports_pyspark() -> None:
    wrong = [
        f"{by} imports {module}"
        for by, module, *_ in imports()
        if module.split(".")[0] in ("pyspark", "py4j")
        and not room_of(by).startswith("engine.spark")
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
    rooms = {room_of(found.module) for found in imports_of(Source("cli/stats.py", code))}
    assert "engine.spark.plan" in rooms


def test_an_import_for_types_alone_is_seen_as_such() -> None:
    code = "if TYPE_CHECKING:\n    from topo.engine import base\nelse:\n    import topo.wire"
    found = list(imports_of(Source("cli/stats.py", code)))
    assert [(i.module, i.for_types) for i in found] == [
        ("topo.engine.base", True),
        ("topo.wire", False),
    ]


def test_a_wall_holds_for_types_as_well() -> None:
    code = "if TYPE_CHECKING:\n    from topo.runtime.slot import SlotTasks"
    found = beyond_walls(imports_of(Source("tracking/trees.py", code)))
    assert found == {"topo.tracking.trees": ["topo.runtime.slot"]}


@pytest.mark.parametrize("way", ["if TYPE_CHECKING:\n    ", "def f():\n    "])
def test_a_cycle_over_three_modules_is_found_where_it_hides(way: str) -> None:
    modules = {
        "wire/frame.py": "from topo.wire import column",
        "wire/column.py": "from topo.wire import payload",
        "wire/payload.py": f"{way}from topo.wire import frame",
    }
    found = [i for place, code in modules.items() for i in imports_of(Source(place, code))]
    assert hidden_cycles(found) == {"topo.wire.payload": ["topo.wire.frame"]}


@cache
def imports() -> tuple[Import, ...]:
    """Return all imports of topo's modules."""
    return tuple(found for source in topo_sources() for found in imports_of(source))


def imports_of_topo() -> list[Import]:
    """Return the imports of topo's modules by each other."""
    return [found for found in imports() if found.module.split(".")[0] == "topo"]


def imports_of(source: Source) -> Iterator[Import]:
    """Yield what a module imports, at its head, within functions and for types."""
    for node, for_types, in_function in _import_nodes(source.tree, False, False):
        for module in _modules_of(node, source.module):
            yield Import(_name(source), module, for_types, in_function)


def _import_nodes(
    node: ast.AST, for_types: bool, in_function: bool
) -> Iterator[tuple[ast.AST, bool, bool]]:
    """Yield the nodes that import, with where they stand: types alone, in a function."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
        yield node, for_types, in_function
    if isinstance(node, ast.If) and _is_for_types(node.test):
        for statement in node.body:
            yield from _import_nodes(statement, True, in_function)
        for statement in node.orelse:
            yield from _import_nodes(statement, for_types, in_function)
        return
    in_function = in_function or isinstance(node, Function)
    for child in ast.iter_child_nodes(node):
        yield from _import_nodes(child, for_types, in_function)


def _is_for_types(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _modules_of(node: ast.AST, name: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from _imports_from(node, name)
    elif isinstance(node, ast.Call):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called == "import_module":
            yield from _literals(node)


def _reached(below: dict[str, set[str]], start: str) -> Set[str]:
    reached, waiting = {start}, [start]
    while waiting:
        fresh = below[waiting.pop()] - reached
        reached |= fresh
        waiting += fresh
    return reached


def _name(source: Source) -> str:
    return source.module.removesuffix(".__init__")


def room_of(module: str) -> str:
    """Return the room that a module of topo lies in."""
    top, *parts = module.split(".")
    if not parts:
        return top
    if parts[0] in API:
        return "api"
    if parts == ["streams"]:
        return module  # what users import, above what it is made of
    if parts[0] not in _OWN_ROOMS or len(parts) == 1 or not _is_package(*parts[:2]):
        return parts[0]
    if parts[:2] != ["engine", "spark"] or len(parts) == 2:
        return ".".join(parts[:2])
    if parts[2] in _SPARK_PLAN:
        return "engine.spark.plan"
    return ".".join(parts[: 3 if _is_package(*parts[:3]) else 2])


@cache
def _is_package(*parts: str) -> bool:
    return TOPO.joinpath(*parts).is_dir()


def _imports_from(node: ast.ImportFrom, name: str) -> Iterator[str]:
    above = name.split(".")[: -node.level] if node.level else []
    base = ".".join([*above, *([node.module] if node.module else [])])
    for alias in node.names:
        yield f"{base}.{alias.name}" if _is_module(f"{base}.{alias.name}") else base


@cache
def _is_module(name: str) -> bool:
    path = TOPO.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def _literals(call: ast.Call) -> Iterator[str]:
    for argument in call.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield argument.value.partition(":")[0]
