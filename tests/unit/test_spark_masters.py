"""A standalone master that is not there is named at once."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from topo import EngineError
from topo.config.masters import is_in_this_machine
from topo.engine.spark.driver.masters import check_master


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def silent() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_one_of_several_masters_is_enough(listening: int, silent: int) -> None:
    check_master(f"spark://127.0.0.1:{silent},127.0.0.1:{listening}")
    check_master("yarn")


def test_where_none_answers_spark_is_not_started(silent: int) -> None:
    with pytest.raises(EngineError) as refused:
        check_master(f"spark://127.0.0.1:{silent}")
    said = f"no answer from the master at 127.0.0.1:{silent}: connection refused"
    assert refused.value.message == said
    assert "topo doctor --master spark://127.0.0.1" in refused.value.hint


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local[*]", True),
        ("spark://localhost:7077", True),
        ("spark://127.0.0.2:7077", True),
        ("spark://[::1]:7077", True),
        ("spark://127.0.0.1:7077,node-2:7077", False),
        ("spark://10.0.0.1:7077", False),
        ("spark://127.example.org:7077", False),
        ("yarn", False),
        ("k8s://https://127.0.0.1:6443", False),
    ],
)
def test_which_masters_see_the_files_that_are_here(master: str, here: bool) -> None:
    assert is_in_this_machine(master) is here
