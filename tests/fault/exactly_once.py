"""A topology that notices when a tuple is lost or comes twice, and the process that runs it.

    python -m tests.fault.exactly_once DIRECTORY MASTER

Its spouts draw from a log that a test writes, `DIRECTORY/log`. How much they take at once is
random, and so is when a failed message is emitted again: asked again, they do not repeat
themselves. Every emit of a key carries its number among the spout task's emits of that key, and
`Count` raises unless the numbers come one after the other: that shows anything that is lost or
doubled, in whatever batch, as long as state and data stay those of one attempt. At the end, each
task writes what it knows, and `check_result` compares.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from topo import (
    Bolt,
    EventTime,
    Spout,
    StatefulBasicBolt,
    Topology,
    TopologyBuilder,
    Tumbling,
    Tuple,
    WindowAggregate,
    WindowedBolt,
)
from topo import Count as CountOf
from topo.engine.spark.driver.run import SparkRun

END = "END"
_MOST_AT_ONCE = 40


class LogSpout(Spout):
    """Emits the log's lines, each task its share of them, in random portions."""

    outputs = ("key", "offset", "source", "number")
    transient = ("log",)

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.index = context.this_task_index
        self.tasks = len(context.component_tasks(context.this_component_id))
        self.log = open(f"{self.directory}/log", encoding="utf-8")  # noqa: SIM115
        self.position = 0  # in the file
        self.offset = 0  # of the next line
        self.at_end = False
        self.emitted: dict[str, int] = {}
        self.again: list[tuple[str, int]] = []
        self.acked: dict[int, int] = {}  # offset -> batch
        self.acked_now: list[int] = []
        self.failed = 0

    def next_tuple(self) -> None:
        for _ in range(random.randrange(_MOST_AT_ONCE)):
            if self.again and random.random() < 0.5:
                self.send(*self.again.pop())
            elif not self.at_end:
                self.read()

    def read(self) -> None:
        self.log.seek(self.position)
        line = self.log.readline()
        if not line.endswith("\n"):
            return
        self.position += len(line)
        key = line.strip()
        if key == END:
            self.at_end = True
            return
        if self.offset % self.tasks == self.index:
            self.send(key, self.offset)
        self.offset += 1

    def send(self, key: str, offset: int) -> None:
        number = self.emitted.get(key, 0) + 1
        self.emitted[key] = number
        source = self.context.this_task_id
        self.emit([key, offset, source, number], msg_id=(key, offset))

    def ack(self, msg_id: tuple[str, int]) -> None:
        self.acked_now.append(msg_id[1])

    def fail(self, msg_id: tuple[str, int], reason: str = "") -> None:
        self.failed += 1
        self.again.append(msg_id)

    def pre_commit(self, batch_id: int) -> None:
        for offset in self.acked_now:
            assert offset not in self.acked, f"offset {offset} was acked twice"
            self.acked[offset] = batch_id
        self.acked_now = []

    def is_exhausted(self) -> bool:
        return self.at_end and not self.again

    def close(self) -> None:
        known = {"emitted": self.emitted, "acked": self.acked, "failed": self.failed}
        write(self.directory, f"log-{self.context.this_task_id}", known)


class Hold(Bolt):
    """Keeps tuples over batches, and passes them on in their order."""

    outputs = LogSpout.outputs

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[Tuple] = []

    def get_component_configuration(self) -> dict[str, Any]:
        return {"topology.tick.tuple.freq.secs": 0.5}

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)
        if random.random() < 0.05:
            self.pass_on()

    def on_tick(self, tup: Tuple) -> None:
        self.pass_on()

    def pass_on(self) -> None:
        for tup in self.kept:
            self.emit(tup.values, anchors=tup)
            self.ack(tup)
        self.kept = []


class Count(StatefulBasicBolt):
    """Counts, in keyed state; raises if something was lost or comes twice."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.counted_now: list[int] = []
        self.totals: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        if not self.counted_now:
            Path(self.directory, f"counting-{self.context.this_task_id}").touch()
        chain = f"{tup.source} {tup.key}"
        before = self.state.get(chain, 0)
        if tup.number != before + 1:
            what = "lost" if tup.number > before + 1 else "doubled"
            raise AssertionError(f"{what}: {tup.key!r} {before} and then {tup.number}")
        self.state[chain] = tup.number
        self.totals[tup.key] = self.totals.get(tup.key, 0) + 1
        self.counted_now.append(tup.offset)

    def pre_commit(self, batch_id: int) -> None:
        for offset in self.counted_now:
            self.state.setdefault(offset, batch_id)
        self.counted_now = []

    def cleanup(self) -> None:
        known = {
            "totals": self.totals,
            "chains": {key: number for key, number in self.state.items() if isinstance(key, str)},
            "counted": {key: batch for key, batch in self.state.items() if isinstance(key, int)},
        }
        write(self.directory, f"count-{self.context.this_task_id}", known)


class RawWindows(WindowedBolt):
    """Windows that hold their tuples: (end - 30, end] by offset."""

    outputs = ("kind", "key", "start", "n")

    def execute(self, window: Any) -> None:
        self.emit(["raw", window.key, window.start, len(window)])


class Windows(StatefulBasicBolt):
    """Keeps what windows report; raises if one reports twice."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Tuple) -> None:
        kind = "raw" if tup.source_component == "raw" else "panes"
        window = f"{kind} {tup.key} {tup.start}"
        if window in self.state:
            raise AssertionError(f"{window} was reported twice")
        self.state[window] = tup.n

    def cleanup(self) -> None:
        write(self.directory, "windows", dict(self.state))


