"""Portions of work whose output is not too large, whatever a component makes of a tuple.

A bolt may make ten megabytes of one tuple, and a frame may hold thousands of those. So a level
works on what has come in portions, and looks after each how much came out. It begins with one
tuple and takes four times as many as long as little comes out; after a portion that made too much
the next one is as much smaller. Where nothing grows, everything that has come is one portion.

How much the spouts emit in a turn decides how large turns become under full load. Large ones are
cheaper: of a hash table with some thousand keys, little is left in the processor's cache when its
bolt's next turn comes. They also make the end of an epoch wait. So spouts may emit more in a turn
the longer epochs are.
"""

from __future__ import annotations

from collections import deque

from topo.wire.frame import AnyFrame, Frame

PORTION_BYTES = 2 << 20
"""Of output, about."""
_MOST = 8 << 20
_STEP = 4
_TURN_EPOCH_MS = 10  # an epoch of so long has turns of one share
_MOST_SHARES = 8


def shares_of_turn(epoch_ms: float) -> int:
    """Return how many times as much as in the shortest epochs spouts may emit in a turn."""
    return max(1, min(_MOST_SHARES, int(epoch_ms / _TURN_EPOCH_MS)))


class Portion:
    """The size of the next portion: how much may go in, so that not too much comes out."""

    def __init__(self, most: int = _MOST) -> None:
        self.allowed = 1
        self._most = most

    def learn(self, size: int, produced: int) -> None:
        """Adapt to a portion of this size that made so many bytes."""
        fits = size * PORTION_BYTES // max(1, produced)
        if fits < self.allowed:
            self.allowed = max(1, fits)
        elif 2 * size >= self.allowed:  # else it says nothing of larger ones
            self.allowed = min(fits, _STEP * max(self.allowed, size), self._most)


class Queue:
    """The frames that a level has yet to work on, in their order."""

    def __init__(self) -> None:
        self._portion = Portion()
        self._frames: deque[tuple[AnyFrame, float]] = deque()
        self._bytes = 0.0
        self._taken = 0.0

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def nbytes(self) -> float:
        """The bytes of the frames, about."""
        return self._bytes

    def add(self, frame: AnyFrame) -> None:
        """Add a frame behind the others."""
        self._frames.append((frame, frame.nbytes))
        self._bytes += frame.nbytes

    def take(self) -> list[AnyFrame]:
        """Return the next portion: one tuple at least."""
        frames, portion = self._frames, list[AnyFrame]()
        if self._bytes <= self._portion.allowed:
            portion += (frame for frame, _ in frames)
            frames.clear()
            self._taken, self._bytes = self._bytes, 0.0
            return portion
        left = float(self._portion.allowed)
        while frames and left > 0:
            frame, size = frames.popleft()
            if size > left:
                frame, size = self._cut(frame.unpack(), size, left)
            portion.append(frame)
            left -= size
            self._bytes -= size
        self._taken = self._portion.allowed - left
        return portion

    def learn(self, produced: int) -> None:
        """Note how many bytes came out of the last portion."""
        self._portion.learn(max(1, int(self._taken)), produced)

    def _cut(self, frame: Frame, size: float, left: float) -> tuple[Frame, float]:
        """Return so much of a frame as may still go in, and put back the rest."""
        count = max(1, int(len(frame) * left / size))
        if count >= len(frame):
            return frame, size
        first, rest = frame.cut(count)
        own = size * count / len(frame)
        self._frames.appendleft((rest, size - own))
        return first, own
