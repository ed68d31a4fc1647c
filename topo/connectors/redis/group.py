"""Reads streams as a consumer of a group, so that several tasks share a stream.

Entries belong to the consumer that got them until they are acknowledged. The ids of what a batch
emitted commit with it and are acknowledged then. After a start, what the task has of old comes
first, less what the last batch of the state has; entries of consumers that are silent for long are
taken over.
"""

from __future__ import annotations

from typing import Any

from topo.connectors.redis.server import Server, by_stream

ACKS = "acks"
"""In the state, with a stream and a task: the ids of entries that batches have emitted."""

_AT_ONCE = 1_000

Entry = tuple[str, str, dict[str, str] | None]


class GroupReader:
    """The consumer of one task."""

    def __init__(
        self,
        server: Server,
        streams: tuple[str, ...],
        group: str,
        consumer: str,
        start: str,
        claim_secs: float,
    ) -> None:
        self._server, self._streams, self._group = server, streams, group
        self._consumer, self._claim_secs = consumer, claim_secs
        self._start = {"earliest": "0", "latest": "$"}.get(start, start)
        self._old = dict.fromkeys(streams, "0")  # up to which entry the own old ones were read
        self._cursors = dict.fromkeys(streams, "0-0")
        self._open: dict[str, set[str]] = {stream: set() for stream in streams}
        self._next_claim = 0.0
        self._next_keep = 0.0
        self._is_known = False

    def read(self, most: int, now: float) -> list[Entry]:
        """Return entries: old ones first, then new ones, then those of silent consumers."""
        client = self._server.client
        most = max(1, most // len(self._streams))  # of each
        with self._server.reaching():
            self._meet_groups()
            if self._old:
                found = client.xreadgroup(self._group, self._consumer, self._old, count=most)
                entries = self._entries(found)
                for stream in list(self._old):
                    ids = [number for name, number, _ in entries if name == stream]
                    if ids:
                        self._old[stream] = ids[-1]
                    else:
                        del self._old[stream]
                if entries:
                    return self._fresh(entries)
            new = dict.fromkeys(self._streams, ">")
            entries = self._entries(client.xreadgroup(self._group, self._consumer, new, count=most))
            if not entries and now >= self._next_claim:
                self._next_claim = now + self._claim_secs / 4
                entries = self._claim(most)
        return self._fresh(entries)

    def is_open(self, stream: str, number: str) -> None:
        """Hear that an earlier instance has emitted an entry, which is still in flight."""
        self._open.setdefault(stream, set()).add(number)

    def keep(self, now: float) -> None:
        """Keep what is in flight from others, which claim what nobody has touched for long.

        Only what is still this consumer's: one that stood still for long has lost its entries.
        """
        if now < self._next_keep or not any(self._open.values()):
            return
        self._next_keep = now + self._claim_secs / 4
        with self._server.reaching():
            self._meet_groups()
        for stream, numbers in self._open.items():
            first = "-"
            while numbers:
                with self._server.reaching():
                    own = self._server.client.xpending_range(
                        stream, self._group, first, "+", _AT_ONCE, consumername=self._consumer
                    )
                    ids = [each["message_id"] for each in own if each["message_id"] in numbers]
                    if ids:
                        self._server.client.xclaim(
                            stream, self._group, self._consumer, 0, ids, justid=True
                        )
                if len(own) < _AT_ONCE:
                    break
                first = f"({own[-1]['message_id']}"

    def acknowledge(self, stream: str, ids: list[str]) -> None:
        """Acknowledge entries of committed batches."""
        with self._server.reaching():
            self._server.client.xack(stream, self._group, *ids)
        self._open.setdefault(stream, set()).difference_update(ids)

    def _meet_groups(self) -> None:
        """Make the groups, unless they are there; once, before anything else is asked of them."""
        if self._is_known:
            return
        import redis

        for stream in self._streams:
            try:
                self._server.client.xgroup_create(stream, self._group, self._start, mkstream=True)
            except redis.ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise
        self._is_known = True

    def _claim(self, most: int) -> list[Entry]:
        entries: list[Entry] = []
        for stream in self._streams:
            answer = self._server.client.xautoclaim(
                stream,
                self._group,
                self._consumer,
                int(self._claim_secs * 1000),
                self._cursors[stream],
                count=most,
            )
            self._cursors[stream] = str(answer[0])
            entries += [(stream, number, entry) for number, entry in answer[1]]
        return entries

    def _fresh(self, entries: list[Entry]) -> list[Entry]:
        """Leave out what was emitted and is not acknowledged yet."""
        found = []
        for stream, number, entry in entries:
            if number not in self._open[stream]:
                self._open[stream].add(number)
                found.append((stream, number, entry))
        return found

    @staticmethod
    def _entries(found: Any) -> list[Entry]:
        return [
            (stream, number, entry)
            for stream, entries in by_stream(found or [])
            for number, entry in entries
        ]
