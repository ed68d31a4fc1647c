"""The messages between a slot and the coordinator, over one stream a slot.

slot                                coordinator
connects, as its number         ->
                                <-  START    what to resume from
READY    all levels connected   ->
                                <-  GO       all slots are ready
NEWS     something to save      ->
UPDATES  where acks are at once ->
                                <-  CUT      an epoch ends here
STAGED   a level has ended it   ->
                                <-  COMMITTED  it is durable; verdicts
                                <-  TOLD     verdicts, where acks are at once
FAILED   why it cannot go on    ->
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from topo.engine.spark.plan import Plan
from topo.engine.spark.realtime.epochs import Staged
from topo.engine.spark.realtime.records import pack_updates, unpack_updates
from topo.engine.spark.worker.execution import RunSpec
from topo.tracking.ids import Updates
from topo.tracking.plan import Mode
from topo.tracking.verdicts import Verdicts

_CUT = struct.Struct("<QBd")


class Kind(IntEnum):
    """The key of a message."""

    START = 1
    READY = 2
    GO = 3
    NEWS = 4
    UPDATES = 5
    CUT = 6
    STAGED = 7
    TOLD = 8
    FAILED = 9
    COMMITTED = 10


@dataclass(frozen=True)
class SlotSetup:
    """The setup of a slot's process."""

    spec: RunSpec
    slot: int
    sockets: str
    """The directory of the sockets."""
    token: str
    acks_at_once: bool

    @property
    def plan(self) -> Plan:
        """The plan of the run."""
        return self.spec.plan


COORDINATOR = "coordinator"
"""The name of the coordinator's socket."""


@dataclass(frozen=True)
class Start:
    """The last committed epoch, from which a slot resumes."""

    epoch: int
    clock: float
    mode: Mode
    incarnation: str
    saved: Mapping[int, Mapping[str, bytes]] = field(default_factory=dict)


def pack_staged(epoch: int, level: int, staged: Staged) -> bytes:
    """Return what a level did in an epoch, as bytes."""
    updates = pack_updates(staged.updates)
    parts = (staged.puts, list(staged.deletes), updates, staged.cursors, staged.report)
    return pickle.dumps((epoch, level, parts), protocol=5)


def unpack_staged(data: bytes) -> tuple[int, int, Staged]:
    """Return epoch, level, and what the level did in it."""
    epoch, level, (puts, deletes, updates, cursors, report) = pickle.loads(data)
    return epoch, level, Staged(puts, deletes, unpack_updates(updates), cursors, report)


def pack_verdicts(verdicts: Mapping[int, Verdicts]) -> bytes:
    """Return the verdicts of some spout tasks, as bytes."""
    plain = {t: (v.first, v.sequences.tobytes(), dict(v.failures)) for t, v in verdicts.items()}
    return pickle.dumps(plain, protocol=5)


def unpack_verdicts(data: bytes) -> dict[int, Verdicts]:
    """Return the verdicts by spout task."""
    import numpy as np

    plain: dict[int, Any] = pickle.loads(data)
    return {
        task: Verdicts(first, np.frombuffer(sequences, np.uint64), failures)
        for task, (first, sequences, failures) in plain.items()
    }


def pack_start(start: Start) -> bytes:
    """Return what a slot resumes from, as bytes."""
    return pickle.dumps(start, protocol=5)


def unpack_start(data: bytes) -> Start:
    """Return what a slot resumes from."""
    start: Start = pickle.loads(data)
    return start


def pack_cut(epoch: int, mode: Mode, clock: float) -> bytes:
    """Return the order to end an epoch, as bytes."""
    return _CUT.pack(epoch, int(mode), clock)


def unpack_cut(data: bytes) -> tuple[int, Mode, float]:
    """Return epoch, mode and time of an order to end one."""
    epoch, mode, clock = _CUT.unpack(data)
    return epoch, Mode(mode), clock


def pack_updated(updates: Updates) -> bytes:
    """Return updates as bytes; nothing if there are none."""
    return b"" if updates.is_empty else pickle.dumps(pack_updates(updates), protocol=5)


def unpack_updated(data: bytes) -> Updates:
    """Return what `pack_updated` was given."""
    return unpack_updates(pickle.loads(data))
