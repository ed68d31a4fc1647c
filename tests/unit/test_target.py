"""Loading a target: every way to name one, and every mistake with its message."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from topo.cli.target import load_target
from topo.errors import InvalidTopologyError, TargetError

HEAD = """
import sys
from topo.builder import TopologyBuilder
from topo.components import Spout

class Numbers(Spout):
    outputs = ("n",)
    def next_tuple(self): ...

def made(name="numbers"):
    builder = TopologyBuilder()
    builder.set_spout(name, Numbers())
    return builder

"""

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module into the current directory and returns its file's name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def write(body: str, name: str = "wordcount.py", head: str = HEAD) -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(head + body)
        return name

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("body", "attribute"),
    [
        ("topology = made().create_topology()", ""),
        ("topology = made()", ""),
        ("def topology(): return made()", ""),
        ("def topology(): return made().create_topology()", ""),
        ("def topology(): return made(), {'topology.workers': 3}", ""),
        ("def build(): return made()", ":build"),
        ("class Factory:\n    @staticmethod\n    def build(): return made()", ":Factory.build"),
    ],
)
def test_what_a_target_may_be(write: Write, body: str, attribute: str) -> None:
    target = load_target(write(body) + attribute)
    assert list(target.topology.components) == ["numbers"]
    assert target.default_name == "wordcount"
    assert target.conf.values == ({"topology.workers": 3} if "workers" in body else {})


def test_a_module_is_found_from_the_current_directory(write: Write) -> None:
    write("", "jobs/__init__.py", head="")
    write("topology = made()", "jobs/counting.py")
    target = load_target("jobs.counting")
    assert target.default_name == "counting"
    assert load_target("jobs.counting:made").topology == target.topology


def test_the_module_runs_under_its_own_name_with_the_users_arguments(write: Write) -> None:
    body = "seen = [__name__, *sys.argv]\nassert __name__ != '__main__'\n"
    body += "def topology(name): return made(name + '/'.join(seen[1:]).replace('.', ''))"
    before = list(sys.argv)
    target = load_target(write(body), ["x"])
    assert list(target.topology.components) == ["xwordcountpy/x"]
    assert sys.argv == before
    assert sys.modules["wordcount"].seen[0] == "wordcount"


def test_arguments_go_to_the_factory_by_position(write: Write) -> None:
    body = "def topology(*argv): return made('-'.join(argv))"
    assert list(load_target(write(body), ["a", "b"]).topology.components) == ["a-b"]


def test_settings_of_the_module(write: Write) -> None:
    target = load_target(write("conf = {'mine': 1}\ntopology = made()"))
    assert (target.conf.values, target.conf.origin) == ({"mine": 1}, "wordcount.py")


def test_a_file_elsewhere(write: Write, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    write("VALUE = 'deep'", "deep/neighbour.py", head="")
    write("import neighbour\ntopology = made(neighbour.VALUE)", "deep/main_topology.py")
    target = load_target("deep/main_topology.py")
    assert list(target.topology.components) == ["deep"]
    assert target.directory == tmp_path / "deep"


@pytest.mark.parametrize(
    ("body", "spec", "args", "message", "hint"),
    [
        (
            "conf = {}\ndef build(): ...",
            "wordcount.py",
            [],
            "wordcount.py has no 'topology'; it has build, conf, made",
            "topo local wordcount.py:build",
        ),
        (
            "def build(): ...",
            "wordcount.py:buidl",
            [],
            "wordcount.py has no 'buidl'; it has build, made",
            "did you mean 'build'?",
        ),
        (
            "def topology(source): ...",
            "wordcount.py",
            [],
            "wordcount.py:topology(source) needs 'source'",
            "topo local wordcount.py -- SOURCE",
        ),
        (
            "def build(source, sink, n='1'): ...",
            "wordcount.py:build",
            ["a"],
            "wordcount.py:build(source, sink, n) needs 'sink'",
            "topo local wordcount.py:build -- a SINK",
        ),
        (
            "def topology(): ...",
            "wordcount.py",
            ["x"],
            "wordcount.py:topology() takes no arguments; got 'x' too",
            "topo local wordcount.py",
        ),
        (
            "def topology(a): ...",
            "wordcount.py",
            ["x", "y"],
            "wordcount.py:topology(a) takes at most 1 argument; got 'y' too",
            "topo local wordcount.py -- x",
        ),
        (
            "def topology(*, source): ...",
            "wordcount.py",
            [],
            "wordcount.py:topology(source) needs 'source' by keyword",
            "arguments are passed by position: drop the '*'",
        ),
        (
            "def topology(): ...",
            "wordcount.py",
            [],
            "wordcount.py:topology() returned None, not a topology",
            "return builder.create_topology()",
        ),
        (
            "topology = 'x'",
            "wordcount.py",
            [],
            "wordcount.py:topology is a str, not a topology",
            "topology = builder.create_topology(), or def topology(): ...",
        ),
        (
            "conf = 3\ntopology = made()",
            "wordcount.py",
            [],
            "wordcount.py: conf is a int; it must be a Config or a dict",
            "",
        ),
        ("", "wordcuont.py", [], "no file 'wordcuont.py'", "did you mean 'wordcount.py'?"),
        ("", "wordcuont", [], "REPLACED", "did you mean 'wordcount'?"),
        ("", "my-topology", [], "'my-topology' is neither a file nor a module", "a target is "),
    ],
)
def test_mistakes(
    write: Write, body: str, spec: str, args: list[str], message: str, hint: str
) -> None:
    write(body)
    if message == "REPLACED":
        message = f"no module 'wordcuont', from {Path.cwd()} or installed"
    with pytest.raises(TargetError) as mistaken:
        load_target(spec, args)
    assert mistaken.value.message == message
    assert mistaken.value.hint.startswith(hint)
    assert not mistaken.value.user_traceback


def test_a_name_that_is_another_module(write: Write) -> None:
    with pytest.raises(TargetError, match=r"json\.py cannot be imported under its own name"):
        load_target(write("topology = made()", "json.py"))
    with pytest.raises(TargetError, match="its name has a dot"):
        load_target(write("topology = made()", "a.b.py"))


@pytest.mark.parametrize(
    ("body", "message", "line"),
    [
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named", "import nowhere"),
        ("1 / 0", "ZeroDivisionError: division by zero", "1 / 0"),
        ("def topology():\n    return 1 / 0", "ZeroDivisionError", "return 1 / 0"),
        ("import json\njson.loads('{')", "JSONDecodeError", "loads('{')"),
        ("topology = (", "SyntaxError: '(' was never closed", "topology = ("),
        ("sys.exit(3)", "ended the process with exit code 3", "sys.exit(3)"),
    ],
)
def test_code_that_raises_shows_the_users_own_traceback_and_place(
    write: Write, body: str, message: str, line: str
) -> None:
    with pytest.raises(TargetError, match=message.replace("(", r"\(")) as raised:
        load_target(write(body))
    assert line in raised.value.user_traceback
    assert "topo/cli/target.py" not in raised.value.user_traceback
    assert "importlib" not in raised.value.user_traceback
    assert raised.value.at == f"wordcount.py:{(HEAD + body).count(chr(10)) + 1}"


def test_topos_own_errors_pass_and_say_where(write: Write) -> None:
    body = "def topology():\n    builder = TopologyBuilder()\n    return builder.create_topology()"
    with pytest.raises(InvalidTopologyError) as invalid:
        load_target(write(body))
    assert invalid.value.at == f"wordcount.py:{HEAD.count(chr(10)) + 3}"


def test_loading_leaves_the_path_entry_for_later_imports(write: Write, tmp_path: Path) -> None:
    load_target(write("topology = made()"))
    paths: list[Any] = sys.path
    assert paths[0] == str(tmp_path)


def test_a_file_that_imports_from_its_package_is_to_be_named_as_a_module(write: Write) -> None:
    Path("shop").mkdir()
    Path("shop/__init__.py").touch()
    write("topology = made()", "shop/base.py")
    write("from .base import topology as base\ntopology = base", "shop/jobs.py")
    with pytest.raises(TargetError, match="imports from its own package") as raised:
        load_target("shop/jobs.py:base", ["x"])
    assert raised.value.hint == "name it as a module: topo local shop.jobs:base -- x"


@pytest.mark.parametrize("name", ["job_", "job-"])
def test_a_file_whose_name_a_topology_may_have_names_it(write: Write, name: str) -> None:
    """A checkpoint is found by this name: the same file finds its own."""
    assert load_target(write("topology = made()", f"{name}.py")).default_name == name
