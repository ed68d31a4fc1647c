"""Nothing is dead: what is defined in topo is named a second time, in its code or its pages.

What only tests name serves nobody either. What a library calls by its name is listed below. A name
that two things have hides the dead one of them; that much the rule cannot see.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.architecture.exceptions import Offenders, check
from tests.architecture.source import ROOT, STARTER, TOPO, Source, other_sources, topo_sources

CALLED_BY = {
    "ast.NodeTransformer": r"visit_\w+",
    "click.Group": "list_commands|get_command|format_commands",
    "grpc": "intercept_service",
    "importlib.resources": "get_resource_reader",
    "pickle": "persistent_id|persistent_load|find_class",
    "py4j": "can_convert",
    "pyspark": "handleInputRows|handleInitialState",
    "uvicorn": "main_loop|startup",
    "users, as Storm has it": "set_max_task_parallelism|set_memory_load|set_cpu_load|component_ids"
    "|with_persistence|with_max_events_in_memory|with_message_id_field|merge_with",
    "users, as Flux has it": "add_component_config|set_default_stream",
    "users, as streamparse has it": "component_name|task_id|_asdict",
}
_CALLED = re.compile("|".join(CALLED_BY.values()))
_WORD = re.compile(r"\w+")
_TRANSPARENT = {"property", "classmethod", "staticmethod", "cached_property", "dataclass", "cache"}
_PAGES = ("README.md", "pyproject.toml", "docs/**/*.md", ".ci/*", "topo/**/*.js", "topo/**/*.html")


def dead_names(sources: Iterable[Source], others: Iterable[str]) -> Offenders:
    """Return the definitions whose name occurs nowhere else, by module."""
    modules = list(sources)
    counts: Counter[str] = Counter()
    for text in (*(module.text for module in modules), *others):
        counts.update(_WORD.findall(text))
    offenders = {
        module.place: sorted(
            name
            for name in _defined_in(module)
            if counts[name] == 1 and not name.startswith("__") and not _CALLED.fullmatch(name)
        )
        for module in modules
    }
    return {place: names for place, names in offenders.items() if names}


def _defined_in(source: Source) -> Iterator[str]:
    for node in (*source.functions(), *source.every(ast.ClassDef)):
        if all(_name_of(decorator) in _TRANSPARENT for decorator in node.decorator_list):
            yield node.name
    for statement in source.tree.body:
        if isinstance(statement, ast.Assign):
            yield from (node.id for node in statement.targets if isinstance(node, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id


def _name_of(decorator: ast.expr) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).split(".")[-1]


def _other_texts() -> Iterator[str]:
    for room in ("benchmarks", "examples"):
        yield from (source.text for source in other_sources(room))
    generated = (TOPO / "_pb").glob("*.py")
    pages = (path for pattern in _PAGES for path in ROOT.glob(pattern))
    for path in (*generated, *pages, *STARTER.rglob("*")):
        if Path(path).is_file():
            yield path.read_text(encoding="utf-8", errors="replace")


OFFENDERS = {"dead": lambda: dead_names(topo_sources(), _other_texts())}


def test_nothing_is_dead() -> None:
    check("dead", OFFENDERS["dead"]())


def test_what_nobody_names_is_found() -> None:
    code = (
        "UNUSED: int = 1\nUSED = 2\n\n@dataclass\nclass Lonely:\n    @property\n"
        "    def size(self): return USED\n\n@app.route('/')\ndef page(): ...\n"
        "def visit_If(node): ..."
    )
    found = dead_names([Source("a.py", code)], ["a page tells of the size"])
    assert found == {"a.py": ["Lonely", "UNUSED"]}
