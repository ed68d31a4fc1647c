"""The examples with joins, to their end and with mock sources."""

from __future__ import annotations

import pytest

from examples import orders_payments, people_joined, trending_hashtags
from topo.testing import complete_topology


def test_an_order_is_booked_or_reminded_of(capsys: pytest.CaptureFixture[str]) -> None:
    result = complete_topology(orders_payments.topology())
    assert sorted(result.tuples("reminders")) == [["o2", 12], ["o3", 99]]
    said = capsys.readouterr().out.splitlines()
    assert "booked ('o1', 30)" in said
    assert "order o3 of 99 is not paid" in said
    assert len(said) == 3


def test_people_are_joined_who_are_in_both_lists() -> None:
    result = complete_topology(people_joined.topology())
    names, ages = dict(people_joined.NAMES), dict(people_joined.AGES)
    both = [[number, names[number], ages[number]] for number in names.keys() & ages.keys()]
    assert len(both) == 4
    assert sorted(result.tuples("joined")) == sorted(both)


def test_a_tag_trends_when_its_count_has_doubled() -> None:
    minute = 60_000
    posts = [["#a", 0], ["#b", 1], ["#b", 2], ["#a", minute], ["#a", minute + 1], ["#b", minute]]
    posts += [["#c", 2 * minute], ["#c", 2 * minute + 1], ["#a", 4 * minute], ["#a", 4 * minute]]
    result = complete_topology(trending_hashtags.topology(), mock_sources={"posts": posts})
    assert sorted(result.tuples("trending"), key=lambda row: (row[1], row[0])) == [
        ["#b", minute, 2, 0],
        ["#a", 2 * minute, 2, 1],
        ["#c", 3 * minute, 2, 0],
        ["#a", 5 * minute, 2, 0],
    ]
