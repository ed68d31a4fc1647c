"""The set-up of tests of connectors."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def sockets_of_clients(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect what clients have left: boto3, pika and others leave sockets to the collector.

    Whenever it came by, the test that ran just then would fail for it.
    """
    talks = request.node.get_closest_marker("server") is not None
    if talks:
        _collect()
    yield
    if talks:
        _collect()


@pytest.fixture(autouse=True, scope="module")
def older_objects() -> Iterator[None]:
    """Spare the collections of a module's tests what was there before, which takes them longest."""
    _collect()
    gc.freeze()
    yield
    gc.unfreeze()


def _collect() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
