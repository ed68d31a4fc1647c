"""The order of a run that may end before its last test: files take turns.

In the order of their names the files that come first would have all of the time: kills of loops,
watching and moves once left room for 72 of 560 slow tests. A turn of a file is as long as its
fixtures are worth being made again for the next one.
"""

from __future__ import annotations

from collections import Counter

import pytest

TURN = 20
"""What a file may cost in one turn."""
A_KILL = 10
"""The cost of a test that kills processes; any other costs 1. Both are guesses from whole runs."""


def in_turns(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of the first turn of each file, then those of the second, and so on.

    In a turn, all files' cheap tests come before the first that kills. What is as dear stays in the
    order that was given.
    """
    spent: Counter[str] = Counter()

    def place(item: pytest.Item) -> tuple[int, int]:
        cost = A_KILL if item.get_closest_marker("fault") else 1
        spent[str(item.path)] += cost
        return (spent[str(item.path)] - 1) // TURN, cost

    return sorted(items, key=place)
