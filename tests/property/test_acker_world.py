"""Service and client under everything that can befall them, beside the plain truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from tests.property.scale import examples
from tests.property.small_truth import Violation
from tests.property.small_world import LEVELS, SLOTS, InMemory, World
from topo.tracking import packing
from topo.tracking.client import AckerClient
from topo.tracking.epochs import Tracking
from topo.tracking.ids import Updates

places = st.tuples(st.integers(0, LEVELS - 1), st.integers(0, SLOTS - 1))
shards = st.integers(0, 2)


class AckerMachine(RuleBasedStateMachine):
    """A machine of all events of a topology and its ackers, in any order."""

    ackers = 1

    @staticmethod
    def change(world: World) -> None:
        """Apply a mutation to the world."""

    @initialize(seed=st.integers(0, 1 << 32))
    def begin(self, seed: int) -> None:
        self.memory = InMemory(self.ackers)
        self.world = World(self.memory, seed)
        self.change(self.world)

    @rule(emits=st.integers(0, 3))
    def batch(self, emits: int) -> None:
        self.world.run_batch(emits)

    @rule(emits=st.integers(1, 3))
    def batch_with_lost_calls(self, emits: int) -> None:
        self.world.loses = 0.1
        self.world.run_batch(emits)
        self.world.loses = 0.0

    @rule(dies=st.sampled_from(["before", "between", "after", "late"]), at=places)
    def batch_with_a_killed_attempt(self, dies: str, at: tuple[int, int]) -> None:
        self.world.run_batch(dies=dies, dies_at=at)

    @rule(commits=st.booleans())
    def batch_at_whose_end_the_query_dies(self, commits: bool) -> None:
        self.world.run_batch(commits=commits, crashes=True)

    @rule(commits=st.booleans(), crashes=st.booleans(), shard=shards)
    def batch_at_whose_end_an_acker_dies(self, commits: bool, crashes: bool, shard: int) -> None:
        self.world.run_batch(commits=commits, crashes=crashes, forgets=shard)

    @rule(shard=shards)
    def an_acker_dies(self, shard: int) -> None:
        self.world.lose_memory(shard)

    @rule()
    def the_query_dies(self) -> None:
        self.world.start_query()

    @rule(which=st.integers(0, 59))
    def late_call_of_a_dead_epoch(self, which: int) -> None:
        self.world.late_call(which)

    @rule(which=st.integers(0, 59))
    def call_that_arrives_again(self, which: int) -> None:
        self.world.late_call(which, bygone=False)

    @rule(secs=st.sampled_from([0.1, 1.0, 5.0, 10.0, 11.0]))
    def time_passes(self, secs: float) -> None:
        self.memory.now += secs

    def teardown(self) -> None:
        if hasattr(self, "world") and not self.world.broken:
            self.world.check_end()


@pytest.mark.parametrize("entries", [packing._PART_ENTRIES, 1])
@pytest.mark.parametrize("count", [1, 3])
def test_no_wrong_ack_and_nothing_forgotten(
    count: int, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a single entry in a message, too: executions then say what they did in many parts."""
    monkeypatch.setattr(packing, "_PART_ENTRIES", entries)
    machine = type("Machine", (AckerMachine,), {"ackers": count})
    run_state_machine_as_test(machine, settings=examples(120 if count == 1 else 80, steps=30))


# What the same search finds when a rule of the protocol is taken out.


@contextmanager
def without_the_fence() -> Iterator[None]:
    """A second execution is taken for a repetition of the first."""
    stage: Any = Tracking.stage

    def tolerant(self: Tracking, *arguments: Any) -> float | None:
        *first, execution, busy, now = arguments
        due: float | None = stage(self, *first, replace(execution, nonce=0), busy, now)
        return due

    with mock.patch.object(Tracking, "stage", tolerant):
        yield


@contextmanager
def without_two_phases() -> Iterator[None]:
    """Apply staged updates at once."""
    stage: Any = Tracking.stage

    def hasty(self: Tracking, *arguments: Any) -> float | None:
        *first, execution, busy, now = arguments
        level_and_slot = first[2], first[3]
        new = self._batches.did(level_and_slot) is None
        due: float | None = stage(self, *first, replace(execution, updates=Updates()), busy, now)
        if new:
            self._ledger.apply(execution.updates, now)
        return due

    with mock.patch.object(Tracking, "stage", hasty):
        yield


@contextmanager
def without_the_epoch_check() -> Iterator[None]:
    """Calls of any epoch count."""
    enter = Tracking._enter

    def lax(self: Tracking, epoch: int, *arguments: Any) -> None:
        enter(self, self._epoch, *arguments)

    with mock.patch.object(Tracking, "_enter", lax):
        yield


@contextmanager
def without_incarnations() -> Iterator[None]:
    """A restarted acker looks like the one before."""
    start_over = Tracking._start_over

    def same(self: Tracking, *arguments: Any) -> None:
        start_over(self, *arguments)
        self._incarnation = 1

    with mock.patch.object(Tracking, "_start_over", same):
        yield


@contextmanager
def without_staging_to_every_shard() -> Iterator[None]:
    """A shard hears of an execution only if it has something to hear."""
    everyone = AckerClient.stage

    def sparing(self: AckerClient, *arguments: Any) -> None:
        call_all = self._caller.all
        parts = self._split(arguments[5])

        def some(method: str, requests: dict[int, bytes]) -> Any:
            return call_all(
                method, {s: r for s, r in requests.items() if s == 0 or not parts[s].is_empty}
            )

        with mock.patch.object(self._caller, "all", some):
            everyone(self, *arguments)

    with mock.patch.object(AckerClient, "stage", sparing):
        yield


@contextmanager
def without_fresh_ids() -> Iterator[None]:
    """Every execution of a batch draws the same ids."""

    def same_nonce(world: World) -> None:
        world.nonce = lambda: 7

    with mock.patch.object(AckerMachine, "change", staticmethod(same_nonce)):
        yield


MUTATIONS = {
    "the fence": without_the_fence,
    "two phases": without_two_phases,
    "the epoch check": without_the_epoch_check,
    "fresh ids": without_fresh_ids,
    "the incarnation": without_incarnations,
    "staging to every shard": without_staging_to_every_shard,
}


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=list(MUTATIONS))
def test_the_search_finds_what_is_wrong_without(mutation: Callable[[], Any]) -> None:
    machine = type("Machine", (AckerMachine,), {"ackers": 3})
    search = settings(
        max_examples=300,
        stateful_step_count=25,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with mutation(), pytest.raises(Violation):
        run_state_machine_as_test(machine, settings=search)
