"""The runner of a worker for a slot, if instances live in Spark's workers."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from topo.engine.spark.worker import stages


@dataclass
class Made:
    """A runner."""

    slot: int
    instances: list[str] = field(default_factory=list)


FACTORY = pickle.dumps(Made)


@pytest.fixture(autouse=True)
def _no_runners() -> Iterator[None]:
    yield
    stages._runners.clear()
    stages._last_batches.clear()


def test_a_slot_finds_its_runner_of_the_batch_before() -> None:
    first = stages._local_runner("run", 0, 5, FACTORY)
    other = stages._local_runner("run", 1, 5, FACTORY)
    assert first is not other
    assert stages._local_runner("run", 0, 6, FACTORY) is first
    assert stages._local_runner("run", 1, 4, FACTORY) is other  # a batch that runs again


def test_another_run_has_runners_of_its_own() -> None:
    """Of the same checkpoint too: its code may be another, and the old instances are closed."""
    first = stages._local_runner("run", 0, 5, FACTORY)
    assert stages._local_runner("again", 0, 6, FACTORY) is not first
    assert list(stages._runners) == [("again", 0)]


def test_a_slot_that_has_moved_to_another_worker_is_let_go() -> None:
    for slot in range(3):
        stages._local_runner("run", slot, slot, FACTORY)
    for batch in range(3, 200):
        stages._local_runner("run", 2, batch, FACTORY)
    assert list(stages._runners) == [("run", 2)]
    assert list(stages._last_batches) == [("run", 2)]
