"""`stable_hash` of a whole column at once.

Text is hashed by a polynomial in its bytes, so that numpy can do a column in one pass over its
joined bytes: each byte times a power that belongs to its place, summed up from the left; a word's
hash is the difference of two sums, divided by the power of the place it begins at (the base is
odd, so that every power has an inverse modulo 2**64). That costs about the same for every word,
known or not, whereas a look-up costs a cache miss for each word. Of a few values numpy would cost
more than a look-up of each; those that are not known are hashed singly, or all of them by numpy if
they are several. The bytes of Arrow text are joined already: to hash each text costs a third of
telling the distinct ones (10 ns and 31), as long as they are short.
"""

from __future__ import annotations

from datetime import date, datetime
from functools import cache
from typing import Any

import numpy as np

from topo.routing.hashing import BASE, LONG, stable_hash
from topo.wire.arrow import ArrowColumn
from topo.wire.frame import I64, U64, Column

_MOST_BYTES = 1 << 16
_MOST_CACHED = 200_000
FEW_VALUES = 100  # one by one in less than the 40 us that numpy begins with, if most are known
_FEW_INTS, _FEW_UNKNOWN, _FEW_LETTERS = 8, 8, 60  # the same, if none is
_MOST_TEXTS = 20_000
_SHORT = 24  # letters of a text of Arrow's on average; of longer ones the distinct are hashed
_MOST_PARTS = 4  # of a tuple
_SMALL = frozenset({float, bool, type(None), datetime, date})
_LARGEST_PLAIN_INT = (1 << 61) - 2  # up to here an int is its own Python hash, but for -1
_GAMMA, _PART, _FIRST, _SECOND = (
    np.uint64(number)
    for number in (
        0x9E3779B97F4A7C15,
        0x632BE59BD9B4E019,
        0xBF58476D1CE4E5B9,
        0x94D049BB133111EB,
    )
)


class ColumnHasher:
    """A hasher of the columns of one key field, with a memory of values that were hashed singly."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}
        self._texts: dict[str, int] = {}

    def hashes(self, column: Column) -> U64:
        """Return the hash of each value."""
        if isinstance(column, ArrowColumn):
            by_buffers = _hashes_of_array(column)
            if by_buffers is not None:
                return by_buffers
            if (distinct := column.distinct()) is not None:
                values, places = distinct
                return self.hashes(values)[places] if values else np.empty(0, np.uint64)
        kinds = set(map(type, column))
        if kinds == {str}:
            if len(column) <= FEW_VALUES:
                return np.array(self._few_texts(column), np.uint64)
            made = _text_hashes(column)
            if made is not None:
                return made
        if kinds == {int}:
            if len(column) <= _FEW_INTS:
                return np.array(list(map(stable_hash, column)), np.uint64)
            made = _int_hashes(column)
            if made is not None:
                return made
        return self._singly(column)

    def few_hashes(self, column: Column) -> list[int]:
        """Return the hash of each of a few values."""
        if set(map(type, column)) == {str}:
            return self._few_texts(column)
        hashes: list[int] = self.hashes(column).tolist()
        return hashes

    def _few_texts(self, column: Column) -> list[int]:
        known = self._texts
        try:
            return [known[text] for text in column]
        except KeyError:
            pass
        texts = [text for text in dict.fromkeys(column) if text not in known]
        made = dict(zip(texts, _hashes_of_texts(texts), strict=True))
        found = [known[text] if text in known else made[text] for text in column]
        if len(known) > _MOST_TEXTS:
            known.clear()
        known.update((text, one) for text, one in made.items() if len(text) <= LONG)
        return found

    def _singly(self, column: Column) -> U64:
        known = self._known
        if len(known) > _MOST_CACHED:
            known.clear()
        made = np.empty(len(column), np.uint64)
        for place, value in enumerate(column):
            if not _is_small(value):
                made[place] = stable_hash(value)
                continue
            found = known.get(value)
            if found is None:
                found = known[value] = stable_hash(value)
            made[place] = found
        return made


def _is_small(value: Any) -> bool:
    """Return True if a value is worth remembering: small, and equal to nothing of another hash."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) <= LONG
    if kind is tuple:
        return len(value) <= _MOST_PARTS and all(map(_is_small, value))
    if kind is int:
        return bool(value.bit_length() <= LONG * 8)
    return kind in _SMALL


