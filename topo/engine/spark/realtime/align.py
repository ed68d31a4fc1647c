"""Aligns one level of one slot on its epochs: who has ended the epoch, what is held back, how much.

Each source (a slot of the level before) sends what it has, then a marker behind all of an epoch.
What a source sends behind its marker belongs to the next epoch, so it is held until the markers of
all sources are here. Then the level saves what it has, passes a marker on, and works off what was
held. No tuple of an epoch is thus ever in what is saved for the one before, and none is missing.

A marker says how much its source has sent since the one before. If that is not what came, something
on the way lost or doubled a message; `Misaligned` then ends the epoch, which is never committed.

Nothing here does I/O, reads a clock or knows what the items are.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from topo.errors import EngineError

T = TypeVar("T")


class Misaligned(EngineError):
    """A level received something else than its sources say that they sent."""

    code = "misaligned"


@dataclass(frozen=True)
class Marker:
    """The end of an epoch, as one source passes it on.

    `sent` counts the source's items since its marker before, `mode` and `clock` are the epoch's.
    """

    epoch: int
    sent: int
    mode: int = 0
    clock: float = 0.0
    marks: bytes = b""
    """The times that the source's tasks have seen in the epoch."""


class Alignment(Generic[T]):
    """The input of one level of one slot.

    `receive` takes in whatever arrives, `take` hands out what may be worked on now. Once
    `is_complete`, and after the items that `take` returns then, the epoch is over here; `advance`
    opens the next one and lets what was held come through.
    """

    def __init__(self, name: str, sources: int, epoch: int) -> None:
        self._name = name
        self._sources = sources
        self.epoch = epoch
        self._ended: dict[int, Marker] = {}
        self._received = [0] * sources
        self._held: dict[int, deque[T | Marker]] = {source: deque() for source in range(sources)}
        self._ready: list[T] = []

    @property
    def is_complete(self) -> bool:
        """True iff every source has ended the present epoch."""
        return len(self._ended) == self._sources

    @property
    def marker(self) -> Marker:
        """A marker that ended the present epoch; all of them say the same of it."""
        return next(iter(self._ended.values()))

    @property
    def marks(self) -> list[bytes]:
        """The times seen in the present epoch, of each source that has ended it with some."""
        return [marker.marks for marker in self._ended.values() if marker.marks]

    @property
    def missing(self) -> list[int]:
        """The sources that have not ended the present epoch."""
        return [source for source in range(self._sources) if source not in self._ended]

    @property
    def held(self) -> int:
        """The number of items that wait for the next epoch."""
        return sum(map(len, self._held.values()))

    def receive(self, source: int, item: T | Marker) -> None:
        """Take in the next item of a source, in the order in which the source sent them."""
        if not 0 <= source < self._sources:
            raise self._wrong(f"something came from slot {source}, and there are {self._sources}")
        if source in self._ended:
            self._held[source].append(item)
        elif isinstance(item, Marker):
            self._end(source, item)
        else:
            self._received[source] += 1
            self._ready.append(item)

    @property
    def has_ready(self) -> bool:
        """True iff `take` has something to hand out."""
        return bool(self._ready)

    def take(self) -> list[T]:
        """Return what may be worked on now, each source's items in their order."""
        ready, self._ready = self._ready, []
        return ready

    def advance(self) -> None:
        """Open the next epoch. Everything of the present one has been taken."""
        if not self.is_complete or self._ready:
            raise self._wrong("the epoch ends before all of it was worked off")
        self.epoch += 1
        self._ended.clear()
        self._received = [0] * self._sources
        for source, held in self._held.items():
            while held and source not in self._ended:
                self.receive(source, held.popleft())

    def _end(self, source: int, marker: Marker) -> None:
        if marker.epoch != self.epoch:
            raise self._wrong(f"slot {source} ended epoch {marker.epoch}")
        if marker.sent != self._received[source]:
            raise self._wrong(
                f"slot {source} sent {marker.sent} messages, {self._received[source]} arrived"
            )
        if self._ended and (marker.mode, marker.clock) != (self.marker.mode, self.marker.clock):
            raise self._wrong(f"slot {source} ended the epoch in another mode or at another time")
        self._ended[source] = marker

    def _wrong(self, what: str) -> Misaligned:
        return Misaligned(
            f"{self._name}, epoch {self.epoch}: {what}",
            hint="the run starts again from its last committed epoch",
        )
