"""The parts of sinks that do not depend on the target: refused records, and batches published once.

What a target may show only once it is durable here is kept in state with its batch, and published
when the batch has committed: again, if the process dies meanwhile, so that the target has to know
the batch again, by a marker in its own transaction or by ids of records.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeAlias

from topo.components import BasicBolt, StatefulBasicBolt
from topo.connectors.base import REJECTED_FIELDS, OnBad, check_choice
from topo.errors import FailTuple, sentence_of, shown

_TICK_SECS = 1.0
_OUTBOX = "outbox"
_REJECTED = "rejected"

Rejected: TypeAlias = "list[tuple[list[Any], Exception]]"
"""The values of records that a target will never take, with the reasons."""

Bad: TypeAlias = "dict[int, tuple[list[Any], Exception]]"
"""Those of a call's tuples that cannot be written, by their places: values, and why not."""


class RejectingSink(BasicBolt):
    """A sink that rejects what cannot be written, as `on_bad` says."""

    connector = ""
    on_bad: OnBad

    def set_on_bad(self, on_bad: OnBad) -> None:
        """Check and keep what becomes of refused records; called by the constructor."""
        check_choice(self.connector, "on_bad", on_bad, ("stop", "stream", "skip"))
        self.on_bad = on_bad
        self.outputs: Any = {_REJECTED: REJECTED_FIELDS} if on_bad == "stream" else ()

    def reject(self, values: list[Any], error: Exception) -> None:
        """Count a record that is refused; raise the reason, emit it on `rejected`, or skip it."""
        self.context.counter("rejected")
        if self.on_bad == "stop":
            raise error
        if self.on_bad == "stream":
            self.emit([values, _words(error)], stream=_REJECTED)

    def reject_some(self, bad: Bad) -> None:
        """Reject some of the tuples that were taken by the column; the others are written."""
        if bad and self.on_bad == "stop":
            self._stop_at(bad)
        for place in sorted(bad):
            self.reject(*bad[place])

    def _stop_at(self, bad: Bad) -> NoReturn:
        """Raise for tuples that cannot be written; where errors fail tuples, these alone fail."""
        self.context.counter("rejected", len(bad))
        values, error = bad[min(bad)]
        words = _words_of(values, error)
        if self.context.conf.get("topology.uncaught.error") == "fail":
            raise FailTuple(words, report=True, rows=[*bad]) from error
        raise ValueError(words) from error

    def reject_late(self, bad: Rejected) -> None:
        """Reject rows of tuples that were taken before, as they are written with their batch."""
        for values, error in bad:
            if self.on_bad == "stop":
                self.context.counter("rejected", len(bad))
                raise ValueError(_words_of(values, error)) from error
            self.reject(values, error)


class PublishingSink(RejectingSink, StatefulBasicBolt):
    """A sink that can keep a batch in its state, and publish it once it has committed."""

    after_commit = False
    """True if what is published may be rejected: then there are ticks, or it would not be told."""

    def get_component_configuration(self) -> dict[str, Any]:
        """Tick if rejected records may have to be emitted after their batch."""
        late = self.after_commit and self.on_bad == "stream"
        return {"topology.tick.tuple.freq.secs": _TICK_SECS} if late else {}

    def publish(self, number: int, batch: Any) -> Rejected:
        """Publish a batch that was kept, unless the target has it; return what it refuses."""
        raise NotImplementedError

    def keep(self, batch_id: int, batch: Any) -> None:
        """Keep the records of a batch, if there are any; called by `pre_commit`."""
        if batch:
            self.state[_OUTBOX, batch_id] = batch

    def committed(self, batch_id: int) -> None:
        """Publish what committed batches have kept, in their order."""
        numbers = sorted(key[1] for key in self.state.raw() if key[0] == _OUTBOX)
        for number in [number for number in numbers if number <= batch_id]:
            rejected = self.publish(number, self.state.raw()[_OUTBOX, number])
            if rejected:
                if self.on_bad == "stop":
                    raise rejected[0][1]
                self.context.counter("rejected", len(rejected))
                if self.on_bad == "stream":
                    late = [(values, _words(error)) for values, error in rejected]
                    self.state[_REJECTED] = [*self.state.get(_REJECTED, []), *late]
            del self.state[_OUTBOX, number]

    def emit_rejected(self) -> None:
        """Emit what was rejected after its batch; called by `pre_commit`."""
        for values, error in self.state.raw().get(_REJECTED, []):
            self.emit([values, error], stream=_REJECTED)
        if self.state.raw().get(_REJECTED):
            self.state[_REJECTED] = []


def _words_of(values: list[Any], error: Exception) -> str:
    return f"{sentence_of(error)}, of a tuple with the values {shown(values, 200)}"


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
