"""The cases of `cases/storm.jsonl` by area; the module `test_AREA.py` runs those of one area.

Such a module has `RUNNERS`, which has a function for each kind of case of its area, and may have
`LEFT_OUT`, which says of a case by its name why it is not run. `test_guard.py` reads both: a case
that nothing runs fails there, and so does a list that names what is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.cases import Case, read_cases

Runner: TypeAlias = Callable[[Case], None]

CASES = read_cases(Path(__file__).parent / "cases" / "storm.jsonl")

AREAS: dict[str, tuple[str, ...]] = {
    "flux": ("flux",),
    "multilang": ("multilang-bolt", "multilang-spout", "multilang-wire"),
    "drpc": ("drpc-server", "drpc-http", "drpc-acl", "drpc-topology"),
    "requests": ("requests",),
    "trident": ("trident",),
    "loops": ("cycle-found", "loop"),
    "keyed": ("keyed",),
}
"""The kinds of case of each area."""


def parameters(kinds: Iterable[str], left_out: Mapping[str, str] = {}) -> list[Any]:
    """Return the cases of some kinds as parameters of a test, without those that are left out."""
    chosen = set(kinds)
    return [
        pytest.param(case, id=case["name"])
        for case in CASES
        if case["kind"] in chosen and case["name"] not in left_out
    ]
