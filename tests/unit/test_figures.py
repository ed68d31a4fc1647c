"""The table of figures: what is shown of a figure, anywhere, follows from its one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from itertools import chain
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wiring import Fed
from topo import BasicBolt, Tuple
from topo.cli.stats import COLUMNS
from topo.context import ComponentFigures
from topo.errors import TopoError
from topo.manage.documents import plain
from topo.metrics import counters
from topo.metrics.counters import TaskMetrics
from topo.metrics.figure import (
    BUCKETS,
    counter,
    difference,
    figures_of,
    fresh_counts,
    gauge,
    histogram,
    in_buckets,
    mean,
    value_of,
)
from topo.metrics.figures import COMPONENT, BatchStats, ComponentStats, RunStats
from topo.metrics.history import Windows
from topo.metrics.observed import in_ranges, observed_of
from topo.metrics.prometheus import Exposed, exposition
from topo.metrics.reference import page

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "figures.md"


class Echo(BasicBolt):
    outputs = ("x",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.x])


def run(**of_spout: object) -> RunStats:
    spout = ComponentStats("spout", 1, **of_spout)  # type: ignore[arg-type]
    return RunStats("t", "ACTIVE", "", 1.0, "all", BatchStats(7, 100.0), {"s": spout})


def test_the_reference_page_is_the_tables() -> None:
    """`python -m topo.metrics.reference > docs/reference/figures.md` writes it."""
    assert DOCS.read_text() == page()


def test_every_figure_has_a_meaning_and_every_field_is_a_figure() -> None:
    assert all(figure.meaning for figure in COMPONENT)
    others = {line.name for line in fields(ComponentStats)} - {f.name for f in COMPONENT}
    assert others == {"kind", "tasks", "executors", "by_task"}
    assert [figure.label for figure in COMPONENT if figure.label in COLUMNS]


def test_a_line_is_all_that_a_figure_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Table:
        acked: int = counter("messages", "Acked messages")
        retried: int = counter("messages", "Retried messages")
        open_files: int = gauge("files", "Open files")
        wait_ms: float | None = mean("waited", "acked", 1000, "milliseconds", "Mean time waited")
        wait_by: Mapping[str, int] = histogram("seconds", "Waits, by time")

    table = figures_of(Table)
    monkeypatch.setattr(counters, "_COUNTS", fresh_counts(table))
    monkeypatch.setattr(counters, "COMPONENT", table)
    monkeypatch.setattr(counters, "_SUMMED", ["acked", "retried", "waited", "wait_by"])
    total = TaskMetrics()
    for files in (3, 2):
        batch = TaskMetrics()
        batch.acked, batch.retried, batch.waited, batch.open_files = 2, 5, 0.5, files
        batch.wait_by.update(in_buckets([0, 1]))
        total.add(batch)
    values = {figure.name: value_of(figure, total, "spout", 1.0) for figure in table}
    assert values == {
        "acked": 4, "retried": 10, "open_files": 2, "wait_ms": 250.0, "wait_by": {BUCKETS[1]: 2}
    }  # fmt: skip
    before = {**values, "retried": 7, "acked": 2, "wait_ms": 100.0, "wait_by": {BUCKETS[1]: 1}}
    later = difference(table, values, before, 10.0)
    assert later == {
        "acked": 2, "retried": 3, "open_files": 2, "wait_ms": 400.0, "wait_by": {BUCKETS[1]: 1}
    }  # fmt: skip


def test_levels_of_tasks_are_added_up_and_ages_are_not() -> None:
    whole, other = TaskMetrics(), TaskMetrics()
    whole.held, whole.oldest_held_secs, whole.gauges["lag"] = 2, 5.0, 1.0
    other.held, other.oldest_held_secs, other.gauges["lag"] = 3, 4.0, 2.0
    whole.merge(other)
    assert (whole.held, whole.oldest_held_secs, whole.gauges) == (5, 5.0, {"lag": 3.0})


def test_a_size_stays_until_another_one_is_reported() -> None:
    total, first, second = TaskMetrics(), TaskMetrics(), TaskMetrics()
    first.saved_bytes = 100
    total.add(first)
    total.add(second)
    assert total.saved_bytes == 100


def test_what_a_run_counts_is_in_its_stats() -> None:
    fed = Fed(Echo()).feed(1, 2, 3)
    fed.cluster.advance(1)
    stats = fed.run.stats().components
    assert stats["b1"].emitted_by == {"default": 3}
    assert sum(stats["s"].complete_by.values()) == stats["s"].acked == 3
    assert asdict(stats["b1"])["by_task"]


class Sizes(BasicBolt):
    """Notes the size of what it gets, by whether it is odd."""

    def execute(self, tup: Tuple) -> None:
        self.context.histogram("size", tup.x, odd=bool(tup.x % 2))


def test_what_a_component_observes_is_counted_by_range() -> None:
    fed = Fed(Sizes()).feed(1, 2, 3, 700, 0, -4)
    fed.cluster.advance(1)
    component = fed.run.stats().components["b1"]
    even, odd = observed_of(component.histograms)
    assert (even.labels, even.buckets, even.sum) == (
        {"odd": "False"}, {0.0: 2, 2.0: 1, 1000.0: 1}, 698.0
    )  # fmt: skip
    assert (odd.labels, odd.buckets, odd.mean) == ({"odd": "True"}, {1.0: 1, 5.0: 1}, 2.0)
    assert [even.quantile(part) for part in (0.5, 0.75, 0.99)] == [0.0, 2.0, 1000.0]
    fed.feed(3)
    fed.cluster.advance(1)
    _, odd = observed_of(fed.run.stats().components["b1"].histograms)
    assert (odd.buckets, odd.sum) == ({1.0: 1, 5.0: 2}, 7.0)


def test_a_histogram_has_all_limits_between_its_ends_for_prometheus() -> None:
    counts = in_ranges({'size{kind="a"}': [3.0, 30.0, 40.0, 1e300]})
    body, _ = exposition([Exposed("t", "ACTIVE", plain(run(histograms=counts)))])
    lines = [line for line in body.decode().splitlines() if line.startswith("topo_component_size")]
    at = 'component="s",kind="a"'
    below = {"5": 1, "10": 1, "20": 1, "50": 3, "+Inf": 4}
    assert lines == [
        *(f'topo_component_size_bucket{{{at},le="{limit}",topology="t"}} {count}.0'
          for limit, count in below.items()),
        f'topo_component_size_count{{{at},topology="t"}} 4.0',
        f'topo_component_size_sum{{{at},topology="t"}} 1e+300',
    ]  # fmt: skip


@given(
    st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), max_size=20)),
    st.floats(0.01, 1),
)
def test_parts_of_a_histogram_add_up_to_the_whole(parts: list[list[float]], part: float) -> None:
    total = TaskMetrics()
    for values in parts:
        batch = TaskMetrics()
        batch.histograms = in_ranges({"x": values})
        total.add(batch)
    values = sorted(chain(*parts))
    found = observed_of(total.histograms)
    assert len(found) == bool(values)
    for one in found:
        assert one.count == len(values)
        assert list(one.cumulated())[-1] == ("+Inf", len(values))
        for limit, below in one.cumulated():
            assert below == sum(value <= float(limit) for value in values)
        assert one.quantile(part) >= values[ceil(part * len(values)) - 1]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"value": float("nan")}, "the histogram size takes finite numbers; got nan"),
        ({"value": float("inf")}, "finite numbers; got inf"),
        ({"value": 1, "le": 5}, "a histogram's label cannot be 'le'"),
    ],
)
def test_a_histogram_takes_numbers(values: dict[str, object], words: str) -> None:
    figures = ComponentFigures()
    value = values.pop("value")
    with pytest.raises(TopoError, match=words):
        figures.observe("size", value, values)  # type: ignore[arg-type]
    assert in_ranges(figures.take()[2]) == {}


def test_a_name_is_of_one_kind_of_figure() -> None:
    figures = ComponentFigures()
    figures.gauge("x", 1, {})
    figures.gauge("x", 2, {"a": 1})
    for wrong in (figures.count, figures.observe):
        with pytest.raises(TopoError, match="x is a gauge already, and cannot be a"):
            wrong("x", 1, {})


def test_histograms_have_windows_too() -> None:
    windows = Windows()
    windows.add(0.0, plain(run(complete_by={"0.1": 4, "0.5": 1})))
    last = windows.last(10.0, 10.0, plain(run(complete_by={"0.1": 6, "0.5": 1})))
    assert last["components"]["s"]["complete_by"] == {"0.1": 2}


def test_prometheus_gets_names_types_and_units_from_the_table() -> None:
    stats = run(
        acked=4, complete_ms=50.0, complete_by={"0.05": 3, "+Inf": 1}, failed=3, failed_by={"x": 2}
    )
    body, kind = exposition([Exposed("t", "ACTIVE", plain(stats))])
    accept = "application/openmetrics-text; version=1.x, text/plain; version=2.y"
    odd, odd_kind = exposition([Exposed("t", "ACTIVE", plain(stats))], accept)
    # Older releases of Prometheus' library look at no versions; newer ones raise for these.
    assert odd_kind in (kind, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert odd_kind != kind or odd == body
    lines = body.decode().splitlines()
    at = 'component="s",topology="t"'
    assert 'topo_tuples_acked_total{component="s",stream="",topology="t"} 4.0' in lines
    assert 'topo_tuples_failed_total{component="s",reason="x",topology="t"} 2.0' in lines
    assert 'topo_tuples_failed_total{component="s",reason="",topology="t"} 1.0' in lines
    assert "# TYPE topo_complete_seconds histogram" in lines
    assert f"topo_complete_seconds_sum{{{at}}} 0.2" in lines
    assert f"topo_complete_seconds_count{{{at}}} 4.0" in lines
    assert not [line for line in lines if line.startswith("topo_execute")]  # a bolt's


def test_a_mean_of_what_an_earlier_topo_did_not_count_is_not_exposed() -> None:
    document = plain(run(executed=4))
    document["components"]["s"] |= {"kind": "bolt", "execute_ms": 1.0, "process_ms": 1.0}
    del document["components"]["s"]["settled"]
    body, _ = exposition([Exposed("t", "ACTIVE", document)])
    samples = [line for line in body.decode().splitlines() if not line.startswith("#")]
    assert [line for line in samples if line.startswith("topo_execute_seconds_total")]
    assert not [line for line in samples if line.startswith("topo_process_seconds_total")]
