"""A built wheel works where there is no checkout: it has every file, and its commands run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("setuptools", minversion="77", reason="builds the wheel")

CHECKOUT = Path(__file__).parents[2]
BUILD = ["pyproject.toml", "README.md", "LICENSE"]


@dataclass(frozen=True)
class Installed:
    """A wheel, installed in a fresh environment beside the dependencies of this one."""

    wheel: Path
    home: Path

    def run(self, *command: str, cwd: Path) -> str:
        """Run a command of the environment; return what it printed."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
        done = subprocess.run(
            [str(self.home / "bin" / command[0]), *command[1:]],
            cwd=cwd,
            env={**clean, "TOPO_HOME": str(cwd / "home")},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    scratch = tmp_path_factory.mktemp("wheel")
    source = scratch / "source"  # a build leaves files beside its sources
    source.mkdir()
    for name in BUILD:
        shutil.copy(CHECKOUT / name, source)
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(CHECKOUT / "topo", source / "topo", ignore=ignored)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(scratch), str(source)]
    subprocess.run([*pip, *build], check=True, cwd=scratch, capture_output=True)
    (wheel,) = scratch.glob("topo_spark-*.whl")
    home = scratch / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    # A plain line: the .pth files there, of which one is the checkout's, are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    python = str(home / "bin" / "python")
    install = ["--python", python, "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *install], check=True, cwd=scratch, capture_output=True)
    return Installed(wheel, home)


def test_the_wheel_has_every_file_of_the_package(installed: Installed) -> None:
    ours = {
        path.relative_to(CHECKOUT).as_posix()
        for path in (CHECKOUT / "topo").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".java"
    }
    packed = {name for name in zipfile.ZipFile(installed.wheel).namelist() if name[:5] == "topo/"}
    assert sorted(ours - packed) == []
    assert "topo/py.typed" in packed


def test_the_quick_start_runs_without_the_checkout(installed: Installed, tmp_path: Path) -> None:
    where = installed.run("python", "-c", "import topo; print(topo.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.home)
    installed.run("topo", "quickstart", "shop", cwd=tmp_path)
    shop = tmp_path / "shop"
    assert " passed" in installed.run("python", "-m", "pytest", "-q", cwd=shop)
    shown = installed.run(
        *("topo", "local", "--engine", "inline", "wordcount.py", "--show", "count", "--limit", "3"),
        cwd=shop,
    )
    assert len(shown.splitlines()) == 3
