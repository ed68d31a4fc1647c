"""The seam: every engine is one, is found by its name, and starts what it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wiring import line
from topo import ConfigError, Spout
from topo.engine import base
from topo.engine.base import ENGINES, Engine, Launch, Run, engine_named
from topo.engine.inline.engine import InlineEngine, SimulatedEngine
from topo.engine.spark.engine import SparkEngine


class Numbers(Spout):
    outputs = ("n",)

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, conf: object, context: object, collector: object) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < self.count:
            self.emit([self.next], msg_id=self.next)
            self.next += 1

    def is_exhausted(self) -> bool:
        return self.next == self.count


def test_every_engine_is_one() -> None:
    engines: list[Engine] = [InlineEngine(), SimulatedEngine(), SparkEngine()]  # mypy looks
    assert [type(engine_named(name)) for name in ENGINES] == [type(engine) for engine in engines]


def test_the_seam_is_short() -> None:
    assert len(Path(base.__file__).read_text().splitlines()) < 100


def test_an_engine_of_ones_own() -> None:
    engine = engine_named("topo.engine.inline.engine:InlineEngine")
    assert isinstance(engine, InlineEngine)


def test_an_engine_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="no engine 'sprak'; there are inline") as refused:
        engine_named("sprak")
    assert refused.value.hint == "did you mean 'spark'?"


def test_a_run_of_the_inline_engine_completes_and_keeps_what_was_asked_for() -> None:
    launch = Launch("numbers", line(Numbers(3)), {}, capture=["s"], conclusions=True)
    run: Run = engine_named("inline").launch(launch)
    assert not run.wait(0)
    run.start().await_completion(timeout=30)
    assert (run.status, run.tuples("s")) == ("COMPLETED", [[0], [1], [2]])
    assert run.acked == {"s": [0, 1, 2]}


def test_a_run_that_never_started_can_be_killed() -> None:
    run = engine_named("inline").launch(Launch("numbers", line(Numbers(3)), {}))
    run.kill()
    assert (run.status, run.wait(0)) == ("KILLED", True)
