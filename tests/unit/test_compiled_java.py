"""The classes of topo's own Java: compiled once, and kept where nobody else writes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from topo.engine.spark.jvm.class_archive import CACHE
from topo.engine.spark.jvm.compiler import compile_classes

CLASSES = {"Main": b"\xca\xfe\xba\xbe1", "Main$Part": b"\xca\xfe\xba\xbe2"}


class Janino:
    """A compiler that gives the same classes for every source, and counts."""

    def __init__(self) -> None:
        self.cooked: list[str] = []

    def SimpleCompiler(self) -> Janino:
        return self

    def setTargetVersion(self, version: int) -> None:
        pass

    def setSourceVersion(self, version: int) -> None:
        pass

    def cook(self, source: str) -> None:
        self.cooked.append(source)

    def getBytecodes(self) -> dict[str, bytes]:
        return CLASSES


@pytest.fixture
def janino() -> Janino:
    return Janino()


def context(janino: Janino, version: str = "4.3.0") -> Any:
    packages = SimpleNamespace(codehaus=SimpleNamespace(janino=janino))
    return SimpleNamespace(version=version, _jvm=SimpleNamespace(org=packages))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_source_is_compiled_once_for_each_version_of_spark(cache: Path, janino: Janino) -> None:
    for _ in range(2):
        assert compile_classes(context(janino), "one") == CLASSES
    assert janino.cooked == ["one"]
    compile_classes(context(janino), "two")
    compile_classes(context(janino, "4.3.1"), "one")
    assert janino.cooked == ["one", "two", "one"]
    assert len(list(cache.iterdir())) == 3  # and no draft


@pytest.mark.parametrize("damage", [b"", b"PK", b"\0" * 300])
def test_a_damaged_file_is_compiled_again(cache: Path, janino: Janino, damage: bytes) -> None:
    compile_classes(context(janino), "one")
    (kept,) = cache.iterdir()
    kept.write_bytes(damage)
    for _ in range(2):
        assert compile_classes(context(janino), "one") == CLASSES
    assert len(janino.cooked) == 2


def test_without_a_cache_it_is_compiled_each_time(
    monkeypatch: pytest.MonkeyPatch, janino: Janino
) -> None:
    monkeypatch.setenv(CACHE, "")
    for _ in range(2):
        assert compile_classes(context(janino), "one") == CLASSES
    assert len(janino.cooked) == 2
