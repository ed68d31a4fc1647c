"""The files brought to Spark's workers, and the end of a driver's Spark."""

from __future__ import annotations

import threading

import pytest

from topo.engine.spark import engine
from topo.engine.spark.engine import SparkEngine, with_files
from topo.engine.spark.jvm import session


def test_the_users_own_settings_are_kept() -> None:
    assert with_files({"spark.files": "mine.txt"}, ["a.py"], ["env.tar.gz#env"]) == {
        "spark.files": "mine.txt,a.py",
        "spark.submit.pyFiles": "a.py",
        "spark.archives": "env.tar.gz#env",
    }


def test_a_spark_that_does_not_end_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for_ever = threading.Event()
    monkeypatch.setattr(session, "stop_session", for_ever.wait)
    monkeypatch.setattr(engine, "_STOP_SECS", 0.05)
    SparkEngine().stop()
    for_ever.set()
    assert caplog.messages == ["Spark did not end in 0.05 s"]


def test_a_spark_whose_jvm_died_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def died() -> None:
        raise ConnectionError("nobody there")

    monkeypatch.setattr(session, "stop_session", died)
    SparkEngine().stop()
    assert caplog.messages == ["Spark did not end in order: nobody there"]
