"""Windows against a brute-force oracle: every window of every key, added up by itself."""

from __future__ import annotations

import itertools
import pickle
from collections import defaultdict, deque
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from topo.event_time import AFTER_ALL, BEFORE_ALL
from topo.operators.aggregates.accumulators import Accumulators
from topo.operators.aggregates.combiners import (
    ArgMax,
    Collect,
    Combiner,
    Count,
    Distinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    Sum,
    TopK,
    Var,
)
from topo.windows.assigners import Aligned, Sessions, merge_with
from topo.windows.general import KeyedWindows
from topo.windows.pane_sums import TwoStacks
from topo.windows.panes import PaneWindows
from topo.windows.records import Pane, ReportRules
from topo.windows.sessions import Ended, SessionWindows
from topo.windows.triggers import AfterCount, AtWatermark

Event = tuple[str, int, int]
Fired = tuple[str, int, int, Any]

events = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-20, 60), st.integers(-9, 9)), max_size=60
)
shapes = st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(-5, 5))


def batches(events: Sequence[Event], seed: int) -> list[tuple[list[Event], int]]:
    """Cut events into batches, each with a watermark that never goes back."""
    random = Random(seed)
    made = []
    rest = list(events)
    watermark = -30
    while rest:
        size = random.choice((1, 5, 40))
        batch, rest = rest[:size], rest[size:]
        watermark = max(watermark, max(ts for _, ts, _ in batch) - random.randint(0, 15))
        made.append((batch, watermark))
    return [*made, ([], AFTER_ALL)]


def expected(windows: Aligned, work: list[tuple[list[Event], int]]) -> tuple[list[Fired], int]:
    """Return what fires, as sums, and how many tuples are late for all their windows."""
    content: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    fired: list[Fired] = []
    late, before = 0, BEFORE_ALL
    for batch, watermark in work:
        for key, ts, value in batch:
            own = windows.assign(ts)
            live = [window for window in own if window[1] > before]
            late += bool(own) and not live
            for window in live:
                content[window][key] = content[window].get(key, 0) + value
        for window in sorted(content, key=lambda window: window[1]):
            if window[1] <= watermark:
                fired += [(key, *window, total) for key, total in content.pop(window).items()]
        before = watermark
    return fired, late


def by_panes(
    windows: Aligned,
    work: list[tuple[list[Event], int]],
    combiner: Combiner,
    saved: bool,
    only_changed: bool = False,
) -> tuple[list[Fired], int]:
    fired: list[Fired] = []
    cells = Accumulators({"it": combiner})

    def take(start: int, end: int, items: Any) -> None:
        fired.extend((key, start, end, cells.results(cell)[0]) for key, cell in items)

    made = PaneWindows(windows, cells, take, only_changed=only_changed)
    late = 0
    for batch, watermark in work:
        if batch:
            keys, times, values = map(list, zip(*batch, strict=True))
            late += len(made.add(keys, times, [values]))
        made.end_batch()
        made.advance(watermark)
        if saved:
            again = PaneWindows(windows, cells, take, only_changed=only_changed)
            tables: Any = {name: dict(table) for name, table in made.tables.items()}
            again.restore(tables, made.watermark)
            made = again
    assert made.rows == 0
    return fired, late


def by_key(
    windows: Aligned, work: list[tuple[list[Event], int]], combiner: Combiner
) -> tuple[list[Fired], int]:
    panes: list[Pane] = []
    cells = Accumulators({"it": combiner})
    made = KeyedWindows(windows, cells, AtWatermark(), ReportRules(), panes.append)
    late = 0
    for batch, watermark in work:
        for key, ts, value in batch:
            late += not made.add(key, ts, [value], 0.0)
        made.end_batch(0.0)
        made.advance(watermark, 0.0)
    assert made.rows == 0
    return [(pane.key, pane.start, pane.end, pane.results[0]) for pane in panes], late


