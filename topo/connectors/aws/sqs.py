"""Takes messages from an SQS queue, and deletes them once they are durable.

A message is lent for as long as it is invisible; a standard queue may give it twice all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from topo.connectors.arguments import answering
from topo.connectors.aws.service import REQUIRES, Service, check_options
from topo.connectors.base import OnBad, check_positive
from topo.connectors.formats import Decode, Format
from topo.connectors.leases import LeaseSpout
from topo.connectors.picking import Missing
from topo.connectors.retries import Backoff
from topo.connectors.translation import Arrival

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


class SqsSpout(LeaseSpout):
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
    transient = (*LeaseSpout.transient, "_service")

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
        self.visibility_secs = self.lease_secs = visibility_secs
        self.max_in_flight = max_in_flight
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
        super().open(conf, context, collector)
        self._service = Service(_NAME, "sqs", self.options, self.queue_url)

    def close(self) -> None:
        self._service.close()

    def fetch(self, most: int) -> Sequence[Arrival]:
        with self._service.reaching():
            answer = self._service.client.receive_message(
                QueueUrl=self.queue_url,
                MaxNumberOfMessages=min(most, _AT_ONCE),
                VisibilityTimeout=self.visibility_secs,
                WaitTimeSeconds=0,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
        return [self._arrival(each) for each in answer.get("Messages", [])]

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

    def extend(self, handles: Sequence[str]) -> None:
        for entries in _numbered(handles):
            for entry in entries:
                entry["VisibilityTimeout"] = self.visibility_secs
            with self._service.reaching():
                self._service.client.change_message_visibility_batch(
                    QueueUrl=self.queue_url, Entries=entries
                )

    def give_back(self, handles: Sequence[str]) -> None:
        with self._service.reaching():
            for handle in handles:
                self._service.client.change_message_visibility(
                    QueueUrl=self.queue_url, ReceiptHandle=handle, VisibilityTimeout=0
                )

    def delete(self, handles: Sequence[str]) -> None:
        for entries in _numbered(handles):
            with self._service.reaching():
                answer = self._service.client.delete_message_batch(
                    QueueUrl=self.queue_url, Entries=entries
                )
            failed = [one for one in answer.get("Failed", []) if not one["SenderFault"]]
            if failed:
                said = f"{failed[0]['Code']} {failed[0].get('Message', '')}".strip()
                raise self._service.unavailable(f"not deleted: {said}")


def _numbered(handles: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Return entries of calls, ten handles each."""
    return [
        [
            {"Id": str(number), "ReceiptHandle": handle}
            for number, handle in enumerate(handles[start : start + _AT_ONCE])
        ]
        for start in range(0, len(handles), _AT_ONCE)
    ]
