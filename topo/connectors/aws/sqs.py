"""Takes messages from an SQS queue, and deletes them once they are durable.

What a batch has emitted commits with it, as the handles by which messages are deleted. A task that
starts again deletes those of its last batch first, so that a message comes twice only if SQS gives
it twice: a standard queue may, and every queue does when its visibility has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from topo.components import StatefulSpout
from topo.connectors.aws.service import (
    REQUIRES,
    Service,
    Translation,
    check_options,
    translated,
)
from topo.connectors.base import BAD_FIELDS, OnBad, check_choice, check_positive
from topo.connectors.serdes import Decode, check_form, decoder
from topo.errors import Unavailable
from topo.tuples import Fields

_NAME = "SqsSpout"
_AT_ONCE = 10


class Message(NamedTuple):
    """A message, its value decoded; what `translate` is given."""

    id: str
    group: str
    """Of a FIFO queue; "" otherwise."""
    received: int
    """How often it has been received."""
    attributes: dict[str, Any]
    value: Any


class SqsSpout(StatefulSpout):
    """A spout of an SQS queue: (id, group, received, attributes, value); several tasks share it.

    `fields` names those of a JSON value instead; `translate` is given a Message. A message that is
    not deleted within `visibility_secs` comes again; the time is extended while its batch is open.
    Further arguments are those of `boto3.client`.
    """

    requires: Iterable[str] = (REQUIRES,)
    transient = ("_decode", "_next_look", "_open", "_service")

    def __init__(
        self,
        queue_url: str,
        *,
        value: str | Decode = "json",
        fields: str | Iterable[str] = (),
        translate: Callable[[Message], Any] | None = None,
        visibility_secs: int = 120,
        most: int = 1_000,
        poll_secs: float = 0.5,
        on_bad: OnBad = "stop",
        **options: Any,
    ) -> None:
        check_choice(_NAME, "on_bad", on_bad, ("stop", "stream", "skip"))
        check_positive(_NAME, visibility_secs=visibility_secs, most=most, poll_secs=poll_secs)
        check_form(value, _NAME, "value")
        check_options(_NAME, options)
        self.queue_url, self.value, self.options = queue_url, value, options
        self.visibility_secs, self.most = visibility_secs, most
        self.poll_secs, self.on_bad = poll_secs, on_bad
        self.translation = Translation(_NAME, Message._fields, tuple(Fields(fields)), translate)
        names = self.translation.names
        self.outputs: Any = {"default": names, "bad": BAD_FIELDS} if on_bad == "stream" else names

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self._decode = decoder(self.value, _NAME, "value")
        self._service = Service(_NAME, "sqs", self.options, self.queue_url)
        self._open: dict[str, float] = {}  # handles that are not deleted, and until when they hold
        self._next_look = 0.0

    def close(self) -> None:
        self._service.close()

    def owner(self, key: Any, tasks: int) -> int:
        """Return the task that deletes the messages that a task has received."""
        return int(key) % tasks

    def next_tuple(self) -> None:
        now = self.context.now()
        self._extend(now)
        if now < self._next_look or len(self._open) >= self.most:
            return
        with self._service.reaching():
            answer = self._service.client.receive_message(
                QueueUrl=self.queue_url,
                MaxNumberOfMessages=_AT_ONCE,
                VisibilityTimeout=self.visibility_secs,
                WaitTimeSeconds=0,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
        found = answer.get("Messages", [])
        if not found:
            self._next_look = now + self.poll_secs
            return
        rows = [values for one in found for values in self._rows(one)]
        handles = [one["ReceiptHandle"] for one in found]
        self._open |= dict.fromkeys(handles, now + self.visibility_secs)
        own = self.context.this_task_index
        self.state[own] = [*self.state.raw().get(own, []), *handles]
        self.context.counter("messages", len(found))
        if not self.emit_many(rows):
            self.context.end_batch()

    def _rows(self, one: dict[str, Any]) -> list[Any]:
        system = one.get("Attributes", {})

        def made(value: Any) -> Message:
            group, received = (
                system.get("MessageGroupId", ""),
                system.get("ApproximateReceiveCount"),
            )
            attributes = {
                name: each.get("StringValue", each.get("BinaryValue"))
                for name, each in one.get("MessageAttributes", {}).items()
            }
            return Message(one["MessageId"], group, int(received or 1), attributes, value)

        where = f"{self.queue_url} {one['MessageId']}"
        return translated(self, self._decode, made, one["Body"].encode(), where)

    def _extend(self, now: float) -> None:
        """Extend the visibility of messages whose batch has been open for long."""
        ending = [h for h, until in self._open.items() if until - now < self.visibility_secs / 2]
        for entries in _numbered(ending):
            for entry in entries:
                entry["VisibilityTimeout"] = self.visibility_secs
            with self._service.reaching():
                self._service.client.change_message_visibility_batch(
                    QueueUrl=self.queue_url, Entries=entries
                )
        self._open |= dict.fromkeys(ending, now + self.visibility_secs)

    def committed(self, batch_id: int) -> None:
        """Delete what was emitted."""
        for key in list(self.state):
            for entries in _numbered(self.state.raw()[key]):
                with self._service.reaching():
                    answer = self._service.client.delete_message_batch(
                        QueueUrl=self.queue_url, Entries=entries
                    )
                failed = [one for one in answer.get("Failed", []) if not one["SenderFault"]]
                if failed:
                    said = f"{failed[0]['Code']} {failed[0].get('Message', '')}".strip()
                    raise Unavailable(f"{_NAME}: {self.queue_url}: not deleted: {said}")
                for entry in entries:
                    self._open.pop(entry["ReceiptHandle"], None)
            del self.state[key]


def _numbered(handles: list[str]) -> list[list[dict[str, Any]]]:
    """Return entries of calls, ten handles each."""
    return [
        [
            {"Id": str(number), "ReceiptHandle": handle}
            for number, handle in enumerate(handles[start : start + _AT_ONCE])
        ]
        for start in range(0, len(handles), _AT_ONCE)
    ]
