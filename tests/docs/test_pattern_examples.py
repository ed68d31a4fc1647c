"""The example of a pattern finds what a plain loop over the same payments finds."""

from __future__ import annotations

from collections import Counter
from typing import Any

from examples import card_fraud
from topo.testing import complete_topology

MINUTE = 60_000


def found_by_hand() -> tuple[list[list[Any]], int]:
    """Return card, amounts and time of each match, and how many small payments led to nothing."""
    small: dict[str, list[tuple[int, float]]] = {}
    matches, unused = [], 0
    for card, ts, amount in card_fraud.payments():
        begun = small.setdefault(card, [])
        unused += sum(ts - at >= MINUTE for at, _ in begun)
        begun[:] = [(at, tried) for at, tried in begun if ts - at < MINUTE]
        if amount > 500 and begun:
            matches.append([card, begun[0][1], amount, ts - begun[0][0]])
            begun.clear()
        elif amount < 1:
            begun.append((ts, amount))
    return matches, unused + sum(map(len, small.values()))


def test_cards_that_were_tried_out() -> None:
    completed = complete_topology(card_fraud.topology())
    matches, unused = found_by_hand()
    assert len(matches) > 10
    rows = completed.tuples("tried_out")
    assert Counter(map(tuple, rows)) == Counter(map(tuple, matches))
    assert len(completed.tuples("tried_out", "unused")) == unused
    assert len(completed.tuples("desk")) == len(matches)
