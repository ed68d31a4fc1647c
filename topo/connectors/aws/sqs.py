"""Takes messages from an SQS queue, and deletes them once they are durable.

What is done commits with the batch, as the handles by which messages are deleted: those whose tuple
trees are acked, or, if they are not tracked, what the batch has emitted. A task that starts again
deletes those of its last batch first, so that a message comes twice only if SQS gives it twice: a
standard queue may, and every queue does when its visibility has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from topo.components import StatefulSpout
from topo.connectors.arguments import answering
from topo.connectors.aws.service import REQUIRES, Service, check_options
from topo.connectors.base import OnBad, check_positive
from topo.connectors.formats import Decode, Format
from topo.connectors.inflight import InflightSpout, Sent
from topo.connectors.picking import Missing
from topo.connectors.retries import Backoff
from topo.connectors.translation import Arrival
from topo.errors import Unavailable

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


class SqsSpout(InflightSpout, StatefulSpout):
    """A spout of an SQS queue: (id, group, received, attributes, value); several tasks share it.

    `fields` names those of a JSON value instead; `translate` is given a Message. A message that is
    not deleted within `visibility_secs` comes again; the time is extended until it is done with.

    Messages are tracked if there are ackers, unless `track=False`: one that fails is emitted again
    after a pause, `retry`. After its `retries` it goes to the stream `dead`; if nobody reads that,
    it is given back to the queue, whose redrive policy may bury it.
    Further arguments are those of `boto3.client`.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    transient = (
        *InflightSpout.transient,
        "_next_look",
        "_open",
        "_service",
    )

    @answering({"most": "max_in_flight"})
    def __init__(
        self,
        queue_url: str,
        *,
        value: str | Format | Decode = "json",
        fields: str | Iterable[str] = (),
        translate: Callable[[Message], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        visibility_secs: int = 120,
        max_in_flight: int = 1_000,
        poll_secs: float = 0.5,
        missing: Missing = "null",
        on_bad: OnBad = "stop",
        track: bool | None = None,
        retry: Backoff | None = None,
        **options: Any,
    ) -> None:
        check_positive(
            _NAME, visibility_secs=visibility_secs, max_in_flight=max_in_flight, poll_secs=poll_secs
        )
        check_options(_NAME, options)
        self.queue_url, self.options = queue_url, options
        self.visibility_secs, self.max_in_flight = visibility_secs, max_in_flight
        self.poll_secs = poll_secs
        self.set_up_reading(
            Message,
            Message._fields,
            track=track,
            retry=retry,
            value=value,
            fields=fields,
            translate=translate,
            streams=streams,
            missing=missing,
            on_bad=on_bad,
        )

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.open_reading(conf)
        self._service = Service(_NAME, "sqs", self.options, self.queue_url)
        self._open: dict[str, float] = {}  # handles that are not deleted, and until when they hold
        self._next_look = 0.0

    def restored(self) -> None:
        """Keep what is in flight invisible: it will be acked, or fail, here."""
        self._open |= {key[1]: 0.0 for key in self.state.raw() if isinstance(key, tuple)}

    def close(self) -> None:
        self._service.close()

    def owner(self, key: Any, tasks: int) -> int:
        """Return the task that deletes the messages that a task has received."""
        return int(key[0] if isinstance(key, tuple) else key) % tasks

    def next_tuple(self) -> None:
        now = self.context.now()
        self._extend(now)
        if self.emit_again() or now < self._next_look or len(self._open) >= self.max_in_flight:
            return
        with self._service.reaching():
            answer = self._service.client.receive_message(
                QueueUrl=self.queue_url,
                MaxNumberOfMessages=self.most(_AT_ONCE),
                VisibilityTimeout=self.visibility_secs,
                WaitTimeSeconds=0,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
        found = answer.get("Messages", [])
        if not found:
            self._next_look = now + self.poll_secs
            return
        handles = [each["ReceiptHandle"] for each in found]
        self._open |= dict.fromkeys(handles, now + self.visibility_secs)
        done = self.emit_page(map(self._arrival, found))
        if self._is_tracked:
            for handle in set(handles).difference(done):
                self.state[self.context.this_task_index, handle] = None
        self._delete_later(done if self._is_tracked else handles)
        self.context.counter("messages", len(found))

    def _delete_later(self, handles: Sequence[Hashable]) -> None:
        """Have messages deleted once the batch in work has committed."""
        if handles:
            own = self.context.this_task_index
            self.state[own] = [*self.state.raw().get(own, []), *handles]

    # -- what becomes of messages -------------------------------------------------------------

    def ack(self, msg_id: Any) -> None:
        if isinstance(msg_id, Sent):
            self.is_done(msg_id.tag)

    def is_done(self, tag: Any) -> None:
        """Have a message deleted."""
        self.state.pop((self.context.this_task_index, tag), None)
        self._delete_later([tag])

    def release(self, tag: Any) -> bool:
        """Give a message back to the queue at once, which counts how often it was received."""
        self.state.pop((self.context.this_task_index, tag), None)
        self._open.pop(tag, None)
        with self._service.reaching():
            self._service.client.change_message_visibility(
                QueueUrl=self.queue_url, ReceiptHandle=tag, VisibilityTimeout=0
            )
        return True

    def _arrival(self, one: dict[str, Any]) -> Arrival:
        system = one.get("Attributes", {})

        def message(value: Any) -> Message:
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
        return Arrival(one["Body"].encode(), message, where, one["ReceiptHandle"])

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
        for key in [key for key in self.state.raw() if not isinstance(key, tuple)]:
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
