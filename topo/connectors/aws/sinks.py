"""Writes tuples to Kinesis streams and SQS queues, before their batch commits: at least once.

Neither service can keep a batch's number with what it takes, so that exactly once is not to be had.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from topo.connectors.arguments import answering
from topo.connectors.aws.service import REQUIRES, Service, check_options
from topo.connectors.base import OnBad, as_record, check_positive
from topo.connectors.formats import Encode, Format, check_form, encoder, requirements_of
from topo.connectors.outbox import parts
from topo.connectors.publication import RejectingSink
from topo.errors import ComponentError
from topo.tuples import Tuple

Chosen = str | Callable[[Tuple], str] | None
Entry = dict[str, Any]


class _Sink(RejectingSink):
    """A bolt that gathers entries, and sends those of a batch, several in a call."""

    requires: Iterable[str] = (REQUIRES,)
    stateless = True
    transient = ("_encode", "_entries", "_service")
    service = about = ""
    most, most_bytes, most_entry_bytes = 10, 256 << 10, 256 << 10

    def __init__(
        self,
        value: str | Format | Encode,
        map: Callable[[Tuple], Any] | None,
        retry_secs: float,
        on_bad: OnBad,
        options: dict[str, Any],
    ) -> None:
        check_form(value, self.connector, "value", writes=True)
        check_positive(self.connector, retry_secs=retry_secs)
        check_options(self.connector, options)
        self.requires = (*self.requires, *requirements_of(value))
        self.value, self.map, self.retry_secs = value, map, retry_secs
        self.options = options
        self.set_on_bad(on_bad)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self._encode = encoder(self.value, self.connector, "value")
        self._service = Service(self.connector, self.service, self.options, self.about)
        self._entries: list[tuple[Entry, int]] = []

    def cleanup(self) -> None:
        self._service.close()

    def execute(self, tup: Tuple) -> None:
        try:
            record = as_record(tup, self.map)
            entry, size = self.entry(tup, self._encode(record))
            if size > self.most_entry_bytes:
                raise ValueError(f"{size} bytes; {self.most_entry_bytes} are the most")
        except Exception as error:
            self.reject(list(tup.values), error)
            return
        self._entries.append((entry, size))

    def pre_commit(self, batch_id: int) -> None:
        entries, self._entries = self._entries, []
        for part in parts(entries, itemgetter(1), most=self.most, most_bytes=self.most_bytes):
            self._send_all([entry for entry, _ in part])
        self.context.counter("records", len(entries))

    def _send_all(self, part: list[Entry]) -> None:
        """Send entries; send those that are refused for now again, for up to `retry_secs`."""
        pause, waited = 0.1, 0.0
        while True:
            with self._service.reaching():
                part, said = self.send(part)
            if not part:
                return
            if waited >= self.retry_secs:
                raise self._service.unavailable(f"{len(part)} refused: {said}")
            self.context.counter("retried", len(part))
            threading.Event().wait(pause)
            waited, pause = waited + pause, min(2 * pause, 2.0)

    def entry(self, tup: Tuple, data: bytes) -> tuple[Entry, int]:
        """Return what the service is given for a tuple, and how many bytes count for it."""
        raise NotImplementedError

    def send(self, part: list[Entry]) -> tuple[list[Entry], str]:
        """Send entries; return those to send again, and why."""
        raise NotImplementedError


class KinesisBolt(_Sink):
    """A sink of records of a Kinesis stream: JSON of a tuple's fields, or of what `map` returns.

    `key` is the partition key: a field's name or a function of the tuple; None spreads records
    over the shards. Further arguments are those of `boto3.client`.
    """

    connector, service = "KinesisBolt", "kinesis"
    most, most_bytes, most_entry_bytes = 500, 5 << 20, 1 << 20

    @answering()
    def __init__(
        self,
        stream: str,
        *,
        key: Chosen = None,
        value: str | Format | Encode = "json",
        map: Callable[[Tuple], Any] | None = None,
        retry_secs: float = 30.0,
        on_bad: OnBad = "stop",
        **options: Any,
    ) -> None:
        super().__init__(value, map, retry_secs, on_bad, options)
        self.stream, self.key, self.about = stream, key, f"stream {stream!r}"

    def entry(self, tup: Tuple, data: bytes) -> tuple[Entry, int]:
        if self.key is None:
            key = f"{self.context.stable_hash(data):016x}"
        else:
            key = str(tup[self.key] if isinstance(self.key, str) else self.key(tup))
        if not 0 < len(key) <= 256:
            raise ValueError(f"a partition key has 1 to 256 characters; got {len(key)}")
        return {"Data": data, "PartitionKey": key}, len(data) + len(key.encode())

    def send(self, part: list[Entry]) -> tuple[list[Entry], str]:
        answer = self._service.client.put_records(StreamName=self.stream, Records=part)
        both = zip(part, answer["Records"], strict=True)
        left = [(entry, one) for entry, one in both if "ErrorCode" in one]
        said = left[0][1].get("ErrorMessage", left[0][1]["ErrorCode"]) if left else ""
        return [entry for entry, _ in left], said


class SqsBolt(_Sink):
    """A sink of messages of an SQS queue: JSON of a tuple's fields, or of what `map` returns.

    Of a FIFO queue `group` is a field's name or a function of the tuple; `id` then makes messages
    that are sent again within five minutes known to the queue. Further arguments are those of
    `boto3.client`.
    """

    connector, service = "SqsBolt", "sqs"

    @answering()
    def __init__(
        self,
        queue_url: str,
        *,
        group: Chosen = None,
        id: Chosen = None,
        value: str | Format | Encode = "json",
        map: Callable[[Tuple], Any] | None = None,
        retry_secs: float = 30.0,
        on_bad: OnBad = "stop",
        **options: Any,
    ) -> None:
        super().__init__(value, map, retry_secs, on_bad, options)
        self.queue_url, self.group, self.id, self.about = queue_url, group, id, queue_url
        if queue_url.endswith(".fifo") and group is None:
            raise ComponentError(f"SqsBolt: {queue_url} is a FIFO queue, which needs group=")

    def entry(self, tup: Tuple, data: bytes) -> tuple[Entry, int]:
        made: Entry = {"MessageBody": data.decode()}
        for name, chosen in (("MessageGroupId", self.group), ("MessageDeduplicationId", self.id)):
            if chosen is not None:
                made[name] = str(tup[chosen] if isinstance(chosen, str) else chosen(tup))
        return made, len(data)

    def send(self, part: list[Entry]) -> tuple[list[Entry], str]:
        entries = [{"Id": str(number), **entry} for number, entry in enumerate(part)]
        answer = self._service.client.send_message_batch(QueueUrl=self.queue_url, Entries=entries)
        failed = answer.get("Failed", [])
        wrong = [one for one in failed if one["SenderFault"]]
        if wrong:
            raise ComponentError(
                f"SqsBolt: {self.queue_url} refuses a message: {wrong[0].get('Message', '')}"
            )
        said = failed[0].get("Message", failed[0]["Code"]) if failed else ""
        return [part[int(one["Id"])] for one in failed], said
