"""A run whose query fails, or whose JVM dies; without Spark."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from tests.conformance.doubles import Numbers
from tests.unit.test_spark_execution import CONF, Slot, Sums
from tests.wiring import line
from topo import EngineError, UncaughtError
from topo.engine.spark.driver import jvm_death as lost
from topo.engine.spark.driver.jvm_death import Jvm, drop_dead_spark
from topo.engine.spark.driver.resources import BatchResources
from topo.engine.spark.driver.run import SparkRun
from topo.engine.spark.driver.run_resources import Claim
from topo.engine.spark.worker.stage_errors import StageError
from topo.errors import AckerError, TopoError
from topo.tracking.plan import Mode
from topo.tracking.server import AckerServer
from topo.tracking.transport import AckerTarget


class Query:
    """A query that failed before anybody looked at it."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self._jsq = self

    @property
    def isActive(self) -> bool:
        if self.error is None:
            raise ConnectionRefusedError(111, "Connection refused")
        return False

    def exception(self) -> Exception | None:
        return self.error

    def lastProgress(self) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    def stop(self) -> None:
        if self.error is None:
            raise ConnectionRefusedError(111, "Connection refused")


class FailingResources(BatchResources):
    """The resources of a run, with a query that commits batches and fails."""

    checkpoint: Any

    def __init__(self, slot: Slot, error: Exception | None) -> None:
        self.slot, self.error = slot, error
        self.control = slot.control
        self.checkpoint = self

    path = "/nowhere"
    plan: Any = SimpleNamespace(spout_slots=1)
    claim = Claim(None)
    session: Any = SimpleNamespace(sparkContext=None)
    _sinks = None

    def next_batch(self) -> int:
        return self.slot.next_batch

    def start_query(self, first: int, mode: Mode) -> Query:
        for _ in range(3):
            self.slot.batch()
        return Query(self.error)


@pytest.fixture
def slot() -> Iterator[Slot]:
    with AckerServer() as server:
        target = AckerTarget("t", "token", (server.address,), give_up_secs=1)
        yield Slot(target, line(Numbers(12), Sums()))


class SilentAckers:
    """The resources of a run whose ackers refuse the driver, and that does not start twice."""

    path = "/nowhere"
    plan = SimpleNamespace(spout_slots=1)
    claim = Claim(None)

    def __init__(self, code: str) -> None:
        self.checkpoint = self.commits = self
        self._code = code
        self._starts = 0

    def next_batch(self) -> int:
        return 7

    def start_query(self, first: int, mode: Mode) -> Any:
        self._starts += 1
        if self._starts > 1:
            raise EngineError("a second start")
        return SimpleNamespace(isActive=True, stop=lambda: None)

    def status(self, payloads_after: int) -> None:
        raise AckerError("no answer", code=self._code)


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("acker-lost", "a second start"),
        ("acker-unreachable", "a second start"),
        ("acker-token", "no answer"),
    ],
)
def test_ackers_that_the_driver_misses_first_are_a_failure_of_the_query(
    code: str, ends: str
) -> None:
    run = SparkRun("t", line(Numbers(12), Sums()), CONF)
    opened: Any = SilentAckers(code)
    with pytest.raises(TopoError, match=ends):
        run._supervise(opened)


RAISED = UncaughtError("it broke", component="b1", task=1, user_traceback="Traceback: ...")


@pytest.mark.parametrize("error", [RAISED, None])
def test_what_was_committed_before_it_failed_counts(slot: Slot, error: Exception | None) -> None:
    run = SparkRun("t", line(Numbers(12), Sums()), CONF, capture=["s"])
    opened: Any = FailingResources(
        slot, error and RuntimeError(str(StageError.of(RAISED, "token")))
    )
    with pytest.raises(UncaughtError if error else ConnectionRefusedError):
        run._supervise(opened)
    # The batch that none followed may not be committed, for all that anybody knows.
    assert run.stats().components["s"].emitted == 4
    assert run.tuples("s") == [[0], [1], [2], [3]]


class Context:
    """Of a JVM that is some process."""

    def __init__(self, log: Path) -> None:
        with log.open("wb") as sink:
            self.proc = subprocess.Popen(["sleep", "1000"], stdout=sink)
        self._gateway = self
        self._jsc: Any = self
        self.is_stopped = False

    def stop(self) -> None:
        assert self._jsc is None  # it is not asked what it cannot answer
        self.is_stopped = True

    def close(self) -> None:
        raise ConnectionRefusedError

    def die(self) -> None:
        self.proc.kill()
        self.proc.wait()


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made = Context(tmp_path / "spark.log")
    for name in ("_gateway", "_jvm", "_active_spark_context"):
        monkeypatch.setattr(SparkContext, name, made)
    yield made
    made.die()


def test_a_jvm_that_has_died_is_called_that(
    context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = SparkRun("t", line(Numbers(12), Sums()), CONF)
    refused = ConnectionRefusedError(111, "Connection refused")
    run.jvm = Jvm(context)
    monkeypatch.setattr(lost, "_DYING_SECS", 0.0)
    assert "refused" in run._in_words(refused).message
    assert SparkContext._active_spark_context is context
    context.die()
    said = run._in_words(refused)
    assert isinstance(said, EngineError)
    assert said.message == f"Spark's JVM has died (signal 9); its log: {tmp_path / 'spark.log'}"
    assert said.code == "spark-died"
    assert SparkContext._active_spark_context is None
    assert SparkContext._gateway is None
    assert context.is_stopped


class Wordless(Exception):
    """An error like Py4J's of a Java error: its text is asked of a JVM that is gone."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (Wordless(), "Wordless, whose text cannot be read: ConnectionRefusedError"),
        (SystemExit("enough"), "SystemExit: enough"),
    ],
)
def test_a_run_ends_though_its_end_has_no_words(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, text: str
) -> None:
    def resources(run: SparkRun, stack: ExitStack) -> BatchResources:
        raise raised

    monkeypatch.setattr(SparkRun, "_resources", resources)
    run = SparkRun("t", line(Numbers(12), Sums()), CONF).start()
    assert run.wait(30)
    assert (run.status, run.reason) == ("FAILED", text)
    assert isinstance(run.error, EngineError)
    run.kill()


def test_an_error_of_the_users_stays_what_it_is_though_the_jvm_has_died(context: Any) -> None:
    run = SparkRun("t", line(Numbers(12), Sums()), CONF)
    run.jvm = Jvm(context)
    context.die()
    assert run._in_words(RAISED) is RAISED
    assert SparkContext._active_spark_context is None


def test_a_spark_that_died_between_two_runs_is_not_joined(context: Any) -> None:
    drop_dead_spark()
    assert SparkContext._active_spark_context is context
    context.die()
    drop_dead_spark()
    assert SparkContext._active_spark_context is None
    drop_dead_spark()
