"""Reads Redis streams from a position that is part of the topology's state.

Without a consumer group the id of the last entry commits with the batch that emitted it, so that
every entry counts once in the state of bolts. Streams are dealt over the tasks by their names. With
a group several tasks, and other programs, share a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from topo.components import StatefulSpout
from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_positive
from topo.connectors.inflight import InflightSpout, Sent
from topo.connectors.picking import Missing
from topo.connectors.redis.group import ACKS, GroupReader
from topo.connectors.redis.server import REQUIRES, Server, by_stream, check_url
from topo.connectors.retries import Backoff
from topo.connectors.translation import Arrival
from topo.errors import ComponentError
from topo.tuples import Fields

_NAME = "RedisStreamSpout"
_OPEN = "open"
"""In the state, with a stream, a task and an id: an entry of a group that is in flight."""


class Entry(NamedTuple):
    """An entry; what `translate` is given."""

    stream: str
    id: str
    entry: dict[str, str]


class RedisStreamSpout(InflightSpout, StatefulSpout):
    """A spout of the entries of Redis streams.

    `keys` names them. A tuple is `(stream, id, entry)`, the entry a dict of texts; `fields` names
    the entry's fields instead. `translate` is given an `Entry` and returns values, `(stream,
    values)`, or None for nothing. `start` is "earliest", "latest", or an id: where a stream, or a
    new group, begins.
    With `group`, tasks are consumers of that group; entries of one that is silent for `claim_secs`
    are taken over by the others.

    Entries are tracked if there are ackers, unless `track=False`: one that fails is emitted again
    after a pause, `retry`. In a group it is acknowledged when it is acked.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    transient = (*InflightSpout.transient, "_group", "_server")

    @answering({"streams": "keys", "stream": "keys"})
    def __init__(
        self,
        url: str | Secret,
        keys: str | Iterable[str],
        *,
        start: str = "earliest",
        group: str | None = None,
        claim_secs: float = 60.0,
        fields: str | Iterable[str] = (),
        translate: Callable[[Entry], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        page: int = 5_000,
        missing: Missing = "null",
        on_bad: OnBad = "stop",
        track: bool | None = None,
        retry: Backoff | None = None,
    ) -> None:
        check_url(_NAME, url)
        check_positive(_NAME, page=page, claim_secs=claim_secs)
        self.url, self.keys, self.start = url, tuple(Fields(keys)), start
        if not self.keys:
            raise ComponentError(f"{_NAME}: keys={keys!r} names no stream")
        self.page, self.group, self.claim_secs = page, group, claim_secs
        self.set_up_reading(
            Entry,
            Entry._fields,
            track=track,
            retry=retry,
            value="json",  # no bytes: Redis has dicts
            fields=fields,
            translate=translate,
            streams=streams,
            missing=missing,
            on_bad=on_bad,
        )

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.open_reading(conf)
        self._server = Server(_NAME, self.url, keeps_bytes=True)
        self._group: GroupReader | None = None
        if self.group is not None:
            name = f"topo/{context.topology_name}/{context.this_component_id}"
            consumer = f"{name}/{context.this_task_index}"
            self._group = GroupReader(
                self._server, self.keys, self.group, consumer, self.start, self.claim_secs
            )

    def owner(self, key: Any, tasks: int) -> int:
        """Return the task of a stream; in a group, that of the ids to acknowledge."""
        return int(key[2]) % tasks if isinstance(key, tuple) else super().owner(key, tasks)

    def restored(self) -> None:
        """Know what is in flight: the group gives a consumer its own entries again."""
        if self._group is not None:
            for key in self.state.raw():
                if key[0] == _OPEN:
                    self._group.is_open(key[1], key[3])

    def close(self) -> None:
        self._server.close()

    def keep_alive(self) -> None:
        if self._group is not None:
            self._group.keep(self.context.now())

    def next_tuple(self) -> None:
        if self.emit_again():
            return
        most = self.most(self.page)
        if self._group is not None:
            self._next_of_group(self._group, most)
            return
        with self._server.reaching():
            positions = self._positions()
            if len(positions) > most:  # of each stream one at least comes
                positions = dict(islice(positions.items(), most))
            each = most // max(1, len(positions)) if most < self.page else most
            found = self._server.client.xread(positions, count=each) if positions else None
        if not found:
            return
        entries = [
            (stream, number, entry)
            for stream, listed in by_stream(found)
            for number, entry in listed
        ]
        self.emit_page(self._arrivals(entries), is_decoded=True)
        self.context.counter("entries", len(entries))

    def _next_of_group(self, group: GroupReader, most: int) -> None:
        entries = group.read(most, self.context.now())
        if not entries:
            return
        names = {(stream, number) for stream, number, _ in entries}
        arrivals = list(self._arrivals(each for each in entries if each[2] is not None))
        done = self.emit_page(arrivals, is_decoded=True)
        emitted: set[Any] = {each.tag for each in arrivals}.difference(done)
        if self._is_tracked:
            for stream, number in emitted:
                self.state[_OPEN, stream, self.context.this_task_index, number] = None
        for stream, number in sorted(names - emitted if self._is_tracked else names):
            self._acknowledge_later(stream, number)
        self.context.counter("entries", len(emitted))
        if not arrivals:
            self.context.end_batch()

    def _acknowledge_later(self, stream: str, number: str) -> None:
        """Have an entry acknowledged once the batch in work has committed."""
        key = (ACKS, stream, self.context.this_task_index)
        self.state[key] = [*self.state.raw().get(key, []), number]

    def ack(self, msg_id: Any) -> None:
        if isinstance(msg_id, Sent):
            self.is_done(msg_id.tag)

    def is_done(self, tag: Any) -> None:
        """Have an entry of a group acknowledged."""
        if tag is not None:
            stream, number = tag
            self.state.pop((_OPEN, stream, self.context.this_task_index, number), None)
            self._acknowledge_later(stream, number)

    def committed(self, batch_id: int) -> None:
        """Acknowledge what was emitted, as a consumer of a group."""
        if self._group is None:
            return
        for key in list(self.state):
            if key[0] == ACKS:
                self._group.acknowledge(key[1], self.state.raw()[key])
                del self.state[key]

    def _positions(self) -> dict[str, str]:
        """Return the last id of each stream of this task; find where to begin the first time."""
        for stream in self.keys:
            if self.owns(stream) and stream not in self.state:
                self.state[stream] = self._begin(stream)
        return {s: self.state.raw()[s] for s in self.keys if s in self.state.raw()}

    def _begin(self, stream: str) -> str:
        if self.start == "earliest":
            return "0-0"
        if self.start != "latest":
            return self.start
        last = self._server.client.xrevrange(stream, count=1)
        return str(last[0][0]) if last else "0-0"

    def _arrivals(self, entries: Iterable[tuple[str, str, Any]]) -> Iterator[Arrival]:
        """Yield entries; note how far each stream is read, unless the group does."""
        for stream, number, entry in entries:
            if self.group is None:
                self.state[stream] = number
            where = f"{stream} at {number}"
            try:
                "".join(entry.values()).encode()
            except UnicodeEncodeError:
                self._reader.tell_bad(self, entry, ValueError("a value is no text"), where)
                continue
            tag = (stream, number) if self.group else None
            yield Arrival(entry, partial(Entry, stream, number), where, tag)

    def pre_commit(self, batch_id: int) -> None:
        """Show how many entries the streams have."""
        for stream in self.keys:
            if self.owns(stream):
                with self._server.reaching():
                    length = self._server.client.xlen(stream)
                self.context.gauge("length", length, stream=stream)
