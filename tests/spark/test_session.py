"""The session that queries run in."""

from __future__ import annotations

from typing import Any

import pytest

from topo.engine.spark.session import query_session, start_session

pytestmark = pytest.mark.spark

EXCLUDED = "spark.sql.optimizer.excludedRules"


def test_rules_without_use_are_left_out_and_needed_ones_are_not() -> None:
    session = start_session("local[*]", {})
    own: Any = query_session(session, {})
    left_out = own.conf.get(EXCLUDED).split(",")
    assert "org.apache.spark.sql.catalyst.optimizer.ReorderJoin" in left_out
    needed = own._jsparkSession.sessionState().optimizer().nonExcludableRules().toString()
    assert not [rule for rule in left_out if rule in needed]


def test_a_setting_of_the_users_wins() -> None:
    session = start_session("local[*]", {})
    assert query_session(session, {EXCLUDED: "mine"}).conf.get(EXCLUDED) == "mine"
