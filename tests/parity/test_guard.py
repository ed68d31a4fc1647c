"""Every case of `cases/storm.jsonl` is run, or stands in a list that says why it is not."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import pytest

from tests.parity.areas import AREAS, CASES, Runner


def test_every_kind_of_case_belongs_to_one_area() -> None:
    kinds = Counter(kind for kinds in AREAS.values() for kind in kinds)
    assert set(kinds) == {case["kind"] for case in CASES}
    assert set(kinds.values()) == {1}


def test_names_are_unique() -> None:
    counts = Counter(case["name"] for case in CASES)
    assert [name for name, count in counts.items() if count > 1] == []


def test_the_file_has_all_cases() -> None:
    assert len(CASES) >= 151


@pytest.mark.parametrize("area", AREAS)
def test_an_area_has_a_module(area: str) -> None:
    assert find_spec(f"tests.parity.test_{area}") is not None


@pytest.mark.parametrize("area", AREAS)
def test_a_module_runs_every_case_of_its_area(area: str) -> None:
    module: Any = importlib.import_module(f"tests.parity.test_{area}")
    runners: Mapping[str, Runner] = module.RUNNERS
    left_out: Mapping[str, str] = getattr(module, "LEFT_OUT", {})
    assert set(runners) == set(AREAS[area])
    assert set(left_out) <= {case["name"] for case in CASES if case["kind"] in runners}
    assert all(left_out.values())
