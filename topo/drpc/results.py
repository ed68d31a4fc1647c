"""`ReturnResults`: the bolt that brings results to the servers whose clients wait for them.

"committed" keeps the results of a batch in state and sends them when the batch is durable: what a
client hears is then never taken back, and a crash in between sends it from the state. "at_once"
sends when the result comes; the batch may still be rolled back, and computed again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from topo.components import StatefulBolt
from topo.context import TopologyContext
from topo.drpc.calls import DEFAULT_SECS, LARGEST
from topo.drpc.desk import Answers
from topo.drpc.places import answers_of
from topo.errors import ComponentError, shown
from topo.tuples import Tuple

COMMITTED, AT_ONCE = "committed", "at_once"


class ReturnResults(StatefulBolt):
    """A bolt that answers calls; it reads (result, return_info).

    A result that is text stays as it is, anything else becomes JSON.
    """

    _topo_role = "answers"

    transient: Iterable[str] = ("_answers", "_results")

    def __init__(self, answer: str = COMMITTED) -> None:
        if answer not in (COMMITTED, AT_ONCE):
            raise ComponentError(
                f"ReturnResults: answer is {shown(answer)}; it is 'committed' or 'at_once'"
            )
        self.answer = answer

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        self._answers: Answers | None = None
        self._results: list[tuple[str, str]] = []

    def cleanup(self) -> None:
        if self._answers is not None:
            self._answers.close()

    def result_and_info(self, tup: Tuple) -> tuple[Any, Any]:
        """Return the two values of a tuple."""
        result, info = tup.values
        return result, info

    def execute(self, tup: Tuple) -> None:
        if len(tup.values) != 2:
            self.fail(tup, f"ReturnResults reads a result and its return_info; got {tup!r}")
            return
        result, info = self.result_and_info(tup)
        if not isinstance(info, str):
            self.fail(tup, f"ReturnResults: {shown(info)} is no return_info of a DrpcSpout")
            return
        try:
            text = text_of_result(result)
        except (TypeError, ValueError) as error:
            self.fail(tup, f"the result {shown(result)} cannot be sent as JSON: {error}")
            return
        if len(text) > LARGEST:
            self.fail(
                tup, f"the result has {len(text):,} characters; {LARGEST:,} bytes is the most"
            )
            return
        if self.answer == AT_ONCE:
            self._way.send([(info, text)])
        else:
            self._results.append((info, text))
        self.ack(tup)

    @property
    def _way(self) -> Answers:
        if self._answers is None:
            self._answers = answers_of(self.context)
        return self._answers

    def pre_commit(self, batch_id: int) -> None:
        results, self._results = self._results, []
        if results:
            self.state[batch_id] = (self.context.now(), results)

    def committed(self, batch_id: int) -> None:
        for batch in sorted(key for key in self.state.raw() if key <= batch_id):
            since, results = self.state.raw()[batch]
            left = self._way.deliver(results)
            is_hopeless = self.context.now() - since > DEFAULT_SECS
            if left and not is_hopeless:
                self.state[batch] = (since, left)
                continue
            if left:
                self.context.counter("undelivered", len(left))
            del self.state[batch]
        if self._answers is not None and (answered := self._answers.take_answered()):
            self.context.counter("answered", answered)


class LinearResults(ReturnResults):
    """Reads (id, result), as the last bolt of a linear topology emits."""

    def result_and_info(self, tup: Tuple) -> tuple[Any, Any]:
        id, result = tup.values
        return result, id


def text_of_result(result: Any) -> str:
    """Return a result as clients get it; raise TypeError or ValueError for what is no JSON."""
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
