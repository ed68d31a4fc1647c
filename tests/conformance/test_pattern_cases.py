"""cases/patterns.jsonl, its patterns, on the inline engine: seeds, task counts, restarts."""

from __future__ import annotations

import pytest

from tests.cases import Case
from tests.conformance.pattern_world import SEEDS, PatternWorld, cases, pattern_of, play
from topo import PatternBolt, PatternError
from topo.testing import TestCluster


def name_of(case: Case) -> str:
    return str(case["name"])


every_case = pytest.mark.parametrize("case", cases(), ids=name_of)


@every_case
@pytest.mark.parametrize("seed", SEEDS)
def test_a_pattern_case(case: Case, seed: int) -> None:
    with TestCluster(seed) as cluster:
        play(case, PatternWorld(case, cluster, tasks=1 + seed % 3), restarts=False)


@every_case
def test_a_pattern_case_with_a_restart_after_each_step(case: Case) -> None:
    with TestCluster() as cluster:
        play(case, PatternWorld(case, cluster, tasks=2), restarts=True)


_WORDS = {
    "two parts of one name": "two parts have the name 'start': names differ",
    "a negation at the end without a bound": "it needs within, or a gap",
    "skip to a part that is not there": "skip names 'midd': there is no such part",
    "not_next with one_or_more": "a negation has no quantifier",
    "until without a loop": "until goes with a loop without an end",
    "a negation after an optional stage": "which is optional before a negation",
    "a greedy single event": "greedy without a quantifier",
    "optional after greedy": "is optional after greedy",
}
"""What is said, by case."""


@pytest.mark.parametrize("case", cases(errors=True), ids=name_of)
def test_a_pattern_that_is_refused(case: Case) -> None:
    with pytest.raises(PatternError) as caught:
        PatternBolt(pattern_of(case), limit=10)
    assert _WORDS[case["name"]] in str(caught.value)
    assert caught.value.hint
