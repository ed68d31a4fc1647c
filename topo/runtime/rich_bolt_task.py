"""Tasks of rich bolts, which anchor and ack by hand and may keep tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from topo.collectors import OutputCollector
from topo.components import Bolt
from topo.errors import StatelessError
from topo.runtime.bolt_task import BoltTask, is_plain, sections_of
from topo.runtime.input_seconds import key_of_stream
from topo.runtime.loops import EXECUTE, EXECUTE_AND_KEEP
from topo.runtime.ports import BoltPort
from topo.runtime.task import TaskEnvironment
from topo.runtime.users_loops import CALLS_BY_HAND, Settling
from topo.storage.saving import Changes, SavedMapping
from topo.tracing.spans import Tracer
from topo.tracking.open_edges import OpenEdges
from topo.tracking.trees import NOT_ANCHORED, Anchor, BoltTrees, Inputs
from topo.tuples import HELD, SETTLED, UNTRACKED, Held, HeldTuples, Tuple
from topo.wire.frame import Frame


class RichBoltTask(BoltTask):
    component: Bolt
    emits_columns = True
    """Whether all that is emitted goes through the port, which may put it into columns at once."""

    def __init__(self, setting: TaskEnvironment, task: int, tracer: Tracer | None = None) -> None:
        super().__init__(setting, task, tracer)
        self._port = BoltPort(
            self.outlet,
            setting.tracking,
            self.report_error,
            self.threads,
            by_columns=self.emits_columns,
        )
        self._held = HeldTuples()
        self._open_edges = OpenEdges(self._held)
        self._forgotten_log = SavedMapping("forgotten", self.owner)
        self._left_open: list[Tuple] = []  # since the last flush
        self._newly_held: dict[int, None] = {}  # their keys, in order
        self._released: list[int] = []

    def make_trees(self) -> BoltTrees:
        return BoltTrees(self.tracer)

    def open(self, saved: Mapping[str, bytes]) -> None:
        port = self._port
        users = self.users_loops(*CALLS_BY_HAND)
        if users is not None and users.emit_columns and not port.writes_columns:
            port.emit_beside_columns()
        collector = OutputCollector(port)
        self.bind(
            emit=port.emit,
            emit_direct=port.emit_direct,
            ack=port.ack,
            fail=port.fail,
            reset_timeout=port.reset_timeout,
        )
        core = self.load_core(saved)
        kept = [Held(key, *parts) for key, parts in core.get("held", {}).items()]
        for held in kept:
            self._held.add(held)
        self._open_edges.restore(kept, core.get("ackers", ()), self._forgotten_log.load(saved))
        with self._held:
            self.start(collector, port, saved)
        if users is not None:
            calls = {"emit": port.emit, "ack": port.ack, "fail": port.fail}
            settling = Settling(port.settling.acked.append, self._unacked)
            self._loops = users.loops({**calls, "collector": collector}, settling)
            self._users = users

    def core(self) -> dict[str, Any]:
        held = {
            key: (one.roots, one.edges, one.children, one.since)
            for key, one in sorted(self._held.by_key.items())
        }
        return {**super().core(), "held": held, "ackers": self._open_edges.known_by}

    def save(self) -> Changes:
        held = [self._held.find(key) for key in self._newly_held]
        self._newly_held.clear()
        self.updates.held([root for one in held if one for root in one.roots], self.id)
        self.updates.released(self._released, self.id)
        self._released = []
        alive = list(self._held.by_key.values())
        self.metrics.held = len(alive)
        if alive and self.definition.stateless:
            count = f"{len(alive)} tuples" if len(alive) > 1 else "a tuple"
            raise StatelessError(
                f"{self.owner} task {self.id} says stateless = True and kept {count}, neither "
                "acked nor failed",
                hint="ack or fail each in execute; or take stateless away, so that they are saved",
            )
        if alive:
            self.metrics.oldest_held_secs = self.batch_now - min(one.since for one in alive)
        changed = self._note_forgotten()
        changes = super().save()
        self._forgotten_log.save(self._open_edges.forgotten, changed, changes)
        return changes

    def _note_forgotten(self) -> list[int]:
        """Record the tuples that the bolt has dropped; return the roots whose record changed."""
        edges = self._open_edges
        timeouts = self.conf["topology.enable.message.timeouts"]
        timeout = self.conf["topology.message.timeout.secs"] if timeouts else None
        changed = edges.drop_old(timeout, self.batch_now)
        roots = edges.find_forgotten()
        if roots and self.definition.stateless:
            # Nothing is saved of this bolt, so a rebuilt tree would look complete.
            self.updates.fail(
                roots, self.fail_reason("a stateless bolt neither acked nor failed the tuple")
            )
        elif roots:
            changed += edges.record_forgotten(roots, self._trees.ids.take_one(), self.batch_now)
        return changed

    def meet_ackers(self, incarnations: Mapping[int, int]) -> None:
        """Add the open edges of this task to the trees that an acker has lost."""
        roots, values = self._open_edges.owed_to(incarnations)
        if len(roots):
            self.updates.ack(roots, values)
            held = {root for one in self._held.by_key.values() for root in one.roots}
            self.updates.held([root for root in roots.tolist() if root in held], self.id)

    def run(self, frames: Sequence[Frame]) -> None:
        inputs = Inputs.of(sections_of(frames)) if self.setting.tracking else None
        self._trees.inputs = inputs
        # If nothing is tracked, a tuple may be freed as soon as its bolt drops it.
        body = EXECUTE if inputs is None else EXECUTE_AND_KEEP
        self._takes_columns = self._starts is None and is_plain(frames)
        self.run_segments(frames, body)
        self._trees.inputs = None

    def loop_calls(self) -> tuple[Any, ...]:
        return None, self.outlet.order, None, self._left_open.append

    def _unacked(self, link: int, failed: tuple[str | None] | None) -> None:
        """Take an input that was not acked: failed for a reason, or left open."""
        if failed is not None:
            self._port.settling.failed.append((None if link == UNTRACKED else link, failed[0]))
        else:
            self._left_open.append(self.input_in_work())

    def fail_input(self, tup: Tuple | None, reason: str | None) -> None:
        if tup is not None and (tup._topo_link >= UNTRACKED or tup._topo_link == HELD):
            self._port.fail(tup, reason)

    def execute_tick(self, tup: Tuple) -> None:
        try:
            super().execute_tick(tup)
        finally:
            acked = self._port.settling.acked
            if tup._topo_link == SETTLED and UNTRACKED in acked:
                acked.remove(UNTRACKED)  # a tick is none of the tuples that are counted

    def _keep(self, inputs: Inputs) -> None:
        """Give the tuples that are neither acked nor failed their own place in the trees."""
        for tup in self._left_open:
            link = tup._topo_link
            if link < 0:
                continue
            span = inputs.span(link)
            if span.start == span.stop:
                tup._topo_link = UNTRACKED
                continue
            held = inputs.hold(link, self._trees.ids.take_one(), self.batch_now)
            tup._topo_link = HELD
            tup._topo_held = held
            self._held.add(held)
            self._open_edges.add(held)
            self._newly_held[held.key] = None
            self._count_settled(tup, -1)  # it was counted as it was executed
        self._left_open.clear()

    def settle(self) -> None:
        if self.threads:
            self.make_calls()
        self._count_unanchored()
        self.outlet.flush()
        settling = self._port.settling
        inputs = self._trees.inputs
        self.metrics.acked += len(settling.acked) + len(settling.acked_held)
        if inputs is not None and settling.acked:
            links = np.array(settling.acked, np.int64)
            self.updates.ack(*inputs.acks(links[links >= 0]))
        for tup in settling.acked_held:
            held = tup._topo_held
            self._count_settled(tup, 1, self.batch_now - held.since)
            roots = np.array(held.roots, np.uint64)
            edges = np.array(held.edges, np.uint64) ^ np.uint64(held.children)
            self.updates.ack(roots, edges)
            self._let_go(tup._topo_held)
        for anchor, reason in settling.failed:
            self.metrics.failed += 1
            self.updates.fail(self._roots_of(anchor), self.fail_reason(reason))
            if isinstance(anchor, Held):
                self._let_go(anchor)
        for anchor in settling.reset:
            self.updates.reset(self._roots_of(anchor))
        settling.clear()
        if inputs is not None:
            self._keep(inputs)

    def _count_settled(self, tup: Tuple, count: int, secs: float = 0.0) -> None:
        """Count a held tuple as one that is settled, and the time from execute to ack, or not."""
        key = key_of_stream(tup._topo_source.component, tup._topo_source.stream)
        waited = max(0.0, secs)
        self.metrics.settled += count
        self.metrics.settled_by_input[key] += count
        self.metrics.process_seconds += waited
        self.metrics.process_seconds_by_input[key] += waited

    def _done_so_far(self) -> int:
        settling = self._port.settling
        settled = len(settling.acked) + len(settling.acked_held) + len(settling.failed)
        return super()._done_so_far() + settled

    def _let_go(self, held: Held) -> None:
        self._held.by_key.pop(held.key, None)
        self._open_edges.remove(held)
        if held.key in self._newly_held:
            del self._newly_held[held.key]
        else:
            self._released.extend(held.roots)

    def _roots_of(self, anchor: Anchor | None) -> list[int]:
        if isinstance(anchor, Held):
            return list(anchor.roots)
        if anchor is None or anchor < 0 or self._trees.inputs is None:
            return []
        inputs = self._trees.inputs
        roots: list[int] = inputs.roots[inputs.span(anchor)].tolist()
        return roots

    def _count_unanchored(self) -> None:
        if self._trees.inputs is None:
            return
        streams = self.outlet.streams.values()
        count = sum(stream.parents.count(NOT_ANCHORED) for stream in streams)
        if count:
            self.metrics.unanchored += count
            self.warn_once(
                f"{self.owner} emits without anchors while it executes a tracked tuple: what comes "
                "of those tuples is not tracked; pass anchors=tup, or anchors=[] if it is meant"
            )
