"""Reads Redis streams from a position that is part of the topology's state.

There is no consumer group: the id of the last entry commits with the batch that emitted it, so that
every entry counts once in the state of bolts. Streams are dealt over the tasks by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from topo.components import StatefulSpout
from topo.config.secrets import Secret
from topo.connectors.base import BAD_FIELDS, BadRecord, OnBad, check_choice, check_positive
from topo.connectors.redis.server import REQUIRES, Server, check_url
from topo.errors import ComponentError
from topo.tuples import Fields

_NAME = "RedisStreamSpout"


class RedisStreamSpout(StatefulSpout):
    """A spout of the entries of Redis streams.

    A tuple is `(stream, id, entry)`, the entry a dict of texts; `fields` names the entry's fields
    instead. `translate` is given `(stream, id, entry)` and returns values, or None for nothing.
    `start` is "earliest", "latest", or an id: where the reading of a stream begins.
    """

    requires: Iterable[str] = (REQUIRES,)
    transient = ("_server",)

    def __init__(
        self,
        url: str | Secret,
        streams: str | Iterable[str],
        *,
        start: str = "earliest",
        fields: str | Iterable[str] = (),
        translate: Callable[[str, str, dict[str, str]], Any] | None = None,
        most: int = 5_000,
        on_bad: OnBad = "stop",
    ) -> None:
        check_url(_NAME, url)
        check_choice(_NAME, "on_bad", on_bad, ("stop", "stream", "skip"))
        check_positive(_NAME, most=most)
        self.url, self.streams, self.start = url, tuple(Fields(streams)), start
        if not self.streams:
            raise ComponentError(f"{_NAME}: streams={streams!r} names no stream")
        self.fields, self.translate, self.most = tuple(Fields(fields)), translate, most
        if translate is not None and not self.fields:
            raise ComponentError(f"{_NAME}: the fields of what translate returns are not known")
        self.on_bad = on_bad
        names = self.fields or ("stream", "id", "entry")
        self.outputs: Any = {"default": names, "bad": BAD_FIELDS} if on_bad == "stream" else names

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self._server = Server(_NAME, self.url)

    def close(self) -> None:
        self._server.close()

    def next_tuple(self) -> None:
        with self._server.reaching():
            positions = self._positions()
            found = self._server.client.xread(positions, count=self.most) if positions else None
        if not found:
            return
        rows = []
        for stream, entries in _by_stream(found):
            for number, entry in entries:
                rows += self._rows(stream, number, entry)
                self.state[stream] = number
        self.context.counter("entries", len(rows))
        self.emit_many(rows)

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
            bad = BadRecord(entry, f"{type(error).__name__}: {error}", f"{stream} at {number}")
            self.context.counter("bad_records")
            if self.on_bad == "stop":
                raise ComponentError(
                    f"{_NAME}: an entry cannot be read: {bad}",
                    hint="on_bad='stream' emits such entries on the stream 'bad'",
                ) from error
            if self.on_bad == "stream":
                self.emit([bad.raw, bad.error, bad.where], stream="bad")
            return []
        return [[stream, number, entry]]

    def pre_commit(self, batch_id: int) -> None:
        """Show how many entries the streams have."""
        for stream in self.streams:
            if self.owns(stream):
                with self._server.reaching():
                    length = self._server.client.xlen(stream)
                self.context.gauge("length", length, stream=stream)


def _by_stream(found: Any) -> Iterable[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """Return entries by stream: a dict of lists of lists in RESP3, a list of pairs in RESP2."""
    if not isinstance(found, Mapping):
        return [(str(stream), list(entries)) for stream, entries in found]
    return [
        (str(stream), [one for entries in lists for one in entries])
        for stream, lists in found.items()
    ]
