"""The processes that a run of the tests left behind: named, ended, and a failure of the run.

Every process that tests start inherits a variable with the name of the run, so that it is
recognized whoever adopted it meanwhile. After Ctrl-C the workers of pytest-xdist have little time
to clean up, so what they left is ended and named, but is no failure.
"""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers.processes import end_servers

if TYPE_CHECKING:
    import psutil

VARIABLE = "TOPO_TEST_RUN"
_PYTHONS_OWN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Processes that Python starts, and ends with the process that needed them."""


@dataclass(frozen=True)
class Leftover:
    """A process that outlived the tests."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid}: {self.command[:300]}"


class Leftovers:
    """A plugin that looks for processes when all tests and all workers of a run are over."""

    def __init__(self, ending_secs: float = 15.0) -> None:
        self._ending_secs = ending_secs
        self._run = uuid.uuid4().hex
        os.environ[VARIABLE] = self._run
        self._ended: list[Leftover] = []

    @pytest.hookimpl(trylast=True)  # pytest-xdist's own ends the workers
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        end_own_processes()
        self._ended = end_leftovers(self._run, self._ending_secs)
        if not self._ended or session.exitstatus == pytest.ExitCode.INTERRUPTED:
            return
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.stats.setdefault("error", []).append(_report(self._ended))

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        if self._ended and exitstatus == pytest.ExitCode.INTERRUPTED:
            terminalreporter.section("ended with this run")
            for leftover in self._ended:
                terminalreporter.write_line(str(leftover))


class OwnProcesses:
    """A plugin for workers of pytest-xdist: they end what they started themselves."""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        end_own_processes()


def end_own_processes() -> None:
    """End the servers and the Spark that this process started for all of its tests."""
    end_servers()
    if "pyspark" in sys.modules:
        from topo.engine.spark.jvm.session import stop_session

        with contextlib.suppress(Exception):  # of a JVM that a test has killed
            stop_session()


def end_leftovers(run: str, ending_secs: float) -> list[Leftover]:
    """End the processes of a run that do not end by themselves in time, and return them."""
    try:
        import psutil
    except ImportError:  # .ci/pythons runs tests that start nothing, without it
        return []
    _, alive = psutil.wait_procs(_processes_of(run), timeout=ending_secs)
    leftovers = []
    for process in alive:
        try:
            words = process.cmdline()
            process.kill()
        except psutil.NoSuchProcess:
            continue
        leftovers.append(Leftover(process.pid, " ".join(words)))
    return leftovers


def _processes_of(run: str) -> list[psutil.Process]:
    import psutil

    processes = []
    for process in psutil.process_iter():
        try:
            is_ours = process.pid != os.getpid() and process.environ().get(VARIABLE) == run
            if is_ours and not any(word in " ".join(process.cmdline()) for word in _PYTHONS_OWN):
                processes.append(process)
        except psutil.Error:  # another user's, or over by now
            continue
    return processes


def _report(leftovers: list[Leftover]) -> pytest.TestReport:
    text = "\n".join(["These processes outlived the tests, and were killed:", *map(str, leftovers)])
    return pytest.TestReport(
        nodeid="the end of the run",
        location=("the end of the run", None, "processes that were left behind"),
        keywords={},
        outcome="failed",
        longrepr=text,
        when="teardown",
    )
