"""Stateless operators as one bolt: a chain becomes one generated function.

The text of the chain (`chain_code`) is put into the runtime's loop over the columns of a frame, so
that an element passes five operators in five calls and no tuple, list or generator in between.

An exception shows the user's function and line; which operator called it is read off the line of
the generated code, and added as a note. Nothing of this costs anything while nothing fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topo.collectors import BasicOutputCollector
from topo.columns import ByColumns, EmitText, LoopText
from topo.components import BasicBolt, OutputFieldsDeclarer
from topo.context import TopologyContext
from topo.streams.compile.chain_code import ChainCode, ChainExit, ChainPlan, Gathered, path_to
from topo.streams.graph import KEY, TIME, VALUE, Node, note_unhashable_key

_DROPS = {"filter", "flat_map", "filter_map", "flat_map_values", "branch"}


class ChainBolt(ByColumns, BasicBolt):
    """The stateless operators behind one source."""

    stateless = True
    transient = ("plan", "gathered", "code")

    def __init__(self, plan: ChainPlan) -> None:
        self.plan = plan

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        for leaving in self.plan.exits:
            if leaving.stream is not None:
                declarer.declare_stream(leaving.stream, *exit_fields(self.plan, leaving))

    def prepare(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: BasicOutputCollector
    ) -> None:
        self.gathered = Gathered.of(self.plan.exits)
        self.code: ChainCode | None = None

    def loop_text(self, emits: EmitText) -> LoopText:
        self.code = ChainCode(self.plan, self.gathered, emits)
        return self.code.text()

    def times_in(self) -> Mapping[str, str]:
        source = self.plan.source
        if source.time is None or self.plan.times is not None:
            return {}  # the time is born here, if anywhere
        return {
            leaving.stream: source.fields[source.time]
            for leaving in self.plan.exits
            if leaving.stream is not None and not _drops_only_none(leaving)
        }

    def failed(self, error: BaseException, line: int) -> None:
        _name_operator(error, None if self.code is None else self.code.owners.get(line))

    def pre_commit(self, batch_id: int) -> None:
        for stream, partial in self.gathered.partials:
            for row in partial.take():
                self.collector.emit(row, stream=stream)
        for stream, panes in self.gathered.panes:
            for row in panes.take():
                self.collector.emit(row, stream=stream)
        for function, items in self.gathered.batches:
            gathered = items[:]
            items.clear()
            function(batch_id, gathered)


def _name_operator(error: BaseException, node: Node | None) -> None:
    note_unhashable_key(error)
    if node is not None and isinstance(error, Exception):
        error.add_note(f"in {node}")


def _drops_only_none(leaving: ChainExit) -> bool:
    """Return True if elements without a value are all that does not leave, with a lookup next.

    To a lookup such an element is none, so that unlike one that a filter drops it has no time:
    the time is that of what is emitted.
    """
    kinds = {node.kind for node in path_to(leaving.node)}
    return leaving.for_lookup and not kinds & _DROPS


def exit_fields(plan: ChainPlan, leaving: ChainExit) -> tuple[str, ...]:
    """Return the fields of the stream of an exit."""
    if leaving.action == "partial":
        return (KEY, VALUE) if leaving.node.keyed else (VALUE,)
    fields = (KEY, VALUE) if leaving.node.keyed else (VALUE,)
    return (*fields, TIME) if plan.timed else fields
