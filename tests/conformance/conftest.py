"""The engines that a case runs on: `engine` goes to `complete_topology`.

On Spark a case runs in micro-batches, and some run in real-time mode as well: TOPO_ALL_MODES=1 runs
all of them in both.
"""

from __future__ import annotations

import os

import pytest

from topo.config import layers

_REAL_TIME = "spark real-time"
_IN_BOTH = ("test_end_to_end", "test_bolts_and_tuples")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" not in metafunc.fixturenames:
        return
    engines = ["inline", pytest.param("spark", marks=pytest.mark.spark)]
    name = metafunc.module.__name__.rpartition(".")[2]
    if name in _IN_BOTH or os.environ.get("TOPO_ALL_MODES"):
        engines.append(pytest.param(_REAL_TIME, marks=pytest.mark.spark))
    metafunc.parametrize("engine", engines, indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == _REAL_TIME:
        defaults = {**layers.DEFAULTS.values, "topology.mode": "real-time"}
        monkeypatch.setattr(layers, "DEFAULTS", layers.Layer("default", defaults))
        return "spark"
    return str(request.param)