@examples(100)
@given(events, shapes, st.integers(0, 1000))
def test_panes_and_single_windows_are_what_brute_force_gives(
    events: list[Event], shape: tuple[int, int, int], seed: int
) -> None:
    windows = Aligned(*shape)
    work = batches(events, seed)
    fired, late = expected(windows, work)
    for ways in (
        by_panes(windows, work, Sum("v"), saved=False),
        by_panes(windows, work, Sum("v"), saved=True),
        by_key(windows, work, Sum("v")),
    ):
        assert sorted(ways[0]) == sorted(fired)
        assert ways[1] == late
        assert [one[2] for one in ways[0]] == sorted(one[2] for one in fired)  # in order


@pytest.mark.parametrize("combiner", [Collect("v"), Count("v")], ids=["merged", "subtracted"])
@pytest.mark.parametrize("saved", [False, True])
@examples(100)
@given(events, shapes, st.integers(0, 1000))
def test_keys_that_did_not_change_are_left_out_when_so_wanted(
    combiner: Combiner, saved: bool, events: list[Event], shape: tuple[int, int, int], seed: int
) -> None:
    windows = Aligned(*shape)
    if windows.size == windows.slide:
        return
    numbered = [(key, ts, number) for number, (key, ts, _) in enumerate(events)]
    work = batches(numbered, seed)
    everything, late = by_panes(windows, work, Collect("v"), saved=False)
    content = {(key, end): set(numbers) for key, _, end, numbers in everything}
    wanted = [
        (key, start, end, len(numbers))
        for key, start, end, numbers in everything
        if content.get((key, end - windows.slide)) != set(numbers)
    ]
    found = by_panes(windows, work, combiner, saved, only_changed=True)
    fired = found[0]
    if isinstance(combiner, Collect):
        fired = [(key, start, end, len(numbers)) for key, start, end, numbers in fired]
    assert sorted(fired) == sorted(wanted)
    assert found[1] == late


@examples(100)
@given(events, shapes, st.integers(0, 1000))
def test_what_cannot_be_taken_away_is_merged_instead(
    events: list[Event], shape: tuple[int, int, int], seed: int
) -> None:
    windows = Aligned(*shape)
    work = batches(events, seed)
    assert sorted(by_panes(windows, work, Max("v"), saved=False)[0]) == sorted(
        by_key(windows, work, Max("v"))[0]
    )


@examples(100)
@given(events, shapes, st.integers(0, 1000))
def test_collected_values_are_in_the_order_of_arrival(
    events: list[Event], shape: tuple[int, int, int], seed: int
) -> None:
    windows = Aligned(shape[0], shape[0], shape[2])
    numbered = [(key, ts, number) for number, (key, ts, _) in enumerate(events)]
    work = batches(numbered, seed)
    by_one, _ = by_panes(windows, work, Collect("v"), saved=False)
    assert sorted(by_one) == sorted(by_key(windows, work, Collect("v"))[0])
    assert all(values == sorted(values) for *_, values in by_one)


class InOneBlock(Collect):
    """Collects as if its lists did not grow."""

    grows = False


@pytest.mark.parametrize("combiner", [Collect("v"), InOneBlock("v")], ids=["blocks", "one block"])
@examples(100)
@given(st.lists(st.booleans(), max_size=150), st.integers(0, 60))
def test_a_queue_of_panes_is_merged_in_their_order(
    combiner: Combiner, pops: list[bool], first: int
) -> None:
    reach, inside = TwoStacks(Accumulators({"it": combiner})), deque[int]()
    for number, pop in enumerate([False] * first + pops):
        if pop and inside:
            reach.pop()
            inside.popleft()
        reach.push({"a": [number], number: [number]})
        inside.append(number)
        found = dict(reach.items())
        assert found.pop("a") == list(inside)
        assert found == {number: [number] for number in inside}


