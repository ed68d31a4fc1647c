"""The learners of one task, and their state.

A model changes with every example, and may be large: pickling a forest of ten trees takes 104 ms
and 9.5 MB, in every batch. So what a batch saves is its examples, as columns. A snapshot of the
models that have changed replaces these examples when they outgrow it, or would take seconds to be
learnt again. A restart loads the models of the last snapshots and learns the examples after them.
That is exact: a model that was pickled and learns the same examples is the same model.

The models of a snapshot may be dropped, and new ones made, while examples are appended; which of
them follows from the examples, as does the order in which they were used last. So the snapshot says
nothing of it, and is written only when the examples go.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topo.errors import LearnError, shown
from topo.learning.learner import Learner, Lesson, Notes, Silence
from topo.learning.protocols import Columns, as_dicts
from topo.storage.chunks import SavedChunks, pack_columns, unpack_columns
from topo.storage.classes import load_saved
from topo.storage.saving import MAX_BLOB, Changes, SavedMapping, with_one_nan
from topo.wire.column import dump

_LEAST_LOG = 1 << 20
"""Fewer bytes of examples than this are not replaced by a snapshot."""
_MOST_SECS = 5.0
"""Nor are examples that are learnt again in less time."""


@dataclass(frozen=True)
class Examples:
    """Some examples by column; all of them are learnt."""

    count: int
    columns: Columns
    labels: Sequence[Any] | None
    keys: Sequence[Any] | None

    def select(self, places: Sequence[int]) -> Examples:
        """Return some of the examples."""
        return Examples(
            len(places),
            [[column[place] for place in places] for column in self.columns],
            None if self.labels is None else [self.labels[place] for place in places],
            None if self.keys is None else [self.keys[place] for place in places],
        )


class Learners:
    """The learners of one task, the least recently used first."""

    def __init__(self, lesson: Lesson, owner: str, most: int, *, is_keyed: bool) -> None:
        self._lesson = lesson
        self._most = most
        self._is_keyed = is_keyed
        self._owner = owner
        self._by_key: dict[Any, Learner] = {}
        self._number = 0  # of the last example
        self._fresh: list[Examples] = []
        self._log = SavedChunks("examples")
        self._log_name = 0
        self._log_bytes = 0
        self._log_secs = 0.0
        self._snapshots = SavedMapping("models", owner, "the model of {key!r}")
        self._saved: dict[Any, bytes] = {}  # by key and part
        self._parts: dict[Any, int] = {}  # how many a key's snapshot has
        self._changed: dict[Any, None] = {}  # keys, since the last snapshot

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Learner]:
        return iter(self._by_key.values())

    @property
    def number(self) -> int:
        """The number of the last example."""
        return self._number

    def find(self, key: Any) -> Learner | None:
        """Return the learner of a key; None if it has learnt nothing."""
        return self._by_key.get(key)

    # -- learning -----------------------------------------------------------------------------

    def learn(self, examples: Examples, notes: Notes) -> list[Any]:
        """Predict and learn all examples; return the predictions."""
        if examples.keys is not None:
            self._check_keys(examples.keys)
        self._fresh.append(examples)
        return self._learn(examples, notes)

    def _learn(self, examples: Examples, notes: Notes) -> list[Any]:
        start = time.perf_counter()
        in_chunks = not hasattr(self._lesson.model, "learn_one")
        learn = self._in_chunks if in_chunks else self._one_by_one
        predictions = learn(examples, notes)
        self._log_secs += time.perf_counter() - start
        return predictions

    def _one_by_one(self, examples: Examples, notes: Notes) -> list[Any]:
        rows = as_dicts(self._lesson.features, examples.columns, examples.count)
        labels = [None] * examples.count if examples.labels is None else examples.labels
        if examples.keys is None:
            learner = self._used(None, examples.count, notes)
            step = learner.step
            return [step(row, label, notes) for row, label in zip(rows, labels, strict=True)]
        used = self._used
        return [
            used(key, 1, notes).step(row, label, notes)
            for key, row, label in zip(examples.keys, rows, labels, strict=True)
        ]

    def _in_chunks(self, examples: Examples, notes: Notes) -> list[Any]:
        if examples.keys is None:
            learner = self._used(None, examples.count, notes)
            return learner.chunk(examples.columns, examples.labels, examples.count, notes)
        places: dict[Any, list[int]] = {}
        for place, key in enumerate(examples.keys):
            places.setdefault(key, []).append(place)
        predictions: list[Any] = [None] * examples.count
        for key, own in places.items():
            part = examples.select(own)
            learner = self._used(key, part.count, notes)
            results = learner.chunk(part.columns, part.labels, part.count, notes)
            for place, prediction in zip(own, results, strict=True):
                predictions[place] = prediction
        return predictions

    def _used(self, key: Any, count: int, notes: Notes) -> Learner:
        """Return the learner of a key, which is the last one used from now on."""
        self._number += count
        learner = self._by_key.pop(key, None) if self._is_keyed else self._by_key.get(key)
        if learner is None:
            learner = Learner(self._lesson, key)
            if len(self._by_key) >= self._most:
                oldest = next(iter(self._by_key))
                self._changed[oldest] = None
                notes.dropped(self._by_key.pop(oldest))
        self._by_key[key] = learner
        self._changed[key] = None
        learner.note_use(self._number)
        return learner

    def _check_keys(self, keys: Sequence[Any]) -> None:
        for key in keys:
            try:
                hash(key)
            except TypeError:
                raise LearnError(
                    f"{self._owner}: the key {shown(key)} is a {type(key).__name__}, which cannot "
                    "be a key",
                    hint="emit a str, a number or a tuple of them",
                ) from None

    # -- state --------------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes]) -> None:
        """Take over the models of the last snapshots, and learn the examples after them."""
        self._saved = self._snapshots.load(saved)
        for key, part in self._saved:
            self._parts[key] = max(self._parts.get(key, 0), part + 1)
        learners = []
        for key, count in self._parts.items():
            state = b"".join(self._saved[key, part] for part in range(count))
            learners.append(Learner.restore(self._lesson, load_saved(state)))
        learners.sort(key=lambda learner: learner.used)
        self._by_key = {with_one_nan(learner.key): learner for learner in learners}
        self._number = max((learner.used for learner in learners), default=0)
        silence = Silence()
        for name, chunks in self._log.load(saved).items():
            self._log_name = name
            for chunk in chunks:
                self._log_bytes += len(chunk)
                for examples in _unpack(chunk):
                    self._learn(examples, silence)

    def save(self, changes: Changes) -> None:
        """Write the examples of the batch, or a snapshot of the models that have changed."""
        fresh, self._fresh = self._fresh, []
        if not fresh:
            return
        chunk = _pack(fresh)
        self._log_bytes += len(chunk)
        if self._is_due():
            self._write_snapshot(changes)
        else:
            self._log.add(self._log_name, chunk, changes)
        self._log.save(changes)

    def _is_due(self) -> bool:
        if self._log_secs > _MOST_SECS:
            return True
        if self._log_bytes <= _LEAST_LOG:
            return False
        written = sum(
            len(self._saved[key, part])
            for key in self._changed
            for part in range(self._parts.get(key, 0))
        )
        return self._log_bytes > written

    def _write_snapshot(self, changes: Changes) -> None:
        touched: list[Any] = []
        for key in self._changed:
            for part in range(self._parts.pop(key, 0)):
                del self._saved[key, part]
                touched.append((key, part))
            learner = self._by_key.get(key)
            if learner is None:
                continue
            state = dump(learner.state())
            parts = [state[at : at + MAX_BLOB] for at in range(0, len(state), MAX_BLOB)]
            self._parts[key] = len(parts)
            for part, data in enumerate(parts):
                self._saved[key, part] = data
                touched.append((key, part))
        self._snapshots.save(self._saved, touched, changes)
        self._changed = {}
        self._log.drop(self._log_name)
        self._log_name += 1
        self._log_bytes, self._log_secs = 0, 0.0


def _pack(parts: Sequence[Examples]) -> bytes:
    """Return the examples of a batch as bytes; where one part ends is of importance to chunks."""
    first = parts[0]
    lists: list[list[Any]] = [[] for _ in first.columns]
    labels: list[Any] = []
    keys: list[Any] = []
    for part in parts:
        for values, column in zip(lists, part.columns, strict=True):
            values += column
        labels += part.labels or ()
        keys += part.keys or ()
    head = ([part.count for part in parts], first.labels is not None, first.keys is not None)
    return pack_columns(head, [*lists, labels, keys])


def _unpack(chunk: bytes) -> Iterator[Examples]:
    (counts, has_labels, has_keys), (*columns, labels, keys) = unpack_columns(chunk)
    keys = list(map(with_one_nan, keys))
    start = 0
    for count in counts:
        end = start + count
        yield Examples(
            count,
            [column[start:end] for column in columns],
            labels[start:end] if has_labels else None,
            keys[start:end] if has_keys else None,
        )
        start = end
