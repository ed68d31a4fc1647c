"""Windows around events against a brute-force oracle: every window added up by itself."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from tests.property.test_window_laws import Event, Fired, batches
from topo.event_time import AFTER_ALL, BEFORE_ALL
from topo.operators.aggregates.accumulators import Accumulators
from topo.operators.aggregates.combiners import Collect, Combiner, Count, Max, Sum
from topo.windows.assigners import EventSpans
from topo.windows.event_reports import EventReports
from topo.windows.event_windows import EventWindows
from topo.windows.records import Pane, ReportRules
from topo.windows.triggers import AfterCount, AtWatermark, EachBatch, Trigger

Work = list[tuple[list[Event], int]]
# Dense enough that times meet the ends of windows and the watermark exactly.
events = st.lists(
    st.tuples(st.sampled_from("aab"), st.integers(-3, 22), st.integers(-9, 9)), max_size=60
)
spans = st.builds(EventSpans, st.integers(0, 9), st.booleans())


def starts_of(spans: EventSpans, times: Sequence[int]) -> set[int]:
    """Return the starts of the windows that a key with these times has."""
    starts = {ts - spans.size for ts in times}
    if spans.after:
        starts |= {
            ts + 1 for ts in times if any(ts < other <= ts + 1 + spans.size for other in times)
        }
    return starts


def expected(
    spans: EventSpans, work: Work, lateness: int = 0
) -> tuple[dict[tuple[str, int, int], list[int]], int]:
    """Return what each window has when it is over, and how many tuples are late."""
    kept: list[Event] = []
    found: dict[tuple[str, int, int], list[int]] = {}
    late, before = 0, BEFORE_ALL
    for batch, watermark in [*work, ([], 2 * AFTER_ALL)]:
        for key, ts, value in batch:
            times = [ts, *(at for own, at, _ in kept if own == key)]
            open_starts = [
                start
                for start in starts_of(spans, times)
                if start <= ts <= start + spans.size and start + spans.size >= before - lateness
            ]
            if open_starts:
                kept.append((key, ts, value))
            late += not open_starts
        for key in {key for key, _, _ in kept}:
            own = [(ts, value) for at, ts, value in kept if at == key]
            for start in starts_of(spans, [ts for ts, _ in own]):
                end = start + spans.size
                if before - lateness <= end < watermark - lateness:
                    inside = [value for ts, value in own if start <= ts <= end]
                    found[key, start, end] = sorted(inside)
        before = watermark
    return found, late


def by_points(
    spans: EventSpans, work: Work, combiner: Combiner, saved: bool
) -> tuple[list[Fired], int]:
    fired: list[Fired] = []
    cells = Accumulators({"it": combiner})

    def take(start: int, end: int, items: Any) -> None:
        fired.extend((key, start, end, cells.results(cell)[0]) for key, cell in items)

    made = EventWindows(spans, cells, take)
    late = 0
    for batch, watermark in work:
        if batch:
            keys, times, values = map(list, zip(*batch, strict=True))
            late += len(made.add(keys, times, [values]))
        made.end_batch()
        due = made.next_event()
        if made.advance(watermark):
            assert due is not None
            assert due <= watermark
        if saved:
            tables, before = pickle.loads(pickle.dumps(made.tables)), made.watermark
            rows = made.rows
            made = EventWindows(spans, cells, take)
            made.restore(tables, before)
            assert made.rows == rows
    assert made.rows == 0
    return fired, late


def by_record(
    spans: EventSpans, work: Work, trigger: Trigger, rules: ReportRules, saved: bool
) -> tuple[list[Pane], int]:
    panes: list[Pane] = []
    cells = Accumulators({"it": Collect("v")})
    made = EventReports(spans, cells, trigger, rules, panes.append)
    late = 0
    for batch, watermark in work:
        for key, ts, value in batch:
            late += not made.add(key, ts, [value], 0.0)
        made.end_batch(0.0)
        made.advance(watermark, 0.0)
        if saved:
            tables, before = pickle.loads(pickle.dumps(made.tables)), made.watermark
            made = EventReports(spans, cells, trigger, rules, panes.append)
            made.restore(tables, before)
    if rules.lateness == 0:
        assert made.rows == 0
    return panes, late


@pytest.fixture(params=[64, 2], ids=["few points", "many points"], scope="module")
def most_points(request: pytest.FixtureRequest) -> Iterator[int]:
    """Have windows with more points be many, for aggregates that grow."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("event_windows", "event_reports"):
            patch.setattr(f"topo.windows.{module}.MANY", request.param)
        yield request.param


