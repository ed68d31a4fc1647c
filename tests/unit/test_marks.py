"""Marks in time: what is written of a run, what of it is read, and how errors join them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from topo.manage import marks
from topo.manage.marks import FILE, MOST_MARKS, marks_of, note_mark
from topo.manage.views import ErrorView, MarkView
from topo.metrics.series import Series, sample_of


def error(first: float, last: float) -> ErrorView:
    return ErrorView("split", 3, "h", "reported", "ValueError", "no", "a.py:1", "", 2, first, last)


def test_what_is_noted_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    note_mark(tmp_path, "restart", "start 2, after: it died")
    note_mark(tmp_path, "stall", "x" * 5000)
    first, second = marks_of(tmp_path, [], 0.0)
    assert (first.kind, first.text) == ("restart", "start 2, after: it died")
    assert first.at <= second.at
    assert len(second.text) == 300
    assert marks_of(tmp_path, [], second.at + 1) == []


def test_an_error_is_marked_where_it_came_first_and_last(tmp_path: Path) -> None:
    once, often = error(100.0, 100.0), error(50.0, 200.0)
    assert [
        (mark.at, mark.kind, mark.text) for mark in marks_of(tmp_path, [once, often], 60.0)
    ] == [
        (100.0, "error", "split: ValueError: no"),
        (200.0, "error", "split: ValueError: no (the latest)"),
    ]


def test_damaged_lines_hide_no_others(tmp_path: Path) -> None:
    good = {"at": 7.0, "kind": "rebalance", "text": "to 3 slots"}
    bad = ["", "[", "[]", "7", '{"at": "x", "kind": "stall", "text": ""}', '{"at": 1}',
           '{"at": 1, "kind": "<b>", "text": ""}', "\x00\xff", "[" * 100_000]  # fmt: skip
    (tmp_path / FILE).write_text("\n".join([*bad, json.dumps(good), *bad]))
    assert marks_of(tmp_path, [], 0.0) == [MarkView(7.0, "rebalance", "to 3 slots")]


def test_of_very_many_marks_the_end_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.dumps({"at": n, "kind": "stall", "text": "s"}) for n in range(MOST_MARKS + 50)]
    (tmp_path / FILE).write_text("\n".join(lines) + "\n")
    found = marks_of(tmp_path, [], 0.0)
    assert (len(found), found[-1].at) == (MOST_MARKS, MOST_MARKS + 49)
    monkeypatch.setattr(marks, "_MOST_BYTES", 100)
    assert 1 <= len(marks_of(tmp_path, [], 0.0)) <= 3


def test_errors_over_time_are_a_series_which_older_samples_lack() -> None:
    figures = {
        "components": {},
        "batch": {"id": 1, "ms": 1.0, "waited_ms": 0.0, "p50_ms": 1.0, "p99_ms": 1.0},
    }
    series = Series.load([[[0.0, *[10.0] * 13], [10.0, *[20.0] * 13]], [], []])
    for second in (20, 30, 40):
        series.add(float(second), sample_of(figures, errors=second))
    kept = Series.load(json.loads(json.dumps(series.dump()))).last(600, 40.0)
    assert kept["times"] == [10.0, 20.0, 30.0, 40.0]
    assert kept["errors_per_sec"] == [None, None, 1.0, 1.0]
    assert kept["emitted_per_sec"][0] == 1.0
    for figures_of_a_sample in (12, 15):
        rows = [[[0.0, *[1.0] * figures_of_a_sample]], [], []]
        assert Series.load(rows).last(600, 0.0)["times"] == []
