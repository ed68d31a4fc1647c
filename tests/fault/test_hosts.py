"""Hosts that fall silent, with all that runs on them: the run goes on in time, and nothing is lost.

Each host is a set of namespaces (`tests/fault/hosts.py`), on which Spark's standalone master and
workers run. TOPO_HOSTS=1 runs all scenarios, of which a run without it has one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fault.exactly_once import END, check_result
from tests.fault.hosts import Hosts, why_no_hosts
from tests.fault.spark_processes import (
    KEYS,
    ROOT,
    Job,
    StandaloneCluster,
    kill,
    last_batch,
    last_epoch,
    wait_until,
)
from tests.fault.test_spark_kills import CONF, MESSAGES_A_KILL, REAL_TIME
from topo.manage.records import FINAL, RunRecord
from topo.manage.registry import Registry
from topo.storage.checkpoints import EPOCHS
from topo.tracking.clock import monotonic

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(600)]

ALL = bool(os.environ.get("TOPO_HOSTS"))
LENIENCE = 1 if ALL else 2
"""The goals are of a machine that does nothing else, as it is for who asks for all scenarios."""
GOES_ON_SECS = 30.0 * LENIENCE
"""Within that a run goes on after a worker's host fell silent."""
OTHER_DRIVER_SECS = 60.0 * LENIENCE
"""The same for its driver's, if another host is on standby."""
FAR_SECS = 0.05
"""How long a packet takes to a driver that is far away, and from it."""
by_option = pytest.mark.skipif(not ALL, reason="TOPO_HOSTS=1 runs it")
REDUCED: dict[str, Any] = {**REAL_TIME, "topology.workers.after.loss.secs": 1.0}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    if why := why_no_hosts():
        pytest.skip(why)
    with Hosts(tmp_path, "master", "driver", "w1", "w2") as made:
        yield made


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    if why := why_no_hosts():
        pytest.skip(why)
    conf: dict[str, Any] = getattr(request, "param", CONF)
    with Hosts(tmp_path, "a", "b") as hosts, Pair(tmp_path, hosts, conf) as made:
        yield made


class Pair:
    """Two hosts that keep the topologies of one registry, which has one topology, on the first."""

    def __init__(self, directory: Path, hosts: Hosts, conf: Mapping[str, Any]) -> None:
        self.directory, self.hosts = directory, hosts
        self.registry = Registry(directory / "home")
        self._log = directory / "log"
        self._log.touch()
        self._keepers: list[subprocess.Popen[bytes]] = []
        settings = {**conf, "topology.checkpoint.dir": str(directory / "checkpoint")}
        options = [part for key, at in settings.items() for part in ("-c", f"{key}={at}")]
        file = str(ROOT / "tests" / "fault" / "exactly_once.py")
        cores = 2 if conf.get("topology.mode") != "real-time" else 8
        target = (file, "-n", "pair", "--master", f"local[{cores}]", *options)
        with self.topo("a", "submit", *target, "--wait", "300", "--", str(directory)) as submit:
            assert submit.wait() == 0, self.words()
        for name in ("a", "b"):
            self._keepers.append(self.topo(name, "up", "--standby"))
        beats = directory / "home" / "hosts"
        wait_until(lambda: len(list(beats.glob("[ab].json"))) == 2, "both are kept")

    def topo(self, host: str, *argv: str) -> subprocess.Popen[bytes]:
        """Begin a command on a host."""
        with open(self.directory / "words", "ab") as words:
            return subprocess.Popen(
                [*self.hosts[host].command, sys.executable, "-m", "topo.cli", *argv],
                env={**os.environ, "TOPO_HOME": str(self.registry.home)},
                stdout=words,
                stderr=words,
            )

    def words(self) -> str:
        return (self.directory / "words").read_text(errors="replace")[-4000:]

    @property
    def run(self) -> RunRecord:
        run = self.registry.latest("pair")
        assert run is not None
        return run

    def append(self, *lines: str) -> None:
        with self._log.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def await_commits(self, count: int) -> None:
        """Until so many more batches have committed, on either host."""
        goal = self.commits() + count
        wait_until(lambda: self.commits() >= goal or self.is_over, f"commit of batch {goal}")
        assert not self.is_over, f"{self.run.reason}\n{self.words()}"

    @property
    def is_over(self) -> bool:
        """True iff a driver has said so; one that died has not."""
        return self.run.state.status in FINAL

    def commits(self) -> int:
        checkpoint = self.directory / "checkpoint"
        return max(last_batch(checkpoint), last_epoch(checkpoint / EPOCHS))

    def finish(self) -> None:
        self.append(END)
        wait_until(lambda: self.is_over, "its end")
        assert self.run.status == "COMPLETED", f"{self.run.reason}\n{self.words()}"

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *exception: object) -> None:
        """End all that runs on the hosts; they themselves end later."""
        for name in ("a", "b"):
            for process in self.hosts[name].processes():
                kill(process)
        for keeper in self._keepers:  # what entered the host may stand still, as that did
            keeper.kill()
            keeper.wait()


