"""One Spark for all tests of a pytest run: whoever starts it first, topo leaves it running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from topo import LocalCluster


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as opened:
        yield opened
