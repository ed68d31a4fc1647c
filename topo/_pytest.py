"""The pytest plugin: a `topo_cluster` fixture, and short reports of uncaught errors.

An uncaught error has come through many frames of topo, which say nothing to the author of a test.
Its text begins with the user's traceback, which pytest shows by itself, and of which its summary
would show the first line, "Traceback (most recent call last):".
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from types import TracebackType
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
    """Show an uncaught error without topo's frames, and its sentence in the summary.

    With --full-trace everything is shown.
    """
    error: Any = call.excinfo.value if call.excinfo is not None else None
    if not hasattr(error, "user_traceback") or item.config.getoption("fulltrace"):
        return (yield)
    for part in _chain(error):
        part.with_traceback(_without_topos(part.__traceback__))
    call.excinfo = pytest.ExceptionInfo.from_exception(error)
    with pytest.MonkeyPatch.context() as patch:
        if error.__cause__ is not None:  # which pytest shows, with that traceback
            patch.setattr(error, "user_traceback", "")
        report = yield
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = f"{error.message} (at {error.at})" if error.at else error.message
    return report


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and those that it is shown with."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _without_topos(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without topo's own frames; as it is, if it has no others."""
    from topo.traces import is_topos

    frames = []
    part = trace
    while part is not None:
        if not is_topos(part.tb_frame.f_code.co_filename):
            frames.append(part)
        part = part.tb_next
    after: TracebackType | None = None
    for part in reversed(frames):
        after = TracebackType(after, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return after or trace
