"""Random topologies against a direct model of what their tuples do.

Each value is the path it took, so that the fate of every tuple can be told from its value: whether
a bolt keeps it, fails it, forgets it or acks it, and what it makes of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest import mock
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from topo import BasicBolt, Bolt, FailTuple, Spout, Topology, TopologyBuilder, Tuple, bolt
from topo.components import Component, Outputs
from topo.engine.inline.run import InlineRun
from topo.runtime import bolt_task as bolts_module

GROUPINGS = ("shuffle", "fields", "all", "global", "none", "local_or_shuffle", "partial_key")
KINDS = ("rich", "basic", "function", "holding", "joining")
TIMEOUT = 30


def chance(path: str, salt: str, percent: int) -> bool:
    """A decision that the bolt and the model take alike."""
    return crc32(f"{salt} {path}".encode()) % 100 < percent


class Source(Spout):
    outputs = {"default": ("path",), "side": ("path",)}

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.next = context.this_task_index
        self.step = len(context.component_tasks(context.this_component_id))
        self.name = context.this_component_id

    def next_tuple(self) -> None:
        if self.next < self.count:
            path = f"{self.name}{self.next}"
            tracked = not chance(path, "untracked", 10)
            stream = "side" if chance(path, "side", 30) else "default"
            self.emit([path], stream=stream, msg_id=path if tracked else None)
            self.next += self.step

    def is_exhausted(self) -> bool:
        return bool(self.next >= self.count)


def children_of(name: str, path: str) -> list[tuple[str, str]]:
    """Return the outputs of a bolt for a tuple: (stream, path)."""
    count = crc32(f"{name} {path}".encode()) % 3
    return [
        ("side" if chance(f"{path}.{n}", f"{name} stream", 30) else "default", f"{path}>{name}{n}")
        for n in range(count)
    ]


class Named(Component):
    outputs: Outputs = {"default": ("path",), "side": ("path",)}

    def __init__(self, fails: int) -> None:
        self.fails = fails

    @property
    def name(self) -> str:
        return str(self.context.this_component_id)


class Rich(Named, Bolt):
    """Emits, some of it with its anchor twice; acks or fails."""

    def execute(self, tup: Tuple) -> None:
        for stream, path in children_of(self.name, tup.path):
            anchors = [tup, tup] if chance(path, "twice", 30) else tup
            self.emit([path], stream=stream, anchors=anchors)
        self.settle(tup)

    def settle(self, tup: Tuple) -> None:
        if chance(tup.path, f"{self.name} fails", self.fails):
            self.fail(tup, "random")
        else:
            self.ack(tup)


class Keeping(Rich):
    """Keeps tuples, and settles what is left on each tick."""

    def get_component_configuration(self) -> dict[str, Any]:
        return {"topology.tick.tuple.freq.secs": 7}


class Holding(Keeping):
    """Keeps some tuples: to be settled with a later one, or on the next tick; forgets a few."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        if chance(tup.path, f"{self.name} forgets", 3):
            return
        self.kept.append(tup)
        if chance(tup.path, f"{self.name} waits", 60):
            return
        self.release()

    def on_tick(self, tup: Tuple) -> None:
        self.release()

    def release(self) -> None:
        kept, self.kept = self.kept, []
        for tup in kept:
            Rich.execute(self, tup)


