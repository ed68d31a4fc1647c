"""A topology in small, driven through the real client and service, beside the plain truth.

The world runs micro-batches of three levels and two slots as Spark would: an execution starts from
committed state, may die before or after staging, is then executed again and does other things, and
what it did counts only when its batch commits. Calls get lost on their way there or back, or come
very late; ackers lose their memory; the query restarts.

The truth is a set of unfinished tuples per message, and knows nothing of XOR. What a spout hears in
a committed batch is held against it: `Violation` is the finding of a test.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Protocol

import numpy as np

from tests.property.small_truth import (
    TIMEOUT,
    Effects,
    Flying,
    SlotState,
    SpoutState,
    Truth,
    Violation,
)
from topo.errors import AckerError
from topo.tracking.client import AckerClient, AckerControl, can_restart
from topo.tracking.direct import Answer
from topo.tracking.exchange import Cursor
from topo.tracking.ids import EdgeIds, Updates, root_id
from topo.tracking.plan import TrackingPlan
from topo.tracking.refusals import Refused
from topo.tracking.security import TOKEN_KEY, TOPOLOGY_KEY
from topo.tracking.service import AckerService
from topo.tracking.transport import AckerTarget, PendingCall, Unreachable

LEVELS, SLOTS = 3, 2
SPOUT_TASKS = {0: (1, 2), 1: (3,)}  # by slot
METADATA: dict[str, str | bytes] = {TOPOLOGY_KEY: b"small", TOKEN_KEY: "secret"}


class Died(Exception):
    """A task attempt was killed."""


class AckerSet(Protocol):
    """The ackers that a world speaks to."""

    target: AckerTarget

    @property
    def now(self) -> float: ...

    def deliver(self, shard: int, method: str, request: bytes, timeout: float) -> PendingCall: ...

    def lose_memory(self, shard: int) -> None:
        """An acker is killed, and another one started in its place."""

    def pause(self, secs: float) -> None: ...


class InMemory:
    """Ackers without a network, and a clock that is moved by hand."""

    def __init__(self, count: int) -> None:
        self.now = 1000.0
        self.target = AckerTarget("small", "secret", tuple(f"acker-{n}" for n in range(count)))
        self._services = [self._service() for _ in range(count)]

    def _service(self) -> AckerService:
        return AckerService(clock=lambda: self.now)

    def deliver(self, shard: int, method: str, request: bytes, timeout: float) -> PendingCall:
        try:
            return Answer(self._services[shard].handle(method, request, METADATA))
        except Refused as refused:
            return Answer(refused)

    def lose_memory(self, shard: int) -> None:
        self._services[shard] = self._service()

    def pause(self, secs: float) -> None:
        """No time passes unless a test moves it."""


class World:
    """The engine in small. `rng` decides everything that a rule does not."""

    def __init__(self, ackers: AckerSet, seed: int = 0) -> None:
        self.rng = Random(seed)
        self.ackers = ackers
        self.shards = len(ackers.target.addresses)
        self.nonce: Callable[[], int] = lambda: self.rng.getrandbits(64)
        self.plan = TrackingPlan(
            levels=LEVELS,
            slots=SLOTS,
            spout_tasks=tuple(task for tasks in SPOUT_TASKS.values() for task in tasks),
            timeout_secs=TIMEOUT,
        )
        self.control = AckerControl(ackers.target, self)
        self.control._caller.sleep = ackers.pause
        self.truth = Truth()
        self.batch = 0
        self.serial = 0
        self.state = {
            (level, slot): SlotState() for level in range(LEVELS) for slot in range(SLOTS)
        }
        for slot, tasks in SPOUT_TASKS.items():
            self.state[0, slot].spouts = {task: SpoutState() for task in tasks}
        self.sent: list[tuple[int, str, bytes]] = []
        self.bygone: list[tuple[int, str, bytes]] = []
        self.loses = 0.0
        self.kills_at_shard: int | None = None
        self.delayed: list[tuple[int, str, bytes]] | None = None
        self.fence_has_cause = False
        self.lost_memory = False
        self.broken = False  # a violation was found: there is no sense in going on
        self.start_query()

    # -- the transport: what may happen to a call

    def start(self, shard: int, method: str, request: bytes, timeout: float) -> PendingCall:
        if method == "Stage" and self.delayed is not None:
            self.delayed.append((shard, method, request))
            return Answer(Died())
        if method == "Stage" and self.kills_at_shard == shard:
            self.kills_at_shard = None
            raise Died
        fate = self.rng.random()
        if fate < self.loses:
            return Answer(Unreachable("lost on the way there"))
        if method in ("Stage", "Begin"):
            self.sent.append((shard, method, request))
        call = self.ackers.deliver(shard, method, request, timeout)
        if fate > 1 - self.loses:
            with suppress(Refused):
                call.result()
            return Answer(Unreachable("lost on the way back"))
        return call

    def _arrive(self, shard: int, method: str, request: bytes) -> None:
        """A call that nobody waits for any more."""
        with suppress(Refused):
            self.ackers.deliver(shard, method, request, 5.0).result()

    def late_call(self, which: int, bygone: bool = True) -> None:
        """A call of a dead epoch arrives now, or one of this epoch arrives once more."""
        if calls := self.bygone if bygone else self.sent:
            shard, method, request = calls[which % len(calls)]
            self._arrive(shard, method, request)

    # -- the query

    def start_query(self) -> None:
        """Restart from the last commit: the first batch is the one after it."""
        loses, self.loses = self.loses, 0.0
        lease = self.control.register(self.plan, self.batch, "checkpoint-1")
        self.loses = loses
        self.client = AckerClient(lease, self)
        self.client._caller.sleep = self.ackers.pause
        self.bygone = (self.bygone + self.sent)[-60:]
        self.sent = []
        self.fence_has_cause = False
        self.lost_memory = False

    def lose_memory(self, shard: int) -> None:
        """An acker is killed, and another one started in its place."""
        self.ackers.lose_memory(shard % self.shards)
        self.lost_memory = True

    def run_batch(
        self,
        emits: int = 2,
        dies: str = "",
        dies_at: tuple[int, int] = (0, 0),
        commits: bool = True,
        crashes: bool = False,
        forgets: int | None = None,
        settle_all: bool = False,
    ) -> None:
        """One micro-batch, with what befalls it; restarts the query where it has to be."""
        self.broken = True
        try:
            state, effects = self._execute_all(emits, dies, dies_at, settle_all)
        except AckerError as error:
            self._expect(error)
            self.start_query()
            self.broken = False
            return
        if forgets is not None:
            self.lose_memory(forgets)
        if commits:
            self.state = state
            self.batch += 1
            for execution in effects:
                self.truth.learn(execution, self.ackers.now)
        if crashes or not commits:
            self.start_query()
        self.broken = False

    def _expect(self, error: AckerError) -> None:
        if not can_restart(error):
            raise Violation(f"refused: {error}")
        if error.code == "acker-fence" and not self.fence_has_cause:
            raise Violation(f"nothing was executed twice, and yet: {error}")
        if error.code == "acker-lost" and not self.lost_memory:
            raise Violation(f"no acker has restarted, and yet: {error}")
        if error.code in ("acker-epoch", "acker-batch"):
            raise Violation(f"the only query there is was told: {error}")

    def _execute_all(
        self, emits: int, dies: str, dies_at: tuple[int, int], settle_all: bool
    ) -> tuple[dict[tuple[int, int], SlotState], list[Effects]]:
        after: dict[tuple[int, int], SlotState] = {}
        every: list[Effects] = []
        inputs: dict[int, list[Flying]] = {slot: [] for slot in range(SLOTS)}
        clock = self.ackers.now
        for level in range(LEVELS):
            outputs: list[Flying] = []
            slots = list(range(SLOTS))
            self.rng.shuffle(slots)
            for slot in slots:
                fates = [dies, ""] if dies and (level, slot) == dies_at else [""]
                late: list[tuple[int, str, bytes]] = []
                for fate in fates:
                    execution = Execution(self, level, slot, emits, settle_all)
                    clock = execution.run(inputs[slot], clock)
                    if fate == "before":
                        continue
                    if fate:
                        self.fence_has_cause = True
                        if fate == "between":
                            self.kills_at_shard = self.rng.randrange(self.shards)
                        if fate == "late":
                            self.delayed = []
                    try:
                        execution.stage(clock)
                    except Died:
                        late, self.delayed = self.delayed or late, None
                        continue
                    self.kills_at_shard = None
                    for call in late:
                        self._arrive(*call)
                after[level, slot] = execution.state
                every.append(execution.effects)
                outputs += execution.out
            inputs = {slot: [f for f in outputs if f.slot == slot] for slot in range(SLOTS)}
        return after, every

    # -- the end

    def check_end(self) -> None:
        """Let everything finish, undisturbed and without time passing: nothing may be left."""
        self.loses = 0.0
        for _ in range(6):
            self.run_batch(emits=0, settle_all=True)
        for slot, tasks in SPOUT_TASKS.items():
            for task in tasks:
                for root in self.state[0, slot].spouts[task].pending:
                    raise Violation(
                        f"{root:x} is forgotten; {len(self.truth.unfinished[root])} unfinished"
                    )
        for root in self.truth.unfinished:
            if root not in self.truth.heard:
                raise Violation(f"{root:x} was never heard of")


class Execution:
    """One attempt at one slot's part of a batch, on a copy of the committed state."""

    def __init__(self, world: World, level: int, slot: int, emits: int, settle_all: bool) -> None:
        self.world, self.level, self.slot = world, level, slot
        self.emits, self.settle_all = emits, settle_all
        self.rng = world.rng
        self.state = copy.deepcopy(world.state[level, slot])
        self.effects = Effects()
        self.out: list[Flying] = []
        self.nonce = world.rng.getrandbits(64)
        self.ids = EdgeIds(world.nonce())
        self.inits: list[tuple[int, int]] = []
        self.acks: list[tuple[int, int]] = []
        self.fails: list[int] = []
        self.resets: list[int] = []
        self.held: list[int] = []
        self.released: list[int] = []

    def run(self, inputs: list[Flying], clock: float) -> float:
        if self.level == 0:
            return self._run_spouts()
        kept = []
        for flying in [*copy.deepcopy(inputs), *self.state.held]:
            was_held = flying in self.state.held
            if self._work(flying, [*self.state.held, flying]):
                if was_held:
                    self.released += flying.ids
            else:
                kept.append(flying)
                if not was_held:
                    self.held += flying.ids
        self.state.held = kept
        return clock

    def stage(self, clock: float) -> None:
        world = self.world
        world.client.stage(
            clock, world.batch, self.level, self.slot, self.nonce, self._updates(), b"payload"
        )

    def _run_spouts(self) -> float:
        cursors = [Cursor(task, *spout.cursor) for task, spout in self.state.spouts.items()]
        start = self.world.client.begin(self.world.batch, self.slot, cursors)
        for task, spout in self.state.spouts.items():
            incarnation = start.incarnations[task]
            for root in [root for root, of in spout.pending.items() if of != incarnation]:
                del spout.pending[root]
                self.effects.heard.append((root, "acker lost"))
            verdicts = start.verdicts[task]
            for sequence, reason in zip(verdicts.sequences.tolist(), verdicts.reasons, strict=True):
                root = root_id(task, sequence)
                if spout.pending.pop(root, None) is None:
                    raise Violation(f"{root:x} is not pending, and yet has a verdict: {reason}")
                self.effects.heard.append((root, reason))
            spout.cursor = (incarnation, verdicts.last)
            for _ in range(self.rng.randint(0, self.emits)):
                spout.sequence += 1
                root = root_id(task, spout.sequence)
                spout.pending[root] = incarnation
                self._emit(root)
        return start.clock

    def _emit(self, root: int) -> None:
        value, tuples = 0, []
        for _ in range(self.rng.choice([0, 1, 1, 2, 3])):
            edge = self.ids.take_one()
            value ^= edge
            tuples.append(self._fly({root: edge}))
        self.inits.append((root, value))
        self.effects.emitted.append((root, tuples))
        self.out += tuples

    def _work(self, flying: Flying, near: list[Flying]) -> bool:
        """One call of a bolt for one tuple; False: it keeps the tuple."""
        done = {id(f) for f in (*self.effects.acked, *self.effects.failed)}
        near = [f for f in near if id(f) not in done]
        if self.level < LEVELS - 1 and not self.settle_all:
            for _ in range(self.rng.choice([0, 0, 1, 2])):
                anchors = [self.rng.choice(near) for _ in range(self.rng.randint(1, 3))]
                self._emit_anchored(anchors)
        choice = self.rng.random()
        if self.settle_all or choice < 0.6:
            self.acks += [(root, edge ^ flying.anchored) for root, edge in flying.ids.items()]
            self.effects.acked.append(flying)
            return True
        if choice < 0.65:
            self.fails += flying.ids
            self.effects.failed.append(flying)
            return True
        if choice < 0.75:
            self.resets += flying.ids
        return False

    def _emit_anchored(self, anchors: list[Flying]) -> None:
        child = self._fly({})
        for anchor in anchors:
            edge = self.ids.take_one()
            anchor.anchored ^= edge
            for root in anchor.ids:
                child.ids[root] = child.ids.get(root, 0) ^ edge
        self.effects.children.append(child)
        self.out.append(child)

    def _fly(self, ids: dict[int, int]) -> Flying:
        self.world.serial += 1
        return Flying(self.world.serial, self.rng.randrange(SLOTS), ids)

    def _updates(self) -> Updates:
        def u64(numbers: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
            return np.array(numbers, np.uint64)

        task = 10 * self.level + self.slot
        return Updates(
            init_roots=u64([root for root, _ in self.inits]),
            init_values=u64([value for _, value in self.inits]),
            ack_roots=u64([root for root, _ in self.acks]),
            ack_values=u64([value for _, value in self.acks]),
            fail_roots=u64(self.fails),
            fail_reasons=["bad"] * len(self.fails),
            reset_roots=u64(self.resets),
            held_roots=u64(self.held),
            held_tasks=np.full(len(self.held), task, np.uint32),
            released_roots=u64(self.released),
            released_tasks=np.full(len(self.released), task, np.uint32),
        )
