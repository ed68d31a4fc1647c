"""Requests of a stage to a slot, and the answers: the seam between Spark's workers and the tasks.

A stage passes one `Work` per slot, level and batch. The owner of the instances, a slot process or
the worker itself, answers with an `Outcome`: frames to send on, and records to write into Spark's
state store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from topo.tracking.client import Lease

Payload: TypeAlias = "bytes | bytearray | memoryview"
RecordKey: TypeAlias = tuple[int, str]
"""A task (0: the slot itself) and a name: what a record of the state store is filed under."""

COMMITTED: RecordKey = (0, "committed")
"""The record that names the execution that wrote the others."""
LAST_TICKED: RecordKey = (0, "last ticked")
"""The record that is there when the tasks have had their last tick, and nothing came after it."""


@dataclass
class Work:
    """One slot's part of one level of one batch."""

    lease: Lease
    batch: int
    level: int
    slot: int
    committed: bytes
    """The nonce of the execution that wrote the committed state; b"" before the first."""
    payloads: Sequence[Payload] = field(default_factory=list)


@dataclass
class Outcome:
    """The result of an execution."""

    sends: list[tuple[int, int, Payload]] = field(default_factory=list)
    """(slot, level, payload) of the frames for other levels."""
    writes: list[tuple[RecordKey, Payload]] = field(default_factory=list)
    removes: list[RecordKey] = field(default_factory=list)


Restore: TypeAlias = Callable[[], Mapping[RecordKey, Payload]]
"""Fetches every committed record of this slot and level."""

Abandoned: TypeAlias = Callable[[], bool]
"""Whether nobody waits for the outcome any more; asked now and then while working."""


class Runner(Protocol):
    """The owner of the instances of one slot."""

    def execute(self, work: Work, restore: Restore, abandoned: Abandoned) -> Outcome: ...
