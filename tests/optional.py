"""Tests that need what is not installed are skipped, each with the name of what it needs.

`.[test]` has what nearly all tests need; the clients of connectors are extras, and what only a few
tests use (a browser, a server that plays AWS) comes with `.[dev]`. Where one of them is missing, a
test or a module that cannot do without it is skipped. Where all are installed, nothing is.

TOPO_TEST_SKIPPED names a file for the names of what was skipped so; `.ci/run` runs that later.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from topo import InvalidTopologyError, MissingExtra
from topo.distribution import NAME

MODULES = (
    *(
        "axe_playwright_python",
        "boto3",
        "confluent_kafka",
        "duckdb",
        "h11",
        "moto",
        "opentelemetry",
        "paho",
        "pika",
    ),
    *("bson", "fastavro", "jsonschema", "msgpack", "pymongo"),
    *(
        "playwright",
        "psycopg",
        "redis",
        "river",
        "schemathesis",
        "sklearn",
        "sqlalchemy",
        "websockets",
        "yaml",
    ),
    *("prometheus_client", "starlette", "uvicorn"),
    *("grpc", "grpc_health", "pandas", "pyarrow", "pyspark"),
)
MISSING = frozenset(name for name in MODULES if importlib.util.find_spec(name) is None)
_WANT = "for want of a package: "
_REASONS = (_WANT, "could not import")
"""How a reason begins: this module's, and that of `pytest.importorskip`."""


def missing_in(error: BaseException) -> str:
    """Return what an error says is not installed, or "" if it is about something else."""
    for cause in _causes(error):
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            name = cause.name.partition(".")[0]
            if name in MISSING:
                return f"{name} is not installed"
        if isinstance(cause, MissingExtra) and MISSING:
            return cause.message
        if isinstance(cause, InvalidTopologyError) and MISSING:
            for problem in cause.problems:
                if problem.hint.startswith(f"pip install '{NAME}["):
                    return problem.message
    return ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module that imports what is not installed."""
    report = yield
    call: Any = getattr(report, "call", None)
    reason = missing_in(call.excinfo.value) if call is not None and call.excinfo else ""
    if reason:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {_WANT}{reason}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """Skip a test that uses what is not installed."""
    return (yield from _skipping())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    """Skip a test whose fixtures use what is not installed."""
    return (yield from _skipping())


def _skipping() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except Exception as error:
        reason = missing_in(error)
        if not reason:
            raise
        pytest.skip(f"{_WANT}{reason}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write the names of the tests and files that were skipped for want of a package."""
    path = os.environ.get("TOPO_TEST_SKIPPED")
    if path:
        reports = terminalreporter.stats.get("skipped", ())
        names = [one.nodeid for one in reports if any(r in str(one.longrepr) for r in _REASONS)]
        Path(path).write_text("".join(f"{name}\n" for name in dict.fromkeys(names)))
