"""The set-up of tests of connectors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.garbage import collect_garbage


@pytest.fixture(autouse=True)
def sockets_of_clients(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect what clients have left before and after each test that talks to a server."""
    talks = request.node.get_closest_marker("server") is not None
    if talks:
        collect_garbage()
    yield
    if talks:
        collect_garbage()