def test_floats_are_never_subtracted() -> None:
    work: list[Any] = [([("a", 0, 1e16)], 0), ([("a", 1, 1.0)], 1), ([("a", 2, 1.0)], AFTER_ALL)]
    fired, _ = by_panes(Aligned(2, 1), work, Sum("v"), saved=False)
    assert fired[-1] == ("a", 2, 4, 1.0)
    assert fired[-2] == ("a", 1, 3, 2.0)


COMBINERS: dict[str, tuple[Combiner, Any]] = {
    "count": (Count(), len),
    "count of a field": (Count("v"), len),
    "sum": (Sum("v"), sum),
    "min": (Min("v"), lambda v: min(v, default=None)),
    "max": (Max("v"), lambda v: max(v, default=None)),
    "mean": (Mean("v"), lambda v: sum(v) / len(v) if v else None),
    "distinct": (Distinct("v"), lambda v: len(set(v))),
    "top": (TopK(3, "v"), lambda v: sorted(v, reverse=True)[:3]),
    "collect": (Collect("v"), list),
}


@pytest.mark.parametrize("name", COMBINERS)
@examples(100)
@given(values=st.lists(st.integers(-50, 50)), cut=st.integers(0, 30))
def test_merging_parts_gives_what_adding_all_gives(name: str, values: list[int], cut: int) -> None:
    combiner, plain = COMBINERS[name]

    def added(part: list[int]) -> Any:
        acc = combiner.init()
        for value in part:
            acc = combiner.add(acc, value)
        return acc

    merged = combiner.merge(added(values[:cut]), added(values[cut:]))
    assert combiner.result(merged) == plain(values)
    assert combiner.result(added(values)) == plain(values)


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1), st.integers(0, 9))
def test_first_last_and_argmax_break_ties_by_arrival(
    values: list[tuple[int, int]], cut: int
) -> None:
    for combiner, plain in (
        (First("v"), min(values, key=lambda v: v[0])[1]),
        (Last("v"), max(reversed(values), key=lambda v: v[0])[1]),
        (ArgMax("v", "by"), max(((b, a) for a, b in values), key=lambda v: v[1])[0]),
    ):
        pairs = [(b, a) for a, b in values] if isinstance(combiner, ArgMax) else values
        if isinstance(combiner, ArgMax):
            pairs = [(b, a) for a, b in values]
            plain = max(pairs, key=lambda v: v[1])[0]
        parts = []
        for part in (pairs[:cut], pairs[cut:]):
            acc = combiner.init()
            for value in part:
                acc = combiner.add(acc, value)
            parts.append(acc)
        assert combiner.result(combiner.merge(*parts)) == plain


@examples(100)
@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30), st.integers(0, 30))
def test_variance_merges_and_stays_close(values: list[float], cut: int) -> None:
    shifted = [value + 1e6 for value in values]
    combiner = Var("v")
    parts = []
    for part in (shifted[:cut], shifted[cut:]):
        acc = combiner.init()
        for value in part:
            acc = combiner.add(acc, value)
        parts.append(acc)
    mean = sum(values) / len(values)
    plain = sum((value - mean) ** 2 for value in values) / len(values)
    found = combiner.result(combiner.merge(*parts))
    assert found == pytest.approx(plain, rel=1e-6, abs=1e-3)


@examples(100)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 80)), max_size=40),
    st.integers(1, 9),
)
def test_sessions_are_the_runs_without_a_gap(events: list[tuple[str, int]], gap: int) -> None:
    from topo.event_time import EventTime

    panes: list[Pane] = []
    made = KeyedWindows(
        Sessions(gap, None, EventTime("ts")),
        Accumulators({"n": Count()}),
        AtWatermark(),
        ReportRules(),
        panes.append,
    )
    for key, ts in events:
        assert made.add(key, ts, [None], 0.0)
    made.end_batch(0.0)
    made.advance(AFTER_ALL, 0.0)
    wanted = []
    for key in {key for key, _ in events}:
        run: list[int] = []
        for ts in sorted(ts for own, ts in events if own == key):
            if run and ts - run[-1] > gap:
                wanted.append((key, run[0], run[-1] + gap, len(run)))
                run = []
            run.append(ts)
        wanted.append((key, run[0], run[-1] + gap, len(run)))
    found = [(pane.key, pane.start, pane.end, pane.results[0]) for pane in panes]
    assert sorted(found) == sorted(wanted)


