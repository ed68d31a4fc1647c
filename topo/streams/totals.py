"""Aggregates over everything so far, by key, and over each batch.

`RunningBolt` works on columns: its whole work on a value is a few lines of the runtime's loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topo.columns import ByColumns, EmitText, LoopText, field_name
from topo.components import OutputFieldsDeclarer, StatefulBasicBolt
from topo.context import TopologyContext
from topo.operators.aggregates.combiners import Combiner
from topo.storage.saving import NEVER_NAN, with_one_nan
from topo.streams.combiners import reads_nothing, running_step
from topo.streams.graph import KEY, TIME, VALUE, note_unhashable_key
from topo.tuples import Tuple

_MISSING = object()


class RunningBolt(ByColumns, StatefulBasicBolt):
    """An aggregate by key over everything so far: each value gives the new result.

    None is no value, unless values are not looked at. In event time a result has the latest time
    of its values, which is saved beside it. The step of a combiner that is an expression, such as a
    count, is in line: the calls of its methods and of the state's would take longer than the rest.
    """

    def __init__(self, combiner: Combiner, *, timed: bool, drops: bool) -> None:
        self.combiner = combiner
        self.timed = timed
        self.drops = drops
        self.takes_none = drops or reads_nothing(combiner)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        declarer.declare((KEY, VALUE, TIME) if self.timed else (KEY, VALUE))

    def times_in(self) -> Mapping[str, str]:
        return {"default": TIME} if self.timed else {}

    def failed(self, error: BaseException, line: int) -> None:
        note_unhashable_key(error)

    def loop_text(self, emits: EmitText) -> LoopText:
        lines = [
            f"key = {field_name(0)}",
            "if key.__class__ not in NEVER_NAN: key = with_one_nan(key)",
        ]
        if not self.takes_none:
            lines.append(f"if {field_name(1)} is not None:")
        indent = "" if self.takes_none else "    "
        lines += [indent + line for line in self._step(emits)]
        reads = [0] if reads_nothing(self.combiner) else [0, 1]
        state, combiner = self.state, self.combiner
        names = {
            "MISSING": _MISSING,
            "NEVER_NAN": NEVER_NAN,
            "with_one_nan": with_one_nan,
            "writing": state.writing,
            "get": state.get,
            "put": state.__setitem__,
            "pop": state.pop,
            "init": combiner.init,
            "add": combiner.add,
            "result": combiner.result,
        }
        return LoopText(
            lines, names, [*reads, 2] if self.timed else reads, start=["data, changed = writing()"]
        )

    def _step(self, emits: EmitText) -> list[str]:
        """Return the lines that take in a value and emit the result."""
        value, ts = field_name(1), field_name(2)
        step = None if self.drops or self.timed else running_step(self.combiner)
        if step is not None:
            first, following = (text.format(a="acc", v=value) for text in step)
            return [
                "acc = data.get(key, MISSING)",
                f"acc = {first} if acc is MISSING else {following}",
                "data[key] = acc",
                "changed[key] = None",
                *emits.emit("default", ["key", "acc"]),
            ]
        given = "None" if reads_nothing(self.combiner) else value
        lines = ["acc = get(key, MISSING)"]
        if self.timed:
            lines.append(f"acc, latest = (init(), {ts}) if acc is MISSING else acc")
            lines.append(f"acc = add(acc, {given})")
        else:
            lines.append(f"acc = add(init() if acc is MISSING else acc, {given})")
        if self.timed:
            keeps = [f"if {ts} > latest: latest = {ts}", "put(key, (acc, latest))"]
        else:
            keeps = ["put(key, acc)"]
        row = ["key", "made", "latest"] if self.timed else ["key", "made"]
        keeps += ["made = result(acc)", *emits.emit("default", row)]
        if not self.drops:
            return [*lines, *keeps]
        return [*lines, "if acc is None:", "    pop(key, None)", "else:", *_indented(keeps)]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class BatchTotalBolt(StatefulBasicBolt):
    """The aggregate of each batch over all tasks: their parts come in, one result goes out."""

    stateless = False

    def __init__(self, combiner: Combiner) -> None:
        self.combiner = combiner

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        declarer.declare(VALUE)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        self.parts: list[Any] = []

    def execute(self, tup: Tuple) -> None:
        self.parts.append(tup[0])

    def on_tick(self, tup: Tuple) -> None:
        """Let a tick pass: it is no part."""

    def pre_commit(self, batch_id: int) -> None:
        if not self.parts:
            return
        total = self.combiner.init()
        for part in self.parts:
            total = self.combiner.merge(total, part)
        self.parts.clear()
        self.collector.emit([self.combiner.result(total)])
