"""The pytest plugin: a `topo_cluster` fixture, and a line for uncaught errors in the summary.

An uncaught error's text begins with the user's traceback, of which pytest's summary would show the
first line, "Traceback (most recent call last):".
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from topo.testing import TestCluster


@pytest.fixture
def topo_cluster() -> Iterator[TestCluster]:
    """Yield a TestCluster with seed 0; its runs are killed when the test ends."""
    from topo.testing import TestCluster

    with TestCluster(seed=0) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give the summary the error itself instead of the first line of its traceback."""
    report = yield
    crash = getattr(report.longrepr, "reprcrash", None)
    error: Any = call.excinfo.value if call.excinfo is not None else None
    if crash is not None and hasattr(error, "user_traceback"):
        crash.message = f"{error.message} (at {error.at})" if error.at else error.message
    return report
