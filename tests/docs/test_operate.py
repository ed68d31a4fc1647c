"""The pages for operators name what the code says: reasons of a status, refusals, figures."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.pages import DOCS
from topo.config import settings_table
from topo.engine.inline import stalls
from topo.engine.spark import plan
from topo.engine.spark.driver.executors import Executors
from topo.engine.spark.driver.progress import Progress
from topo.engine.spark.realtime.coordinator import Coordinator
from topo.manage.records import RunRecord

OPERATE = DOCS / "operate"
_SHORT = 8
"""Pieces of a sentence that are shorter say nothing: ", ", " and "."""


def words_of_page(name: str) -> str:
    return " ".join((OPERATE / name).read_text(encoding="utf-8").split())


def pieces(code: Any) -> Iterator[str]:
    """Yield the fixed parts of the texts that a function makes, its docstring left out."""
    getter: Any = code.fget if isinstance(code, property) else code
    function = ast.parse(textwrap.dedent(inspect.getsource(getter))).body[0]
    assert isinstance(function, ast.FunctionDef)
    for statement in function.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value.strip(" ;:,'()")
                if len(text) >= _SHORT and " " in text:
                    yield text


REASONS: dict[str, Any] = {
    "a run on Spark": Progress.stall,
    "a run in this process": stalls.stall_of,
    "a cluster": Executors.reason,
    "a loss": Executors._loss,
    "real-time mode": Coordinator.preparing,
    "a submitted run": RunRecord.reason,
}


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in REASONS.items()])
def test_every_reason_of_a_status_is_explained(code: Any) -> None:
    page = words_of_page("troubleshoot.md")
    texts = list(pieces(code))
    assert texts
    assert [text for text in texts if text not in page] == []


@pytest.mark.parametrize("code", [plan._differences, plan._component_differences])
def test_every_difference_of_a_plan_is_explained(code: Any) -> None:
    page = words_of_page("upgrade.md")
    texts = list(pieces(code))
    assert texts
    assert [text for text in texts if text not in page] == []


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("docker", "deploy.md"),
        ("kubernetes", "deploy.md"),
        ("systemd", "deploy.md"),
        ("deploy", "deploy.md"),
        ("upgrade", "upgrade.md"),
        ("troubleshooting", "troubleshoot.md"),
        ("back-pressure", "tune.md"),
        ("skew", "tune.md"),
    ],
)
def test_a_search_finds_the_page(word: str, page: str) -> None:
    assert re.search(rf"\b{word}", words_of_page(page), re.IGNORECASE)


def test_a_page_is_short() -> None:
    pages = sorted(OPERATE.glob("*.md"))
    assert len(pages) == 14
    assert [page.name for page in pages if page.stat().st_size > 12_000] == []


def test_every_setting_that_a_page_names_exists() -> None:
    known = set(re.findall(r"^\| `(topology\.[\w.]+)`", settings_table(), re.MULTILINE))
    names = {
        name.rstrip(".")
        for page in OPERATE.glob("*.md")
        for name in re.findall(r"`(topology\.[a-z.]+[a-z])", page.read_text(encoding="utf-8"))
    }
    groups = {key.rpartition(".")[0] for key in known}  # "topology.acker.tls.*"
    assert known
    assert names - known - groups == set()
