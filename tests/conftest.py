"""The set-up before any test module is imported, and the sharing of processes by tests.

Tests of the ackers leave gRPC's threads behind in this process, which is forked to start Spark.
With `-n 2`, all tests that need Spark run in one process, so that one session serves them all; they
come first, since together they take the longest. No run makes an archive of Spark's classes, which
would take processor time from other tests.
"""

from __future__ import annotations

import os

import pytest

import topo.forks  # noqa: F401

os.environ.setdefault("TOPO_CACHE", "")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
