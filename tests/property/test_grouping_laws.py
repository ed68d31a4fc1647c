"""Groupings: fields go by value, in every process; shuffle is exactly even."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.property.scale import examples
from tests.property.values import Colour, Plain, equal_values, serve, values
from topo.routing.groupers import ByFields, Grouper, PartialKey, Rows, Shuffle
from topo.routing.hashing import stable_hash
from topo.wire.frame import Column

Process = subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def processes() -> Iterator[list[Process]]:
    """Processes that hash what they are given, each with a hash seed of its own."""
    code = f"from {serve.__module__} import serve; serve()"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        for seed in ("1", "2")
    ]
    yield started
    for process in started:
        process.communicate()


def hash_in(process: Process, value: Any) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    data = pickle.dumps(value)
    process.stdin.write(len(data).to_bytes(4, "big") + data)
    process.stdin.flush()
    return int.from_bytes(process.stdout.read(8), "big")


@given(value=values)
@example(value=Plain({"a", "b", "c"}))
@example(value=[Colour.RED, {frozenset("abc"): b"x"}])
@examples(80)
def test_fields_are_stable_across_processes(processes: list[Process], value: Any) -> None:
    here = stable_hash(value)
    assert [hash_in(process, value) for process in processes] == [here, here]


@given(pair=equal_values())
@examples(150)
def test_equal_values_hash_alike(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert one == other
    assert stable_hash(one) == stable_hash(other)
    assert stable_hash(pickle.loads(pickle.dumps(one))) == stable_hash(one)


@pytest.mark.parametrize(
    "equal",
    [
        [np.int64(3), 3, np.float64(3), np.uint8(3), 3.0],
        [np.True_, True, 1],
        [np.str_("a"), "a"],
        [0.0, -0.0, 0, False],
        [range(3), range(3)],
        [{"a": 1}.keys(), {"a"}, frozenset({"a"})],
        [b"a", bytearray(b"a"), memoryview(b"a")],
    ],
)
def test_equal_values_of_odd_types_hash_alike(equal: list[Any]) -> None:
    assert all(one == equal[0] for one in equal)
    assert len({stable_hash(one) for one in equal}) == 1


def test_what_differs_is_spread() -> None:
    groups = [
        [*range(1000)],
        [str(n) for n in range(1000)],
        [(n, -n) for n in range(1000)],
        [{"n": n} for n in range(1000)],
        [Plain(n) for n in range(1000)],
    ]
    for group in groups:
        tally = Counter(stable_hash(value) % 8 for value in group)
        assert min(tally.values()) > 80
    assert stable_hash((1, 2)) != stable_hash((2, 1))
    assert stable_hash(float("nan")) == stable_hash(float("nan"))


def test_a_value_that_holds_itself_has_a_hash() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    same: list[Any] = [1]
    same.append(same)
    assert stable_hash(loop) == stable_hash(same)


def dealt(grouper: Grouper, rows: list[list[Any]]) -> list[int]:
    """The task of each row."""
    columns: list[Column] = (
        [list(column) for column in zip(*rows, strict=True)] if rows else [[], []]
    )
    chosen = np.zeros(len(rows), int)
    times = np.zeros(len(rows), int)
    for deal in grouper.deal(Rows(rows, columns, [])):
        numbers = np.arange(len(rows)) if deal.rows is None else deal.rows
        for task, selector in deal.parts:
            part = numbers if selector is None else numbers[selector]
            assert sorted(part.tolist()) == part.tolist()
            chosen[part] = task
            times[part] += 1
    assert times.tolist() == [1] * len(rows)
    return chosen.tolist()


@given(pairs=st.lists(st.tuples(equal_values(), equal_values()), min_size=1, max_size=8))
@examples(25)
def test_equal_keys_go_to_the_same_task_whatever_came_before(
    pairs: list[tuple[tuple[Any, Any], tuple[Any, Any]]],
) -> None:
    ones = [[a[0], b[0]] for a, b in pairs]
    others = [[a[1], b[1]] for a, b in pairs]
    for positions in ([0], [1], [0, 1], [1, 0]):
        warm = ByFields(range(5, 12), positions)
        first = dealt(warm, ones)
        assert dealt(warm, others) == first
        assert dealt(warm, ones[::-1]) == first[::-1]
        assert dealt(ByFields(range(5, 12), positions), others) == first


@given(
    tasks=st.integers(1, 7),
    start=st.integers(0, 20),
    flushes=st.lists(st.integers(0, 40), max_size=8),
    restore_at=st.integers(0, 8),
)
@examples(100)
def test_shuffle_is_exactly_even(
    tasks: int, start: int, flushes: list[int], restore_at: int
) -> None:
    grouper = Shuffle(range(10, 10 + tasks), start)
    order: list[int] = []
    for number, count in enumerate(flushes):
        if number == restore_at:
            state = grouper.state()
            grouper = Shuffle(range(10, 10 + tasks), 0)
            grouper.restore(state)
        order += dealt(grouper, [[n, n] for n in range(count)])
    assert order == [10 + (start + n) % tasks for n in range(sum(flushes))]


@given(rows=st.lists(st.integers(0, 6), max_size=200), tasks=st.integers(1, 6))
@examples(100)
def test_partial_key_uses_two_tasks_a_key_and_the_less_used_of_them(
    rows: list[int], tasks: int
) -> None:
    grouper = PartialKey(range(1, tasks + 1), [0])
    loads: Counter[int] = Counter()
    for key, task in zip(rows, dealt(grouper, [[key, 0] for key in rows]), strict=True):
        candidates = [place + 1 for place in grouper.candidates((key,))]
        assert len(set(candidates)) == min(2, tasks)
        assert task == min(candidates, key=loads.__getitem__)
        loads[task] += 1
