"""The engines that a case runs on: `engine` goes to `complete_topology`."""

from __future__ import annotations

import pytest

ENGINES = ["inline", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)