def write(directory: str, name: str, known: dict[str, Any]) -> None:
    unfinished = Path(directory, f".{name}.{os.getpid()}")
    unfinished.write_text(json.dumps(known), encoding="utf-8")
    unfinished.rename(Path(directory, f"{name}.json"))


def topology(directory: str, count: type[Count] = Count) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("log", LogSpout(directory), parallelism=2)
    builder.set_bolt("hold", Hold(), parallelism=3).fields_grouping("log", "key")
    builder.set_bolt("count", count(directory), parallelism=3).fields_grouping("hold", "key")
    # Offsets are times: a task's come in order, but the tasks' at their own speed.
    time = EventTime("offset", unit="us", idle=None)
    panes = WindowAggregate(key="key", window=Tumbling(20), time=time, aggregates={"n": CountOf()})
    builder.set_bolt("panes", panes, parallelism=2).fields_grouping("log", "key")
    raw = RawWindows().with_tumbling_window(timedelta(microseconds=30)).with_key("key")
    raw.with_event_time(time)
    builder.set_bolt("raw", raw, parallelism=2).fields_grouping("log", "key")
    windows = builder.set_bolt("windows", Windows(directory))
    windows.global_grouping("panes").global_grouping("raw")
    return builder.create_topology()


def check_result(directory: Path, *, has_windows: bool = True, tasks: int = 3) -> dict[str, int]:
    """Compare what the tasks wrote with the log; some figures for the test's report."""
    keys = directory.joinpath("log").read_text(encoding="utf-8").split()
    assert keys.pop() == END
    offsets = set(range(len(keys)))
    spouts = [json.loads(file.read_text()) for file in sorted(directory.glob("log-*.json"))]
    counts = [json.loads(file.read_text()) for file in sorted(directory.glob("count-*.json"))]
    assert (len(spouts), len(counts)) == (2, tasks)

    emitted: Counter[str] = Counter()
    acked: dict[int, int] = {}
    for known in spouts:
        emitted.update(known["emitted"])
        acked.update({int(offset): batch for offset, batch in known["acked"].items()})
    totals: Counter[str] = Counter()
    counted: dict[int, int] = {}
    chains: Counter[str] = Counter()
    for known in counts:
        totals.update(known["totals"])
        counted.update({int(offset): batch for offset, batch in known["counted"].items()})
        chains.update({key.split()[1]: 0 for key in known["chains"]})
        for chain, number in known["chains"].items():
            chains[chain.split()[1]] += number
    assert set(acked) == offsets, "every message was acked"
    assert set(counted) == offsets, "every message was counted"
    assert totals == emitted, "what was counted is what was emitted, again or not"
    assert chains == emitted, "keyed state and plain attributes are of the same batch"
    if has_windows and not any(known["failed"] for known in spouts):  # what comes again comes late
        check_windows(directory, keys)
    early = [offset for offset in offsets if acked[offset] <= counted[offset]]
    assert not early, f"acked before what counted them had committed: {early}"
    return {
        "messages": len(keys),
        "emitted": emitted.total(),
        "failed": sum(known["failed"] for known in spouts),
        "batches": max(acked.values(), default=0),
    }


def check_windows(directory: Path, keys: list[str]) -> None:
    """Compare what windows reported with a computation over the whole log."""
    reported = json.loads(directory.joinpath("windows.json").read_text(encoding="utf-8"))
    wanted = Counter(f"panes {key} {offset // 20 * 20}" for offset, key in enumerate(keys))
    wanted.update(f"raw {key} {-(-offset // 30) * 30 - 30}" for offset, key in enumerate(keys))
    assert reported == dict(wanted)


def follow_orders(run: SparkRun, directory: Path) -> None:
    """Go over to other slots, or save, if the test says so, once it can be asked."""
    order = directory / "workers"
    if order.exists() and run.slots:
        workers = int(order.read_text())
        if workers == run.slots and not run.is_rebalancing:
            order.unlink()
        elif not run.is_rebalancing:
            run.rebalance(workers)
    order = directory / "tasks"
    if order.exists() and run.slots and not run.is_rebalancing:
        wanted = json.loads(order.read_text())
        now = {name: count for name, (_, count) in (run.task_ids or {}).items()}
        if wanted.items() <= now.items():
            order.unlink()
        else:
            changed = run.rebalance(None, dict(wanted.items() - now.items()))
            before = json.loads((directory / "conf.json").read_text(encoding="utf-8"))
            write(str(directory), "conf", {**before, **changed})
    order = directory / "save"
    if order.exists() and run.slots:
        run.save(Path(order.read_text()))
        order.unlink()


def run_job(make: Callable[[str], Topology]) -> None:
    """Run the topology of a directory until it ends, as a command: DIRECTORY MASTER."""
    directory, master = sys.argv[1:]
    conf = json.loads(Path(directory, "conf.json").read_text(encoding="utf-8"))
    begin = conf.pop("begin", {})
    run = SparkRun(
        "exactly-once",
        make(directory),
        {**conf, "topology.checkpoint.dir": f"{directory}/checkpoint"},
        master=master,
        log_file=Path(directory, "spark.log"),
        begin=begin,
    )
    run.start()
    while not run.wait(0.1):
        follow_orders(run, Path(directory))
    write(directory, "ended", {"status": run.status, "reason": run.reason, "error": str(run.error)})


if __name__ == "__main__":
    run_job(topology)
