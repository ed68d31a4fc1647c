"""The set-up before any test module is imported, and the sharing of processes by tests.

`tests/tiers.py` chooses the tests of a run and the examples of property tests; `tests/leftovers.py`
finds processes that outlive the tests; `tests/optional.py` skips what needs packages that are not
installed.

Tests of the ackers leave gRPC's threads behind in this process, which is forked to start Spark.
With `-n 2`, all tests that need Spark run in one process, so that one session serves them all; they
come first, since together they take the longest, and of them last what ends that session
(`stops_spark`): another one costs seven processor seconds. No run makes an archive of Spark's
classes, which would take processor time from other tests.

What there is before the first test, and before each module, is no longer looked at by the collector
of garbage: it took a sixth of the processor time of all tests without Spark.

A test that kills processes (`fault`) is tried again if it fails, since on a machine that is busy
enough any limit of time is too short; `-raR` names each that was. All others have one try, and
hypothesis no limits of time.
"""

from __future__ import annotations

import gc
import math
import os

import pytest

import topo.forks  # noqa: F401
from tests import optional
from tests.garbage import collect_garbage
from tests.leftovers import Leftovers, OwnProcesses
from tests.tiers import Tiers

os.environ.setdefault("TOPO_CACHE", "")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("topo")
    group.addoption(
        "--all",
        action="store_true",
        dest="all_tiers",
        help="run every test, with new and with all examples of property tests",
    )
    group.addoption(
        "--seconds",
        type=float,
        default=math.inf,
        metavar="SECS",
        help="begin no test after this time, show those that are left as skipped, and cut off what"
        " still runs 240 seconds later",
    )


@pytest.hookimpl(tryfirst=True)  # the seed is for hypothesis' own
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Tiers(config), "topo-tiers")
    config.pluginmanager.register(optional, "topo-optional")
    is_worker = hasattr(config, "workerinput")
    config.pluginmanager.register(OwnProcesses() if is_worker else Leftovers(), "topo-leftovers")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # A series of kills that fails is to be looked at.
    tries_again = config.pluginmanager.hasplugin("rerunfailures") and not os.getenv("TOPO_KILLS")
    has_workers = config.pluginmanager.hasplugin("xdist")
    for item in items:
        if has_workers and item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        if tries_again and item.get_closest_marker("fault"):
            item.add_marker(pytest.mark.flaky(reruns=2))
    items.sort(key=lambda item: item.get_closest_marker("stops_spark") is not None)
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.fixture(autouse=True, scope="module")
def older_objects() -> None:
    """Spare the collections of a module's tests the objects that are older than it."""
    collect_garbage()
    gc.freeze()
