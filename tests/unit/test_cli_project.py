"""topo.toml: where it is found, what may stand in it, what it means."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from topo.config.project import load_conf_file, load_project
from topo.errors import TopoError

TOML = """
[conf]
topology.workers = 2
"topology.debug" = true
mine = { a = 1 }

[env.prod]
master = "spark://m1:7077"
registry = "registry"
checkpoint_dir = "s3://bucket/x"
py_files = ["lib.zip"]
conf = { topology.workers = 8, spark.executor.memory = "2g" }

[env.dev]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topo.toml").write_text(TOML)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    return tmp_path


def test_without_topo_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    found = load_project(None, tmp_path)
    assert (found.path, found.layers) == (None, ())
    assert found.environment.master == "local[*]"
    assert found.environment.registry == tmp_path / "home"


def test_it_is_found_upwards(project: Path) -> None:
    found = load_project(None, project / "deep" / "er")
    assert found.path == project / "topo.toml"
    assert [layer.origin for layer in found.layers] == ["topo.toml [conf]"]
    assert found.layers[0].values == {
        "topology.workers": 2,
        "topology.debug": True,
        "mine": {"a": 1},
    }
    assert found.environments == ("prod", "dev")


def test_an_environment(project: Path) -> None:
    found = load_project("prod", project / "deep")
    assert found.layers[1].origin == "topo.toml [env.prod.conf]"
    assert found.layers[1].values == {"topology.workers": 8, "spark.executor.memory": "2g"}
    environment = found.environment
    assert environment.master == "spark://m1:7077"
    assert environment.registry == project / "registry"
    assert environment.checkpoint_dir == "s3://bucket/x"
    assert environment.py_files == (str(project / "lib.zip"),)


def test_pyproject_holds_it_too(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.topo.conf]\n"topology.workers" = 3\n')
    found = load_project(None, tmp_path)
    assert found.layers[0].values == {"topology.workers": 3}
    assert found.layers[0].origin == "pyproject.toml [conf]"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "pyproject.toml").write_text("[tool.other]\n")
    assert load_project(None, tmp_path / "sub").path == tmp_path / "pyproject.toml"


@pytest.mark.parametrize(
    ("text", "env", "message", "hint"),
    [
        ("[env.production]", "porduction", "has no [env.porduction]", "did you mean 'production'?"),
        ("[env.a]\n[env.b]", "zzz", "has no [env.zzz]", "it has: a, b"),
        ("[confg]", None, "confg: no such key", "did you mean 'conf'?"),
        ("[env.a]\nmaser='x'", "a", "env.a.maser: no such key", "did you mean 'master'?"),
        ("[env.a]\npy_files='x'", "a", "env.a.py_files must be a list of files; got 'x'", ""),
        ("conf = 3", None, "conf must be a table; got 3", ""),
        ("[conf", None, "topo.toml is not valid TOML", ""),
    ],
)
def test_mistakes(tmp_path: Path, text: str, env: str | None, message: str, hint: str) -> None:
    (tmp_path / "topo.toml").write_text(text)
    with pytest.raises(TopoError, match=re.escape(message)) as mistaken:
        load_project(env, tmp_path)
    assert mistaken.value.hint == hint


def test_an_environment_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TopoError, match=r"no topo\.toml from .* upwards to find env 'prod' in"):
        load_project("prod", tmp_path)


def test_a_conf_file(tmp_path: Path) -> None:
    toml, json = tmp_path / "a.toml", tmp_path / "a.json"
    toml.write_text("topology.workers = 2\n")
    json.write_text('{"topology.workers": 2, "topology": {"debug": true}}')
    assert load_conf_file(str(toml)).values == {"topology.workers": 2}
    assert load_conf_file(str(json)).values == {"topology.workers": 2, "topology.debug": True}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "", "--config takes a .toml or .json file"),
        ("a.json", "{", "is not valid JSON"),
        ("a.json", "[]", "must hold a mapping of settings"),
        ("a.toml", "=", "is not valid TOML"),
        ("missing.toml", None, "no such file or directory"),
    ],
)
def test_mistakes_in_a_conf_file(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(TopoError, match=re.escape(message)):
        load_conf_file(str(path))
