"""The books of a partition and the schedule of retries, by the cases that are data."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import read_cases
from topo import ComponentError
from topo.connectors.kafka.offsets import Offsets, Ranges
from topo.connectors.kafka.publisher import Batch, Record
from topo.connectors.retries import Backoff, Retries

CASES = read_cases(Path(__file__).parent / "cases" / "kafka.jsonl")


def cases_of(family: str) -> list[Any]:
    return [pytest.param(case["data"], id=case["id"]) for case in CASES if case["family"] == family]


@pytest.mark.parametrize("data", cases_of("offsets"))
def test_offsets(data: dict[str, Any]) -> None:
    book = Offsets(data["fetch_offset"])
    for name, *arguments in data["steps"]:
        _offset_step(book, name, arguments)
        book = pickle.loads(pickle.dumps(book))


def _offset_step(book: Offsets, name: str, arguments: list[Any]) -> None:
    if name in ("emit", "ack"):
        getattr(book, name)(*arguments)
    elif name == "next":
        assert book.next() == arguments[0]
    elif name == "commit":
        assert book.commit(arguments[0]) == arguments[1]
    elif name == "nth" and arguments[1] == "error":
        with pytest.raises(IndexError):
            book.nth(arguments[0])
    elif name == "nth":
        assert book.nth(arguments[0]) == arguments[1]
    elif name == "has_committed":
        assert book.has_committed == arguments[0]
    else:
        asked = {"acked": book.is_acked, "emitted": book.is_emitted}[name]
        assert asked(arguments[0]) == arguments[1]


@pytest.mark.parametrize("data", cases_of("retry"))
def test_retries(data: dict[str, Any]) -> None:
    clock = [100.0]
    backoff = Backoff(
        data["initial_secs"], data["period_secs"], data["max_delay_secs"], data["max_retries"]
    )
    retries: Retries[str] = Retries(backoff, lambda: clock[0])
    steps: dict[str, Callable[..., Any]] = {
        "schedule": retries.schedule,
        "remove": retries.remove,
        "ready": retries.is_ready,
        "scheduled": retries.is_scheduled,
    }
    for name, *arguments in data["steps"]:
        if name == "fail":
            retries.fail(*arguments)
        elif name == "advance":
            clock[0] += arguments[0]
        elif name == "earliest":
            assert retries.earliest() == arguments[0]
        elif name == "count":
            assert retries.ready_count() == arguments[0]
        elif name == "retain":
            retries.retain(arguments[0])
        else:
            *place, expected = arguments
            assert steps[name](*place) == expected, (name, arguments)


@given(st.lists(st.tuples(st.sampled_from(["add", "drop"]), st.integers(0, 30))))
def test_ranges_are_a_set(steps: list[tuple[str, int]]) -> None:
    ranges, model = Ranges(), set[int]()
    for what, number in steps:
        if what == "add":
            ranges.add(number)
            model.add(number)
        else:
            below = {one for one in model if one < number}
            assert ranges.drop_below(number) == len(below)
            model -= below
        assert {one for start, end in ranges for one in range(start, end)} == model
        assert len(ranges) == len(model)
        assert all((one in ranges) == (one in model) for one in range(32))
        bounds = [bound for pair in ranges for bound in pair]
        assert bounds == sorted(set(bounds))  # no empty ranges, and none that touch


@pytest.mark.parametrize("wrong", [{"first": -1}, {"retries": -1}, {"most": -1}])
def test_pauses_are_not_negative(wrong: dict[str, Any]) -> None:
    with pytest.raises(ComponentError):
        Backoff(**wrong)


@pytest.mark.parametrize(
    "records",
    [
        [("t", b"k", b"v", None, None, None), ("t", None, None, None, None, None)],
        [("t", b"k", b"v", None, None, None), ("u", b"k", b"w", None, None, None)],
        [("t", b"k", b"v", 3, None, None), ("t", b"k", b"w", None, 17, [("h", b"x")])],
    ],
)
def test_the_records_of_a_batch_are_what_they_were(records: list[Record]) -> None:
    batch = pickle.loads(pickle.dumps(Batch.of(records)))
    assert len(batch) == len(records)
    assert list(batch.records()) == records
