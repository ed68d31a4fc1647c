"""Aggregates kept in a state that other streams can ask: `persistent_aggregate`, `state_query`.

The parts of a batch come in by key, already added up by their producers; questions come in beside
them. Answers are given at the end of the batch, so they include all that the batch changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from topo.components import OutputFieldsDeclarer, StatefulBasicBolt
from topo.context import TopologyContext
from topo.operators.aggregates.combiners import Combiner
from topo.streams.graph import KEY, VALUE
from topo.streams.state import MapState
from topo.tuples import Tuple

UPDATES = "updates"


class Query(NamedTuple):
    """A stream of questions to a state."""

    answers: str
    """The stream of its answers."""
    function: Any
    for_requests: bool = False
    """A question has the id of its request for a value, and the answer has it beside itself."""


class StateBolt(StatefulBasicBolt):
    """The state of a persistent aggregate, in topo's keyed state or in an outside `MapState`."""

    transient = ("changed", "questions")

    def __init__(self, combiner: Combiner, outside: MapState | None) -> None:
        self.combiner = combiner
        self.outside = outside
        self.queries: dict[str, Query] = {}
        """By the stream of questions."""

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        declarer.declare_stream(UPDATES, KEY, VALUE)
        for query in self.queries.values():
            declarer.declare_stream(query.answers, KEY, VALUE)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        self.changed: dict[Any, Any] = {}
        self.questions: list[tuple[Query, Any, Any]] = []

    def execute(self, tup: Tuple) -> None:
        query = self.queries.get(f"{tup.source_component} {tup.source_stream}")
        if query is not None:
            self.questions.append((query, tup[0], tup[1] if query.for_requests else None))
            return
        key, part = tup[0], tup[1]
        changed = self.changed
        changed[key] = self.combiner.merge(changed[key], part) if key in changed else part

    def on_tick(self, tup: Tuple) -> None:
        """Let a tick pass: it is no part."""

    def pre_commit(self, batch_id: int) -> None:
        changed, self.changed = self.changed, {}
        questions, self.questions = self.questions, []
        if self.outside is not None:
            self._update_outside(self.outside, batch_id, changed)
            values = self._ask_outside(self.outside, questions)
        else:
            self._update(changed)
            values = {key: self._result(self.state.get(key)) for _, key, _ in questions}
        for query, key, request in questions:
            value = values[key]
            answer = value if query.function is None else query.function(key, value)
            row = [key, (request, answer) if query.for_requests else answer]
            self.collector.emit(row, stream=query.answers)

    def _update(self, changed: dict[Any, Any]) -> None:
        state, merge = self.state, self.combiner.merge
        for key, part in changed.items():
            total = merge(state[key], part) if key in state else part
            state[key] = total
            self.collector.emit([key, self.combiner.result(total)], stream=UPDATES)

    def _update_outside(self, outside: MapState, batch_id: int, changed: dict[Any, Any]) -> None:
        merge = self.combiner.merge

        def update(key: Any, before: Any) -> Any:
            return changed[key] if before is None else merge(before, changed[key])

        outside.begin_commit(batch_id)
        if changed:
            totals = outside.multi_update(list(changed), update)
            for key, total in zip(changed, totals, strict=True):
                self.collector.emit([key, self.combiner.result(total)], stream=UPDATES)
        outside.commit(batch_id)

    def _ask_outside(
        self, outside: MapState, questions: list[tuple[Query, Any, Any]]
    ) -> dict[Any, Any]:
        keys = list(dict.fromkeys(key for _, key, _ in questions))
        return dict(zip(keys, map(self._result, outside.multi_get(keys)), strict=True))

    def _result(self, total: Any) -> Any:
        return None if total is None else self.combiner.result(total)
