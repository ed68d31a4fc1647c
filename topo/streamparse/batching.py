"""Bolts that gather tuples and process them a batch at a time, with streamparse's hooks.

The tuples of an open batch are held: they stay unacked, and they are part of the saved state, so a
restart resumes with them. They are acked after `process_batch`, or fail together if it raises a
`FailTuple`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topo.context import TopologyContext
from topo.errors import FailTuple
from topo.streamparse.components import Bolt
from topo.streamparse.tuples import Tuple
from topo.tuples import Tuple as TopoTuple

TICK_SETTING = "topology.tick.tuple.freq.secs"


class BatchingBolt(Bolt):
    """A bolt whose tuples are gathered by `group_key` and processed every so many ticks.

    Ticks come as `topology.tick.tuple.freq.secs` in `config` says; without it, every second.
    """

    ticks_between_batches = 1
    """How many ticks pass between two batches."""

    def group_key(self, tup: Tuple) -> Any:
        """Return the key of the batch that this tuple belongs to; None puts all in one."""
        return None

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        """Process the tuples of one key; what is emitted is anchored to all of them."""
        raise NotImplementedError

    def get_component_configuration(self) -> Mapping[str, Any] | None:
        """Return `config` with a tick every second unless it has another."""
        return {TICK_SETTING: 1, **(self.config or {})}

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        """Begin without tuples, then call `initialize`."""
        self._batches: dict[Any, list[Tuple]] = {}
        self._ticks = 0
        super().prepare(conf, context, collector)

    def process(self, tup: Tuple) -> None:
        """Put the tuple into the batch of its key."""
        self._batches.setdefault(self.group_key(tup), []).append(tup)

    def execute(self, tup: TopoTuple) -> None:
        """Hold the tuple until its batch is processed."""
        in_hand = Tuple(tup)
        self.current_tups = (in_hand,)
        self.process(in_hand)

    def process_tick(self, tup: Tuple) -> None:
        """Process all batches if enough ticks have passed."""
        self._ticks += 1
        if self._ticks >= self.ticks_between_batches:
            self._ticks = 0
            self.process_batches()

    def process_batches(self) -> None:
        """Process the batch of each key, then ack or fail its tuples."""
        while self._batches:
            key = next(iter(self._batches))
            tups = self._batches[key]
            self.current_tups = tups
            try:
                self.process_batch(key, tups)
            except FailTuple as error:
                del self._batches[key]
                for tup in tups:
                    self.fail(tup, str(error))
                continue
            del self._batches[key]
            if self.auto_ack:
                for tup in tups:
                    self.ack(tup)
        self.current_tups = ()


class TicklessBatchingBolt(BatchingBolt):
    """A bolt whose batches are processed every `secs_between_batches` seconds."""

    secs_between_batches: float = 2

    def get_component_configuration(self) -> Mapping[str, Any] | None:
        """Return `config` with a tick every `secs_between_batches`."""
        return {**(self.config or {}), TICK_SETTING: self.secs_between_batches}
