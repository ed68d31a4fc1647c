"""The text of a class is found in its module, whatever else of that name stands there."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from topo.topology.class_text import class_text

TEXT = '''
from functools import total_ordering

@total_ordering
class Plum:
    """A fruit."""

    class Stone:
        hard = True

    def __lt__(self, other): return True
    def __eq__(self, other): return True

def grow():
    if Plum:
        try:
            class Cherry:
                red = True
        finally:
            pass
    return Cherry

class Stone:
    hard = False
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = tmp_path / "orchard.py"
    path.write_text(TEXT)
    spec = importlib.util.spec_from_file_location("orchard", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "orchard", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("which", "has"),
    [
        (lambda m: m.Plum, "A fruit."),
        (lambda m: m.Plum.Stone, "hard = True"),
        (lambda m: m.Stone, "hard = False"),
        (lambda m: m.grow(), "red = True"),
    ],
)
def test_a_class_is_found(module: ModuleType, which: Callable[..., type], has: str) -> None:
    cls = which(module)
    (definition,) = ast.parse(class_text(cls)).body
    assert isinstance(definition, ast.ClassDef)
    assert definition.name == cls.__name__
    assert has in ast.unparse(definition)


def test_what_has_no_text_is_an_error(module: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        class_text(int)
    with pytest.raises(OSError, match="no class Pear in"):
        class_text(type("Pear", (), {"__module__": "orchard"}))
    (tmp_path / "orchard.py").write_text("class Pear: pass\n")
    with pytest.raises(OSError, match="no class Stone in"):
        class_text(module.Stone)
