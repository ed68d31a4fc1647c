"""The code that the rules are about: every file is read and parsed once, and all rules share it."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TypeAlias, TypeVar

ROOT = Path(__file__).resolve().parents[2]
TOPO = ROOT / "topo"
STARTER = TOPO / "cli" / "starter"
"""Files that `topo quickstart` copies: a user's, not the command line's."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Node = TypeVar("_Node", bound=ast.AST)


@dataclass(frozen=True)
class Source:
    """One file of Python code; `place` is its path, below `topo/` if it lies there."""

    place: str
    text: str

    @property
    def module(self) -> str:
        """The dotted name; a package's ends with `__init__`."""
        return "topo." + self.place.removesuffix(".py").replace("/", ".")

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> dict[type[ast.AST], list[ast.AST]]:
        """All nodes of the file, by their kind."""
        nodes: dict[type[ast.AST], list[ast.AST]] = {}
        for node in ast.walk(self.tree):
            nodes.setdefault(type(node), []).append(node)
        return nodes

    def every(self, kind: type[_Node]) -> Iterator[_Node]:
        """Yield all nodes of a kind."""
        yield from self.nodes.get(kind, ())  # type: ignore[misc]

    def functions(self) -> Iterator[Function]:
        """Yield all functions and methods."""
        yield from self.every(ast.FunctionDef)
        yield from self.every(ast.AsyncFunctionDef)


@cache
def topo_sources() -> tuple[Source, ...]:
    """Return the modules of topo, without generated ones and the starter's files."""
    return tuple(_read(TOPO, TOPO.rglob("*.py")))


@cache
def other_sources(room: str) -> tuple[Source, ...]:
    """Return the modules of another directory of the project."""
    return tuple(_read(ROOT, (ROOT / room).rglob("*.py")))


def _read(base: Path, paths: Iterable[Path]) -> list[Source]:
    """Return the files, parsed; searches for garbage on the way would take thrice as long."""
    sources = [
        Source(path.relative_to(base).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(paths)
        if "_pb" not in path.parts and STARTER not in path.parents
    ]
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        for source in sources:
            assert source.nodes
    finally:
        if is_collecting:
            gc.enable()
    return sources
