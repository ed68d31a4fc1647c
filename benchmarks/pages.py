"""`topo bench pages`: what browsers that watch a topology cost its driver.

A topology of 50 components with two tasks each runs inline in a driver of its own, and `topo ui`
serves its pages. Twenty clients do what the overview does in a browser: each follows the figures,
and asks for history, figures of ten minutes and errors every five seconds. `driver_percent` is the
driver's processor time in percent of a core, beyond what it needs while nobody watches, without the
engine's thread; `ui_percent` is that of `topo ui`. Answers are right if each has all components.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.model import BenchOptions, Measurement
from benchmarks.processes import busiest_thread, cpu_seconds_of
from topo.builder import TopologyBuilder
from topo.components import Spout
from topo.config import Config
from topo.functions import bolt
from topo.manage.api import Management
from topo.manage.records import RunRecord
from topo.manage.registry import Registry
from topo.manage.submit import Request, Resume, await_start, submit
from topo.topology.model import Topology

LEAST_SECONDS = 10
LEAST_REASON = "a page asks every five seconds"
CLIENTS, COMPONENTS, TASKS = 20, 50, 2
_LAYER = 7
_PAGE_SECS = 5.0
_START_SECS = 60.0
_POLLED = ("history?window=10m", "?window=10m", "errors?limit=50")


class Numbers(Spout):
    """A thousand numbers, and then nothing."""

    outputs = ("n",)

    def __init__(self) -> None:
        self._next = 0

    def next_tuple(self) -> None:
        if self._next < 1000:
            self.collector.emit([self._next])
            self._next += 1


@bolt(outputs=("n",))
def same(n: int) -> Any:
    yield [n]


def watched_topology() -> Topology:
    """Return a topology of layers, each bolt of which reads one of the layer before."""
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(), parallelism=TASKS)
    names = ["numbers"]
    for number in range(1, COMPONENTS):
        before = names[max(0, number - _LAYER)]
        names.append(f"bolt-{number}")
        builder.set_bolt(names[-1], same, parallelism=TASKS).shuffle_grouping(before)
    return builder.create_topology()


@dataclass
class Answers:
    """What clients were told; each thread adds to lists of its own."""

    documents: list[dict[str, Any]] = field(default_factory=list)
    secs: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def run(options: BenchOptions) -> list[Measurement]:
    with tempfile.TemporaryDirectory(prefix="topo-bench-") as directory:
        home = Path(directory) / "home"
        with driving(home) as (run, driver), serving(home) as (ui, server):
            return [_measure(options, run, driver, ui, server)]


def _measure(options: BenchOptions, run: RunRecord, driver: int, ui: int, link: str) -> Measurement:
    rates, driver_percents, ui_percents, is_right = [], [], [], True
    waits: list[float] = []
    engine = busiest_thread(driver)
    for repeat in range(options.repeat):
        before = _driver_seconds(driver, engine)
        time.sleep(options.seconds)
        alone = 100 * (_driver_seconds(driver, engine) - before) / options.seconds
        with watching(link, run.name) as answers:
            driver_before, ui_before = _driver_seconds(driver, engine), cpu_seconds_of(ui)
            began = time.perf_counter()
            time.sleep(options.seconds)
            secs = time.perf_counter() - began
            driver_secs = _driver_seconds(driver, engine) - driver_before
            ui_percents.append(100 * (cpu_seconds_of(ui) - ui_before) / secs)
        driver_percents.append(100 * driver_secs / secs - alone)
        documents = [document for each in answers for document in each.documents]
        rates.append(len(documents) / secs)
        waits += [wait for each in answers for wait in each.secs]
        is_right &= not any(each.errors for each in answers) and bool(documents)
        is_right &= all(len(document["components"]) == COMPONENTS for document in documents)
        options.progress(
            f"pages: {repeat + 1} of {options.repeat}: the driver {driver_percents[-1]:.2f} % of a "
            f"core beyond {alone:.2f} %, topo ui {ui_percents[-1]:.1f} %"
        )
    waits.sort()
    return Measurement.of(
        "pages",
        {"clients": CLIENTS, "components": COMPONENTS},
        "views",
        rates,
        verified=is_right,
        detail={
            "driver_percent": round(sorted(driver_percents)[len(driver_percents) // 2], 2),
            "ui_percent": round(sorted(ui_percents)[len(ui_percents) // 2], 1),
            "wait_ms_p50": round(1e3 * waits[len(waits) // 2], 1),
            "wait_ms_p99": round(1e3 * waits[int(len(waits) * 0.99)], 1),
        },
    )


def _driver_seconds(pid: int, engine: int) -> float:
    """Return the processor time of a driver without the thread that polls the inline spouts."""
    return cpu_seconds_of(pid) - cpu_seconds_of(pid, engine)


@contextmanager
def driving(home: Path) -> Iterator[tuple[RunRecord, int]]:
    """Run the topology in a driver; yield its record and the driver's process id."""
    registry = Registry(home)
    request = Request(
        name="watched",
        topology=watched_topology(),
        conf=Config({}),
        master="local[1]",
        code_directory=Path(__file__).parents[1],
        resume=Resume.FRESH,
        engine="inline",
    )
    run = submit(registry, request, spawn=lambda directory: None)
    command = [sys.executable, "-m", "topo.manage.driver", str(run.directory)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as driver:
        try:
            run = await_start(registry, run, _START_SECS)
            management = Management(registry)
            while not management.topology(run.name).components[f"bolt-{COMPONENTS - 1}"][
                "executed"
            ]:
                time.sleep(0.1)
            yield run, driver.pid
        finally:
            driver.terminate()


@contextmanager
def serving(home: Path) -> Iterator[tuple[int, str]]:
    """Serve the pages; yield the process id, and the link that logs in."""
    command = [sys.executable, "-m", "topo.cli", "ui", "--bind", "127.0.0.1:0", "--json"]
    environment = {**os.environ, "TOPO_HOME": str(home)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield server.pid, json.loads(server.stdout.readline())["link"]
        finally:
            server.terminate()


@contextmanager
def watching(link: str, name: str) -> Iterator[list[Answers]]:
    """Have clients look at the overview of a topology; yield what each of them is told."""
    over = threading.Event()
    answers = [Answers() for _ in range(2 * CLIENTS)]
    threads = [
        threading.Thread(target=work, args=(link, name, mine, over, number / CLIENTS))
        for number in range(CLIENTS)
        for work, mine in ((_poll, answers[2 * number]), (_follow, answers[2 * number + 1]))
    ]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _connection(link: str) -> tuple[HTTPConnection, dict[str, str]]:
    parts = urlsplit(link)
    token = parts.query.partition("=")[2]
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    return connection, {"Authorization": f"Bearer {token}"}


def _poll(link: str, name: str, answers: Answers, over: threading.Event, phase: float) -> None:
    """Ask for what the overview asks for, every five seconds; clients do not ask together."""
    connection, headers = _connection(link)
    over.wait(phase * _PAGE_SECS)
    while not over.is_set():
        for path in _POLLED:
            began = time.perf_counter()
            separator = "" if path.startswith("?") else "/"
            connection.request("GET", f"/api/topologies/{name}{separator}{path}", headers=headers)
            answer = connection.getresponse()
            document = json.loads(answer.read())
            answers.secs.append(time.perf_counter() - began)
            if answer.status != 200:
                answers.errors.append(f"{path}: {answer.status}")
            elif path.startswith("?"):
                answers.documents.append(document)
        connection.close()  # as a page's would be: topo ui keeps one for five seconds
        over.wait(_PAGE_SECS)


def _follow(link: str, name: str, answers: Answers, over: threading.Event, phase: float) -> None:
    """Read the figures as they come, as the overview does."""
    connection, headers = _connection(link)
    connection.request("GET", f"/api/topologies/{name}/events", headers=headers)
    answer = connection.getresponse()
    if answer.status != 200:
        answers.errors.append(f"events: {answer.status}")
    while not over.is_set():
        line = answer.readline()
        if line.startswith(b"data: "):
            answers.documents.append(json.loads(line[6:]))
    connection.close()
