"""Roots, edge ids and updates: the terms in which tasks and ackers talk.

A *root* stands for one tracked emit of a spout. It is one unsigned 64-bit number,
`spout task << 48 | sequence`, with a dense sequence from 1 per spout task, so that a ledger can
address it without hashing.

An *edge* is one tuple on its way to one task. Its id is drawn fresh from the nonce of the task
execution that sends it. Ids derived from those of the parents could cancel each other out (a held
parent that is anchored twice, a bolt that is run again); fresh ones cannot, bar 64-bit chance.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
U32 = NDArray[np.uint32]

SEQUENCE_BITS = 48
MAX_SEQUENCE = (1 << SEQUENCE_BITS) - 1
MAX_SPOUT_TASK = (1 << 16) - 1

_SHIFT = np.uint64(SEQUENCE_BITS)
_SEQUENCE_MASK = np.uint64(MAX_SEQUENCE)
_MASK64 = (1 << 64) - 1
_FEW_IDS, _BLOCK_IDS = 64, 512
_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
# All that have no numbers share these: nothing can be written to an array without elements.
_NO_U64: U64 = np.empty(0, np.uint64)
_NO_U32: U32 = np.empty(0, np.uint32)


def root_id(spout_task: int, sequence: int) -> int:
    """Return the root of a spout task's `sequence`-th tracked emit (the first is 1)."""
    if not 0 < spout_task <= MAX_SPOUT_TASK or not 0 < sequence <= MAX_SEQUENCE:
        raise ValueError(f"no root can stand for emit {sequence} of spout task {spout_task}")
    return spout_task << SEQUENCE_BITS | sequence


def root_ids(spout_task: int, sequences: U64) -> U64:
    """Return the roots of several emits of one spout task."""
    return sequences | np.uint64(spout_task << SEQUENCE_BITS)


def spout_task_of(root: int) -> int:
    return root >> SEQUENCE_BITS


def sequence_of(root: int) -> int:
    return root & MAX_SEQUENCE


def spout_tasks_of(roots: U64) -> U64:
    return roots >> _SHIFT


def sequences_of(roots: U64) -> U64:
    return roots & _SEQUENCE_MASK


def fresh_nonce() -> int:
    """Return 64 random bits, from which one execution of a task derives its edge ids."""
    return int.from_bytes(os.urandom(8), "little")


def mix(number: int) -> int:
    """Return splitmix64's finaliser of a 64-bit number: a bijection without visible order."""
    z = ((number ^ (number >> 30)) * _MIX_1) & _MASK64
    z = ((z ^ (z >> 27)) * _MIX_2) & _MASK64
    return z ^ (z >> 31)


def mix_all(numbers: U64) -> U64:
    """Return `mix` of each number."""
    return _mix_in_place(numbers.copy())


def _mix_in_place(z: U64) -> U64:
    z ^= z >> np.uint64(30)
    z *= np.uint64(_MIX_1)
    z ^= z >> np.uint64(27)
    z *= np.uint64(_MIX_2)
    z ^= z >> np.uint64(31)
    return z


class EdgeIds:
    """The edge ids of one execution: id(k) = splitmix64(nonce + k * gamma), k = 1, 2, ...

    A few at a time are cut off from a block: of some, making each costs as much as of a hundred.
    """

    def __init__(self, nonce: int) -> None:
        self.nonce = nonce & _MASK64
        self._taken = 0
        self._block = _NO_U64
        self._block_after = 0  # so many ids

    def take(self, count: int) -> U64:
        """Return the next `count` ids; the array is not to be changed."""
        taken = self._taken
        self._taken += count
        if count > _FEW_IDS:
            return self._made(taken, count)
        if self._taken > self._block_after + len(self._block):
            self._block, self._block_after = self._made(taken, _BLOCK_IDS), taken
            self._block.flags.writeable = False
        at = taken - self._block_after
        return self._block[at : at + count]

    def _made(self, after: int, count: int) -> U64:
        z = np.arange(after + 1, after + 1 + count, dtype=np.uint64)
        z *= np.uint64(_GAMMA)
        z += np.uint64(self.nonce)
        return _mix_in_place(z)

    def take_one(self) -> int:
        """Return the next id of the same sequence as `take`."""
        self._taken += 1
        return mix((self.nonce + self._taken * _GAMMA) & _MASK64)


def no_u64() -> U64:
    """Return no numbers."""
    return _NO_U64


