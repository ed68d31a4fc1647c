"""What is brought to Spark's workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.unit.test_control_registry import make
from topo.control import engines
from topo.control.registry import Registry


def test_the_users_own_settings_are_kept(tmp_path: Path) -> None:
    run = make(Registry(tmp_path), conf={"spark.files": "mine.txt"})
    submission = replace(run.submission, py_files=("a.py",), archives=("env.tar.gz#env",))
    assert engines._shipping(submission) == {
        "spark.files": "mine.txt,a.py",
        "spark.submit.pyFiles": "a.py",
        "spark.archives": "env.tar.gz#env",
    }
