"""Reads failed messages again, by a consumer of its own.

The main reading never goes back. The replayer reads a partition from its first wanted offset and
stops behind the last. What is not in the log any more shows as a hole, and is done with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from topo.connectors.kafka.client import TP, Client, Message, OutOfRange

_MOST = 500


class Replayer:
    """The offsets that are wanted again, and the consumer that fetches them."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._client: Client | None = None
        self._wanted: dict[TP, list[int]] = {}

    def want(self, ready: Mapping[TP, Sequence[int]]) -> None:
        """Fetch these offsets; a partition that is being read is asked for more afterwards."""
        fresh = {key: list(offsets) for key, offsets in ready.items() if key not in self._wanted}
        if not fresh:
            return
        if self._client is None:
            self._client = self._connect()
        self._client.assign({key: offsets[0] for key, offsets in fresh.items()})
        self._wanted |= fresh

    @property
    def wanted(self) -> int:
        """The number of offsets that are being fetched."""
        return sum(map(len, self._wanted.values()))

    @property
    def is_idle(self) -> bool:
        """True iff nothing is being fetched."""
        return not self._wanted

    def fetch(self) -> tuple[list[Message], list[tuple[TP, int]]]:
        """Return the wanted messages that have arrived, and the offsets that are gone."""
        messages: list[Message] = []
        gone: list[tuple[TP, int]] = []
        if not self._wanted or self._client is None:
            return messages, gone
        try:
            fetched = self._client.fetch(_MOST)
        except OutOfRange as lost:
            return messages, self._skip_to_beginning(lost.partition)
        for message in fetched:
            key = (message.topic(), message.partition())
            gone += self._passed(key, message.offset())
            wanted = self._wanted.get(key)
            if wanted and wanted[0] == message.offset():
                wanted.pop(0)
                messages.append(message)
        if not fetched:
            gone += self._behind_the_last()
        for key in [key for key, wanted in self._wanted.items() if not wanted]:
            self.forget(key)
        return messages, gone

    def forget(self, partition: TP) -> None:
        """Want nothing of a partition any more."""
        if self._wanted.pop(partition, None) is not None and self._client is not None:
            self._client.drop([partition])

    def _passed(self, key: TP, offset: int) -> Iterator[tuple[TP, int]]:
        """Yield the wanted offsets below this one, which the log has no longer."""
        wanted = self._wanted.get(key)
        while wanted and wanted[0] < offset:
            yield key, wanted.pop(0)

    def _behind_the_last(self) -> list[tuple[TP, int]]:
        """Return what is gone of partitions that were read to their end."""
        assert self._client is not None
        gone: list[tuple[TP, int]] = []
        for key in self._wanted:
            position, end = self._client.position(key), self._client.known_end(key)
            if position is not None and end is not None and position >= end:
                gone += self._passed(key, position)
        return gone

    def _skip_to_beginning(self, key: TP) -> list[tuple[TP, int]]:
        assert self._client is not None
        first, _ = self._client.ends(key)
        gone = list(self._passed(key, first))
        if self._wanted.get(key):
            self._client.assign({key: self._wanted[key][0]})
        else:
            self.forget(key)
        return gone
