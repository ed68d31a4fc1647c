"""The driver's Python by the number of slots: real ackers, and a real coordinator, without Spark.

The driver is a process of its own, as in a run: with its ackers, or its coordinator and the log of
epochs, and with what it makes of the reports. All slots are played by this process, which speaks to
it as theirs do: in each batch a slot begins, waits, and stages three levels, with ten messages and
a report of each of its tasks. What is counted is the driver's processor time, so other work on the
machine costs little of the figure. Every message has to be acked in the end.

`topo acker` takes the ackers out of the driver; what they spend is beside it. What is left out is
Spark's part of the driver, which is a JVM, and that slots have connections of their own in
micro-batches: here eight threads share one.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import selectors
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import numpy as np

from benchmarks.acker import acker_processes
from benchmarks.model import BenchOptions, Measurement, Param
from benchmarks.report import show_params
from topo import BasicBolt, Spout, Topology, TopologyBuilder, Tuple
from topo.engine.spark.driver.ackers import Ackers
from topo.engine.spark.driver.progress import Progress
from topo.engine.spark.driver.run_resources import tracking_plan
from topo.engine.spark.plan import make_plan
from topo.engine.spark.realtime.coordinator import Coordinator
from topo.engine.spark.realtime.epochs import Committed, Staged
from topo.engine.spark.realtime.messages import (
    Kind,
    SlotSetup,
    pack_levels,
    pack_staged,
    unpack_committed,
    unpack_cut,
)
from topo.engine.spark.realtime.store import EpochStore
from topo.engine.spark.realtime.stream import MessageStream, connect
from topo.engine.spark.worker.report import Report
from topo.engine.spark.worker.run_spec import RunSpec
from topo.metrics.counters import TaskMetrics
from topo.runtime.slot import full_conf
from topo.tracking.client import AckerClient, AckerControl, Lease
from topo.tracking.clock import SteadyClock
from topo.tracking.exchange import Cursor
from topo.tracking.figures import AckerStatus
from topo.tracking.ids import EdgeIds, Updates, fresh_nonce, root_ids
from topo.tracking.plan import Mode
from topo.tracking.transport import AckerTarget

SLOTS = (10, 100, 1000)
MESSAGES = 10
"""Of a slot in a batch; each has three updates."""
EPOCH_MS = 10.0
_PARTS = ("micro-batch", "micro-batch, ackers outside", "real-time")
_PLAYERS = 8
_WARM = 2
"""Batches before the measurement."""
_WAIT_SECS = 600.0


class _Numbers(Spout):
    outputs = ("number",)

    def next_tuple(self) -> None: ...


class _Pass(BasicBolt):
    outputs = ("number",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup[0]])


class World:
    """A topology of three levels with a task of each in every slot; both processes make it."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.conf = full_conf({"topology.workers": slots})
        self.topology = _line(slots)
        self.plan = make_plan(self.topology, slots, self.conf)
        self.tracking = tracking_plan(self.topology, self.plan, self.conf)

    @property
    def levels(self) -> range:
        return range(len(self.plan.levels))


