"""Reads Redis streams from a position that is part of the topology's state.

Without a consumer group the id of the last entry commits with the batch that emitted it, so that
every entry counts once in the state of bolts. Streams are dealt over the tasks by their names. With
a group several tasks, and other programs, share a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from topo.components import StatefulSpout
from topo.config.secrets import Secret
from topo.connectors.base import BAD_FIELDS, OnBad, check_choice, check_positive
from topo.connectors.redis.group import ACKS, GroupReader
from topo.connectors.redis.server import REQUIRES, Server, bad_record, by_stream, check_url
from topo.errors import ComponentError
from topo.tuples import Fields

_NAME = "RedisStreamSpout"


class RedisStreamSpout(StatefulSpout):
    """A spout of the entries of Redis streams.

    A tuple is `(stream, id, entry)`, the entry a dict of texts; `fields` names the entry's fields
    instead. `translate` is given `(stream, id, entry)` and returns values, or None for nothing.
    `start` is "earliest", "latest", or an id: where a stream, or a new group, begins.
    With `group`, tasks are consumers of that group; entries of one that is silent for `claim_secs`
    are taken over by the others.
    """

    requires: Iterable[str] = (REQUIRES,)
    transient = ("_group", "_server")

    def __init__(
        self,
        url: str | Secret,
        streams: str | Iterable[str],
        *,
        start: str = "earliest",
        group: str | None = None,
        claim_secs: float = 60.0,
        fields: str | Iterable[str] = (),
        translate: Callable[[str, str, dict[str, str]], Any] | None = None,
        most: int = 5_000,
        on_bad: OnBad = "stop",
    ) -> None:
        check_url(_NAME, url)
        check_choice(_NAME, "on_bad", on_bad, ("stop", "stream", "skip"))
        check_positive(_NAME, most=most, claim_secs=claim_secs)
        self.url, self.streams, self.start = url, tuple(Fields(streams)), start
        if not self.streams:
            raise ComponentError(f"{_NAME}: streams={streams!r} names no stream")
        self.fields, self.translate, self.most = tuple(Fields(fields)), translate, most
        if translate is not None and not self.fields:
            raise ComponentError(f"{_NAME}: the fields of what translate returns are not known")
        self.on_bad, self.group, self.claim_secs = on_bad, group, claim_secs
        names = self.fields or ("stream", "id", "entry")
        self.outputs: Any = {"default": names, "bad": BAD_FIELDS} if on_bad == "stream" else names

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self._server = Server(_NAME, self.url)
        self._group: GroupReader | None = None
        if self.group is not None:
            name = f"topo/{context.topology_name}/{context.this_component_id}"
            consumer = f"{name}/{context.this_task_index}"
            self._group = GroupReader(
                self._server, self.streams, self.group, consumer, self.start, self.claim_secs
            )

    def owner(self, key: Any, tasks: int) -> int:
        """Return the task of a stream; in a group, that of the ids to acknowledge."""
        return int(key[2]) % tasks if isinstance(key, tuple) else super().owner(key, tasks)

    def close(self) -> None:
        self._server.close()

    def next_tuple(self) -> None:
        if self._group is not None:
            self._next_of_group(self._group)
            return
        with self._server.reaching():
            positions = self._positions()
            found = self._server.client.xread(positions, count=self.most) if positions else None
        if not found:
            return
        rows = []
        for stream, entries in by_stream(found):
            for number, entry in entries:
                rows += self._rows(stream, number, entry)
                self.state[stream] = number
        self.context.counter("entries", len(rows))
        self.emit_many(rows)

    def _next_of_group(self, group: GroupReader) -> None:
        rows = []
        entries = group.read(self.most, self.context.now())
        for stream, number, entry in entries:
            key = (ACKS, stream, self.context.this_task_index)
            self.state[key] = [*self.state.raw().get(key, []), number]
            if entry is not None:  # else it was deleted meanwhile
                rows += self._rows(stream, number, entry)
        if not entries:
            return
        self.context.counter("entries", len(rows))
        self.emit_many(rows)
        if not rows:
            self.context.end_batch()

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
        for stream in self.streams:
            if self.owns(stream) and stream not in self.state:
                self.state[stream] = self._begin(stream)
        return {s: self.state.raw()[s] for s in self.streams if s in self.state.raw()}

    def _begin(self, stream: str) -> str:
        if self.start == "earliest":
            return "0-0"
        if self.start != "latest":
            return self.start
        last = self._server.client.xrevrange(stream, count=1)
        return str(last[0][0]) if last else "0-0"

    def _rows(self, stream: str, number: str, entry: dict[str, str]) -> list[Any]:
        try:
            if self.translate is not None:
                values = self.translate(stream, number, entry)
                return [] if values is None else [values]
            if self.fields:
                return [[entry.get(name) for name in self.fields]]
        except Exception as error:
            bad_record(self, _NAME, entry, error, f"{stream} at {number}")
            return []
        return [[stream, number, entry]]

    def pre_commit(self, batch_id: int) -> None:
        """Show how many entries the streams have."""
        for stream in self.streams:
            if self.owns(stream):
                with self._server.reaching():
                    length = self._server.client.xlen(stream)
                self.context.gauge("length", length, stream=stream)
