"""`topo submit` to a standalone cluster whose workers have neither topo nor the user's code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fault.spark_processes import ROOT, StandaloneCluster, wait_until
from topo.manage.api import Management
from topo.manage.registry import Registry
from topo.manage.views import ExecutorView

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(600)]

PRICES = {"apple": 3, "pear": 5, "plum": 8}
NOT_THERE = ("topo", "__editable__")


def make_python(home: Path, *without: str) -> Path:
    """A Python with the packages of this one, save topo and those."""
    venv.create(home, symlinks=True)
    packages = Path(sysconfig.get_path("purelib"))
    (theirs,) = home.glob("lib/python*/site-packages")
    for entry in packages.iterdir():
        if not entry.name.startswith((*NOT_THERE, *without)):
            (theirs / entry.name).symlink_to(entry)
    return home / "bin" / "python"


class Shell:
    """Runs `topo` as the cluster's user does."""

    def __init__(self, directory: Path, cluster: StandaloneCluster) -> None:
        self.directory = directory
        self.cluster = cluster

    def topo(self, *argv: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "topo.cli", *argv],
            cwd=ROOT / "tests" / "fault",
            env={**os.environ, "TOPO_HOME": str(self.directory / "home"), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    def submit(self, target: str, python: Path, *argv: str, code: int = 0) -> str:
        settings = {
            "spark.pyspark.python": str(python),
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "topology.batch.target.ms": "300",
            "topology.message.timeout.secs": "600",
        }
        options = [part for key, at in settings.items() for part in ("-c", f"{key}={at}")]
        master = ("--master", self.cluster.master, "--wait", "180")
        return self.topo("submit", target, *master, *options, *argv, code=code)

    def run(self, name: str) -> dict[str, Any]:
        (found,) = [
            row for row in json.loads(self.topo("list", "--all", "--json")) if row["name"] == name
        ]
        return dict(found)

    def executors(self) -> list[ExecutorView]:
        """What the cluster page shows of Spark's executors."""
        return Management(Registry(self.directory / "home")).cluster().spark_executors

    def slots(self, name: str) -> dict[int, list[str]]:
        """Where the pages show each slot of a topology: at which executors."""
        management = Management(Registry(self.directory / "home"))
        on_cluster = {s.slot: s.places for s in management.cluster().slots if s.topology == name}
        assert on_cluster.keys() == {slot.slot for slot in management.workers(name).slots}
        return on_cluster

    def acked(self, name: str) -> int:
        return int(self.run(name)["acked"])


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    directory = tmp_path_factory.mktemp("cluster")
    with StandaloneCluster(directory) as cluster:
        made = Shell(directory, cluster)
        yield made
        for row in json.loads(made.topo("list", "--json")):
            made.topo("kill", "--force", row["name"])


def zipped(file: Path, name: str, text: str) -> str:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, text)
    return str(file)


def test_a_package_goes_to_its_end_over_the_loss_of_a_worker(shell: Shell, tmp_path: Path) -> None:
    python = make_python(tmp_path / "theirs")
    bare: Any = {"cwd": tmp_path, "env": {}, "capture_output": True}
    knows: Any = subprocess.run([python, "-c", "import topo"], **bare)
    assert b"No module named 'topo'" in knows.stderr
    rounding = zipped(tmp_path / "r.zip", "rounding.py", "def rounded(n): return n // 2 * 2")
    prices = zipped(tmp_path / "p.zip", "prices.json", json.dumps(PRICES))
    sent = ("--py-files", rounding, "--archives", f"{prices}#prices")
    args = ("--", str(tmp_path))
    shell.submit("shop.topology", python, "-n", "shop", "--workers", "2", *sent, *args)
    wait_until(lambda: shell.acked("shop"), "the first acks")
    assert shell.run("shop")["reason"] == ""
    there = [each for each in shell.executors() if each.lost_at is None]
    assert [each.cores for each in there] == [1, 1]
    wait_until(lambda: all(shell.slots("shop").values()), "the place of each slot")
    assert set().union(*shell.slots("shop").values()) <= {each.place for each in there}

    shell.cluster.kill_worker()
    lost = "1 of 2 executors lost since "
    wait_until(lambda: lost in shell.run("shop")["reason"], "the loss is shown")
    (gone,) = [each for each in shell.executors() if each.lost_at]
    assert (gone.topology, gone.host, bool(gone.why)) == ("shop", "127.0.0.1", True)
    before = shell.acked("shop")
    wait_until(lambda: shell.acked("shop") > before, "it goes on with one executor")
    (left,) = [each.place for each in shell.executors() if each.lost_at is None]
    wait_until(lambda: shell.slots("shop") == {0: [left], 1: [left]}, "both slots at it")
    assert shell.run("shop")["status"] == "ACTIVE"
    shell.cluster.add_worker()
    wait_until(lambda: lost not in shell.run("shop")["reason"], "the loss is over")

    (tmp_path / "enough").touch()
    wait_until(lambda: shell.run("shop")["status"] not in ("ACTIVE", "STALLED"), "its end")
    assert shell.run("shop")["status"] == "COMPLETED", shell.run("shop")
    check(tmp_path)
    lines = [json.loads(line) for line in shell.topo("logs", "shop", "--json").splitlines()]
    for words in [("shop", f"first {fruit}") for fruit in PRICES]:
        assert words in [(line["logger"], line["message"]) for line in lines]
    (sold, *_) = [line for line in lines if line["message"] == "sold plum"]
    assert (sold["component"], sold["level"], sold["logger"]) == ("totals", "INFO", "stdout")


