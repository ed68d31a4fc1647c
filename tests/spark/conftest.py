"""One Spark for all tests of a pytest run: whoever starts it first, topo leaves it running.

The tests run in micro-batches. TOPO_ALL_MODES=1 runs those that ask for a behaviour, and not for
one mode's files or plan, in real-time mode as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from topo import LocalCluster
from topo.config import layers

REAL_TIME = "real-time"
OF_ONE_MODE = (
    "test_explain",
    "test_jvm",
    "test_no_java",
    "test_power_cut",
    "test_real_time",
)
"""Modules of tests that are about one mode."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = metafunc.module.__name__.rpartition(".")[2]
    of_batches = metafunc.definition.get_closest_marker("of_batches")
    if os.environ.get("TOPO_ALL_MODES") and name not in OF_ONE_MODE and not of_batches:
        metafunc.parametrize("mode", ["micro-batch", REAL_TIME], indirect=True)


@pytest.fixture(autouse=True)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The mode of topologies that do not name one."""
    named = str(getattr(request, "param", "micro-batch"))
    if named == REAL_TIME:
        defaults = {**layers.DEFAULTS.values, "topology.mode": REAL_TIME}
        monkeypatch.setattr(layers, "DEFAULTS", layers.Layer("default", defaults))
    return named


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as opened:
        yield opened
