"""Laws of patterns: topo's machine against a slow matcher, over random patterns and events.

However events are cut into batches, in whatever order they come within the lag, and wherever the
task restarts from what it saved, matches come out equal and in the same order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import event as noted
from hypothesis import given, reject
from hypothesis import strategies as st

from tests.property.pattern_task import World
from tests.property.pattern_truth import Event, Truth
from tests.property.scale import examples
from topo import Pattern, PatternBolt, PatternError
from topo.event_time import BEFORE_ALL
from topo.patterns import machine

_WHERE = st.sampled_from(
    ["kind == 'a'", "kind == 'b'", "kind in ('a', 'b')", "kind in ('b', 'c')", "kind != 'd'",
     "n > 1", "kind == 'c'"]
)  # fmt: skip
_OF_TAKEN = st.sampled_from(["n > p0.n", "p0.n < n", "count(p0) < 3", "sum(p0.n) < n + 3"])
_HOW = st.sampled_from(["next", "followed_by", "followed_by", "followed_by_any"])


@st.composite
def parts(draw: st.DrawFn, depth: int, names: list[str]) -> dict[str, Any]:
    """Draw a part, or a group of them."""
    part: dict[str, Any] = {}
    if depth and draw(st.integers(0, 3)) == 0:
        part["group"] = draw(sequences(depth - 1, names, st.integers(1, 2), negations=False))
    else:
        part["name"] = names.pop(0)
        part["where"] = draw(_WHERE)
        if part["name"] != "p0" and draw(st.integers(0, 5)) == 0:
            part["where"] += f" and {draw(_OF_TAKEN)}"
    low, high, optional = draw(
        st.sampled_from(
            [(1, 1, False), (1, 1, False), (1, 1, True), (1, None, False), (1, None, True),
             (2, 2, False), (1, 2, False), (2, 3, True), (2, None, False)]
        )
    )  # fmt: skip
    if (low, high) != (1, 1):
        part["times"] = [low, high]
        part["inner"] = draw(st.sampled_from(["relaxed", "strict", "any"]))
        part["greedy"] = draw(st.booleans()) and "group" not in part and part["inner"] != "any"
        if high is None and draw(st.integers(0, 3)) == 0:
            part["until"] = draw(_WHERE)
        if draw(st.integers(0, 4)) == 0:
            part["inner_gap"] = draw(st.integers(1, 4))
    part["optional"] = optional
    return part


@st.composite
def sequences(
    draw: st.DrawFn, depth: int, names: list[str], count: st.SearchStrategy[int], negations: bool
) -> list[dict[str, Any]]:
    """Draw a sequence of parts."""
    listed: list[dict[str, Any]] = []
    for place in range(draw(count)):
        if place and negations and draw(st.integers(0, 3)) == 0:
            how = draw(st.sampled_from(["not_next", "not_followed_by"]))
            listed.append({"name": names.pop(0), "where": draw(_WHERE), "how": how})
        part = draw(parts(depth, names))
        if place:
            part["how"] = draw(_HOW)
            if draw(st.integers(0, 5)) == 0:
                part["gap"] = draw(st.integers(1, 6))
        listed.append(part)
    return listed


@st.composite
def patterns(draw: st.DrawFn) -> dict[str, Any]:
    names = [f"p{n}" for n in range(9)] + [f"g{n}" for n in range(9)]
    document: dict[str, Any] = {
        "parts": draw(sequences(1, names, st.integers(1, 4), negations=True))
    }
    if draw(st.integers(0, 3)) == 0:
        last = {"name": names.pop(0), "where": draw(_WHERE), "how": "not_followed_by"}
        if draw(st.booleans()):
            last["gap"] = draw(st.integers(1, 5))  # type: ignore[assignment]
        if draw(st.integers(0, 3)) == 0:
            last = {**last, "how": "not_next"}
            last.pop("gap", None)
        document["parts"].append(last)
    document["within"] = draw(st.sampled_from([6, 9, 12, 12]))
    skip = draw(st.sampled_from(["none", "none", "to_next", "past_last", "to_first", "to_last"]))
    if skip.startswith("to_") and skip != "to_next":
        taking = [
            p["name"] for p in document["parts"] if "name" in p and "not" not in p.get("how", "")
        ]
        document["skip"] = {skip: draw(st.sampled_from(taking))} if taking else "past_last"
    elif skip != "none":
        document["skip"] = skip
    return document


_STEPS = st.lists(
    st.tuples(st.sampled_from([0, 1, 1, 2, 3]), st.sampled_from("aabbcd"), st.integers(0, 3)),
    min_size=1,
    max_size=14,
)


def reject_impossible(document: dict[str, Any]) -> None:
    """Have another pattern drawn if a bolt refuses this one."""
    try:
        PatternBolt(Pattern.from_dict(document))
    except PatternError:
        reject()


def made_events(steps: Sequence[tuple[int, str, int]], keys: int) -> list[Event]:
    listed, ts = [], 0
    for number, (wait, kind, n) in enumerate(steps):
        ts += wait
        listed.append(Event(number, ts, number % keys, kind, n))
    return listed


def play(
    document: dict[str, Any], events: list[Event], cuts: random.Random, lag: int, restarts: bool
) -> World:
    """Feed events in some order within the lag, in some batches."""
    world = World(document, lag)
    arriving = sorted(events, key=lambda e: (e.ts + cuts.randint(0, lag), e.number))
    highest = BEFORE_ALL
    while arriving:
        count = cuts.randint(1, 4)
        batch, arriving = arriving[:count], arriving[count:]
        highest = max(highest, *(one.ts for one in batch))
        world.batch(batch, highest - lag)
        if restarts and cuts.random() < 0.6:
            world.restart()
    world.batch([], 10_000)
    return world


@examples(600)
@given(patterns(), _STEPS, st.integers(1, 2), st.integers(0, 1 << 30), st.booleans())
def test_matches_are_those_of_the_rules(
    document: dict[str, Any],
    steps: list[tuple[int, str, int]],
    keys: int,
    seed: int,
    restarts: bool,
) -> None:
    reject_impossible(document)
    events = made_events(steps, keys)
    truth = Truth(document)
    truth.play(events, 10_000)
    if len(truth.matches) > 2_000:
        reject()
    world = play(document, events, random.Random(seed), 0, restarts)
    noted(f"matches: {min(len(truth.matches), 5)}")

    def of(key: int, results: list[Any]) -> list[Any]:
        return [result for result in results if result[0] == key]

    results = world.results("default")
    if not truth.has_ties:
        for key in range(keys):
            assert of(key, results) == of(key, truth.matches)
    elif "skip" not in document:
        assert sorted(results) == sorted(truth.matches)
    if not truth.has_ties or "skip" not in document:
        assert sorted(world.results("out")) == sorted(truth.timed_out)
    assert world.operator._machine.count == 0
    assert not world.open_records()


@examples(200)
@given(patterns(), _STEPS, st.integers(0, 1 << 30))
def test_the_order_of_arrival_within_the_lag_and_batches_do_not_matter(
    document: dict[str, Any], steps: list[tuple[int, str, int]], seed: int
) -> None:
    reject_impossible(document)
    events = made_events([(wait + 1, kind, n) for wait, kind, n in steps], 1)  # all times differ
    in_order = play(document, events, random.Random(0), 0, False)
    cut = play(document, events, random.Random(seed), 5, True)
    assert cut.results("default") == in_order.results("default")
    assert cut.results("out") == in_order.results("out")
    assert cut.task.late == 0


@examples(100)
@given(patterns(), _STEPS, st.integers(1, 2), st.integers(0, 1 << 30))
def test_what_comes_one_by_one_is_matched_by_arrival_as_in_event_time(
    document: dict[str, Any], steps: list[tuple[int, str, int]], keys: int, seed: int
) -> None:
    reject_impossible(document)
    events = made_events([(wait + 1, kind, n) for wait, kind, n in steps], keys)
    by_arrival, in_event_time = World(document, by_arrival=True), World(document)
    cuts = random.Random(seed)
    for event in events:
        by_arrival.arrive([event], event.ts)
        in_event_time.batch([event], event.ts)
        if cuts.random() < 0.5:
            by_arrival.restart()
    by_arrival.arrive([], 10_000)
    in_event_time.batch([], 10_000)
    assert by_arrival.results("default") == in_event_time.results("default")
    assert by_arrival.results("out") == in_event_time.results("out")
    assert by_arrival.operator._machine.count == 0


@examples(300)
@given(patterns(), _STEPS, st.integers(1, 2), st.integers(0, 1 << 30))
def test_a_restart_changes_no_match_whatever_came_at_one_time(
    document: dict[str, Any], steps: list[tuple[int, str, int]], keys: int, seed: int
) -> None:
    reject_impossible(document)
    left = made_events(steps, keys)
    stays, restarts = World(document), World(document)
    cuts = random.Random(seed)
    while left:
        count = cuts.randint(1, 4)
        batch, left = left[:count], left[count:]
        for world in (stays, restarts):
            world.batch(batch, batch[-1].ts)
        if cuts.random() < 0.6:
            restarts.restart()
    for world in (stays, restarts):
        world.batch([], 10_000)
    assert sorted(restarts.results("default")) == sorted(stays.results("default"))
    assert sorted(restarts.results("out")) == sorted(stays.results("out"))


@examples(150)
@given(patterns(), _STEPS, st.integers(1, 2), st.integers(0, 1 << 30))
def test_what_has_ended_may_stay_in_front_of_a_long_bucket(
    document: dict[str, Any], steps: list[tuple[int, str, int]], keys: int, seed: int
) -> None:
    reject_impossible(document)
    events = made_events(steps, keys)
    moved_up = play(document, events, random.Random(seed), 0, True)
    with patch.multiple(machine, _SHORT=0, _SWEPT_AT=0):
        left_there = play(document, events, random.Random(seed), 0, True)
    assert left_there.results("default") == moved_up.results("default")
    assert left_there.results("out") == moved_up.results("out")
    assert not left_there.open_records()


@pytest.mark.parametrize("restarts", [False, True])
def test_starts_of_one_time_end_in_their_order_also_after_a_restart(restarts: bool) -> None:
    document = {
        "parts": [
            {"name": "p1", "where": "kind in ('a', 'b')", "times": [2, None]},
            {"name": "p2", "where": "kind == 'c'", "how": "not_followed_by", "gap": 2},
        ],
        "within": 6,
    }
    world = World(document)
    world.batch([Event(0, 10, 0, "a", 0), Event(1, 12, 0, "b", 0), Event(2, 10, 0, "b", 0)], 12)
    world.batch([Event(3, 14, 0, "a", 0)], 14)
    if restarts:
        world.restart()
    world.batch([], 10_000)
    assert world.results("out") == [(0, [("p1", 1), ("p1", 3)], 18), (0, [("p1", 3)], 20)]
    assert len(world.results("default")) == 6


@examples(200)
@given(patterns())
def test_a_pattern_is_its_document(document: dict[str, Any]) -> None:
    try:
        pattern = Pattern.from_dict(document)
    except PatternError:
        reject()
    again = Pattern.from_dict(pattern.to_dict())
    assert again == pattern
    assert again.to_dict() == pattern.to_dict()
