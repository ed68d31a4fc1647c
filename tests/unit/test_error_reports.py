"""Errors on their way to `topo errors`: however many fail at once, few words and exact counts."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.wiring import Fed
from topo import Bolt, Tuple
from topo.engine.spark.worker.report import Report
from topo.metrics.counters import MORE_ERRORS, MOST_ERRORS, ErrorReport, ErrorReports, TaskMetrics
from topo.runtime import user_errors as failures
from topo.tracking.plan import Mode


def failed(message: str) -> ErrorReport:
    return ErrorReport("s", 2, "failed", "", message)


def test_equal_errors_are_one_with_their_count() -> None:
    errors = ErrorReports()
    for message in ["acker lost", "timeout", "acker lost"]:
        errors.append(failed(message))
    errors.append(ErrorReport("s", 2, "reported", "", "timeout"))
    assert [(e.kind, e.message, e.count) for e in errors] == [
        ("failed", "acker lost", 2),
        ("failed", "timeout", 1),
        ("reported", "timeout", 1),
    ]


def test_of_many_different_ones_the_first_are_kept_and_all_are_counted() -> None:
    errors = ErrorReports()
    for number in range(1000):
        errors.append(failed(f"bad row {number}"))
        errors.append(failed("bad row 3"))
    found = {error.message: error.count for error in errors}
    assert len(found) == MOST_ERRORS + 1
    assert found["bad row 0"] == 1
    assert found["bad row 3"] == 1001
    assert found[MORE_ERRORS] == 1000 - MOST_ERRORS
    errors.keep(3)
    assert [(e.message, e.count) for e in errors] == [
        ("bad row 0", 1),
        ("bad row 3", 1001),
        ("bad row 1", 1),
        (MORE_ERRORS, 1000 - 3),
    ]


def test_long_texts_are_cut() -> None:
    errors = ErrorReports()
    for number in range(50):
        long = f"{number} " + "x" * 1_000_000
        errors.append(ErrorReport("b", 3, "uncaught", "ValueError", long, "a.py:1", long))
    (first, *_) = errors
    assert first.message.startswith("0 xxx")
    assert first.message.endswith("xxx...")
    assert sum(error.count for error in errors) == 50
    assert len(pickle.dumps(errors)) < 300_000


def test_a_report_with_no_other_way_leaves_out_errors_and_not_how_many() -> None:
    metrics = {}
    for task in range(100):
        metrics[task] = TaskMetrics()
        for number in range(MOST_ERRORS):
            error = ErrorReport("b", task, "uncaught", "E", f"{number}", "", "x" * 1000)
            metrics[task].errors.append(error)
    packed = Report(metrics, mode=Mode.ACTIVE).pack()
    assert len(packed) < 1 << 20
    told = Report.unpack(packed).metrics
    assert sum(e.count for counted in told.values() for e in counted.errors) == 100 * MOST_ERRORS


class Refuses(Bolt):
    """Fails every tuple in words of its own."""

    def execute(self, tup: Tuple) -> None:
        raise ValueError(f"bad row {tup[0]}")


def test_every_failure_is_counted_though_few_are_shown() -> None:
    fed = Fed(Refuses(), conf={"topology.uncaught.error": "fail"})
    fed.feed(*range(300))
    shown = fed.run.errors()
    for kind in ("uncaught", "failed"):
        assert sum(error.count for error in shown if error.kind == kind) == 300
    assert fed.run.stats().components["s"].failed == 300


def raised(at: int) -> Exception:
    try:
        if at == 0:
            raise ValueError("zero")
        raise ValueError(f"number {at}")
    except ValueError as error:
        return error


def test_a_traceback_is_of_its_own_place_with_its_own_message() -> None:
    texts = [failures.users_traceback(raised(at)) for at in (0, 1, 2, 0)]
    assert texts[0] == texts[3]
    assert [text.splitlines()[-1] for text in texts[:3]] == [
        "ValueError: zero",
        "ValueError: number 1",
        "ValueError: number 2",
    ]
    assert 'raise ValueError("zero")' in texts[0]
    assert 'raise ValueError(f"number {at}")' in texts[1]
    lines = [failures.users_line(raised(at)) for at in (0, 1)]
    assert lines[0] != lines[1]


@pytest.mark.parametrize("beside", ["topology.py", "topo_jobs/sink.py", "topo/testing_of_mine.py"])
def test_code_beside_the_package_is_the_users(beside: str) -> None:
    package = Path(failures.__file__).parents[1]
    name = str(package.parent / beside)
    space: dict[str, Any] = {}
    exec(compile("def execute():\n    raise ValueError('theirs')\n", name, "exec"), space)
    with pytest.raises(ValueError, match="theirs") as caught:
        space["execute"]()
    is_users = not beside.startswith("topo/")
    assert (f"{name}:2" in failures.users_line(caught.value)) is is_users
    assert (name in failures.users_traceback(caught.value)) is is_users
