"""The set-up before any test module is imported, and the sharing of processes by tests.

Tests of the ackers leave gRPC's threads behind in this process, which is forked to start Spark.
With `-n 2`, all tests that need Spark run in one process, so that one session serves them all; they
come first, since together they take the longest. No run makes an archive of Spark's classes, which
would take processor time from other tests.

What needs real processes, servers or browsers is tried again if it fails, since on a machine that
is busy enough every limit of time is too short; `-raR` names what was tried again. Everything else
has one try, and hypothesis no limits of time. Its examples are the same in each run, so that a run
is green or red by what was changed; those of TOPO_TEST_EXAMPLES are new ones.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

import topo.forks  # noqa: F401

os.environ.setdefault("TOPO_CACHE", "")
settings.register_profile(
    "topo",
    deadline=None,
    derandomize="TOPO_TEST_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("topo")
_WITH_PROCESSES = ("spark", "fault", "server")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tries_again = config.pluginmanager.hasplugin("rerunfailures")
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        if tries_again and any(map(item.get_closest_marker, _WITH_PROCESSES)):
            item.add_marker(pytest.mark.flaky(reruns=2))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