class Joining(Keeping):
    """Emits its children anchored to the input and to one it has kept; settles that too."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.before: Tuple | None = None

    def execute(self, tup: Tuple) -> None:
        before, self.before = self.before, None
        if before is None:
            self.before = tup
            return
        for stream, path in children_of(self.name, tup.path):
            self.emit([f"{path}&{before.path}"], stream=stream, anchors={before, tup})
        self.settle(before)
        self.settle(tup)

    def on_tick(self, tup: Tuple) -> None:
        if self.before is not None:
            self.settle(self.before)
            self.before = None


class Basic(Named, BasicBolt):
    def execute(self, tup: Tuple) -> None:
        for stream, path in children_of(self.name, tup.path):
            self.emit([path], stream=stream)
        if chance(tup.path, f"{self.name} fails", self.fails):
            raise FailTuple("random")


def function(name: str, fails: int) -> Any:
    @bolt(outputs={"default": ("path",)})
    def made(tup: Tuple) -> Iterator[list[str]]:
        for stream, path in children_of(name, tup.path):
            if stream == "default":
                yield [path]
        if chance(tup.path, f"{name} fails", fails):
            raise FailTuple("random")

    return made


@dataclass(frozen=True)
class Reading:
    source: str
    stream: str
    grouping: str


@dataclass(frozen=True)
class Node:
    name: str
    kind: str
    tasks: int
    fails: int
    reads: tuple[Reading, ...]


@dataclass(frozen=True)
class Plan:
    spouts: tuple[tuple[str, int, int], ...]  # name, tuples, tasks
    nodes: tuple[Node, ...]

    def topology(self) -> Topology:
        builder = TopologyBuilder()
        for name, count, tasks in self.spouts:
            builder.set_spout(name, Source(count), tasks)
        made = {"rich": Rich, "basic": Basic, "holding": Holding, "joining": Joining}
        for node in self.nodes:
            if node.kind == "function":
                component = function(node.name, node.fails)
            else:
                component = made[node.kind](node.fails)
            declarer = builder.set_bolt(node.name, component, node.tasks)
            for read in node.reads:
                group = getattr(declarer, f"{read.grouping}_grouping")
                keyed = read.grouping in ("fields", "partial_key")
                args = [read.source, ["path"]] if keyed else [read.source]
                group(*args, stream=read.stream)
        return builder.create_topology()


@st.composite
def plans(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS) -> Plan:
    spouts = tuple(
        (f"s{n}", draw(st.integers(0, 40)), draw(st.integers(1, 3)))
        for n in range(draw(st.integers(1, 2)))
    )
    streams = [(name, stream) for name, _, _ in spouts for stream in ("default", "side")]
    nodes = []
    for number in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(kinds))
        sources = draw(st.lists(st.sampled_from(streams), min_size=1, max_size=3, unique=True))
        reads = tuple(Reading(*s, draw(st.sampled_from(GROUPINGS))) for s in sources)
        fails = draw(st.sampled_from([0, 0, 5, 30]))
        nodes.append(Node(f"b{number}", kind, draw(st.integers(1, 4)), fails, reads))
        own = ["default"] if kind == "function" else ["default", "side"]
        streams += [(f"b{number}", stream) for stream in own]
    return Plan(spouts, tuple(nodes))


@dataclass
class Outcome:
    acked: list[str]
    failed: list[str]
    emitted: Counter[tuple[str, str, str]]


def run(plan: Plan, seed: int, strict: bool, restarts: int = 0) -> Outcome:
    clock = [0.0]
    random = Random(seed)
    conf = {
        "topology.message.timeout.secs": TIMEOUT,
        "topology.max.spout.pending": random.choice([None, 1, 5, 50]),
    }
    topology = plan.topology()
    moved = InlineRun("t", topology, conf, now=lambda: clock[0], shuffled=random, strict=strict)
    while moved.status == "ACTIVE":
        if restarts and random.randrange(4) == 0:
            moved.restart()
            restarts -= 1
        moved.step(random.choice([1, 3, 20]))
        if random.randrange(3) == 0:
            clock[0] += random.choice([1, 7])
    assert moved.status == "COMPLETED"
    emitted = Counter(
        (component, stream, values[0])
        for (component, stream), rows in moved.rows.items()
        for values in rows
    )
    acked = [msg_id for ids in moved.acked.values() for msg_id in ids]
    failed = [msg_id for ids in moved.failed.values() for msg_id in ids]
    return Outcome(sorted(acked), sorted(failed), emitted)


def model(plan: Plan) -> Outcome:
    """Return the verdict of each message by following its tree; tuples must not join."""
    readers: dict[tuple[str, str], list[tuple[Node, int]]] = {}
    for node in plan.nodes:
        for read in node.reads:
            copies = node.tasks if read.grouping == "all" else 1
            readers.setdefault((read.source, read.stream), []).append((node, copies))
    outcome = Outcome([], [], Counter())

    def lost(source: str, stream: str, path: str) -> bool:
        """Return True if any tuple of this one's tree fails or is forgotten; count all."""
        outcome.emitted[source, stream, path] += 1
        found = False
        for node, copies in readers.get((source, stream), []):
            for _ in range(copies):
                found |= lost_in(node, path)
        return found

    def lost_in(node: Node, path: str) -> bool:
        if node.kind == "holding" and chance(path, f"{node.name} forgets", 3):
            return True
        found = chance(path, f"{node.name} fails", node.fails)
        for stream, child in children_of(node.name, path):
            if node.kind != "function" or stream == "default":
                found |= lost(node.name, stream, child)
        return found

    for name, count, _ in plan.spouts:
        for number in range(count):
            path = f"{name}{number}"
            stream = "side" if chance(path, "side", 30) else "default"
            failed = lost(name, stream, path)
            if not chance(path, "untracked", 10):
                (outcome.failed if failed else outcome.acked).append(path)
    return Outcome(sorted(outcome.acked), sorted(outcome.failed), outcome.emitted)


single = plans(tuple(kind for kind in KINDS if kind != "joining"))
seeds = st.integers(0, 1000)


@pytest.fixture(autouse=True)
def short_segments() -> Iterator[None]:
    """Flush every few tuples, so that what spans several flushes comes up."""
    with (
        mock.patch.object(bolts_module, "_ROWS_A_FLUSH", 8),
        mock.patch.object(bolts_module, "_SMALLEST_SEGMENT", 2),
    ):
        yield


@given(plan=single, seed=seeds, strict=st.booleans(), restarts=st.integers(0, 3))
@examples(40)
def test_each_message_is_acked_once_iff_its_whole_tree_was_processed(
    plan: Plan, seed: int, strict: bool, restarts: int
) -> None:
    expected, seen = model(plan), run(plan, seed, strict, restarts)
    assert seen.acked == expected.acked
    assert seen.failed == expected.failed
    assert seen.emitted == expected.emitted


@given(plan=single, seed=st.lists(seeds, min_size=2, max_size=2, unique=True))
@examples(15)
def test_different_seeds_give_the_same_results(plan: Plan, seed: list[int]) -> None:
    assert run(plan, seed[0], strict=True) == run(plan, seed[1], strict=True)


@given(plan=plans(), seed=seeds, strict=st.booleans(), restarts=st.integers(0, 3))
@examples(25)
def test_with_joins_every_message_is_acked_or_failed_exactly_once(
    plan: Plan, seed: int, strict: bool, restarts: int
) -> None:
    seen = run(plan, seed, strict, restarts)
    tracked = model(plan)
    assert sorted(seen.acked + seen.failed) == sorted(tracked.acked + tracked.failed)
    if all(node.fails == 0 and node.kind != "holding" for node in plan.nodes):
        assert seen.failed == []
