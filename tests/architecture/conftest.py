"""Frees the parsed code after the last rule: every later search for garbage would go through it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import other_sources, topo_sources


@pytest.fixture(scope="package", autouse=True)
def _parsed_code() -> Iterator[None]:
    yield
    topo_sources.cache_clear()
    other_sources.cache_clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process run all rules, since each process would parse the code again."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group("architecture"))
