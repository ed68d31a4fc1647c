"""The output of one level of a slot: messages to the slots of the next level, and their count.

A message is for one slot, and has the frames for one level. What is for the own slot goes to the
next level directly if that is in the same process, and as it is: by way of Spark, two processes
would be woken for each row, and its values written and read again. If more than two frames a
millisecond go to another slot, they wait up to a millisecond for others: Spark takes each row by
itself, and 10,000 of them a second cost a core more than what is in them.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol, TypeAlias

from topo.engine.spark.plan import Plan
from topo.engine.spark.realtime.align import Marker
from topo.engine.spark.realtime.stream import MessageStream
from topo.tracking.clock import monotonic
from topo.tracking.plan import Mode
from topo.wire.frame import AnyFrame, Buffer, PackedFrame

DATA, MARKER = 1, 2
HEAD = struct.Struct("<BHH")  # kind, source slot, target level
END = struct.Struct("<QQBd")  # epoch, sent, mode, clock
LENGTH = struct.Struct("<I")
MOST_WAITING_BYTES = 8 << 20
"""Of output; beyond it a level works on nothing, and spouts are not asked."""
_MESSAGE_BYTES = 1 << 20
_WINDOW_SECS = 0.016
_MANY_PER_SEC = 2000  # of frames to a slot
_HELD_SECS = 0.001
_HELD_BYTES = 1 << 16


Item: TypeAlias = tuple[int, list[AnyFrame]]
"""A level, and frames for its tasks."""


class NextLevel(Protocol):
    """The next level of the same slot, in the same process."""

    def take_in(self, source: int, item: Item | Marker) -> None:
        """Take in what a slot of the level before has sent."""

    @property
    def backlog(self) -> float:
        """About how many bytes wait to be worked on."""


class Output:
    """Collects what a level sends, and writes it in messages that are not too large."""

    def __init__(self, plan: Plan, number: int, slot: int) -> None:
        self.stream: MessageStream | None = None
        self._next: NextLevel | None = None
        self.moved = 0
        """Bytes since `take_moved`."""
        self.due_at = 0.0
        """When what is held back has to go, by the monotonic clock; 0 if nothing is."""
        self._plan = plan
        self._number = number
        self._slot = slot
        self._is_last = number == len(plan.levels) - 1
        self._sent = [0] * plan.slots
        self._out: dict[tuple[int, int], list[Buffer]] = {}
        self._near: dict[int, list[AnyFrame]] = {}
        self._bytes = 0
        self._window_began = 0.0
        self._in_window = 0
        self._holds = False

    def connect(self, stream: MessageStream) -> None:
        """Write to this stream from now on."""
        self.stream = stream

    def lead_to(self, level: NextLevel | None) -> None:
        """Hand what is for the own slot to this level, or to Spark if it is None."""
        self._next = level

    @property
    def is_full(self) -> bool:
        """True if the output has to go before more may come."""
        waiting = self.stream.waiting if self.stream is not None else 0
        if self._next is not None:
            return waiting + self._next.backlog > MOST_WAITING_BYTES
        return waiting > MOST_WAITING_BYTES

    def add(self, frame: AnyFrame) -> None:
        """Add a frame for a task."""
        level, slot = self._plan.place_of(frame.target_task)
        self.moved += frame.nbytes
        self._add(slot, level, frame)

    def pass_on(self, item: Item) -> None:
        """Add what is for a deeper level of this slot."""
        level, frames = item
        for frame in frames:
            self._add(self._slot, level, frame)

    def _add(self, slot: int, level: int, frame: AnyFrame) -> None:
        if slot == self._slot and self._next is not None:
            self._near.setdefault(level, []).append(frame)
            return
        assert isinstance(frame, PackedFrame), "what leaves the process is packed"
        out = self._out.setdefault((slot, level), [])
        out += (LENGTH.pack(frame.nbytes), frame.data)
        self._bytes += frame.nbytes
        self._in_window += 1

    def take_moved(self) -> int:
        """Return how many bytes this level has made since the last call."""
        moved, self.moved = self.moved, 0
        return moved

    def send(self, *, at_once: bool = False) -> None:
        """Write what was collected, or hold it back for a moment if much goes out."""
        if self._near and self._next is not None:
            for item in self._near.items():
                self._next.take_in(self._slot, item)
                self._sent[self._slot] += 1
            self._near = {}
        if not self._out:
            return
        now = monotonic()
        if not at_once and self._waits(now):
            return
        self.due_at, self._bytes = 0.0, 0
        for (slot, level), parts in self._out.items():
            head = HEAD.pack(DATA, self._slot, level)
            size, first = 0, 0
            for at, part in enumerate(parts):
                # A message ends between two frames: behind what follows a length.
                ends = at + 1 == len(parts) or len(parts[at + 1]) == LENGTH.size
                size += len(part)
                if at + 1 == len(parts) or (size >= _MESSAGE_BYTES and ends):
                    self._put(slot, head, *parts[first : at + 1])
                    self._sent[slot] += 1
                    size, first = 0, at + 1
        self._out.clear()

    def flush(self) -> None:
        """Write what can be written now."""
        if self.stream is not None:
            self.stream.flush()

    def _waits(self, now: float) -> bool:
        """Return True if what was collected is to wait for more."""
        elapsed = now - self._window_began
        if elapsed > _WINDOW_SECS:
            self._holds = self._in_window > _MANY_PER_SEC * elapsed * self._plan.slots
            self._window_began, self._in_window = now, 0
        if not self._holds or self._bytes > _HELD_BYTES:
            return False
        if not self.due_at:
            self.due_at = now + _HELD_SECS
        return now < self.due_at

    def end(self, epoch: int, mode: Mode, clock: float, marks: bytes) -> None:
        """Pass on the end of an epoch, behind all that was sent in it."""
        self.send(at_once=True)
        if self._is_last:
            return
        for slot, sent in enumerate(self._sent):
            if slot == self._slot and self._next is not None:
                self._next.take_in(slot, Marker(epoch, sent, int(mode), clock, marks))
                continue
            head = HEAD.pack(MARKER, self._slot, self._number)
            self._put(slot, head, END.pack(epoch, sent, int(mode), clock), marks)
        self._sent = [0] * len(self._sent)

    def _put(self, slot: int, *parts: Any) -> None:
        assert self.stream is not None
        self.stream.send(self._plan.keys[slot], *parts)
