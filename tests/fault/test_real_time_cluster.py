"""Real-time mode on a standalone cluster of two workers with four task places each.

TOPO_KILLS=300 kills 300 executors instead of a few.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import make_certificates
from tests.fault.exactly_once import check_result
from tests.fault.spark_processes import Job, StandaloneCluster, kill, moments, pause, wait_until
from tests.fault.test_cluster import PRICES, Shell, check, make_python, zipped
from tests.fault.test_spark_kills import A_KILL_SECS, KILLS, MESSAGES_A_KILL, REAL_TIME, kills
from topo.storage.checkpoints import slots_in

PARTS = (("certificate", "pem"), ("key", "key"))

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster"), cores=4) as made:
        yield made


@pytest.fixture(scope="module")
def shell(cluster: StandaloneCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    made = Shell(tmp_path_factory.mktemp("shell"), cluster)
    yield made
    for row in json.loads(made.topo("list", "--json")):
        made.topo("kill", "--force", row["name"])


@pytest.mark.timeout(900 + A_KILL_SECS * KILLS)
def test_executors_die_with_the_processes_of_their_slots(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    count = kills(2)
    made, prefix = make_certificates(tmp_path), "topology.acker.tls."
    conf = {
        **REAL_TIME,
        f"{prefix}ca": str(made / "ca.pem"),
        **{f"{prefix}{part}": str(made / f"server.{kind}") for part, kind in PARTS},
        **{f"{prefix}client.{part}": str(made / f"client.{kind}") for part, kind in PARTS},
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.deploy.maxExecutorRetries": 10_000,
    }
    with Job(tmp_path, cluster.master, conf) as job:
        job.append(MESSAGES_A_KILL)
        for moment in moments(count):
            job.await_commits(2)
            wait_until(lambda: len(cluster.executors()) == 2, "two executors")
            job.append(MESSAGES_A_KILL)
            pause(moment)
            kill(random.choice(cluster.executors()))
        job.append(MESSAGES_A_KILL)
        job.await_commits(2)
        job.finish()
    assert check_result(tmp_path)["failed"] == 0  # the driver knows what was pending
    wait_until(lambda: not cluster.slot_processes(), "no process is left behind")


def test_a_package_runs_where_neither_topo_nor_it_is_installed(
    shell: Shell, tmp_path: Path
) -> None:
    python = make_python(tmp_path / "theirs")
    rounding = zipped(tmp_path / "r.zip", "rounding.py", "def rounded(n): return n // 2 * 2")
    prices = zipped(tmp_path / "p.zip", "prices.json", json.dumps(PRICES))
    sent = ("--py-files", rounding, "--archives", f"{prices}#prices")
    mode = ("-c", "topology.mode=real-time")
    args = ("--", str(tmp_path))
    shell.submit("shop.topology", python, "-n", "shop", "--workers", "2", *sent, *mode, *args)
    wait_until(lambda: shell.acked("shop"), "the first acks")
    assert (shell.run("shop")["status"], shell.run("shop")["reason"]) == ("ACTIVE", "")
    wait_until(lambda: all(shell.slots("shop").values()), "the place of each slot")
    (tmp_path / "enough").touch()
    wait_until(lambda: shell.run("shop")["status"] not in ("ACTIVE", "STALLED"), "its end")
    assert shell.run("shop")["status"] == "COMPLETED", shell.run("shop")
    check(tmp_path)
    lines = [json.loads(line) for line in shell.topo("logs", "shop", "--json").splitlines()]
    for words in [("shop", f"first {fruit}") for fruit in PRICES]:
        assert words in [(line["logger"], line["message"]) for line in lines]


def test_a_lost_worker_leaves_fewer_slots_that_go_on(shell: Shell, tmp_path: Path) -> None:
    python = make_python(tmp_path / "theirs")
    rounding = zipped(tmp_path / "r.zip", "rounding.py", "def rounded(n): return n // 2 * 2")
    prices = zipped(tmp_path / "p.zip", "prices.json", json.dumps(PRICES))
    sent = ("--py-files", rounding, "--archives", f"{prices}#prices")
    mode = ("-c", "topology.mode=real-time", "-c", "topology.workers.after.loss.secs=2")
    args = ("--", str(tmp_path))
    shell.submit("shop.topology", python, "-n", "less", "--workers", "2", *sent, *mode, *args)
    wait_until(lambda: shell.acked("less"), "the first acks")
    shell.cluster.kill_worker()
    plan = Path(json.loads(shell.topo("checkpoints", "less", "--json"))[0]["place"])
    wait_until(lambda: slots_in((plan / "topo-plan.json").read_bytes()) == 1, "one slot is left")
    before = shell.acked("less")
    wait_until(lambda: shell.acked("less") > before, "it goes on in that")
    shell.cluster.add_worker()
    (tmp_path / "enough").touch()
    wait_until(lambda: shell.run("less")["status"] == "COMPLETED", "its end")
    check(tmp_path)


def test_a_cluster_with_too_few_places_says_so(shell: Shell, tmp_path: Path) -> None:
    python = make_python(tmp_path / "theirs")
    mode = ("--workers", "3", "-c", "topology.mode=real-time")
    said = shell.submit("shop.topology", python, "-n", "many", *mode, "--", "x", code=5)
    error, _, hint = said.strip().splitlines()[-3:]
    assert error == (
        "error: many FAILED: real-time mode needs 9 task places at the same time (3 levels on 3 "
        "slots), and this Spark has 8"
    )
    assert "lower topology.workers" in hint
