"""The README is true: its code runs, its tables are the code's, its links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from itertools import groupby
from pathlib import Path

import pytest

import topo
from tests.docs.readme import README, ROOT, TABLES, Block, blocks, generated
from topo.cli.target import load_target

PYTHON = list(blocks("python"))
FILES = [block for block in PYTHON if block.file]
SECTIONS = {
    section: list(found)
    for section, found in groupby(
        (block for block in PYTHON if not block.file), key=lambda block: block.section
    )
}


def needs_spark(section: str) -> bool:
    return any("LocalCluster" in block.text for block in SECTIONS[section])


def as_parameter(section: str) -> object:
    if not needs_spark(section):
        return section
    absent = pytest.mark.skipif(
        not hasattr(topo, "LocalCluster"), reason="there is no LocalCluster yet"
    )
    return pytest.param(section, marks=[pytest.mark.spark, absent])


@pytest.mark.parametrize("section", [*map(as_parameter, SECTIONS)])
def test_the_code_of_a_section_runs(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "section_of_readme.py"
    file.write_text(at_their_lines(SECTIONS[section]), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    spec.loader.exec_module(module)


def at_their_lines(found: list[Block]) -> str:
    """The blocks as one file in which each line has the number it has in the README."""
    lines: list[str] = []
    for block in found:
        lines += [""] * (block.line - 1 - len(lines))
        lines += block.text.splitlines()
    return "\n".join(lines) + "\n"


def test_the_bolt_of_five_minutes_passes_its_tests_and_is_a_target(tmp_path: Path) -> None:
    for block in FILES:
        (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    assert {block.file for block in FILES} == {"records.py", "test_records.py"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_records.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert load_target(str(tmp_path / "records.py")).topology.spouts


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_the_one_the_code_generates(name: str) -> None:
    assert generated(name) == TABLES[name](), "run: python -m tests.docs.readme"


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_dependency_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for extra in project["optional-dependencies"].values() for name in extra]
    wanted = {re.split(r"[^\w-]", name)[0] for name in [*project["dependencies"], *extras]}
    text = README.read_text(encoding="utf-8").partition("\n## Dependencies\n")[2]
    explained = re.findall(r"`([\w-]+)`", text.partition("\n## ")[0])
    assert wanted - {"topo"} - set(explained) == set()


def test_the_examples_are_all_named() -> None:
    text = README.read_text(encoding="utf-8")
    names = [path.name for path in (ROOT / "examples").glob("*.py") if path.stem != "__init__"]
    assert names
    assert [name for name in names if name.removesuffix(".py") not in text] == []
