"""Integers that Spark's own hash partitioning sends to partition 0, 1, 2, ...

Slot p is partition p of every stage. Spark deals rows over partitions by the Murmur3 hash of the
grouping key, so each slot gets the smallest integer whose hash leads to its partition.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_SEED = 42  # Spark's, for hash partitioning


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def spark_hash(key: int) -> int:
    """Return Spark's `hash` of a 32-bit integer: a signed 32-bit number."""
    mixed = _rotated((key & _MASK) * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    result = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    result ^= 4  # the length in bytes
    result = (result ^ result >> 16) * 0x85EBCA6B & _MASK
    result = (result ^ result >> 13) * 0xC2B2AE35 & _MASK
    result ^= result >> 16
    return result - (1 << 32) if result >> 31 else result


def slot_keys(slots: int) -> tuple[int, ...]:
    """Return for each slot the key that Spark puts in the partition of its number."""
    found: dict[int, int] = {}
    key = 0
    while len(found) < slots:
        found.setdefault(spark_hash(key) % slots, key)
        key += 1
    return tuple(found[slot] for slot in range(slots))