@pytest.mark.usefixtures("most_points")
@pytest.mark.parametrize("saved", [False, True])
@examples(200)
@given(spans, events, st.integers(0, 1000))
def test_points_give_what_brute_force_gives(
    saved: bool, spans: EventSpans, events: list[Event], seed: int
) -> None:
    work = batches([(key, ts, ts) for key, ts, _ in events], seed)
    wanted, wanted_late = expected(spans, work)
    in_order, _ = by_points(spans, work, Collect("ts"), saved)
    assert all(times == sorted(times) for *_, times in in_order)
    plain: list[tuple[Combiner, Any]] = [
        (Collect("v"), sorted), (Sum("v"), sum), (Max("v"), max), (Count(), len),
    ]  # fmt: skip
    for combiner, plainly in plain:
        fired, late = by_points(spans, work, combiner, saved)
        tidy = sorted if isinstance(combiner, Collect) else lambda result: result
        found = [(key, start, end, tidy(result)) for key, start, end, result in fired]
        assert sorted(found) == sorted((*place, plainly(v)) for place, v in wanted.items())
        assert late == wanted_late
        assert [end for _, _, end, _ in fired] == sorted(end for _, _, end, _ in fired)


@pytest.mark.usefixtures("most_points")
@pytest.mark.parametrize("saved", [False, True])
@examples(200)
@given(spans, events, st.integers(0, 1000), st.sampled_from([0, 3, 20]))
def test_the_last_report_of_each_window_is_what_brute_force_gives(
    saved: bool, spans: EventSpans, events: list[Event], seed: int, lateness: int
) -> None:
    work = batches(events, seed)
    wanted, wanted_late = expected(spans, work, lateness)
    for trigger, on_time in (
        (AtWatermark(), "always"),
        (AtWatermark(early=AfterCount(1), late=AfterCount(1)), "if_new"),
        (AtWatermark(early=EachBatch()), "if_new"),
    ):
        rules = ReportRules(lateness=lateness, on_time=on_time)
        panes, late = by_record(spans, work, trigger, rules, saved)
        last = {(pane.key, pane.start, pane.end - 1): pane for pane in panes}
        assert {place: sorted(pane.results[0]) for place, pane in last.items()} == wanted
        assert late == wanted_late
        for pane in panes:
            assert pane.new <= len(pane.results[0])


@examples(100)
@given(spans, events, st.integers(0, 1000))
def test_what_is_discarded_adds_up_to_the_window(
    spans: EventSpans, events: list[Event], seed: int
) -> None:
    work = batches(events, seed)
    wanted, _ = expected(spans, work)
    rules = ReportRules(mode="discard", on_time="if_new")
    panes, _ = by_record(spans, work, AtWatermark(early=AfterCount(2)), rules, saved=False)
    found: dict[tuple[str, int, int], list[int]] = {}
    for pane in panes:
        assert len(pane.results[0]) == pane.new
        found.setdefault((pane.key, pane.start, pane.end - 1), []).extend(pane.results[0])
    assert {place: sorted(values) for place, values in found.items()} == wanted


@examples(100)
@given(spans, events, st.integers(0, 1000))
def test_what_is_taken_back_leaves_the_last_report(
    spans: EventSpans, events: list[Event], seed: int
) -> None:
    work = batches(events, seed)
    wanted, _ = expected(spans, work)
    rules = ReportRules(mode="retract", on_time="if_new")
    panes, _ = by_record(spans, work, AtWatermark(early=EachBatch()), rules, saved=True)
    found: dict[tuple[str, int, int], list[int]] = {}
    for pane in panes:
        place = (pane.key, pane.start, pane.end - 1)
        if pane.change == "-":
            assert found.pop(place) == pane.results[0]
        else:
            assert place not in found
            found[place] = pane.results[0]
    assert {place: sorted(values) for place, values in found.items()} == wanted


@pytest.mark.parametrize(("ts", "late"), [(7, 0), (10, 0), (6, 0), (5, 1)])
def test_a_late_tuple_may_be_the_first_after_another_one(ts: int, late: int) -> None:
    spans = EventSpans(4, after=True)
    work: Work = [([("a", 5, 1)], 10), ([("a", ts, 2)], 10), ([], AFTER_ALL)]
    wanted, wanted_late = expected(spans, work)
    assert wanted_late == late
    fired, found_late = by_points(spans, work, Sum("v"), saved=False)
    assert sorted(fired) == sorted((*place, sum(values)) for place, values in wanted.items())
    assert found_late == late
    panes, found_late = by_record(spans, work, AtWatermark(), ReportRules(), saved=False)
    assert {(p.key, p.start, p.end - 1): p.results[0] for p in panes} == wanted
    assert found_late == late
