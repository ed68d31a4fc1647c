"""Tests that need what is not installed are skipped, each with the name of what it needs.

`.[test]` has what nearly all tests need; the clients of connectors are extras, and what only a few
tests use (a browser, a server that plays AWS) comes with `.[dev]`. Where one of them is missing, a
test or a module that cannot do without it is skipped. Where all are installed, nothing is.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from topo import InvalidTopologyError, MissingExtra
from topo.distribution import NAME

MODULES = (
    *("boto3", "confluent_kafka", "duckdb", "h11", "moto", "opentelemetry", "paho", "pika"),
    *("fastavro", "jsonschema", "msgpack"),
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
        report.longrepr = (str(collector.path), 0, f"Skipped: {reason}")
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
        pytest.skip(reason)
