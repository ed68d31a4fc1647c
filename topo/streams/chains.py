"""Stateless operators as one bolt: a chain becomes one generated function.

The text of the chain (`chain_code`) is put into the runtime's loop over the columns of a frame, so
that an element passes five operators in five calls and no tuple, list or generator in between.

An exception shows the user's function and line; which operator called it is read off the line of
the generated code, and added as a note. Nothing of this costs anything while nothing fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from topo.collectors import BasicOutputCollector
from topo.columns import ByColumns, EmitText, LoopText
from topo.components import BasicBolt, OutputFieldsDeclarer
from topo.context import TopologyContext
from topo.streams.chain_code import (
    KEY,
    TIME,
    VALUE,
    ChainCode,
    ChainExit,
    ChainPlan,
    Gathered,
    path_to,
)
from topo.streams.graph import Node, note_unhashable_key
from topo.traces import GENERATED
from topo.tuples import Tuple

_DROPS = {"filter", "flat_map", "filter_map", "flat_map_values", "branch"}


class ChainBolt(ByColumns, BasicBolt):
    """The stateless operators behind one source."""

    stateless = True
    transient = ("plan", "gathered", "run", "where", "where_of_run")

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
        self.run: Callable[[Tuple], None] | None = None
        self.where: dict[int, Node] = {}
        self.where_of_run: dict[int, Node] = {}

    def loop_text(self, emits: EmitText) -> LoopText:
        code = ChainCode(self.plan, self.gathered, emits)
        self.where = code.where
        return code.text()

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
        _name_operator(error, self.where.get(line))

    def execute(self, tup: Tuple) -> None:
        """Process a tuple that does not come in a column."""
        if self.run is None:
            self.run, self.where_of_run = self._function()
        try:
            self.run(tup)
        except Exception as error:
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename != GENERATED:
                trace = trace.tb_next
            if trace is not None:
                _name_operator(error, self.where_of_run.get(trace.tb_lineno))
            raise

    def on_tick(self, tup: Tuple) -> None:
        """Let a tick pass: it is no element."""

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

    def _function(self) -> tuple[Callable[[Tuple], None], dict[int, Node]]:
        """Return the chain as a function of a tuple, and the operator of each of its lines."""
        code = ChainCode(self.plan, self.gathered, _EmitsRows(self.emit))
        text = code.text()
        lines = [
            "def run(tup):",
            *(f"    f{place} = tup._topo_{place}" for place in text.reads),
        ]
        first = len(lines) + 1
        lines += [f"    {line}" for line in text.lines]
        exec(compile("\n".join(lines), GENERATED, "exec"), text.names)
        where = {first + line: node for line, node in code.where.items()}
        return text.names["run"], where


class _EmitsRows:
    """The text that emits rows by calls of `emit`."""

    def __init__(self, emit: Any) -> None:
        self.names = {"emit": emit}

    def emit(self, stream: str, values: Sequence[str]) -> list[str]:
        return [f"emit([{', '.join(values)}], stream={stream!r})"]

    def emit_each(self, stream: str, values: Sequence[str], one: str, each: str) -> str | None:
        return None


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
