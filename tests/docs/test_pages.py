"""The README and the pages of `docs/` are true: their code runs, their tables are the code's."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import (
    DOCS,
    PAGES,
    README,
    ROOT,
    TABLES,
    TUTORIAL,
    Block,
    blocks,
    generated,
    name_of,
)
from topo.cli.target import load_target
from topo.distribution import NAME

PYTHON = [block for page in PAGES for block in blocks(page, "python")]
CODE = {
    page: found
    for page in PAGES
    if (found := [b for b in PYTHON if b.page == page and not b.file and not b.not_run])
}
FILES = {
    page: found
    for page in PAGES
    if page not in TUTORIAL and (found := [b for b in PYTHON if b.page == page and b.file])
}
NOT_RUN = [block for block in PYTHON if block.not_run]


def as_parameter(page: Path) -> object:
    needs_spark = any("LocalCluster(" in block.text for block in CODE[page])
    marks = [pytest.mark.spark] if needs_spark else []
    return pytest.param(page, marks=marks, id=name_of(page))


@pytest.mark.parametrize("page", [*map(as_parameter, CODE)])
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / f"page_{page.stem.replace('-', '_')}.py"
    file.write_text(at_their_lines(CODE[page]), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    spec.loader.exec_module(module)


def at_their_lines(code: list[Block]) -> str:
    """Return the blocks as one file in which each line has the number it has on the page."""
    lines: list[str] = []
    for block in code:
        lines += [""] * (block.line - 1 - len(lines))
        lines += block.text.splitlines()
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in FILES])
def test_the_files_of_a_page_pass_their_tests_and_are_targets(page: Path, tmp_path: Path) -> None:
    for block in FILES[page]:
        (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    names = {block.file for block in FILES[page]}
    tests = sorted(name for name in names if name.startswith("test_"))
    assert tests
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    command += ["-p", "topo._pytest"]
    # The import of others' plugins takes longer than these tests.
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=alone)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in names - set(tests):
        assert load_target(str(tmp_path / name)).topology.spouts


def test_the_first_lines_of_the_readme_run_as_they_stand(tmp_path: Path) -> None:
    first = next(block for block in PYTHON if block.page == README)
    (tmp_path / first.file).write_text(first.text, encoding="utf-8")
    assert len([line for line in first.text.splitlines()[1:] if line]) <= 12
    command = [sys.executable, first.file]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-1]) == ("('the', 1)", "('moon', 1)")


def test_code_that_is_not_run_is_python() -> None:
    for block in NOT_RUN:
        ast.parse(block.text, filename=name_of(block.page))


def test_most_code_is_run() -> None:
    assert len(NOT_RUN) < len(PYTHON) / 2
    assert len(CODE) > 5


@pytest.mark.parametrize("name", TABLES)
def test_a_generated_part_is_current(name: str) -> None:
    assert generated(name) == TABLES[name][1](), "run: python -m tests.docs.pages"


def test_links_of_the_readme_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_is_two_screens() -> None:
    assert len(README.read_text(encoding="utf-8")) < 6000


def test_every_dependency_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for extra in project["optional-dependencies"].values() for name in extra]
    wanted = {re.split(r"[^\w-]", name)[0] for name in [*project["dependencies"], *extras]}
    text = (
        (DOCS / "contributing.md").read_text(encoding="utf-8").partition("\n## Dependencies\n")[2]
    )
    explained = re.findall(r"`([\w-]+)`", text.partition("\n## ")[0])
    assert wanted - {NAME} - set(explained) == set()


def test_the_examples_are_all_named() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    names = [path.name for path in (ROOT / "examples").glob("*.py") if path.stem != "__init__"]
    assert names
    assert [name for name in names if name not in text] == []


@pytest.mark.parametrize("package", ["topo", "topo.streams", "topo.testing"])
def test_the_api_page_has_every_public_name(package: str) -> None:
    text = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    entries = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    assert len(entries) == len(set(entries))
    module = importlib.import_module(package)
    assert [
        name
        for name in module.__all__
        if f"{package}.{name}" not in entries and getattr(module, name).__module__ not in entries
    ] == []
    of_package = [entry for entry in entries if entry.rpartition(".")[0] == package]
    names = {*module.__all__, "errors"}
    assert [entry for entry in of_package if entry.rpartition(".")[2] not in names] == []


def test_every_decision_is_listed() -> None:
    decisions = DOCS / "internals" / "decisions"
    text = (decisions / "index.md").read_text(encoding="utf-8")
    names = [path.name for path in sorted(decisions.glob("0*.md"))]
    assert names
    assert [name for name in names if f"({name})" not in text] == []
    numbers = [int(name[:4]) for name in names]
    assert numbers == list(range(1, len(names) + 1))
