"""Errors out of Spark's processes reach the user as theirs, and without a frame of the JVM."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from tests.conformance.doubles import Numbers, Total
from tests.spark.doubles import LONGEST_SECS, WORKERS
from tests.wiring import line
from topo import BasicBolt, Bolt, LocalCluster, StatelessError, Tuple, UncaughtError
from topo.testing import complete_topology

pytestmark = pytest.mark.spark


class OutOfStock(Exception):
    """An error of the user's own, with arguments of its own."""

    def __init__(self, item: str, wanted: int) -> None:
        super().__init__(f"no {item}: {wanted} wanted")
        self.item = item


class Sells(BasicBolt):
    outputs = ("num",)

    def execute(self, tup: Tuple) -> None:
        if tup["num"] == 7:
            raise OutOfStock("cows", tup["num"])
        self.emit(tup.values)


@pytest.mark.smoke
def test_an_uncaught_error_is_the_users_with_their_traceback_first() -> None:
    with pytest.raises(OutOfStock) as raised:
        complete_topology(line(Numbers(20), Sells(), Total()), conf=WORKERS, engine="spark")
    error = raised.value
    assert isinstance(error, UncaughtError)
    assert (error.component, error.task, error.tuple_text) == ("b1", 1, "tuple [7] of 's'")
    text = str(error)
    assert text.startswith("Traceback (most recent call last):\n")
    assert 'raise OutOfStock("cows", tup["num"])' in text
    assert "bolt 'b1' task 1, tuple [7] of 's': OutOfStock: no cows: 7 wanted" in text
    shown = "".join(traceback.format_exception(error))
    assert [word for word in ("\tat ", "py4j", "org.apache.spark") if word in shown] == []


class OpensNothing(Numbers):
    def open(self, conf: Any, context: Any, collector: Any) -> None:
        raise FileNotFoundError("no such feed")


def test_an_error_of_open_is_the_users_too() -> None:
    with pytest.raises(FileNotFoundError, match="no such feed") as raised:
        complete_topology(line(OpensNothing(1)), conf=WORKERS, engine="spark")
    assert isinstance(raised.value, UncaughtError)
    assert (raised.value.component, raised.value.tuple_text) == ("s", "")


def test_with_fail_the_tuple_fails_and_the_run_goes_on(cluster: LocalCluster) -> None:
    conf = {**WORKERS, "topology.uncaught.error": "fail"}
    run = cluster.submit_topology(
        "t", line(Numbers(20), Sells(), Total()), conf, capture=["b1", "b2"]
    )
    run.await_completion(LONGEST_SECS)
    assert run.tuples("b1") == [[number] for number in range(20) if number != 7]
    spout = run.stats().components["s"]
    assert (spout.acked, spout.failed, spout.failed_by) == (19, 1, {"failed": 1})
    uncaught = next(error for error in run.errors() if error.kind == "uncaught")
    assert (uncaught.component, uncaught.task) == ("b1", 1)
    assert (uncaught.type, uncaught.message) == ("OutOfStock", "no cows: 7 wanted")
    assert "raise OutOfStock" in uncaught.traceback


class Keeps(Bolt):
    """Says that it keeps nothing, and keeps tuples where they are not saved."""

    stateless = True
    transient = ("kept",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)


def test_a_bolt_that_keeps_tuples_is_not_stateless() -> None:
    with pytest.raises(StatelessError, match="'b1' task 1 says stateless = True and kept 3 tuple"):
        complete_topology(line(Numbers(3), Keeps()), conf=WORKERS, engine="spark")
