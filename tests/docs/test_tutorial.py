"""The pages of the tutorial are one project: its files, commands and outputs are as they are shown.

The files of the pages up to the one that is tested lie in one directory, later ones in place of
earlier ones. A block of commands that output follows prints that output, in which `...` stands for
anything; the other blocks of commands are run as well, unless they are marked as not run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, TUTORIAL, Block, name_of, page_blocks

LAST = TUTORIAL[-1]
PARAMETERS = [
    pytest.param(page, marks=[pytest.mark.spark] if page == LAST else [], id=page.stem)
    for page in TUTORIAL
]
_SECS = 300


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # their import takes longer than the tests
        "PYTEST_PLUGINS": "topo._pytest",
        "PYTHONUNBUFFERED": "1",  # both outputs are one, in the order of a terminal
        "TOPO_HOME": str(tmp_path / "home"),
        "COLUMNS": "200",
    }
    environment.pop("PYTEST_ADDOPTS", None)
    yield environment
    if (tmp_path / "home").exists():
        kill = ["topo", "kill", "--wait", "0", "--ignore-errors", "shop"]
        subprocess.run(kill, env=environment, capture_output=True, check=False, timeout=_SECS)


@pytest.mark.parametrize("page", PARAMETERS)
def test_a_page_prints_what_it_shows(
    page: Path, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for earlier in TUTORIAL[: TUTORIAL.index(page) + 1]:
        for command, output in steps(earlier, project):
            if earlier == page or not output:
                run(command, output, project, environment)


def steps(page: Path, project: Path) -> Iterator[tuple[Block, str]]:
    """Write the page's files in order; yield each block of commands and the output that follows."""
    following = [*page_blocks(page)]
    for block, after in zip(following, [*following[1:], None], strict=True):
        if block.file:
            (project / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "sh" and not block.not_run:
            yield block, after.text if after is not None and after.language == "text" else ""


def run(block: Block, output: str, project: Path, environment: Mapping[str, str]) -> None:
    """Run a block of commands in the project; assert that they print the output, if any."""
    done = subprocess.run(
        ["bash", "-euc", block.text],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_SECS,
    )
    place = f"{name_of(block.page)}:{block.line}"
    assert done.returncode == 0, f"{place}\n{done.stdout}"
    fits = OutputChecker().check_output(output, done.stdout, ELLIPSIS | NORMALIZE_WHITESPACE)
    assert fits or not output, f"{place}\n{done.stdout}"


def test_each_page_links_to_the_next() -> None:
    for page, following in pairwise(TUTORIAL):
        end = page.read_text(encoding="utf-8").partition("\n## What you have now\n")[2]
        assert f"({following.name})" in end, name_of(page)
    assert "\n## What you have now\n" in LAST.read_text(encoding="utf-8")
