"""What is brought to Spark's workers, and how the Spark of a driver ends."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.test_control_registry import make
from topo import Spout, Topology, TopologyBuilder
from topo.manage import engines
from topo.manage.engines import SubmittedSparkRun
from topo.manage.registry import Registry


def test_the_users_own_settings_are_kept(tmp_path: Path) -> None:
    run = make(Registry(tmp_path), conf={"spark.files": "mine.txt"})
    submission = replace(run.submission, py_files=("a.py",), archives=("env.tar.gz#env",))
    assert engines._shipping(submission) == {
        "spark.files": "mine.txt,a.py",
        "spark.submit.pyFiles": "a.py",
        "spark.archives": "env.tar.gz#env",
    }


class Numbers(Spout):
    outputs = ("n",)

    def next_tuple(self) -> None:
        self.emit([7])


def numbers() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    return builder.create_topology()


def test_a_spark_that_does_not_end_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for_ever = threading.Event()
    monkeypatch.setattr(engines, "stop_session", for_ever.wait)
    monkeypatch.setattr(engines, "_STOP_SECS", 0.05)
    SubmittedSparkRun("words", numbers()).end_engine()
    for_ever.set()
    assert caplog.messages == ["Spark did not end in 0.05 s"]


def test_a_spark_whose_jvm_died_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def died() -> None:
        raise ConnectionError("nobody there")

    monkeypatch.setattr(engines, "stop_session", died)
    SubmittedSparkRun("words", numbers()).end_engine()
    assert caplog.messages == ["Spark did not end in order: nobody there"]
