"""`SubscriptionBolt`: many conditions, which come and go on a stream, asked of each message.

    builder.set_bolt("match", SubscriptionBolt("subs"), 8) \\
        .all_grouping("subs").shuffle_grouping("news")

With subscriptions by all grouping and messages by shuffle, each task knows all subscriptions, and
messages scale. With messages by all grouping and subscriptions by fields, each task has a part of
them, and memory scales; then `times` is exact as well, since one task counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from topo.components import OutputFieldsDeclarer
from topo.errors import Problem, RuleError, shown
from topo.event_time import EventTime
from topo.operators.inputs import StreamName, stream_named
from topo.rules.operator import REJECTED
from topo.rules.subscriptions import SubscriptionOperator
from topo.timed import InputFields, Operator, OperatorTask, Rows, TimedBolt

EMITS = {"each": "subscription", "list": "subscriptions"}


class SubscriptionBolt(TimedBolt):
    """A bolt that tells which subscriptions each message fulfils.

    `subscriptions` is a component, or component and stream, whose tuples have the fields `id` and
    `where`, and perhaps `start`, `stop` and `times`: one replaces that with its id, and ends it if
    `where` is None. A subscription is asked from `start`, a time or a condition that some message
    fulfils, until `stop`, and tells `times` messages at most. In a batch, subscriptions come
    before messages.

    The output has `subscription` and the fields of the message, one tuple a match; with
    `emit="list"` `subscriptions`, all ids, once a message. The stream `rejected` has `id`, `where`
    and `reason` of what was refused, such as more than `limit` of a task.
    """

    _topo_role = "rules"

    def __init__(
        self,
        subscriptions: StreamName,
        *,
        time: EventTime | None = None,
        emit: str = "each",
        limit: int = 1_000_000,
    ) -> None:
        self.subscriptions = stream_named(
            "SubscriptionBolt: subscriptions", subscriptions, "subscriptions"
        )
        if emit not in EMITS:
            raise RuleError(f"SubscriptionBolt: emit is {shown(emit)}; it is 'each' or 'list'")
        if time is not None and not isinstance(time, EventTime):
            raise RuleError(
                f"SubscriptionBolt: time is {shown(time)}", hint='write time=EventTime("ts")'
            )
        whole = isinstance(limit, int) and not isinstance(limit, bool)
        if not whole or limit < 1:
            raise RuleError(f"SubscriptionBolt: limit is {shown(limit)}; it is 1 or more")
        self.event_time = time
        self.emits_lists = emit == "list"
        self.limit = limit
        self.messages: tuple[InputFields, ...] = ()
        self.source: InputFields | None = None
        """The subscriptions' stream."""

    # -- what it declares ---------------------------------------------------------------------

    def read_inputs(self, inputs: Sequence[InputFields]) -> None:
        self.messages = tuple(read for read in inputs if not self.is_subscription(read))
        self.source = next((read for read in inputs if self.is_subscription(read)), None)

    def is_subscription(self, read: InputFields | Rows) -> bool:
        """Return True if subscriptions come on this stream."""
        return (read.component, read.stream) == self.subscriptions

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        fields = self.messages[0].fields if self.messages else ()
        declarer.declare(EMITS["list" if self.emits_lists else "each"], *fields)
        declarer.declare_stream(REJECTED, "id", "where", "reason")

    def timing(self) -> EventTime | None:
        time, component = self.event_time, self.subscriptions[0]
        if time is None or component in time.untimed or self.source is None:
            return time
        if any(read.component == component for read in self.messages):
            return time
        return replace(time, untimed=(*time.untimed, component))

    def result_time(self, stream: str) -> tuple[str, int] | None:
        if self.event_time is None or stream == REJECTED or not self.messages:
            return None
        name = self.event_time.field_of(self.messages[0].component)
        return None if name is None else (name, 0)

    def describe_time(self) -> str:
        return f"subscriptions of {self.subscriptions[0]!r}, at most {self.limit:,} in a task"

    # -- checks -------------------------------------------------------------------------------

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterable[Problem]:
        component = self.subscriptions[0]
        if self.source is None:
            text = f"{where} does not read its subscriptions, {component!r}"
            yield Problem("rule-input", where, text, f"write .all_grouping({component!r})")
            return
        for name in ("id", "where"):
            if name not in self.source.fields:
                listed = ", ".join(map(repr, self.source.fields))
                text = f"{where}: subscriptions have no field {name!r}; {component!r} has {listed}"
                yield Problem("rule-input", where, text, 'outputs = ("id", "where")')
        if not self.messages:
            text = f"{where} reads no messages"
            yield Problem("rule-input", where, text, 'write .shuffle_grouping("messages")')
            return
        for read in self.messages[1:]:
            if read.fields != self.messages[0].fields:
                text = f"{where}: the fields of {self.messages[0].component!r} and "
                text += f"{read.component!r} differ"
                yield Problem("rule-input", where, text, "emit the same fields in both")
        is_split = self.source.grouping not in ("all", "global")
        if tasks == 1 or not is_split:
            return
        by_id = self.source.grouping == "fields" and self.source.grouping_fields == ("id",)
        if not by_id or any(read.grouping != "all" for read in self.messages):
            text = f"{where}: a task has a part of the subscriptions, and of the messages"
            hint = f"write .all_grouping({component!r}), or fields_grouping({component!r}, ['id']) "
            yield Problem("rule-key", where, text, hint + "and all grouping of the messages")

    def operator(self, task: OperatorTask) -> Operator:
        return SubscriptionOperator(self, task)