def mix_arrays(seed: U64, part: U64) -> U64:
    """Apply `hashing.mix` element by element."""
    z = seed * _GAMMA + part + _PART
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


def _hashes_of_array(column: ArrowColumn) -> U64 | None:
    """Hash whole numbers and short texts as they lie in memory; None for any other column."""
    numbers = column.whole_numbers()
    if numbers is not None:
        return _int_hashes(numbers)
    texts = column.texts()
    if texts is None:
        return None
    letters, offsets = texts
    if offsets[-1] - offsets[0] > _SHORT * len(column):
        return None
    return _hashes_between(letters, offsets[:-1], offsets[1:], column)


def _int_hashes(column: Column | I64) -> U64 | None:
    try:
        numbers = np.array(column, np.int64)
    except OverflowError:
        return None
    if len(numbers) == 0:
        return None
    # Not the largest absolute value: the smallest of 64 bits has none.
    if numbers.min() < -_LARGEST_PLAIN_INT or numbers.max() > _LARGEST_PLAIN_INT:
        return None
    numbers[numbers == -1] = -2  # as Python hashes it
    return mix_arrays(np.zeros(len(numbers), np.uint64), numbers.view(np.uint64))


def _hashes_of_texts(texts: list[str]) -> list[int]:
    if len(texts) > _FEW_UNKNOWN or sum(map(len, texts)) > _FEW_LETTERS:
        made = _text_hashes(texts)
        if made is not None:
            hashes: list[int] = made.tolist()
            return hashes
    return list(map(stable_hash, texts))


def _text_hashes(column: Column) -> U64 | None:
    """Hash a column of text; return None if a text has a NUL or a lone surrogate, which is rare."""
    try:
        data = "\0".join(column).encode()
    except UnicodeEncodeError:
        return None
    letters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(letters == 0)
    if len(ends) != len(column) - 1:
        return None
    starts = np.concatenate(([0], ends + 1))
    return _hashes_between(letters, starts, np.append(ends, len(letters)), column)


def _hashes_between(letters: Any, starts: I64, stops: I64, column: Column) -> U64:
    """Hash the texts of a column, which lie in these letters, one after the other."""
    first, size = int(starts[0]), int(stops[-1] - starts[0])
    if size > _MOST_BYTES:
        if len(column) == 1:
            return np.array([stable_hash(column[0])], np.uint64)
        half = len(column) // 2
        parts = (slice(half), slice(half, None))
        return np.concatenate(
            [_hashes_between(letters, starts[p], stops[p], column[p]) for p in parts]
        )
    powers, inverses = _powers()
    sums = np.empty(size + 1, np.uint64)
    sums[0] = 0
    np.cumsum(letters[first : first + size] * powers[:size], out=sums[1:])
    starts, stops = starts - first, stops - first
    polynomials = (sums[stops] - sums[starts]) * inverses[starts]
    lengths = stops - starts
    made = mix_arrays(polynomials, lengths.astype(np.uint64))
    for place in np.flatnonzero(lengths > LONG):
        made[place] = stable_hash(column[place])
    return made


@cache
def _powers() -> tuple[U64, U64]:
    """Return the powers of the base, and their inverses modulo 2**64."""
    return _powers_of(BASE), _powers_of(pow(BASE, -1, 1 << 64))


def _powers_of(base: int) -> U64:
    factors = np.full(_MOST_BYTES + 1, base, np.uint64)
    factors[0] = 1
    powers: U64 = np.cumprod(factors)
    return powers
