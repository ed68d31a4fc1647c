"""Slots and a coordinator in one process, with every delay and every death drawn from one seed.

The levels, the epochs and the log are the real ones; only the sockets and Spark's shuffle between
them are queues here, each in order, all of them as slow as the seed says. The levels of a slot are
in one process or in two, as on a cluster, where the seed says. A death takes the slots, or the
driver with them, at any moment; what follows begins with what the log says.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from topo import (
    BasicBolt,
    EventTime,
    IntervalJoin,
    Spout,
    StatefulBasicBolt,
    Topology,
    TopologyBuilder,
    Tumbling,
    Tuple,
    WindowAggregate,
)
from topo import Count as CountOf
from topo.engine.spark.plan import make_plan
from topo.engine.spark.realtime.epochs import Committed, Epochs, Staged
from topo.engine.spark.realtime.level import Level, link
from topo.engine.spark.realtime.messages import (
    SlotSetup,
    Start,
    pack_staged,
    pack_verdicts,
    unpack_staged,
    unpack_verdicts,
)
from topo.engine.spark.realtime.records import read_values
from topo.engine.spark.realtime.rounds import send_round
from topo.engine.spark.realtime.store import EpochStore
from topo.engine.spark.worker.run_spec import RunSpec
from topo.runtime.slot import full_conf
from topo.tracking.plan import Mode, TrackingPlan

LINES = ("a b", "b c b", "a", "c a b c", "b")
SLOTS = 2
WINDOW = 7
LAPS = 3
PAIRED, UNPAIRED = len(LINES), len(LINES) + 2
"""How far apart lines are equal; no line is equal to one so far from it."""


class Lines(Spout):
    outputs = ("line", "number")

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.next = 0
        self.acked: list[int] = []

    def next_tuple(self) -> None:
        if self.next < self.count:
            self.emit([LINES[self.next % len(LINES)], self.next], msg_id=self.next)
            self.next += 1

    def ack(self, msg_id: int) -> None:
        self.acked.append(msg_id)

    def is_exhausted(self) -> bool:
        return self.next >= self.count


class Split(BasicBolt):
    outputs = ("word", "number")
    stateless = True

    def execute(self, tup: Tuple) -> None:
        for word in tup.line.split():
            self.emit([word, tup.number])


class Count(StatefulBasicBolt):
    outputs = ("word", "number")

    def execute(self, tup: Tuple) -> None:
        self.state[tup.word] = self.state.get(tup.word, 0) + 1
        self.emit(tup.values)


class Total(BasicBolt):
    """Reads the spout too, whose tuples pass through the levels between and come before words."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.lines = 0
        self.words = 0
        self.words_due: Counter[int] = Counter()
        self.early: list[int] = []

    def execute(self, tup: Tuple) -> None:
        if tup.source_component == "lines":
            self.lines += 1
            self.words_due[tup.number] += len(tup.line.split())
        else:
            self.words += 1
            self.words_due[tup.number] -= 1
            if self.words_due[tup.number] < 0:
                self.early.append(tup.number)


class Reported(StatefulBasicBolt):
    """Keeps what windows report; raises if one reports twice."""

    def execute(self, tup: Tuple) -> None:
        window = (tup.line, tup.start)
        assert window not in self.state, f"{window} was reported twice"
        self.state[window] = tup.n


class Joined(StatefulBasicBolt):
    """Counts, for each line's number, how often it came with which other one."""

    def execute(self, tup: Tuple) -> None:
        pair = (tup.number, tup.other)
        self.state[pair] = self.state.get(pair, 0) + 1


class Round(StatefulBasicBolt):
    """Sends each line round some times; counts, for each lap, how often a number has come."""

    outputs = {"again": ("line", "number", "lap")}

    def execute(self, tup: Tuple) -> None:
        lap = tup.lap if "lap" in tup.fields else 0
        self.state[tup.number, lap] = self.state.get((tup.number, lap), 0) + 1
        if lap < LAPS:
            self.emit([tup.line, tup.number, lap + 1], stream="again")


def with_later(apart: int) -> IntervalJoin:
    """Return a join of the lines with equal ones that come `apart` numbers later."""
    return IntervalJoin(
        left="lines",
        right="lines",
        on="line",
        within=(-apart, apart),
        how="left",
        time=EventTime("number", unit="us", idle=None),
        select={"number": "left:number", "other": "right:number"},
    )


