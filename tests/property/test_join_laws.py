"""Joins against nested loops: any order, any cut of batches, restarts in between, late rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.join_world import BY_HAND, JoinWorld
from tests.property.scale import examples
from topo import (
    CoGroup,
    IntervalJoin,
    JoinBolt,
    Session,
    Sliding,
    TopologyBuilder,
    Tumbling,
    WindowJoin,
)
from topo.testing import FeederSpout, TestCluster
from topo.windows.assigners import Aligned

Row = tuple[str, str | None, int]
"""Side, key and time; the value of a row is its number."""

END = 10_000
HOWS = ("inner", "left", "right", "outer")

rows = st.lists(
    st.tuples(
        st.sampled_from(("left", "right")),
        st.sampled_from(("a", "a", "b", "c", None)),
        st.integers(-10, 60),
    ),
    max_size=30,
)
cuts = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 25), st.booleans()), min_size=1, max_size=6
)
"""Of batches: how many rows, how far behind the watermark is, whether a restart follows."""


class Work:
    """Batches of numbered rows, each with the watermark that ends it."""

    def __init__(self, given: Sequence[Row], cuts: Sequence[tuple[int, int, bool]]) -> None:
        numbered = [(side, key, ts, number) for number, (side, key, ts) in enumerate(given)]
        self.batches: list[tuple[list[Any], int, bool]] = []
        watermark, turn = -100, 0
        while numbered:
            size, behind, restart = cuts[turn % len(cuts)]
            turn += 1
            batch, numbered = numbered[:size], numbered[size:]
            watermark = max(watermark, max(ts for _, _, ts, _ in batch) - behind)
            self.batches.append((batch, watermark, restart))
        self.batches.append(([], END, False))

    def run(self, bolt: Any, seed: int, tasks: int) -> tuple[list[Any], list[int]]:
        """Return what a join emits, and the numbers of its late rows."""
        world = JoinWorld(bolt, seed, tasks=tasks)
        for batch, watermark, restart in self.batches:
            for side, key, ts, number in batch:
                world.feeders[side].feed([key, number, ts])
            world.run.settle()
            if restart:
                world.run.restart()
            world.watermark(watermark)
        assert sum(operator.state_rows for operator in world.operators) == 0
        return world.rows(), sorted(row[1] for row in world.late())


def matched(
    left: Sequence[Any], right: Sequence[Any], how: str, is_match: Any
) -> list[tuple[Any, Any]]:
    """Join by nested loops."""
    found = [(a, b) for a, b in product(left, right) if a[1] is not None and is_match(a, b)]
    if how in ("left", "outer"):
        found += [(a, None) for a in left if not any(a is one for one, _ in found)]
    if how in ("right", "outer"):
        found += [(None, b) for b in right if not any(b is one for _, one in found)]
    return found


def by_side(given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    return (
        [row for row in given if row[0] == "left"],
        [row for row in given if row[0] == "right"],
    )


def numbers(found: Sequence[tuple[Any, Any]]) -> list[Any]:
    return [tuple(None if row is None else row[3] for row in pair) for pair in found]


@examples(40)
@given(
    rows,
    cuts,
    st.sampled_from(HOWS),
    st.tuples(st.integers(-8, 12), st.integers(-8, 12)).filter(lambda ends: sum(ends) >= 0),
    st.integers(0, 1000),
    st.integers(1, 3),
)
def test_an_interval_join_is_two_loops(
    given_rows: list[Row],
    cuts: list[tuple[int, int, bool]],
    how: str,
    within: tuple[int, int],
    seed: int,
    tasks: int,
) -> None:
    work = Work(given_rows, cuts)
    before, after = within
    accepted: list[Any] = []
    late: list[Any] = []
    watermark = -1000
    for batch, following, _ in work.batches:
        for row in batch:
            (accepted.append if row[2] >= watermark else late.append)(row)
        watermark = following
    wanted = matched(
        [row for row in accepted if row[0] == "left"],
        [row for row in accepted if row[0] == "right"],
        how,
        lambda a, b: a[1] == b[1] and a[2] - before <= b[2] <= a[2] + after,
    )
    times = [max(row[2] for row in pair if row is not None) for pair in wanted]
    bolt = IntervalJoin(
        left="left",
        right="right",
        on="key",
        within=within,
        how=how,
        time=BY_HAND,
        select=("left:value", "right:value"),
        result_ts="t",
    )
    found, found_late = work.run(bolt, seed, tasks)
    expected = [[*pair, ts] for pair, ts in zip(numbers(wanted), times, strict=True)]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert found_late == sorted(row[3] for row in late)


@examples(40)
@given(rows, cuts, st.sampled_from(HOWS), st.integers(0, 8), st.integers(0, 1000))
def test_late_rows_that_are_allowed_match_what_they_would_have_matched(
    given_rows: list[Row], cuts: list[tuple[int, int, bool]], how: str, reach: int, seed: int
) -> None:
    """Nothing is taken back: what was reported without a match may be in a pair later."""
    work = Work(given_rows, cuts)

    def is_match(a: Any, b: Any) -> bool:
        return bool(a[1] == b[1] and abs(a[2] - b[2]) <= reach)

    bolt = IntervalJoin(
        left="left",
        right="right",
        on="key",
        within=reach,
        how=how,
        time=BY_HAND,
        select=("left:value", "right:value"),
        allowed_lateness=1000,
    )
    found, late = work.run(bolt, seed, 2)
    assert late == []
    everything = [row for batch, _, _ in work.batches for row in batch]
    pairs = numbers(matched(*by_side(everything), "inner", is_match))
    alone: list[Any] = []
    so_far: list[Any] = []
    told: set[int] = set()
    for batch, watermark, _ in work.batches:
        so_far += batch
        for row in so_far:
            over = row[1] is None or watermark > row[2] + reach
            if over and row[3] not in told:
                told.add(row[3])
                others = [one for one in so_far if one[0] != row[0]]
                if row[1] is None or not any(is_match(row, other) for other in others):
                    alone.append(row)
    for row in alone:
        if row[0] == "left" and how in ("left", "outer"):
            pairs.append((row[3], None))
        elif row[0] == "right" and how in ("right", "outer"):
            pairs.append((None, row[3]))
    assert sorted(found, key=repr) == sorted(map(list, pairs), key=repr)


@examples(40)
@given(
    rows,
    cuts,
    st.sampled_from(HOWS),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.integers(0, 1000),
    st.integers(1, 3),
)
def test_a_window_join_is_a_product_in_each_window(
    given_rows: list[Row],
    cuts: list[tuple[int, int, bool]],
    how: str,
    shape: tuple[int, int],
    seed: int,
    tasks: int,
) -> None:
    size, slide = shape
    work = Work(given_rows, cuts)
    windows: dict[tuple[int, int], tuple[list[Any], list[Any]]] = {}
    late = []
    watermark = -1000
    for batch, following, _ in work.batches:
        for row in batch:
            own = Aligned(size, slide).assign(row[2])
            live = [window for window in own if window[1] > watermark]
            if own and not live:
                late.append(row[3])
            for window in live:
                windows.setdefault(window, ([], []))[row[0] == "right"].append(row)
        watermark = following
    wanted = []
    for (start, end), (left, right) in windows.items():
        pairs = matched(left, right, how, lambda a, b: a[1] == b[1])
        wanted += [[*pair, start, end] for pair in numbers(pairs)]
    spec = Tumbling(size) if size == slide else Sliding(size, slide)
    bolt = WindowJoin(
        left="left",
        right="right",
        on="key",
        window=spec,
        how=how,
        time=BY_HAND,
        select=("left:value", "right:value", "start", "end"),
    )
    found, found_late = work.run(bolt, seed, tasks)
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    assert found_late == sorted(late)


def sessions(own: Sequence[Any], gap: int) -> list[list[Any]]:
    """Cut the rows of a key where nothing comes for longer than a gap."""
    ordered = sorted(own, key=lambda row: row[2])
    found = [ordered[:1]]
    for one, other in pairwise(ordered):
        if other[2] - one[2] > gap:
            found.append([])
        found[-1].append(other)
    return found


@examples(40)
@given(rows, cuts, st.sampled_from(HOWS), st.integers(1, 9), st.integers(0, 1000))
def test_a_session_join_is_a_product_in_each_session(
    given_rows: list[Row],
    cuts: list[tuple[int, int, bool]],
    how: str,
    gap: int,
    seed: int,
) -> None:
    work = Work(given_rows, [(size, 1000, restart) for size, _, restart in cuts])
    everything = [row for batch, _, _ in work.batches for row in batch]
    wanted = []
    for key in ("a", "b", "c"):
        own = [row for row in everything if row[1] == key]
        for session in sessions(own, gap) if own else []:
            wanted += numbers(matched(*by_side(session), how, lambda a, b: True))
    nulls = by_side([row for row in everything if row[1] is None])
    wanted += numbers(matched(*nulls, how, lambda a, b: False))
    bolt = WindowJoin(
        left="left",
        right="right",
        on="key",
        window=Session(gap),
        how=how,
        time=BY_HAND,
        select=("left:value", "right:value"),
    )
    found, late = work.run(bolt, seed, 2)
    assert sorted(map(tuple, found), key=repr) == sorted(wanted, key=repr)
    assert late == []


@examples(40)
@given(rows, cuts, st.integers(1, 12), st.integers(0, 1000))
def test_a_cogroup_has_the_values_of_a_window_by_time(
    given_rows: list[Row], cuts: list[tuple[int, int, bool]], size: int, seed: int
) -> None:
    work = Work(given_rows, [(count, 1000, restart) for count, _, restart in cuts])
    groups: dict[Any, tuple[list[Any], list[Any]]] = {}
    alone = []
    for row in (row for batch, _, _ in work.batches for row in batch):
        start = row[2] - row[2] % size
        if row[1] is None:
            own = [[row[3]], []]
            alone.append([None, *(own if row[0] == "left" else own[::-1]), start, start + size])
        else:
            key = (row[1], start)
            groups.setdefault(key, ([], []))[row[0] == "right"].append(row)
    wanted = [
        [key, *([row[3] for row in sorted(own, key=lambda r: r[2])] for own in sides),
         start, start + size]
        for (key, start), sides in groups.items()
    ]  # fmt: skip
    bolt = CoGroup(["left", "right"], on="key", window=Tumbling(size), time=BY_HAND, values="value")
    found, _ = work.run(bolt, seed, 2)
    # Values of one time are in the order of arrival, which is the engine's between two streams.
    assert sorted(found, key=repr) == sorted(alone + wanted, key=repr)


tables = st.lists(st.tuples(st.sampled_from(("a", "b", None)), st.integers(0, 99)), max_size=5)


@examples(40)
@given(
    st.tuples(tables, tables, tables).filter(any),
    st.tuples(st.sampled_from(HOWS), st.sampled_from(HOWS)),
    st.sampled_from(("x", "y")),
    st.integers(0, 1000),
)
def test_a_join_bolt_is_loops_over_its_window(
    content: tuple[list[Any], ...], hows: tuple[str, str], prior: str, seed: int
) -> None:
    names = ("x", "y", "z")
    bolt = JoinBolt("x", "k")
    for name, how, other in zip(names[1:], hows, ("x", prior), strict=True):
        join = bolt.join if how == "inner" else getattr(bolt, f"{how}_join")
        join(name, "k", other)
    bolt.select("x:v,y:v,z:v").with_tumbling_window(sum(map(len, content)))
    feeders = {name: FeederSpout(["k", "v"]) for name in names}
    builder = TopologyBuilder()
    declarer = builder.set_bolt("j", bolt)
    for name in names:
        builder.set_spout(name, feeders[name])
        declarer.global_grouping(name)
    run = TestCluster(seed=seed).submit_topology("t", builder.create_topology())
    for name, own in zip(names, content, strict=True):
        for row in own:
            feeders[name].feed(list(row))
    run.settle()

    records: list[dict[str, Any]] = [{"x": row} for row in content[0]]
    for name, how, other, own in zip(names[1:], hows, ("x", prior), content[1:], strict=True):
        joined = []
        met: set[int] = set()
        for record in records:
            key = record.get(other, (None, None))[0]
            matches = [row for row in own if key is not None and row[0] == key]
            met |= set(map(id, matches))
            joined += [{**record, name: row} for row in matches]
            if not matches and how in ("left", "outer"):
                joined.append(record)
        if how in ("right", "outer"):
            joined += [{name: row} for row in own if id(row) not in met]
        records = joined
    wanted = [[record[name][1] if name in record else None for name in names] for record in records]
    assert sorted(run.tuples("j"), key=repr) == sorted(wanted, key=repr)


@examples(40)
@given(
    st.lists(st.sampled_from(("xa", "xb", "ya", "yb")), min_size=1, max_size=20),
    st.integers(2, 6),
    st.integers(0, 1000),
)
def test_only_new_gives_each_pair_of_sliding_windows_once(
    events: list[str], length: int, seed: int
) -> None:
    feeders = {name: FeederSpout(["k", "v"]) for name in "xy"}
    bolt = JoinBolt("x", "k", only_new=True).join("y", "k", "x").select("x:v,y:v")
    builder = TopologyBuilder()
    declarer = builder.set_bolt("j", bolt.with_window(length, 1))
    for name in "xy":
        builder.set_spout(name, feeders[name])
        declarer.global_grouping(name)
    run = TestCluster(seed=seed).submit_topology("t", builder.create_topology())
    for number, event in enumerate(events):
        feeders[event[0]].feed([event[1], number])
        run.settle()
    wanted = [
        [x, y]
        for x, one in enumerate(events)
        for y, other in enumerate(events)
        if one[0] == "x" and other[0] == "y" and one[1] == other[1] and abs(x - y) < length
    ]
    assert sorted(run.tuples("j")) == sorted(wanted)
