"""Verdicts on messages, in order, stored until a committed cursor has passed them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from topo.tracking.ids import U64, no_u64


@dataclass(frozen=True, eq=False)
class Verdicts:
    """Verdicts of one spout task, from number `first` on.

    `failures` has the reasons by position; a message without a reason was acked.
    """

    first: int = 1
    sequences: U64 = field(default_factory=no_u64)
    failures: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def last(self) -> int:
        """The number of the last verdict: the cursor of a task that has heard them all."""
        return self.first + len(self.sequences) - 1

    @property
    def reasons(self) -> list[str | None]:
        """The reason of each verdict, in order; None for an ack."""
        if not self.failures:
            return [None] * len(self.sequences)
        return [self.failures.get(position) for position in range(len(self.sequences))]

    def failed(self) -> Iterator[tuple[int, str]]:
        """Yield the sequence numbers of messages that failed, with the reasons."""
        for at, reason in sorted(self.failures.items()):
            yield int(self.sequences[at]), reason

    def after(self, number: int) -> Verdicts:
        """Return the verdicts with a greater number."""
        skip = min(max(number + 1 - self.first, 0), len(self.sequences))
        if not skip:
            return self
        failures = {at - skip: reason for at, reason in self.failures.items() if at >= skip}
        return Verdicts(self.first + skip, self.sequences[skip:], failures)


class VerdictLog:
    """The verdicts of one spout task that no committed cursor has passed yet."""

    def __init__(self) -> None:
        self._parts: deque[Verdicts] = deque()
        self.last = 0
        self.nbytes = 0

    def append(self, sequences: U64, failures: Mapping[int, str]) -> None:
        self._parts.append(Verdicts(self.last + 1, sequences, failures))
        self.last += len(sequences)
        self.nbytes += _size(self._parts[-1])

    def after(self, number: int) -> Verdicts:
        parts = []
        for part in reversed(self._parts):  # most are asked for at once, and nothing older
            if part.last <= number:
                break
            parts.append(part.after(number))
        parts.reverse()
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return Verdicts(self.last + 1)
        first = parts[0].first
        failures = {
            part.first - first + at: reason
            for part in parts
            for at, reason in part.failures.items()
        }
        return Verdicts(first, np.concatenate([part.sequences for part in parts]), failures)

    def forget(self, upto: int) -> None:
        while self._parts and self._parts[0].first <= upto:
            part = self._parts.popleft()
            self.nbytes -= _size(part)
            if part.last > upto:
                rest = part.after(upto)
                rest = Verdicts(rest.first, rest.sequences.copy(), rest.failures)
                self._parts.appendleft(rest)
                self.nbytes += _size(rest)

    def __len__(self) -> int:
        return self._parts[-1].last - self._parts[0].first + 1 if self._parts else 0

    def as_data(self) -> tuple[int, bytes, dict[int, str]]:
        """Return the number of the last verdict, and the stored ones: sequences and failures."""
        stored = self.after(0)
        return self.last, stored.sequences.tobytes(), dict(stored.failures)

    @staticmethod
    def of_data(last: int, sequences: bytes, failures: dict[int, str]) -> VerdictLog:
        """Return the log that `as_data` was called on."""
        log, stored = VerdictLog(), np.frombuffer(sequences, np.uint64)
        log.last = last - len(stored)
        if len(stored):
            log.append(stored, failures)
        return log


def _size(part: Verdicts) -> int:
    return part.sequences.nbytes + 150 + reasons_bytes(part.failures.values())


def reasons_bytes(reasons: Collection[str]) -> int:
    """Return what the reasons of failures take: an entry for each, and each text once."""
    return 100 * len(reasons) + sum(map(len, set(reasons)))