def word_count(lines: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("lines", Lines(lines), parallelism=2)
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", "word")
    total = builder.set_bolt("total", Total())
    total.global_grouping("count").global_grouping("lines")
    rounds = builder.set_bolt("rounds", Round(), parallelism=2).shuffle_grouping("lines")
    rounds.shuffle_grouping("rounds", stream="again", loop=True)
    windows = WindowAggregate(
        key="line",
        window=Tumbling(WINDOW),
        time=EventTime("number", unit="us", idle=None),
        aggregates={"n": CountOf()},
    )
    builder.set_bolt("windows", windows, parallelism=2).fields_grouping("lines", "line")
    builder.set_bolt("reported", Reported()).global_grouping("windows")
    for name, apart in (("pairs", PAIRED), ("alone", UNPAIRED)):
        builder.set_bolt(name, with_later(apart), parallelism=2).fields_grouping("lines", "line")
        builder.set_bolt(f"{name}_joined", Joined()).global_grouping(name)
    return builder.create_topology()


class _Wire:
    """A queue that a level takes for its stream to Spark."""

    waiting = 0

    def __init__(self, put: Callable[[int, bytes], None]) -> None:
        self.send = lambda key, *parts: put(key, b"".join(parts))

    def flush(self) -> None:
        """Do nothing: nothing waits here."""


class Stuck(Exception):
    """A run that does not come to its end."""


class World:
    """One run of a topology, from start to start."""

    def __init__(self, directory: Path, seed: int, lines: int = 40) -> None:
        self.random = Random(seed)
        self.lines = lines
        self.deaths = 0
        self.restores_uncommitted = False
        topology = word_count(lines)
        conf = full_conf({"topology.max.spout.pending": 15})
        self.plan = make_plan(topology, SLOTS, conf)
        self._spec = RunSpec("world", topology.to_bytes(), conf, self.plan)
        placed = self.plan.component("lines")
        self._tracking = TrackingPlan(len(self.plan.levels), SLOTS, tuple(placed.tasks))
        self._directory = directory
        self._store: EpochStore | None = None
        self._clock = 1000.0
        self._start_driver()

    # -- starts and deaths --------------------------------------------------------------------

    def _start_driver(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = EpochStore(self._directory, compact_bytes=2000)
        self._committed = self._store.recover(Committed(self._tracking))
        self._staged: list[Staged] = []
        self._start_slots()

    def _start_slots(self) -> None:
        assert self._store is not None
        store, every = self._store, range(2 + sum(len(c.tasks) for c in self.plan.components))
        saved = read_values(store.directory, store.places(every))
        if self.restores_uncommitted:
            for staged in self._staged:
                for (task, name), blob in staged.puts.items():
                    saved.setdefault(task, {})[name] = blob
        self._staged = []
        committed = self._committed
        numbers = tuple(range(len(self.plan.levels)))
        start = Start(
            numbers,
            committed.epoch,
            committed.clock,
            Mode.ACTIVE,
            "world",
            saved=saved,
            now=self._clock,
        )
        self._epochs = Epochs(self._tracking, committed, Mode.ACTIVE, 0.0)
        self._wires: dict[tuple[int, int, int], deque[bytes]] = {}
        self._orders: list[deque[tuple[str, Any]]] = [deque() for _ in range(SLOTS)]
        self.levels: list[list[Level]] = []
        for slot in range(SLOTS):
            setup = SlotSetup(self._spec, slot, numbers, acks_at_once=False, import_path=())
            environment = self._spec.environment(slot, lambda: self._clock)
            made = [Level(setup, number, environment, start) for number in numbers]
            for level in made:
                level.output.connect(self._wire(level.number, slot))  # type: ignore[arg-type]
            first = self.random.randrange(len(made) + 1)  # of those in another process
            for process in (made[:first], made[first:]):
                link({level.number: level for level in process})
            made[0].set_mode(Mode.ACTIVE)
            send_round(dict(enumerate(made)))
            self.levels.append(made)
        spouts = [spout for level in self.levels for spout in self._host(level[0]).spouts]
        self._epochs.resume_from({spout.id: spout.cursor for spout in spouts})
        self._tell()

    def _wire(self, level: int, slot: int) -> _Wire:
        def put(key: int, message: bytes) -> None:
            target = self.plan.keys.index(key)
            self._wires.setdefault((level + 1, slot, target), deque()).append(message)

        return _Wire(put)

    def die(self) -> None:
        self.deaths += 1
        if self.random.random() < 0.3:
            self._start_driver()
        else:
            self._start_slots()

    # -- moves --------------------------------------------------------------------------------

    def run(self, deaths: int) -> None:
        """Move at random to the end, dying so many times on the way."""
        for _ in range(10_000):
            if self.deaths < deaths and self.random.random() < 0.02:
                self.die()
            self._move()
            if self._is_done() and self.deaths >= deaths:
                return
        raise Stuck

    def _move(self) -> None:
        self._clock += 0.001
        full = [where for where, wire in self._wires.items() if wire]
        told = [slot for slot, orders in enumerate(self._orders) if orders]
        kind = self.random.randrange(10)
        if full and kind < 6:
            level, source, target = where = self.random.choice(full)
            del source
            self.levels[target][level].receive(self._wires[where].popleft())
            self._work_on(self.levels[target], level)
        elif told and kind < 8:
            slot = self.random.choice(told)
            self._obey(slot, *self._orders[slot].popleft())
        elif kind == 8 and self._epochs.in_work is None:
            self._epochs.note_news()
            cut = self._epochs.cut(self._clock, self._clock)
            for orders in self._orders:
                orders.append(("cut", cut))
        else:
            levels = self.random.choice(self.levels)
            levels[0].poll(self._clock, 3, float("inf"))
            self._work_on(levels, 1)

    def _work_on(self, levels: list[Level], first: int) -> None:
        """Let a level work on what it has received, and those behind it on what it has sent."""
        for level in levels[first:]:
            alignment = level.alignment
            assert alignment is not None
            level.work(self._clock)
            while level.has_ended:
                marker = alignment.marker
                self._stage(level, Mode(marker.mode), marker.clock)
                alignment.advance()
                level.work(self._clock)

    def _obey(self, slot: int, order: str, what: Any) -> None:
        if order == "cut":
            self._stage(self.levels[slot][0], what.mode, what.clock)
            self._work_on(self.levels[slot], 1)
        elif order == "committed":
            send_round(dict(enumerate(self.levels[slot])))
        else:
            self.levels[slot][0].deliver("world", unpack_verdicts(what))

    def _stage(self, level: Level, mode: Mode, clock: float) -> None:
        epoch = level.epoch
        data = pack_staged(epoch, level.number, level.finish(mode, clock))
        epoch, number, staged = unpack_staged(data)
        self._staged.append(staged)
        slot = next(slot for slot, levels in enumerate(self.levels) if level in levels)
        if self._epochs.stage(epoch, number, slot, staged):
            assert self._store is not None
            record = self._epochs.record()
            self._store.append(record, self._committed)
            self._epochs.commit(record)
            self._staged = []
            for orders in self._orders:
                orders.append(("committed", None))
            self._tell()

    def _tell(self) -> None:
        for task, verdicts in self._epochs.new_verdicts().items():
            slot = self.plan.place_of(task)[1]
            self._orders[slot].append(("told", pack_verdicts({task: verdicts})))

    # -- the end ------------------------------------------------------------------------------

    def _host(self, level: Level) -> Any:
        assert level.host is not None
        return level.host

    def _components(self, name: str) -> list[Any]:
        tasks = self.plan.component(name).tasks
        hosts = [self._host(level) for levels in self.levels for level in levels]
        return [host.tasks[at].component for host in hosts for at in tasks if at in host.tasks]

    def _is_done(self) -> bool:
        acked = sum(len(spout.acked) for spout in self._components("lines"))
        idle = not any(self._wires.values()) and self._epochs.in_work is None
        return idle and acked >= 2 * self.lines

    def mistakes(self) -> list[str]:
        """Return what is not as it has to be."""
        wanted: Counter[str] = Counter()
        for number in range(self.lines):
            wanted.update(LINES[number % len(LINES)].split() * 2)
        counted: Counter[str] = Counter()
        for bolt in self._components("count"):
            counted.update(dict(bolt.state.items()))
        (total,) = self._components("total")
        found = []
        if counted != wanted:
            found.append(f"counted {dict(counted)}, and not {dict(wanted)}")
        if (total.lines, total.words) != (2 * self.lines, wanted.total()):
            found.append(f"{total.lines} lines, {total.words} words in all")
        if total.early:
            found.append(f"words of lines {total.early} came before their lines")
        rounds: Counter[tuple[int, int]] = Counter()
        for bolt in self._components("rounds"):
            rounds.update(dict(bolt.state.items()))
        if rounds != {(n, lap): 2 for n in range(self.lines) for lap in range(LAPS + 1)}:
            found.append(f"went round {dict(rounds)}")
        found += self._wrong_windows()
        found += self._wrong_joins()
        for spout in self._components("lines"):
            if sorted(spout.acked) != list(range(self.lines)):
                found.append(f"acked {spout.acked}")
        return found

    def _wrong_windows(self) -> list[str]:
        """Return what windows reported that a computation over all lines does not give."""
        (reported,) = self._components("reported")
        found = []
        for (line, start), n in dict(reported.state).items():
            numbers = range(start, min(start + WINDOW, self.lines))
            wanted = 2 * sum(LINES[number % len(LINES)] == line for number in numbers)
            if n != wanted:
                found.append(f"{line!r} at {start}: {n}, and not {wanted}")
        (last, *_) = [task for level in self.levels for task in self._timed(level)]
        ends = {start + WINDOW for _, start in reported.state}
        due = set(range(WINDOW, min(last.watermark, self.lines) + 1, WINDOW))
        return found if ends == due else [*found, f"windows ended at {ends}, and not {due}"]

    def _wrong_joins(self) -> list[str]:
        """Return what joins gave that two loops over all lines do not give."""
        timed = [task for level in self.levels for task in self._timed(level)]
        watermark = {task.component_id: task.watermark for task in timed}
        pairs, alone = self._components("pairs_joined") + self._components("alone_joined")
        wanted = {(number, number + PAIRED): 4 for number in range(self.lines - PAIRED)}
        never = {
            (number, None): 2
            for number in range(self.lines)
            if number + UNPAIRED < watermark["alone"]
        }
        found = []
        for name, bolt, right in (("pairs", pairs, wanted), ("alone", alone, never)):
            if dict(bolt.state) != right:
                found.append(f"{name}: {dict(bolt.state)}, and not {right}")
        return found

    def _timed(self, levels: list[Level]) -> list[Any]:
        return [task for level in levels for task in self._host(level).timed]

    def close(self) -> None:
        """Let go of the log."""
        assert self._store is not None
        self._store.close()
