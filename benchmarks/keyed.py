"""`topo bench keyed`: a bolt with an instance for each key, and one that counts in `self.state`.

Both count the tuples of each key, in one slot, with frames and with what a batch saves; the ratio
is of processor time. The loop in the figures is the StatefulBasicBolt. Every second pair emits.
"""

from __future__ import annotations

import random
from time import process_time
from typing import Any

from benchmarks.model import BenchOptions, Measurement
from benchmarks.slots import run_to_end
from topo import BasicBolt, KeyedBolt, Spout, StatefulBasicBolt, TopologyBuilder, Tuple

_BATCH = 5_000
_EVENTS_A_SECOND = 100_000  # a guess that turns --seconds into an amount of work


class Keys(Spout):
    """Emits keys."""

    outputs = ("key",)
    transient = ("keys",)

    def __init__(self, keys: list[int]) -> None:
        self.keys = keys
        self.at = 0

    def next_tuple(self) -> None:
        for key in self.keys[self.at : self.at + _BATCH]:
            self.emit([key])
        self.at += _BATCH

    def is_exhausted(self) -> bool:
        return self.at >= len(self.keys)


class InState(StatefulBasicBolt):
    outputs = ("key", "count")

    def __init__(self, emits: bool) -> None:
        self.emits = emits

    def execute(self, tup: Tuple) -> None:
        count = self.state.get(tup.key, 0) + 1
        self.state[tup.key] = count
        if self.emits:
            self.emit([tup.key, count])


class ByInstance(KeyedBolt):
    outputs = ("key", "count")

    def __init__(self, emits: bool) -> None:
        self.emits = emits

    def created(self) -> None:
        self.count = 0

    def execute(self, tup: Tuple) -> None:
        self.count += 1
        if self.emits:
            self.emit([tup.key, self.count])


class Sum(BasicBolt):
    """Counts what was emitted."""

    def __init__(self) -> None:
        self.total = 0

    def execute(self, tup: Tuple) -> None:
        self.total += 1


def run(options: BenchOptions) -> list[Measurement]:
    total = max(_BATCH, int(options.seconds * _EVENTS_A_SECOND))
    return [
        _measure(options, {"keys": keys, "emits": emits}, keys_of(total, keys), emits)
        for keys in (1_000, 100_000)
        for emits in (False, True)
    ]


def keys_of(total: int, keys: int) -> list[int]:
    chance = random.Random(1)
    return [chance.randrange(keys) for _ in range(total)]


def _measure(
    options: BenchOptions, params: dict[str, Any], keys: list[int], emits: bool
) -> Measurement:
    rates, state_rates, verified = [], [], True
    for repeat in range(options.repeat):
        options.progress(f"keyed {params}: {repeat + 1} of {options.repeat}")
        emitted, seconds = counted(keys, InState(emits))
        state_rates.append(len(keys) / seconds)
        by_instance, seconds = counted(keys, ByInstance(emits))
        rates.append(len(keys) / seconds)
        verified = verified and emitted == by_instance == (len(keys) if emits else 0)
    return Measurement.of(
        "keyed", params, "tuples", rates, verified=verified, loop_rates=state_rates
    )


def counted(keys: list[int], bolt: Any) -> tuple[int, float]:
    """Return how many tuples a bolt has emitted, and the seconds of the processor it took."""
    builder = TopologyBuilder()
    builder.set_spout("keys", Keys(keys))
    builder.set_bolt("bolt", bolt).fields_grouping("keys", ["key"])
    builder.set_bolt("sum", Sum()).global_grouping("bolt")
    host, layout, seconds = run_to_end(builder.create_topology(), _BATCH, process_time)
    [task] = layout.tasks_of("sum")
    sink = host.tasks[task].component
    assert isinstance(sink, Sum)
    return sink.total, seconds