def test_slots_come_and_go_while_it_runs(shell: Shell, tmp_path: Path) -> None:
    """For a second slot the cluster has to give an executor more than Spark began with."""
    python = make_python(tmp_path / "theirs")
    rounding = zipped(tmp_path / "r.zip", "rounding.py", "def rounded(n): return n // 2 * 2")
    prices = zipped(tmp_path / "p.zip", "prices.json", json.dumps(PRICES))
    sent = ("--py-files", rounding, "--archives", f"{prices}#prices")
    args = ("--", str(tmp_path))
    shell.submit("shop.topology", python, "-n", "grown", "--workers", "1", *sent, *args)
    for slots in (2, 1):
        await_acks(shell, "grown")
        said = json.loads(shell.topo("rebalance", "grown", "-n", str(slots), "-w", "180", "--json"))
        assert (said["was"], said["slots"]) == (3 - slots, slots)
    wait_until(lambda: shell.run("grown")["status"] == "ACTIVE", "it goes on")
    refused = shell.topo("rebalance", "grown", "-n", "9", "-w", "180", code=7)
    assert "grown keeps its 1 slots: there are cores for 1 slots, and not for 9" in refused
    await_acks(shell, "grown")
    (tmp_path / "enough").touch()
    wait_until(lambda: shell.run("grown")["status"] not in ("ACTIVE", "STALLED"), "its end")
    assert shell.run("grown")["status"] == "COMPLETED", shell.run("grown")
    check(tmp_path)


def await_acks(shell: Shell, name: str) -> None:
    before = shell.acked(name)
    wait_until(lambda: shell.acked(name) > before, "acks")


def check(directory: Path) -> None:
    """Every order was counted once and acked, by the topo that was sent."""
    orders = json.loads((directory / "orders.json").read_text())
    assert orders["acked"] == list(range(1, orders["said"] + 1))
    known = [json.loads(file.read_text()) for file in directory.glob("totals-*.json")]
    assert len(known) == 2
    totals = {fruit: tuple(at) for each in known for fruit, at in each["totals"].items()}
    numbers = range(1, orders["said"] + 1)
    expected = {}
    for index, (fruit, price) in enumerate(PRICES.items()):
        count = sum(number % 3 == index for number in numbers)
        expected[fruit] = (count, count * ((price + 1) // 2 * 2))
    assert totals == expected
    assert all("topo.zip" in each["topo"] for each in known)


def test_executors_that_do_not_find_the_driver_are_told_of(shell: Shell, tmp_path: Path) -> None:
    settings = (
        "spark.driver.host=nowhere.invalid",
        "spark.driver.bindAddress=127.0.0.1",
        "topology.acker.bind=127.0.0.1:0",
    )
    options = [part for setting in settings for part in ("-c", setting)]
    shell.submit(
        "shop.topology", Path(sys.executable), "-n", "lost", "--workers", "1", "--wait", "0",
        *options, "--", str(tmp_path),
    )  # fmt: skip
    said = "executors ended at once: Command exited with code 1; can the workers reach the driver "
    wait_until(lambda: said in shell.run("lost")["reason"], "what happens to the executors")
    reason = shell.run("lost")["reason"]
    assert "at nowhere.invalid:" in reason
    assert "? set spark.driver.host" in reason
    shell.topo("kill", "--force", "lost")


def test_what_the_workers_lack_is_named_at_once(shell: Shell, tmp_path: Path) -> None:
    python = make_python(tmp_path / "theirs", "grpc")
    said = shell.submit("shop.topology", python, "-n", "poor", "--", str(tmp_path), code=5)
    error, at, hint = said.strip().splitlines()[-3:]
    assert error.startswith("error: poor FAILED: the workers on ")
    assert error.endswith("no grpcio (ModuleNotFoundError: No module named 'grpc')")
    assert at.startswith("  at: ")
    assert f"topo doctor --spark --master {shell.cluster.master}" in hint
    assert "--archives" in hint