class Updates:
    """The updates of one execution for the acker; arrays of a pair have the same length.

    `init` values are the XOR of one edge id per target (0: no target, complete at once), `ack`
    values the XOR of the tuple's own edge and of those anchored to it. `held` names roots of
    tuples that a task keeps beyond this batch, `released` those of kept ones that it has settled.
    """

    # Written by hand: real-time mode makes ten thousand of them a second, and a dataclass would
    # call a factory for each array that is left out.
    def __init__(
        self,
        *,
        init_roots: U64 = _NO_U64,
        init_values: U64 = _NO_U64,
        ack_roots: U64 = _NO_U64,
        ack_values: U64 = _NO_U64,
        fail_roots: U64 = _NO_U64,
        fail_reasons: list[str] | None = None,
        reset_roots: U64 = _NO_U64,
        held_roots: U64 = _NO_U64,
        held_tasks: U32 = _NO_U32,
        released_roots: U64 = _NO_U64,
        released_tasks: U32 = _NO_U32,
    ) -> None:
        self.init_roots = init_roots
        self.init_values = init_values
        self.ack_roots = ack_roots
        self.ack_values = ack_values
        self.fail_roots = fail_roots
        self.fail_reasons = [] if fail_reasons is None else fail_reasons
        self.reset_roots = reset_roots
        self.held_roots = held_roots
        self.held_tasks = held_tasks
        self.released_roots = released_roots
        self.released_tasks = released_tasks

    @classmethod
    def empty(cls) -> Updates:
        return cls()

    @classmethod
    def concat(cls, parts: Iterable[Updates]) -> Updates:
        """Return all of `parts`, in order, as one, which nobody is to change."""
        given = [part for part in parts if not part.is_empty]
        if len(given) == 1:
            return given[0]
        if not given:
            return _NOTHING
        joined = cls(fail_reasons=[reason for part in given for reason in part.fail_reasons])
        for roots, names in GROUPS.items():
            having = [part for part in given if len(getattr(part, roots))]
            for name in names if having else ():
                arrays = [getattr(part, name) for part in having]
                setattr(joined, name, arrays[0] if len(arrays) == 1 else np.concatenate(arrays))
        return joined

    def parts(self, most: int, most_chars: int) -> list[Updates]:
        """Split into parts of at most `most` entries and `most_chars` of reasons; at least one."""
        parts = []
        for roots_name, names in GROUPS.items():
            start, count = 0, len(getattr(self, roots_name))
            while start < count:
                end = min(count, start + most)
                if roots_name == "fail_roots":
                    end = start + _how_many_fit(self.fail_reasons[start:end], most_chars)
                part = Updates(**{name: getattr(self, name)[start:end] for name in names})
                if roots_name == "fail_roots":
                    part.fail_reasons = self.fail_reasons[start:end]
                parts.append(part)
                start = end
        return parts or [Updates()]

    def as_bytes(self) -> dict[str, bytes]:
        """Return the arrays that have something, by name: a fraction of what pickles cost."""
        arrays = [(name, getattr(self, name)) for name in ARRAYS]
        return {name: array.tobytes() for name, array in arrays if len(array)}

    @classmethod
    def of_bytes(cls, arrays: Mapping[str, bytes], reasons: list[str]) -> Updates:
        """Return the updates of which `as_bytes` gave the arrays; the others are empty."""
        updates = cls(fail_reasons=reasons)
        for name, data in arrays.items():
            if data:
                setattr(updates, name, np.frombuffer(data, TYPES[name]))
        return updates

    def __len__(self) -> int:
        return sum(len(getattr(self, name)) for name in GROUPS)

    @property
    def is_empty(self) -> bool:
        return not (
            len(self.init_roots)
            or len(self.ack_roots)
            or len(self.fail_roots)
            or len(self.reset_roots)
            or len(self.held_roots)
            or len(self.released_roots)
        )


_NOTHING = Updates()
ARRAYS = tuple(name for name in vars(Updates()) if name != "fail_reasons")
TYPES = {name: getattr(_NOTHING, name).dtype for name in ARRAYS}
"""The arrays, and the types of their numbers."""
GROUPS = {
    roots: tuple(name for name in ARRAYS if name.startswith(roots.removesuffix("roots")))
    for roots in ARRAYS
    if roots.endswith("_roots")
}
"""The arrays that are as long as each other, by the one with the roots, itself among them."""


def _how_many_fit(texts: list[str], most_chars: int) -> int:
    """Return how many texts, from the first on, fit in `most_chars` together; at least one."""
    ends = np.cumsum([len(text) for text in texts])
    return max(1, int(np.searchsorted(ends, most_chars, side="right")))
