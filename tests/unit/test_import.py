"""`import topo` is light, and offers what a user needs."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import typing

import pytest

import topo
import topo.testing

HEAVY = {"pyspark", "grpc", "pandas", "pyarrow"}


def modules_after(code: str) -> set[str]:
    code = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["topo", "topo.testing", "topo.builder"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    assert not HEAVY & modules_after(f"import {module}")


@pytest.mark.parametrize(
    "module",
    ["topo.cli", "topo.tracking.server", "topo.engine.spark.driver.run"],
)
def test_grpc_is_told_to_let_forks_be_before_it_is_imported(module: str) -> None:
    code = (
        "import os, sys\n"
        "class Asserts:\n"
        "    def find_spec(self, name, *_):\n"
        "        assert name != 'grpc' or os.environ['GRPC_ENABLE_FORK_SUPPORT'] == '0'\n"
        "sys.meta_path.insert(0, Asserts())\n"
        f"import {module}, grpc"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GRPC_")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_building_and_running_inline_loads_nothing_heavy() -> None:
    code = (
        "from tests.wiring import Fed; from tests.conformance.doubles import Identity; "
        "assert Fed(Identity()).feed(1).out() == [1]"
    )
    assert not HEAVY & modules_after(code)


def test_importing_topo_does_without_numpy_and_click() -> None:
    assert not {"numpy", "click", "rich", "google"} & modules_after("import topo")


@pytest.mark.parametrize("module", [topo, topo.testing])
def test_all_is_sorted_and_there(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert names == sorted(names, key=lambda name: (not name.isupper(), name))
    assert len(set(names)) == len(names)
    for name in names:
        assert getattr(module, name) is not None


def test_a_star_takes_no_name_away_that_most_modules_have() -> None:
    """Neither a built-in one nor one of `typing`; `topo.Any`, the trigger, is there by its name.

    `typing.Pattern` is deprecated since Python 3.9: the one of regular expressions is `re.Pattern`.
    """
    ours = {"Tuple", "Pattern"}
    assert not set(topo.__all__) & ({*dir(builtins)} | {*typing.__all__} - ours)
    assert issubclass(topo.Any, topo.Trigger)


def test_everything_a_user_needs_is_here() -> None:
    assert set(topo.__all__) >= {
        "BasicBolt", "BasicOutputCollector", "Bolt", "Config", "CustomStreamGrouping", "FailTuple",
        "Fields", "InvalidTopologyError", "KeyValueState", "OutputCollector", "Spout",
        "SpoutOutputCollector", "StatefulBasicBolt", "StatefulBolt", "Stream", "Topology",
        "TopologyBuilder", "TopologyContext", "Tuple", "TupleSettledError", "UncaughtError",
        "UnsavableAttributeError", "bolt",
    }  # fmt: skip
    with pytest.raises(AttributeError, match="no attribute 'Blot'"):
        topo.Blot  # type: ignore[attr-defined]  # noqa: B018
