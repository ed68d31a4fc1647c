"""The processes of a run on Spark, killed by their ids; and a standalone cluster of Spark's."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.fault.exactly_once import END
from tests.fault.hosts import Host
from topo.engine.spark.realtime.records import read_log
from topo.storage.checkpoints import EPOCHS, PLAN_FILE, generation_in

ROOT = Path(__file__).parents[2]
KEYS = [f"k{number}" for number in range(17)]
PATIENCE_SECS = 300.0
_IS_SLOT = "slot_process import main"


def pause(secs: float) -> None:
    threading.Event().wait(secs)


def wait_until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECS
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECS:g} s: {what}"
        pause(0.02)


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def slots_among(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes of slots on this machine, without those that wait for one."""
    return [each for each in processes if _IS_SLOT in command_of(each) and _has_socket(each)]


def _has_socket(process: psutil.Process) -> bool:
    try:
        return bool(process.net_connections("unix"))
    except psutil.Error:
        return False


def kill(process: psutil.Process) -> bool:
    """SIGKILL; whether it was there to be killed."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def kill_a_slot() -> bool:
    """Kill the process of a slot of a run in this process; return False if there was none."""
    slots = slots_among(psutil.Process().children(recursive=True))
    return bool(slots) and kill(random.choice(slots))


class Job:
    """`tests.fault.exactly_once`, or its like, in a process of its own, over a log that grows.

    `paths` come before the repository in the module path of all its processes; `host` is where it
    runs, if that is not this machine.
    """

    def __init__(
        self,
        directory: Path,
        master: str,
        conf: Mapping[str, Any],
        module: str = "tests.fault.exactly_once",
        paths: Sequence[Path] = (),
        host: Host | None = None,
    ) -> None:
        self.directory = directory
        self.master = master
        self.host = host
        self._module = module
        self._python_path = os.pathsep.join(map(str, [*paths, ROOT]))
        self.is_real_time = conf.get("topology.mode") == "real-time"
        self.log = directory / "log"
        self.log.touch()
        (directory / "conf.json").write_text(json.dumps(dict(conf)), encoding="utf-8")
        self.start()

    def start(self) -> None:
        with open(self.directory / "output", "ab") as output:
            self.process = subprocess.Popen(
                [
                    *(self.host.command if self.host else []),
                    *(sys.executable, "-m", self._module, self.directory, self.master),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": self._python_path},
            )

    def append(self, messages: int) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.write("".join(f"{random.choice(KEYS)}\n" for _ in range(messages)))

    def commits(self) -> int:
        """The number of the last committed batch or epoch; -1 before the first."""
        if self.is_real_time:
            return last_epoch(self.directory / "checkpoint" / EPOCHS)
        return last_batch(self.directory / "checkpoint")

    def has_begun(self) -> bool:
        """True iff Spark has written the plan of the first batch, or a log of epochs is there."""
        if self.is_real_time:
            return (self.directory / "checkpoint" / EPOCHS).exists()
        return (self.directory / "checkpoint" / "offsets" / "0").exists()

    def await_commits(self, count: int = 1) -> None:
        """Until so many more batches have committed."""
        goal = self.commits() + count
        wait_until(lambda: self.commits() >= goal or self.has_ended(), f"commit of batch {goal}")
        assert not self.has_ended(), self.words()

    def rebalance(self, workers: int) -> None:
        """Have it go over to so many slots; the next process begins with them."""
        self.set_conf({"topology.workers": workers})
        self._order("workers", str(workers))

    def deal(self, tasks: Mapping[str, int]) -> None:
        """Have it give components other numbers of tasks; the process tells the next one."""
        self._order("tasks", json.dumps(dict(tasks)))

    def save(self, directory: Path) -> None:
        """Have it write a savepoint, and wait for it."""
        self._order("save", str(directory))
        wait_until(lambda: not (self.directory / "save").exists() or self.has_ended(), "savepoint")
        assert not self.has_ended(), self.words()

    def set_conf(self, conf: Mapping[str, Any]) -> None:
        """Give the next process other settings."""
        before = json.loads((self.directory / "conf.json").read_text(encoding="utf-8"))
        self._order("conf.json", json.dumps({**before, **conf}))

    def _order(self, name: str, text: str) -> None:
        unfinished = self.directory / f".{name}"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.rename(self.directory / name)

    @property
    def is_rebalanced(self) -> bool:
        return not any((self.directory / name).exists() for name in ("workers", "tasks"))

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def finish(self) -> None:
        """End the log, and wait for the run to complete."""
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{END}\n")
        self.process.wait(PATIENCE_SECS)
        ended = json.loads((self.directory / "ended.json").read_text(encoding="utf-8"))
        assert ended["status"] == "COMPLETED", f"{ended}\n{self.words()}"

    def words(self) -> str:
        """Return the output of the process, and how the run ended, if it has."""
        files = [self.directory / name for name in ("output", "ended.json")]
        there = [file for file in files if file.exists()]
        return "\n".join(file.read_text(errors="replace")[-4000:] for file in there)

    def tree(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            whole = psutil.Process(self.process.pid)
            return [whole, *whole.children(recursive=True)]
        return []

    def slot_processes(self) -> list[psutil.Process]:
        """Those of this machine's slots, in either mode."""
        return slots_among(self.tree())

    def python_workers(self) -> list[psutil.Process]:
        """Return the children of Spark's Python daemons, which are the nursery's children."""
        forks = [each for each in self.tree() if ".worker.nursery" in command_of(each)]
        parents = {each.pid: each.ppid() for each in forks}
        return [each for each in forks if parents.get(parents[each.pid], 0) in parents]

    def kill_tree(self) -> None:
        for process in self.tree():
            kill(process)
        self.process.wait(PATIENCE_SECS)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill_tree()