def single_sessions(gap: int, work: list[tuple[list[Event], int]]) -> tuple[list[Fired], int]:
    """Return what fires by the general operator, one tuple at a time."""
    from topo.event_time import EventTime

    panes: list[Pane] = []
    cells = Accumulators({"it": Sum("v"), "all": Collect("v")})
    made = KeyedWindows(
        Sessions(gap, None, EventTime("ts")), cells, AtWatermark(), ReportRules(), panes.append
    )
    late = 0
    for batch, watermark in work:
        for key, ts, value in batch:
            late += not made.add(key, ts, [value, value], 0.0)
        made.end_batch(0.0)
        made.advance(watermark, 0.0)
    assert made.rows == 0
    return [(p.key, p.start, p.end, (p.results[0], sorted(p.results[1]))) for p in panes], late


@pytest.mark.parametrize("saved", [False, True])
@examples(100)
@given(events, st.integers(1, 12), st.integers(0, 1000))
def test_columns_of_sessions_are_what_single_tuples_give(
    saved: bool, events: list[Event], gap: int, seed: int
) -> None:
    work = batches(events, seed)
    wanted, wanted_late = single_sessions(gap, work)
    fired: list[Fired] = []
    cells = Accumulators({"it": Sum("v"), "all": Collect("v")})

    def take(sessions: list[Ended]) -> None:
        for key, start, end, cell in sessions:
            total, values = cells.results(cell)
            fired.append((key, start, end, (total, sorted(values))))

    made = SessionWindows(gap, cells, take)
    late = 0
    for batch, watermark in work:
        if batch:
            keys, times, values = map(list, zip(*batch, strict=True))
            late += len(made.add(keys, times, [values, values]))
        assert made.advance(watermark) >= 0
        if saved:
            again = SessionWindows(gap, cells, take)
            again.restore(pickle.loads(pickle.dumps(made.tables)), made.watermark)
            assert again.rows == made.rows
            made = again
    assert made.rows == 0
    assert not made.latest
    assert sorted(fired) == sorted(wanted)
    assert late == wanted_late
    assert [one[2] for one in fired] == [one[2] for one in wanted]


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=20))
def test_merged_intervals_never_touch(pairs: list[tuple[int, int]]) -> None:
    live: list[tuple[int, int]] = []
    for start, length in pairs:
        merged, absorbed = merge_with(live, (start, start + length))
        live = sorted([*(one for one in live if one not in absorbed), merged])
        assert all(a[1] < b[0] for a, b in itertools.pairwise(live))


@examples(100)
@given(events, st.integers(1, 5), st.integers(0, 1000))
def test_counted_panes_do_not_depend_on_batches(events: list[Event], n: int, seed: int) -> None:
    def run(cuts: list[tuple[list[Event], int]]) -> list[Any]:
        panes: list[Pane] = []
        made = KeyedWindows(
            Aligned(10, 10),
            Accumulators({"all": Collect("v")}),
            AtWatermark(early=AfterCount(n)),
            ReportRules(mode="discard", on_time="if_new"),
            panes.append,
        )
        for batch, _ in cuts:
            for key, ts, value in batch:
                made.add(key, ts, [value], 0.0)
            made.end_batch(0.0)
        made.advance(AFTER_ALL, 0.0)
        return sorted((p.key, p.start, p.index, p.results[0]) for p in panes)

    work = batches(events, seed)
    assert run(work) == run([(events, 0)])
