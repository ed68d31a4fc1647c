"""Reads the shards of a Kinesis stream from positions that are part of the topology's state.

The sequence number of the last record of each shard commits with the batch that emitted it, so that
every record counts once in the state of bolts. Nothing else has to be kept: no table of leases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple

from topo.components import StatefulSpout
from topo.connectors.arguments import answering
from topo.connectors.aws.service import REQUIRES, Service, check_options
from topo.connectors.base import OnBad, check_choice, check_positive
from topo.connectors.formats import Decode, Format
from topo.connectors.inflight import InflightSpout, Sent
from topo.connectors.picking import Missing
from topo.connectors.retries import Backoff
from topo.connectors.translation import Arrival
from topo.errors import ComponentError

_NAME = "KinesisSpout"
_LIST_SECS = 30.0


class Record(NamedTuple):
    """A record, its value decoded; what `translate` is given."""

    shard: str
    sequence: str
    key: str
    """The partition key."""
    arrived: datetime
    value: Any


class KinesisSpout(InflightSpout, StatefulSpout):
    """A spout of a Kinesis stream: (shard, sequence, key, arrived, value).

    `fields` names those of a JSON value instead; `translate` is given a Record. `start` is
    "earliest", "latest", or a time; shards that come later are read from their beginning, and,
    where the same task has both, after the shards that they were split or merged from. Shards are
    dealt over the tasks by their names. Records are tracked if there are ackers, unless
    `track=False`: one that fails is emitted again after a pause, `retry`. Further arguments are
    those of `boto3.client`.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    transient = (
        *InflightSpout.transient,
        "_has_more",
        "_iterators",
        "_next_listing",
        "_next_read",
        "_parents",
        "_service",
    )

    @answering()
    def __init__(
        self,
        stream: str,
        *,
        start: Literal["earliest", "latest"] | datetime = "earliest",
        value: str | Format | Decode = "json",
        fields: str | Iterable[str] = (),
        translate: Callable[[Record], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        page: int = 10_000,
        poll_secs: float = 0.25,
        missing: Missing = "null",
        on_bad: OnBad = "stop",
        track: bool | None = None,
        retry: Backoff | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(start, datetime):
            check_choice(_NAME, "start", start, ("earliest", "latest"))
        check_positive(_NAME, page=page, poll_secs=poll_secs)
        check_options(_NAME, options)
        self.stream, self.start, self.options = stream, start, options
        self.page = min(page, 10_000)
        self.poll_secs = poll_secs
        self.set_up_reading(
            Record,
            Record._fields,
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
        self._service: Service | None = None
        self._parents: dict[str, list[str]] = {}  # of the shards of this task
        self._has_more: dict[str, bool] = {}
        self._iterators: dict[str, str] = {}
        self._next_read: dict[str, float] = {}
        self._next_listing = 0.0

    def close(self) -> None:
        if self._service is not None:
            self._service.close()

    def next_tuple(self) -> None:
        if self.emit_again():
            return
        if self._service is None:
            self._service = Service(_NAME, "kinesis", self.options, f"stream {self.stream!r}")
        now = self.context.now()
        if now >= self._next_listing:
            self._list(self._service)
            self._next_listing = now + _LIST_SECS
        for shard in list(self._parents):
            if now >= self._next_read.get(shard, 0.0) and not self._waits(shard):
                self._next_read[shard] = now + self.poll_secs
                if self._read(self._service, shard):
                    return

    # -- shards -------------------------------------------------------------------------------

    def _list(self, service: Service) -> None:
        found: list[dict[str, Any]] = []
        with service.reaching():
            for page in service.client.get_paginator("list_shards").paginate(
                StreamName=self.stream
            ):
                found += page["Shards"]
        listed = ("listed", self.context.this_task_index)
        is_first = listed not in self.state
        self._parents = {}
        for shard in found:
            name = shard["ShardId"]
            if not self.owns(name):
                continue
            parents = [shard.get("ParentShardId"), shard.get("AdjacentParentShardId")]
            self._parents[name] = [parent for parent in parents if parent]
            if name not in self.state:
                where = self._first(shard) if is_first else "earliest"
                self.state[name] = {"at": "", "from": where, "done": where is None}
        self.state[listed] = True
        known = {shard["ShardId"] for shard in found}
        for name in [key for key in self.state if isinstance(key, str) and key not in known]:
            del self.state[name]  # the stream has forgotten it

    def _first(self, shard: dict[str, Any]) -> Any:
        """Return where a shard is read from at the first start; None if it is closed, and past."""
        is_closed = "EndingSequenceNumber" in shard["SequenceNumberRange"]
        return None if self.start == "latest" and is_closed else self.start

    def owner(self, key: Any, tasks: int) -> int:
        """Return the task of a shard; that shards were listed, each task notes for itself."""
        return super().owner(key, tasks) if isinstance(key, str) else int(key[1]) % tasks

    def _waits(self, shard: str) -> bool:
        """Return True if a shard is done, or one that it came from is not."""
        raw = self.state.raw()
        if raw[shard]["done"]:
            return True
        return any(parent in raw and not raw[parent]["done"] for parent in self._parents[shard])

    def _read(self, service: Service, shard: str) -> bool:
        """Emit the next records of a shard; return False if there are none."""
        entry = dict(self.state.raw()[shard])
        most = self.most(self.page)
        with service.reaching():
            iterator = self._iterators.pop(shard, None) or self._iterator(service, shard, entry)
            try:
                answer = service.client.get_records(ShardIterator=iterator, Limit=most)
            except service.client.exceptions.ExpiredIteratorException:
                iterator = self._iterator(service, shard, entry)
                answer = service.client.get_records(ShardIterator=iterator, Limit=most)
        self.context.gauge("behind_ms", answer.get("MillisBehindLatest", 0), shard=shard)
        self._has_more[shard] = answer.get("MillisBehindLatest", 0) > 0
        self.collector.from_split(shard)
        try:
            self.emit_page(self._arrivals(shard, entry, answer["Records"]))
        finally:
            self.state[shard] = entry
        following = answer.get("NextShardIterator")
        if following:
            self._iterators[shard] = following
        else:
            entry["done"] = True
            self._next_listing = 0.0  # its children may be there
            self.context.end_batch()
        self.context.counter("records", len(answer["Records"]))
        return bool(answer["Records"])

    def _iterator(self, service: Service, shard: str, entry: dict[str, Any]) -> str:
        where: dict[str, Any]
        if entry["at"]:
            where = {
                "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
                "StartingSequenceNumber": entry["at"],
            }
        elif isinstance(entry["from"], datetime):
            where = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": entry["from"]}
        else:
            names = {"earliest": "TRIM_HORIZON", "latest": "LATEST"}
            where = {"ShardIteratorType": names[entry["from"]]}
        try:
            answer = service.client.get_shard_iterator(
                StreamName=self.stream, ShardId=shard, **where
            )
        except service.client.exceptions.InvalidArgumentException as error:
            raise ComponentError(
                f"{_NAME}: shard {shard} of {self.stream!r} cannot be read after {entry['at']}: "
                f"{error}",
                hint="was the stream made anew? start with a fresh checkpoint",
            ) from error
        return str(answer["ShardIterator"])

    def _arrivals(
        self, shard: str, entry: dict[str, Any], records: Iterable[dict[str, Any]]
    ) -> Iterator[Arrival]:
        """Yield the records of a shard; note in its entry which was the last one."""
        for each in records:
            entry["at"] = number = each["SequenceNumber"]
            place = (shard, number, each["PartitionKey"], each["ApproximateArrivalTimestamp"])
            where = f"{self.stream}/{shard} at {number}"
            yield Arrival(each["Data"], partial(Record, *place), where, shard)

    def emits_again(self, sent: Sent) -> None:
        """Name the shard that a record is of."""
        self.collector.from_split(str(sent.tag))

    def pre_commit(self, batch_id: int) -> None:
        """Tell which shards are read, and whether they have more."""
        if self._parents and self.collector.hears_splits:
            shards = [shard for shard in self._parents if not self._waits(shard)]
            self.collector.read_splits({s: self._has_more.get(s, True) for s in shards})