def _line(slots: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", _Numbers(), slots)
    builder.set_bolt("first", _Pass(), slots).fields_grouping("numbers", "number")
    builder.set_bolt("second", _Pass(), slots).fields_grouping("first", "number")
    return builder.create_topology()


def run(options: BenchOptions) -> list[Measurement]:
    """Each number of slots, in each mode: `--workers` and `--mode` choose."""
    parts = [part for part in _PARTS if part.startswith(options.modes or "")]
    counts = SLOTS if options.workers is None else (options.workers,)
    return [_measure(options, part, slots) for part in parts for slots in counts]


def _measure(options: BenchOptions, part: str, slots: int) -> Measurement:
    params: dict[str, Param] = {"part": part, "slots": slots, "messages": MESSAGES}
    if part != "real-time":
        params["ackers"] = options.ackers
    rates, right, cpu = [], True, 0.0
    detail: dict[str, Param] = {}
    for repeat in range(options.repeat):
        with _ackers(part, options.ackers) as (target, pids):
            measured = _one(part, slots, options.ackers, target, pids, options.seconds)
        done = f"{repeat + 1} of {options.repeat}"
        options.progress(f"scale {show_params(params)}: {measured['ms']:.3f} ms ({done})")
        rates.append(1000 / measured["ms"])
        right = right and bool(measured.pop("right"))
        cpu += measured.pop("cpu_secs")
        detail = {name: round(figure, 4) for name, figure in measured.items()}
    return Measurement.of(
        "scale", params, "slots and batches", rates, verified=right, cpu_secs=cpu, detail=detail
    )


@contextmanager
def _ackers(part: str, count: int) -> Iterator[tuple[AckerTarget | None, list[int]]]:
    """Start ackers that are not the driver's, if it has none of its own."""
    if part != "micro-batch, ackers outside":
        yield None, []
        return
    with acker_processes(count) as started:
        yield started


def _one(
    part: str, slots: int, ackers: int, outside: AckerTarget | None, pids: list[int], secs: float
) -> dict[str, Any]:
    """Have a driver and its slots run for so long; return milliseconds a slot and batch."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    is_real_time = part == "real-time"
    arguments = (there, slots) if is_real_time else (there, slots, ackers, outside)
    target = _drive_coordinator if is_real_time else _drive_ackers
    driver = context.Process(target=target, args=arguments, daemon=True)
    driver.start()
    there.close()
    try:
        world, play = World(slots), _play_epochs if is_real_time else _play_batches
        began, spent = time.monotonic(), sum(map(_cpu_secs, pids))
        batches = play(world, here, secs)
        elapsed = time.monotonic() - began
        ended: dict[str, Any] = _ask(here, "end")
        spent = sum(map(_cpu_secs, pids)) - spent
    finally:
        with suppress(OSError):
            here.close()
        driver.join(10)
        driver.kill()
    acked, committed, cpu = (ended.pop(name) for name in ("acked", "committed", "cpu"))
    figures: dict[str, Any] = {"ms": 1000 * cpu / batches / slots}
    figures.update({name: 1000 * part / batches / slots for name, part in ended.items()})
    if pids:  # their first batches are counted with the others
        figures["ackers"] = 1000 * spent / (batches + _WARM) / slots
    figures.update(batches=batches, batch_ms=1000 * elapsed / (batches + _WARM), cpu_secs=cpu)
    # Of the last batch, ackers know the end when the next one begins; the second one, with it.
    late = committed * slots * MESSAGES - acked
    is_whole = late == 0 if ackers == 1 or is_real_time else 0 <= late <= slots * MESSAGES
    figures["right"] = is_whole and committed >= batches + _WARM - 1
    return figures


def _cpu_secs(pid: int) -> float:
    """Return the processor time of a process, where /proc tells; else 0."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _ask(driver: Connection, *words: Any) -> Any:
    driver.send(words)
    if not driver.poll(_WAIT_SECS):
        raise TimeoutError("the driver does not answer")
    return driver.recv()


# -- what slots say -------------------------------------------------------------------------------


class Slot:
    """What the tasks of one slot did, batch after batch."""

    def __init__(self, world: World, number: int) -> None:
        self.number = number
        self.task = world.plan.component("numbers").tasks[number]
        self.cursor = Cursor(self.task, 0, 0)
        self._ids = EdgeIds(self.task)
        self._said = 0
        self.reports = [
            Report(
                {task: _counted() for task in world.plan.tasks_at(level, number)},
                tuples=MESSAGES if level == 0 else 0,
                exhausted=False if level == 0 else None,
            ).pack()
            for level in world.levels
        ]

    def updates(self) -> list[Updates]:
        """Return the updates of each level in a batch, after which all its messages are acked."""
        numbers = np.arange(self._said + 1, self._said + 1 + MESSAGES, dtype=np.uint64)
        self._said += MESSAGES
        roots = root_ids(self.task, numbers)
        out, on = self._ids.take(MESSAGES), self._ids.take(MESSAGES)
        return [
            Updates(init_roots=roots, init_values=out),
            Updates(ack_roots=roots, ack_values=out ^ on),
            Updates(ack_roots=roots, ack_values=on),
        ]


def _counted() -> TaskMetrics:
    counted = TaskMetrics()
    counted.emitted["default"] = MESSAGES
    return counted


def _play_batches(world: World, driver: Connection, secs: float) -> int:
    """Play micro-batches; return how many were measured."""
    lease: Lease = pickle.loads(_ask(driver, "begin"))
    slots = [Slot(world, number) for number in range(world.slots)]
    client = AckerClient(lease)

    with ThreadPoolExecutor(_PLAYERS) as players:

        def batch(number: int) -> None:
            def begin(slot: Slot) -> Any:
                start = client.begin(number, slot.number, [slot.cursor])
                verdicts = start.verdicts[slot.task]
                slot.cursor = Cursor(slot.task, start.incarnations[slot.task], verdicts.last)
                client.wait(start, slot.number, 0.0, busy=True)
                return start

            starts = list(players.map(begin, slots))
            clock, said = starts[0].clock, [slot.updates() for slot in slots]
            for level in world.levels:

                def stage(slot: Slot, level: int = level) -> None:
                    updates, report = said[slot.number][level], slot.reports[level]
                    nonce = fresh_nonce()
                    client.stage(clock, number, level, slot.number, nonce, updates, report)

                list(players.map(stage, slots))
            _ask(driver, "look")

        for number in range(_WARM):
            batch(number)
        _ask(driver, "measure")
        until, number = time.monotonic() + secs, _WARM
        while number == _WARM or time.monotonic() < until:
            batch(number)
            number += 1
    return number - _WARM


def _play_epochs(world: World, driver: Connection, secs: float) -> int:
    """Play epochs of real-time mode; return how many were measured."""
    address = _ask(driver, "begin")
    selector = selectors.DefaultSelector()
    committed = Counter[int]()
    streams: list[MessageStream] = []

    def hear(slot: Slot, stream: MessageStream) -> None:
        for kind, data in stream.receive():
            match kind:
                case Kind.SETUP:
                    stream.send(Kind.WANT, pack_levels(world.levels))
                case Kind.START:
                    for level in world.levels:
                        cursors = {slot.task: 0} if level == 0 else {}
                        stream.send(Kind.READY, pickle.dumps((level, cursors)))
                case Kind.CUT:
                    epoch, _, _ = unpack_cut(data)
                    for level, updates in enumerate(slot.updates()):
                        staged = Staged(updates=updates, report=slot.reports[level])
                        stream.send(Kind.STAGED, pack_staged(epoch, level, staged))
                case Kind.COMMITTED:
                    committed[unpack_committed(data)[0]] += 1
                    stream.send(Kind.NEWS)
        stream.flush()

    def play(epoch: int) -> int:
        """Play until all slots have heard of an epoch; return the last one of which they have."""
        while committed[epoch] < world.slots:
            events = selector.select(_WAIT_SECS)
            if not events:
                raise TimeoutError("the driver does not answer")
            for key, mask in events:
                key.data.event(mask)
            if not all(stream.is_open for stream in streams):
                raise ConnectionError("the coordinator has ended")
        return max(epoch for epoch, heard in committed.items() if heard == world.slots)

    with ExitStack() as opened:
        opened.callback(selector.close)
        for number in range(world.slots):
            stream = connect(address, "token", number, selector)
            opened.callback(stream.close)
            stream.listen(partial(hear, Slot(world, number), stream))
            streams.append(stream)
        play(_WARM)
        _ask(driver, "measure")
        until, last = time.monotonic() + secs, _WARM
        while last == _WARM or time.monotonic() < until:
            last = play(last + 1)
        return last - _WARM


# -- the driver -----------------------------------------------------------------------------------


class _Times:
    """The processor time of parts of the driver, of all its threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._parts = Counter[str]()
        self.reset()

    def reset(self) -> None:
        """Begin to measure."""
        with self._lock:
            self._parts.clear()
            self._began = time.process_time()

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Count what is done inside."""
        began = time.thread_time()
        try:
            yield
        finally:
            spent = time.thread_time() - began
            with self._lock:
                self._parts[part] += spent  # type: ignore[assignment]

    def end(self) -> dict[str, Any]:
        """Return seconds by part, and all."""
        with self._lock:
            return {"cpu": time.process_time() - self._began, **self._parts}


class _Watch:
    """What a run makes of the reports of committed batches."""

    def __init__(self, world: World, times: _Times) -> None:
        self._progress = Progress(world.topology, world.conf)
        self._progress.begin_epoch(world.plan.spout_slots)
        self._times = times

    @property
    def last(self) -> int:
        return self._progress.last_payload

    def take(self, status: AckerStatus) -> None:
        with self._times.of("reports"):
            self._progress.take_in(status, 0.0)


def _drive_ackers(slots: Connection, count: int, ackers: int, outside: AckerTarget | None) -> None:
    """Be the driver of micro-batches."""
    world, times = World(count), _Times()
    opened: Ackers | None = None
    if outside is not None:
        control = AckerControl(outside)
    else:
        opened = Ackers("bench", {**world.conf, "topology.acker.executors": ackers}, "")
        control = opened.control()
        for server in opened._servers:
            timed = _timed(server.service.handle, times)
            server.service.handle = timed  # type: ignore[method-assign]
    watch = _Watch(world, times)
    lease = control.register(world.tracking, 0, "bench")
    while True:
        match slots.recv():
            case ("begin",):
                slots.send(pickle.dumps(lease))
            case ("look",):
                watch.take(control.status(watch.last))
                slots.send(None)
            case ("measure",):
                times.reset()
                slots.send(None)
            case ("end",):
                ended, status = times.end(), control.status()
                slots.send({**ended, "acked": status.acked, "committed": status.next_batch})
                break
    if opened is not None:
        opened.close()


def _timed(handle: Any, times: _Times) -> Any:
    def timed(method: str, *more: Any, **options: Any) -> bytes:
        with times.of(method):
            answer: bytes = handle(method, *more, **options)
        return answer

    return timed


def _drive_coordinator(slots: Connection, count: int) -> None:
    """Be the driver of real-time mode."""
    world, times = World(count), _Times()
    committed = Committed(world.tracking)
    spec = RunSpec("bench", world.topology.to_bytes(), world.conf, world.plan)
    is_told, is_over = Event(), Event()
    with ExitStack() as opened:  # also if the benchmark dies, whose end is no word but EOF
        directory = opened.enter_context(tempfile.TemporaryDirectory())
        store = EpochStore(Path(directory, "epochs"))
        opened.callback(store.close)
        store.recover(committed)
        coordinator = Coordinator(
            world.plan,
            world.tracking,
            committed,
            store,
            mode=Mode.ACTIVE,
            period_secs=EPOCH_MS / 1000,
            incarnation="bench",
            address=f"{directory}/coordinator",
            token="token",
            setup=lambda slot: SlotSetup(spec, slot, tuple(world.levels), False, ()),
            clock=SteadyClock(),
            notify=is_told.set,
        )
        opened.callback(coordinator.close)
        watch = _Watch(world, times)

        def look() -> None:
            while not is_over.is_set():
                is_told.wait(1.0)
                is_told.clear()
                watch.take(coordinator.status(watch.last))

        looking = Thread(target=look)
        coordinator.start()
        looking.start()
        opened.callback(looking.join)
        opened.callback(is_told.set)
        opened.callback(is_over.set)
        while True:
            match slots.recv():
                case ("begin",):
                    slots.send(f"{directory}/coordinator")
                case ("measure",):
                    times.reset()
                    slots.send(None)
                case ("end",):
                    ended, status = times.end(), coordinator.status()
                    epochs = status.next_batch - 1  # the first one has number 1
                    slots.send({**ended, "acked": status.acked, "committed": epochs})
                    break
