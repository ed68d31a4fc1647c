"""Applies a few updates to a ledger number by number: what real-time mode brings, turn after turn.

The ledger works on columns, which costs 80 us before the first update, and then next to nothing for
a thousand. A turn of real-time mode has two or three updates, some thousand turns a second come
together, and each message waits for them: so those take 6 us here. Only the ordinary case is
here: new roots in order, and acks of pending ones. For anything else nothing is changed, and the
ledger decides with its columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topo.tracking.ids import SEQUENCE_BITS, Updates, sequence_of, spout_task_of
from topo.tracking.pages import PAGE_BITS, PENDING, SETTLED

if TYPE_CHECKING:
    from topo.tracking.ledger import Lane
    from topo.tracking.pages import Pages

FEW = 64


def are_few_and_plain(updates: Updates) -> bool:
    """Return True if there are few updates, and none but new roots and acks."""
    rare = (
        len(updates.fail_roots)
        + len(updates.reset_roots)
        + len(updates.held_roots)
        + len(updates.released_roots)
    )
    return not rare and len(updates.init_roots) + len(updates.ack_roots) <= FEW


def apply_few(
    updates: Updates, now: float, pages: Pages, lanes: dict[int, Lane], quiet: set[int]
) -> list[int] | None:
    """Apply the updates; return the pages that the spout tasks have passed, None if not applied.

    Pages whose last pending root is settled are added to `quiet`.
    """
    inits = updates.init_roots.tolist()
    acks = updates.ack_roots.tolist()
    highest: dict[int, int] = {}
    for root in inits:
        task, sequence = spout_task_of(root), sequence_of(root)
        lane = lanes.get(task)
        if lane is None or sequence <= highest.get(task, lane.highest):
            return None
        highest[task] = sequence
    fresh = set(inits)
    for root in acks:
        if root not in fresh:
            place = pages.place_of(root)
            if place < 0 or pages.state.item(place) != PENDING:
                return None
    passed = [
        pages.page_of((task << SEQUENCE_BITS | lanes[task].highest) >> PAGE_BITS)
        for task in highest
    ]
    places = []
    for root, edges in zip(inits, updates.init_values.tolist(), strict=True):
        place = pages.open_one(root)  # which may have made other columns
        page = place >> PAGE_BITS
        pages.value[place] = edges
        pages.started[place] = now
        pages.state[place] = PENDING
        pages.pending[page] += 1
        pages.earliest[page] = min(pages.earliest.item(page), now)
        lanes[spout_task_of(root)].pending += 1
        places.append(place)
    for task, sequence in highest.items():
        lanes[task].highest = sequence
    value = pages.value
    for root, edges in zip(acks, updates.ack_values.tolist(), strict=True):
        place = pages.place_of(root)
        value[place] = value.item(place) ^ edges
        places.append(place)
    _settle({place for place in places if not value.item(place)}, pages, lanes, quiet)
    return [page for page in passed if page >= 0]


def _settle(places: set[int], pages: Pages, lanes: dict[int, Lane], quiet: set[int]) -> None:
    """Ack the roots at these places, in their order."""
    done: dict[int, list[int]] = {}
    roots = {pages.root_of(place): place for place in places}
    for root in sorted(roots):
        place = roots[root]
        page = place >> PAGE_BITS
        pages.state[place] = SETTLED
        pages.pending[page] -= 1
        pages.stale[page] = True
        if not pages.pending.item(page):
            quiet.add(page)
        done.setdefault(spout_task_of(root), []).append(sequence_of(root))
    for task, sequences in done.items():
        lane = lanes[task]
        lane.acked += len(sequences)
        lane.pending -= len(sequences)
        lane.log.append(np.array(sequences, np.uint64), {})
