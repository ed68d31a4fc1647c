"""The pytest plugin: a `topo_cluster` fixture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from topo.testing import TestCluster


@pytest.fixture
def topo_cluster() -> Iterator[TestCluster]:
    """Yield a TestCluster with seed 0; its runs are killed when the test ends."""
    from topo.testing import TestCluster

    with TestCluster(seed=0) as cluster:
        yield cluster
