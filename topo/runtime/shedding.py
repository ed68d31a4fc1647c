"""Load shedding in a spout's task: what share of its tuples is admitted, and which tuples.

The only queue before a topology is that of its source, so a tuple costs least if it is dropped
where it enters. A dropped tuple is dealt to nobody: the tree of its message is complete at once,
and the message is acked when its batch commits, as if no bolt read the stream.

The share goes down while tuples are older than they may be, by what the topology manages of what
comes: if within a second of the clock the tuples' age grows by half a second, it manages half. It
goes up by a tenth when they are younger than half of that. A smaller share keeps a subset of what a
larger one keeps, in every task and after a restart: the same keys, the same values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from topo.context import ComponentFigures
from topo.errors import TopoError
from topo.routing.bulk_hashing import ColumnHasher, mix_arrays
from topo.topology.shedding import Shedding
from topo.wire.frame import I64, Column

log = logging.getLogger("topo.shedding")
U64 = np.ndarray[Any, np.dtype[np.uint64]]
EVERY_SECS = 0.25
_MOST_DOWN = 0.5
_UP = 1.1
_DRAIN = 0.9
"""What is admitted at most of what is managed, so that what has waited becomes less."""
_VALUES = 10_000
"""The latest values of `keep`, of which the threshold is taken."""
_SAMPLES = 200
"""How many ages are looked at of each flush."""
_OLD = 0.9
"""The share of tuples that are younger than what counts as their age: a few stragglers are not."""
_MOST_FAILED = 100_000


class Shedder:
    """The shedding of one stream of a task."""

    def __init__(
        self,
        rules: Shedding,
        fields: Sequence[str],
        owner: str,
        ids_of: Callable[[list[int]], list[Any]],
    ) -> None:
        self.share = 1.0
        self._rules = rules
        self._owner = owner
        self._ids_of = ids_of
        self._after = rules.after.total_seconds()
        self._time = rules.time
        places = {name: place for place, name in enumerate(fields)}
        self._age_at = None if self._time is None else places[str(self._time.field)]
        self._keep_at = places[rules.keep] if isinstance(rules.keep, str) else None
        self._hashers = [(places[name], ColumnHasher()) for name in rules.sample_by]
        self._weight_at = None if rules.weight is None else places[rules.weight]
        self._number = 0
        """Of the next emit, by which a sample is drawn."""
        self._failed: dict[Any, None] = {}
        """The ids of messages that failed: what was admitted once stays so."""
        self._ages: list[float] = []
        self._last: tuple[float, float] | None = None
        """When the share was set last, and the age then."""
        self._values: list[float] = []
        self._threshold, self._of_ties = float("-inf"), 1.0
        self._dropped = 0
        self._now = 0.0

    # -- a batch ------------------------------------------------------------------------------

    def begin(self, now: float, pending_secs: float) -> None:
        """Set the share by the ages since the last time, if that is long enough ago."""
        self._now = now
        age = pending_secs if self._time is None else self._age()
        if age is None:
            return
        if self._last is None:
            self._last = now, age
            return
        secs = now - self._last[0]
        if secs < EVERY_SECS:
            return
        before = self.share
        if age > self._after:
            grows = (age - self._last[1]) / secs
            managed = _DRAIN * (1.0 - grows) if grows > -0.1 else 1.0
            self.share = max(self._rules.least, before * min(1.0, max(_MOST_DOWN, managed)))
        elif age < self._after / 2:
            self.share = min(1.0, before * _UP)
        self._last = now, age
        self._ages.clear()
        self._set_threshold()
        self._tell(before, age)

    def _age(self) -> float | None:
        if not self._ages:
            # Nothing came: what comes next has not waited.
            return 0.0 if self.share < 1.0 else None
        return float(np.quantile(self._ages, _OLD))

    def _tell(self, before: float, age: float) -> None:
        if before == 1.0 > self.share:
            log.warning("%s sheds: %.1f s old, keeps %.0f %%", self._owner, age, 100 * self.share)
        elif before < 1.0 == self.share:
            log.warning("%s sheds no more; %.1f s old", self._owner, age)

    def take_dropped(self) -> int:
        """Return how many were dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    def failed(self, msg_id: Any) -> None:
        """Take note of a message that failed, which may come again."""
        try:
            self._failed[msg_id] = None
        except TypeError:  # an id that is not hashable is no key
            return
        if len(self._failed) > _MOST_FAILED:
            del self._failed[next(iter(self._failed))]

    # -- what is saved ------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {"share": self.share, "number": self._number, "failed": list(self._failed)}

    def restore(self, state: dict[str, Any]) -> None:
        self.share, self._number = state["share"], state["number"]
        self._failed = dict.fromkeys(state["failed"])

    # -- rows ---------------------------------------------------------------------------------

    def admit(
        self, columns: list[Column], count: int, parents: Sequence[int]
    ) -> tuple[I64 | None, list[Column]]:
        """Return the numbers of the rows to emit, None for all, and the columns."""
        self._note_ages(columns, count)
        values = self._values_of(columns, count)
        numbers, self._number = self._number, self._number + count
        if self.share >= 1.0:
            return None, self._weighted(columns, count)
        admitted = self._chosen(columns, count, numbers, values)
        self._admit_again(admitted, parents)
        self._dropped += count - int(admitted.sum())
        chosen: I64 = np.flatnonzero(admitted)
        return (None if len(chosen) == count else chosen), self._weighted(columns, count)

    def _chosen(
        self, columns: list[Column], count: int, number: int, values: list[float] | None
    ) -> Any:
        limit = np.uint64(min(self.share, 1.0) * float(2**64 - 2**11))
        if self._hashers:
            combined: Any = None
            for place, hasher in self._hashers:
                hashes = hasher.hashes(columns[place])
                combined = hashes if combined is None else mix_arrays(combined, hashes)
            return _scattered(combined) < limit
        drawn = _scattered(np.arange(number, number + count, dtype=np.uint64))
        if values is None:
            return drawn < limit
        array = np.array(values)
        ties = drawn < np.uint64(self._of_ties * float(2**64 - 2**11))
        return (array > self._threshold) | ((array == self._threshold) & ties)

    def _admit_again(self, admitted: Any, parents: Sequence[int]) -> None:
        """Admit replays: a message that was admitted once is not dropped after a failure."""
        if not self._failed or not any(parents):
            return
        places = [place for place, sequence in enumerate(parents) if sequence]
        ids = self._ids_of([parents[place] for place in places])
        for place, msg_id in zip(places, ids, strict=True):
            if getattr(msg_id, "failures", 0) or self._forget(msg_id):
                admitted[place] = True

    def _forget(self, msg_id: Any) -> bool:
        try:
            return self._failed.pop(msg_id, False) is None
        except TypeError:
            return False

    def _note_ages(self, columns: list[Column], count: int) -> None:
        if self._age_at is None or self._time is None:
            return
        column, time = columns[self._age_at], self._time
        for place in range(0, count, max(1, count // _SAMPLES)):
            try:
                ticks = time.read(column[place])
            except TopoError:
                continue  # the bolts that read the time say so
            self._ages.append(self._now - ticks / time.per_second)

    def _values_of(self, columns: list[Column], count: int) -> list[float] | None:
        keep = self._rules.keep
        if keep is None:
            return None
        if self._keep_at is not None:
            values: Iterable[Any] = columns[self._keep_at]
        else:
            assert callable(keep), "else it is a field"
            values = map(keep, map(list, zip(*columns, strict=True)))
        numbers = [_number(value) for value in values]
        self._values = (self._values + numbers)[-_VALUES:]
        return numbers

    def _set_threshold(self) -> None:
        """Set the value below which tuples are dropped, and the share of equal ones to keep."""
        if self._rules.keep is None or not self._values:
            return
        values = np.sort(np.array(self._values))
        place = min(len(values) - 1, int((1.0 - self.share) * len(values)))
        self._threshold = float(values[place])
        above = float((values > self._threshold).mean())
        ties = float((values == self._threshold).mean())
        self._of_ties = min(1.0, max(0.0, (self.share - above) / ties))

    def _weighted(self, columns: list[Column], count: int) -> list[Column]:
        if self._weight_at is None:
            return columns
        weighted = list(columns)
        weighted[self._weight_at] = [1.0 / self.share] * count
        return weighted

    def show(self, figures: ComponentFigures) -> None:
        """Count what was dropped, and show the share."""
        dropped = self.take_dropped()
        if dropped:
            figures.count("shed", dropped, {"stream": self._rules.stream})
        figures.gauge("kept_share", self.share, {"stream": self._rules.stream})


def _scattered(numbers: U64) -> U64:
    """Return numbers whose high bits depend on all bits of the given ones."""
    with np.errstate(over="ignore"):
        numbers = (numbers + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return numbers ^ (numbers >> np.uint64(31))


def _number(value: Any) -> float:
    """Return a value of `keep` as a number; what is none is the lowest."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return float("-inf")
    return number if number == number else float("-inf")