@contextmanager
def job_on(hosts: Hosts, directory: Path, conf: dict[str, Any]) -> Iterator[Job]:
    """A job on a driver's host that has committed, and runs on two workers' hosts."""
    places = [hosts[name] for name in ("master", "w1", "w2")]
    cores = 1 if conf.get("topology.mode") != "real-time" else 4
    (directory / "job").mkdir()
    settings = {**conf, "spark.executor.memory": "512m"}
    with (
        StandaloneCluster(directory, cores=cores, hosts=places) as cluster,
        Job(directory / "job", cluster.master, settings, host=hosts["driver"]) as job,
    ):
        job.append(MESSAGES_A_KILL)
        job.await_commits(2)
        assert len(cluster.executors()) == 2, "one on each host"
        yield job


@pytest.mark.parametrize(
    ("conf", "vanishes"),
    [
        pytest.param(CONF, False, id="micro-batch"),
        pytest.param(CONF, True, id="micro-batch-power", marks=by_option),
        pytest.param(REDUCED, False, id="real-time", marks=by_option),
        pytest.param(REDUCED, True, id="real-time-power", marks=by_option),
    ],
)
def test_a_workers_host_falls_silent(
    hosts: Hosts, tmp_path: Path, conf: dict[str, Any], vanishes: bool
) -> None:
    with job_on(hosts, tmp_path, conf) as job:
        job.append(MESSAGES_A_KILL)
        hosts.silence("w1")
        if vanishes:
            hosts["w1"].vanish()
        since = monotonic()
        job.await_commits(2)  # the first of them may have been on its way
        secs = monotonic() - since
        if ALL and not vanishes:
            hosts.reach("w1")  # its processes find that they are wanted no more
            job.append(MESSAGES_A_KILL)
            job.await_commits(2)
        job.finish()
    assert check_result(tmp_path / "job")["failed"] == 0
    print(f"goes on after {secs:.1f} s")
    assert secs < GOES_ON_SECS


@by_option
@pytest.mark.parametrize("conf", [CONF, REAL_TIME], ids=["micro-batch", "real-time"])
def test_the_driver_is_far_from_its_workers(
    hosts: Hosts, tmp_path: Path, conf: dict[str, Any]
) -> None:
    hosts.delay("driver", FAR_SECS)
    with job_on(hosts, tmp_path, conf) as job:
        job.append(MESSAGES_A_KILL)
        since = monotonic()
        job.await_commits(4)
        print(f"{(monotonic() - since) / 4:.2f} s a commit, {2 * FAR_SECS:g} s a round trip")
        job.finish()
    assert check_result(tmp_path / "job")["failed"] == 0


def test_the_drivers_host_loses_its_power(pair: Pair) -> None:
    pair.append(*KEYS * 4)
    pair.await_commits(2)
    assert pair.run.submission.host == "a"
    pair.append(*KEYS * 4)
    pair.hosts["a"].vanish()
    since = monotonic()
    pair.await_commits(2)  # the first of them may have been on its way
    secs = monotonic() - since
    pair.append(*KEYS * 4)
    pair.await_commits(2)
    assert pair.run.submission.host == "b"
    pair.finish()
    assert check_result(pair.directory)["failed"] == 0
    print(f"continues after {secs:.1f} s")
    assert secs < OTHER_DRIVER_SECS


@by_option
@pytest.mark.parametrize("pair", [CONF, REAL_TIME], indirect=True, ids=["micro-batch", "real-time"])
@pytest.mark.parametrize("is_early", [False, True])
def test_the_drivers_host_comes_back_after_another_has_taken_over(
    pair: Pair, is_early: bool
) -> None:
    """Its processes stand still, as those of a suspended machine; so there are two drivers.

    If it is early, the other one has the run by then, and not yet its checkpoint.
    """
    pair.append(*KEYS * 4)
    pair.await_commits(2)
    standing = pair.hosts["a"].processes()
    for process in standing:
        process.suspend()
    pair.append(*KEYS * 4)
    wait_until(lambda: pair.run.submission.host == "b", "the other one takes over")
    if not is_early:
        pair.await_commits(2)
    for process in standing:
        process.resume()
    keeper = 1
    wait_until(lambda: len(pair.hosts["a"].processes()) == keeper, "the first driver ends")
    pair.append(*KEYS * 4)
    pair.await_commits(2)
    assert (pair.run.submission.host, pair.run.status) == ("b", "ACTIVE")
    pair.finish()
    assert check_result(pair.directory)["failed"] == 0
