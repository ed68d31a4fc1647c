"""`topo bench state`: what a batch costs that writes ten thousand keys, by how many keys there are.

A stateful bolt is filled with so many keys, then every batch changes ten thousand of them, all
over the state. What a batch costs should follow what it changes: the figure is keys changed a
second. At the end the slot processes are killed, and the batch that follows starts them again and
restores them: `restore_ms` is how much longer than usual nothing is committed. `restores` counts
those before, which nothing called for. The plain loop changes the same keys in a dictionary.
"""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.following import end, follow, running
from benchmarks.model import BatchTimes, BenchOptions, Measurement
from benchmarks.processes import slot_pids
from benchmarks.word_count import slots_of
from topo.builder import TopologyBuilder
from topo.components import Spout, StatefulBasicBolt
from topo.engine.base import Run
from topo.errors import RunError
from topo.topology.model import Topology
from topo.tuples import Tuple

LEAST_SECONDS = 5
LEAST_REASON = "fewer than ten batches would be measured"

KEYS = (10_000, 1_000_000, 10_000_000)
DIRTY = 10_000
_GROUP = 20  # keys filled by one tuple
_STRIDE = 7919  # a prime: the keys that are changed are all over the state
_FILL_SECS = 1200.0
_RESTORE_BATCHES = 3


class Keys(Spout):
    """First a tuple for each group of keys to fill, then key after key to change."""

    outputs = ("group", "key")

    def __init__(self, keys: int, directory: str) -> None:
        self.keys = keys
        self.directory = directory

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.next: int = context.this_task_index
        self.step = len(context.component_tasks(context.this_component_id))

    def next_tuple(self) -> None:
        number, groups = self.next, self.keys // _GROUP
        self.next = number + self.step
        if number < groups:
            self.emit([number, -1])
        else:
            key = (number - groups) * _STRIDE % self.keys
            self.emit([key // _GROUP, key])

    def close(self) -> None:
        task = self.context.this_task_index
        Path(self.directory, f"emitted-{task}").write_text(str((self.next - task) // self.step))


class Changes(StatefulBasicBolt):
    """Counts how often each key was changed; leaves behind how it was made, and what it held."""

    outputs = ()

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        with Path(self.directory, f"made-{context.this_task_id}").open("ab") as made:
            made.write(b".")

    def execute(self, tup: Tuple) -> None:
        group, key = tup.values
        if key >= 0:
            self.state[key] = self.state.get(key, 0) + 1
        else:
            for filled in range(group * _GROUP, (group + 1) * _GROUP):
                self.state[filled] = self.state.get(filled, 0)

    def cleanup(self) -> None:
        held = (len(self.state), sum(self.state.values()))
        path = Path(self.directory, f"held-{self.context.this_task_id}")
        path.write_bytes(pickle.dumps(held))


def run(options: BenchOptions) -> list[Measurement]:
    first, *others = [_measure(options, keys) for keys in KEYS]
    return [first, *(_beside(first, other) for other in others)]


def _beside(smallest: Measurement, other: Measurement) -> Measurement:
    assert smallest.batch_ms is not None
    assert other.batch_ms is not None
    times = round(other.batch_ms.p50 / smallest.batch_ms.p50, 2)
    return replace(other, detail={**other.detail, "times_smallest": times})


def _measure(options: BenchOptions, keys: int) -> Measurement:
    slots = slots_of(options)
    conf = {
        "topology.workers": slots,
        "topology.batch.max.tuples": DIRTY // slots,
        "topology.batch.target.ms": 600_000,  # the number of keys is the limit, not the time
        "topology.acker.executors": options.ackers,
    }
    loops, repeats = [], []
    with tempfile.TemporaryDirectory(prefix="topo-bench-") as directory:
        with running(_topology(keys, directory, slots), conf) as changing:
            options.progress(f"state keys={keys}: filling")
            _wait_until_filled(changing, keys // _GROUP)
            for repeat in range(options.repeat):
                options.progress(f"state keys={keys}: {repeat + 1} of {options.repeat}")
                repeats.append(follow(changing, "changes", options.seconds))
            restores = _times_made(directory) - slots
            options.progress(f"state keys={keys}: restoring")
            restored = _restored(changing)
            end(changing, "keys")
        for _ in repeats:
            loops.append(_loop_rate(keys))
        verified = _is_right(directory, keys, slots)
    times = sorted(ms for followed in repeats for ms in followed.ms)
    p50 = times[len(times) // 2]
    cpu = [followed.cpu_secs for followed in repeats if followed.cpu_secs is not None]
    return Measurement.of(
        "state",
        {"keys": keys, "dirty": DIRTY, "workers": slots},
        "keys",
        [followed.executed_per_sec for followed in repeats],
        verified=verified,
        loop_rates=loops,
        cpu_secs=sum(cpu) / len(cpu) if cpu else None,
        batch_ms=BatchTimes(p50=p50, p99=times[int(0.99 * (len(times) - 1))]),
        detail={"restores": restores, "restore_ms": round(restored - p50, 1)},
    )


def _topology(keys: int, directory: str, parallelism: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("keys", Keys(keys, directory), parallelism)
    changes = builder.set_bolt("changes", Changes(directory), parallelism)
    changes.fields_grouping("keys", ["group"])
    return builder.create_topology()


def _wait_until_filled(run: Run, groups: int) -> None:
    until = time.monotonic() + _FILL_SECS
    while run.stats().components["changes"].executed < groups + DIRTY:
        if time.monotonic() > until:
            raise RunError(f"the state is not filled after {_FILL_SECS:g} s", hint=run.reason)
        follow(run, "changes", 1.0)


def _restored(run: Run) -> float:
    """Kill the slot processes; return the time in ms until the next commit.

    By the clock, and not what a batch says that it took: the driver, which looks less often where
    nothing commits, may hear of it together with the next.
    """
    killed = time.monotonic()
    for pid in slot_pids():
        os.kill(pid, signal.SIGKILL)
    followed = follow(run, "changes", 0.0, least=_RESTORE_BATCHES)
    heard = [killed, *(batch.heard_at for batch in followed.batches)]
    return 1000 * max(after - before for before, after in pairwise(heard))


def _times_made(directory: str) -> int:
    return sum(path.stat().st_size for path in Path(directory).glob("made-*"))


def _is_right(directory: str, keys: int, tasks: int) -> bool:
    """True iff every key exists and was changed as often as the spouts requested."""
    held = [pickle.loads(path.read_bytes()) for path in Path(directory).glob("held-*")]
    said = [int(path.read_text()) for path in Path(directory).glob("emitted-*")]
    if len(held) != tasks or len(said) != tasks:
        return False
    changes = sum(said) - keys // _GROUP
    found: tuple[int, int] = (sum(size for size, _ in held), sum(times for _, times in held))
    return found == (keys, changes)


def _loop_rate(keys: int) -> float:
    """Keys a second that a plain loop changes in a dictionary of so many."""
    state = dict.fromkeys(range(keys), 0)
    count = 50 * DIRTY
    began = time.perf_counter()
    for number in range(count):
        key = number * _STRIDE % keys
        state[key] = state[key] + 1
    return count / (time.perf_counter() - began)
