"""The messages about the Python of a cluster's workers."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from topo.engine.spark.driver.worker_check import HostPython, in_words_of_workers

OURS = version("grpcio")
MISMATCH = """
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has
different version: 3.10 than that in driver: 3.11, PySpark cannot run with different minor versions.
"""
DAEMON = """
Error from python worker:
  there is no Python at ./env/bin/python
PYTHONPATH was:
  topo.zip
"""
NOT_RUN = 'java.io.IOException: Cannot run program "/opt/py/bin/python3": error=2'
NO_GRPC = """
  File "topo.zip/topo/acker/transport.py", line 12, in <module>
ModuleNotFoundError: No module named 'grpc'
"""
USERS_OWN = "ModuleNotFoundError: No module named 'shop'"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MISMATCH, "the workers run Python 3.10, the driver 3."),
        (DAEMON, "the workers have no Python at ./env/bin/python"),
        (NOT_RUN, "the workers have no Python at /opt/py/bin/python3"),
        (NO_GRPC, "the workers' Python has no module 'grpc'"),
    ],
)
def test_what_spark_says_of_it_is_found(text: str, words: str) -> None:
    error = in_words_of_workers(text.replace("has\n", "has "), "spark://m1:7077")
    assert error is not None
    assert error.message.startswith(words)
    assert "topo doctor --spark --master spark://m1:7077" in error.hint
    assert "--archives" in error.hint


def test_other_errors_are_left_alone() -> None:
    assert in_words_of_workers(USERS_OWN) is None
    assert in_words_of_workers("Job aborted") is None


@pytest.mark.parametrize(
    ("theirs", "wrong", "differs"),
    [
        (OURS, [], []),
        ("(ModuleNotFoundError: x)", ["no grpcio (ModuleNotFoundError: x)"], []),
        ("1.2.3", [f"grpcio 1.2.3 (the driver has {OURS})"], []),
        (
            ".".join([*OURS.split(".")[:2], "999"]),
            [],
            [f"grpcio {'.'.join([*OURS.split('.')[:2], '999'])} (the driver has {OURS})"],
        ),
    ],
)
def test_a_package_is_to_be_there_and_of_the_same_release(
    theirs: str, wrong: list[str], differs: list[str]
) -> None:
    found = HostPython("m1", "3.11.7", {"grpcio": theirs})
    assert (found.wrong, found.differs) == (wrong, differs)
