"""The queries of `examples/nexmark.py` find what plain loops over all events find."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from examples import nexmark
from topo.testing import TestCluster

EVENTS = 3_000


class Person(NamedTuple):
    id: int
    name: str
    city: str
    state: str
    ts: int


class Auction(NamedTuple):
    id: int
    seller: int
    category: int
    expires: int
    ts: int


class Bid(NamedTuple):
    auction: int
    bidder: int
    price: int
    ts: int


NUMBERS = range(EVENTS)
PERSONS = [Person(*nexmark.person(n)) for n in NUMBERS if n % 50 == 0]
AUCTIONS = [Auction(*nexmark.auction(n)) for n in NUMBERS if 1 <= n % 50 < 4]
BIDS = [Bid(*nexmark.bid(n)) for n in NUMBERS if n % 50 >= 4]


def ends(ts: int, size: int, slide: int) -> Iterable[int]:
    """Return the ends of the windows that hold a time."""
    return range(ts // slide * slide + slide, ts + size + 1, slide)


def in_time() -> dict[Auction, list[int]]:
    """Return the prices that were bid for each auction while it was open."""
    return {
        a: prices
        for a in AUCTIONS
        if (prices := [b.price for b in BIDS if b.auction == a.id and a.ts <= b.ts <= a.expires])
    }


def q1() -> list[Any]:
    return [(b.auction, b.bidder, b.price * 0.908, b.ts) for b in BIDS]


def q2() -> list[Any]:
    return [(b.auction, b.price) for b in BIDS if b.auction % 123 == 0]


def q3() -> list[Any]:
    return [
        (a.id, (p.name, p.city, p.state))
        for a in AUCTIONS
        for p in PERSONS
        if a.category == 10 and p.id == a.seller and p.state in ("OR", "ID", "CA")
    ]


def q4() -> list[Any]:
    highest = defaultdict(list)
    for a, prices in in_time().items():
        highest[a.category].append(max(prices))
    return [(category, sum(found) / len(found)) for category, found in highest.items()]


def q5() -> list[Any]:
    windows: dict[int, Counter[int]] = defaultdict(Counter)
    for b in BIDS:
        for end in ends(b.ts, 10_000, 2_000):
            windows[end][b.auction] += 1
    return [
        (end, auction, count)
        for end, counts in windows.items()
        for auction, count in counts.items()
        if count == max(counts.values())
    ]


def q6() -> list[Any]:
    prices = defaultdict(list)
    means = []
    sold = in_time()
    for a in sorted(sold, key=lambda a: (a.expires, a.id)):
        prices[a.seller].append(max(sold[a]))
        last = prices[a.seller][-10:]
        means.append((a.seller, (a.id, sum(last) / len(last))))
    return means


def q7() -> list[Any]:
    windows = defaultdict(list)
    for b in BIDS:
        (end,) = ends(b.ts, 10_000, 10_000)
        windows[end].append(b)
    return [
        (end, *b)
        for end, bids in windows.items()
        for b in bids
        if b.price == max(other.price for other in bids)
    ]


def q8() -> list[Any]:
    return [
        (p.id, (p.name, a.id))
        for p in PERSONS
        for a in AUCTIONS
        if p.id == a.seller and p.ts // 10_000 == a.ts // 10_000
    ]


def q11() -> list[Any]:
    times = defaultdict(list)
    for b in sorted(BIDS, key=lambda b: b.ts):
        times[b.bidder].append(b.ts)
    sessions = []
    for bidder, seen in times.items():
        starts = [n for n, ts in enumerate(seen) if n == 0 or ts - seen[n - 1] >= 10_000]
        for first, after in zip(starts, [*starts[1:], len(seen)], strict=True):
            sessions.append((bidder, seen[first], seen[after - 1] + 10_000, after - first))
    return sessions


ORACLES = {oracle.__name__: oracle for oracle in (q1, q2, q3, q4, q5, q6, q7, q8, q11)}


def printed(query: str, seed: int, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    """Run a query, its batches cut by the seed, and return what it has printed.

    All seeds but 0 restart it in between.
    """
    with TestCluster(seed=seed) as cluster:
        run = cluster.submit_topology(query, nexmark.topology(query, str(EVENTS)))
        for _ in range(5 if seed else 0):
            run.step(n=10)
            run.restart()
        run.settle()
        assert run.status == "COMPLETED"
    lines = [line.partition(" ") for line in capsys.readouterr().out.splitlines()]
    assert {label for label, _, _ in lines} == {query}
    return [ast.literal_eval(element) for _, _, element in lines]


def test_each_query_has_an_oracle() -> None:
    assert list(ORACLES) == list(nexmark.QUERIES)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("query", ORACLES)
def test_a_query_finds_what_a_loop_over_all_events_finds(
    query: str, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    oracle: Callable[[], list[Any]] = ORACLES[query]
    wanted, found = oracle(), printed(query, seed, capsys)
    assert wanted
    if query == "q4":  # a mean that has changed is printed again
        assert dict(found) == dict(wanted)
    elif query == "q6":  # of each seller, in the order in which the auctions closed
        for seller in {seller for seller, _ in wanted}:
            assert [e for e in found if e[0] == seller] == [e for e in wanted if e[0] == seller]
        assert len(found) == len(wanted)
    else:
        assert sorted(found) == sorted(wanted)


def test_the_events_are_as_nexmark_wants_them() -> None:
    assert (len(PERSONS), len(AUCTIONS), len(BIDS)) == (EVENTS // 50, 3 * EVENTS // 50, 2_760)
    hot = Counter(b.auction % nexmark.HOT == 0 for b in BIDS)
    assert 0.45 < hot[True] / len(BIDS) < 0.65
    late = sum(1 for one, other in pairwise(BIDS) if other.ts < one.ts)
    assert 0.05 < late / len(BIDS) < 0.15


def test_a_query_that_there_is_not_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="there is no query 'q9'; there are q1, q2"):
        nexmark.topology("q9")