def last_batch(checkpoint: Path) -> int:
    """The last committed batch of a checkpoint; -1 before the first."""
    names: list[str] = []
    try:
        generation = generation_in((checkpoint / PLAN_FILE).read_bytes())
        with contextlib.suppress(FileNotFoundError):  # it has just begun
            names = os.listdir(checkpoint / generation.place / "commits")
    except FileNotFoundError:
        return -1
    return generation.first_batch + max((int(each) for each in names if each.isdigit()), default=-1)


def last_epoch(directory: Path) -> int:
    """The last whole epoch in a log of epochs; -1 before the first."""
    for segment in sorted(directory.glob("*.log"), reverse=True):
        with contextlib.suppress(FileNotFoundError):
            with segment.open("rb") as file:
                records = list(read_log(file))
            if records:
                return records[-1].epoch
    return -1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class StandaloneCluster:
    """A master and workers, which know nothing of topo, on loop-back or on hosts of their own."""

    def __init__(
        self, directory: Path, workers: int = 2, cores: int = 1, hosts: Sequence[Host] = ()
    ) -> None:
        """Start them; of `hosts` the first one has the master, and each other one a worker."""
        import pyspark

        from topo.engine.spark.jvm.java import prepare_java

        home = Path(pyspark.__file__).parent
        self._class = home / "bin" / "spark-class"
        self._directory = directory
        self._cores = cores
        ours = {key: at for key, at in os.environ.items() if key not in _DRIVERS_OWN}
        self._environ = {
            **ours,
            "JAVA_HOME": str(prepare_java()[1]),
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_NO_DAEMONIZE": "1",
        }
        port = _free_port()
        self._workers: list[subprocess.Popen[bytes]] = []
        at = hosts[0] if hosts else None
        self.master = f"spark://{at.address if at else '127.0.0.1'}:{port}"
        options = f"--port {port} --webui-port {_free_port()}"
        self._master = self._start("master.Master", options, at)
        wait_until(lambda: at.answers(port) if at else _answers(port), "Spark's master listens")
        others: Sequence[Host | None] = hosts[1:] or [None] * workers
        for host in others:
            self.add_worker(host)

    def add_worker(self, host: Host | None = None) -> None:
        work = shlex.quote(str(self._directory / f"worker{len(self._workers)}"))
        size = f"--cores {self._cores} --memory 700m"
        ports = f"--port {_free_port()} --webui-port {_free_port()}"
        options = f"{size} {ports} --work-dir {work} {self.master}"
        self._workers.append(self._start("worker.Worker", options, host))

    def kill_worker(self) -> None:
        """Kill the oldest worker and all that it started."""
        _kill_with_children(self._workers.pop(0))

    def executors(self) -> list[psutil.Process]:
        return self._below("CoarseGrainedExecutorBackend")

    def slot_processes(self) -> list[psutil.Process]:
        """Those that executors have started, in real-time mode."""
        return self._below("slot_process import main")

    def _below(self, command: str) -> list[psutil.Process]:
        """Return the processes that the workers have started whose command holds this."""
        return [
            each
            for worker in self._workers
            for each in psutil.Process(worker.pid).children(recursive=True)
            if command in command_of(each)
        ]

    def _start(self, kind: str, options: str, host: Host | None) -> subprocess.Popen[bytes]:
        with open(self._directory / "cluster.log", "ab") as log:
            address = host.address if host else "127.0.0.1"
            command = [str(self._class), f"org.apache.spark.deploy.{kind}", "--host", address]
            return subprocess.Popen(
                [*(host.command if host else []), *command, *shlex.split(options)],
                env={**self._environ, "SPARK_LOCAL_IP": address},
                stdout=log,
                stderr=log,
                cwd=self._directory,
            )

    def __enter__(self) -> StandaloneCluster:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in [*reversed(self._workers), self._master]:
            _kill_with_children(process)


_DRIVERS_OWN = ("PYTHONPATH", "PYSPARK_PYTHON", "TOPO_HOME")


def _kill_with_children(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # it went with its host
        for each in [*psutil.Process(process.pid).children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    process.wait(PATIENCE_SECS)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def moments(kills: int) -> Iterator[float]:
    """For each kill, how long after a commit it comes."""
    for _ in range(kills):
        yield random.random()
