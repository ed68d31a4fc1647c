"""The messages between a slot's process and the coordinator, over one stream a process.

process                             coordinator
connects, as its slot           ->
                                <-  SETUP    what it is to run
WANT     the levels that it has ->
                                <-  VALUE    of saved state, a piece; if it cannot read the files
                                <-  START    what these resume from
PREPARING  levels are opened    ->
PREPARED   they are open        ->
READY    a level is connected   ->
                                <-  GO       all levels of all slots are ready
NEWS     something to save      ->
UPDATES  where acks are at once ->
                                <-  CUT      an epoch ends here; to level 0
STAGED   a level has ended it   ->
                                <-  COMMITTED  an epoch is durable; verdicts
                                <-  TOLD     verdicts, where acks are at once
FAILED   why it cannot go on    ->

On one machine the slots read saved state themselves, and all at once. On a cluster nobody knows
whether they reach the driver's files, so they are sent it, in pieces, as fast as they take them.

Opening tasks takes as long as user code takes, so there is no limit to it; the coordinator counts
the time of everything else.

On one machine a slot has one process, which has all of its levels. On a cluster Spark may run the
levels of a slot on several executors, each of which has a process with those that are there.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from topo.engine.spark.plan import Plan
from topo.engine.spark.realtime.epochs import Key, Staged
from topo.engine.spark.realtime.records import Places
from topo.engine.spark.worker.run_spec import RunSpec
from topo.tracking.ids import Updates
from topo.tracking.plan import Mode
from topo.tracking.verdicts import Verdicts

_CUT = struct.Struct("<QBd")
_VALUE = struct.Struct("<II")
_COMMITTED = struct.Struct("<QQ")


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
    SETUP = 11
    WANT = 12
    VALUE = 13
    PREPARING = 14
    PREPARED = 15


@dataclass(frozen=True)
class Place:
    """The place of a slot's process: what it learns by its standard input."""

    coordinator: str
    """An address, as of a `Listener`."""
    token: str
    slot: int
    path: str
    """Of the socket at which Spark's tasks find it."""

    def pack(self) -> bytes:
        """Return it as text, which Java can write as well."""
        return "\n".join((self.coordinator, self.token, str(self.slot), self.path)).encode()

    @staticmethod
    def unpack(data: bytes) -> Place:
        """Return what `pack` was called for."""
        coordinator, token, slot, path = data.decode().split("\n")
        return Place(coordinator, token, int(slot), path)


@dataclass(frozen=True)
class SlotSetup:
    """The setup of a slot's process."""

    spec: RunSpec
    slot: int
    levels: tuple[int, ...]
    """Those that the process has; none: those that Spark's tasks bring."""
    acks_at_once: bool
    import_path: tuple[str, ...]
    """What is imported from first."""

    @property
    def epoch_ms(self) -> float:
        """The time from one epoch to the next, in milliseconds; 0 if acks wait for none."""
        epoch_ms: float = self.spec.conf["topology.epoch.ms"]
        return epoch_ms

    @property
    def plan(self) -> Plan:
        """The plan of the run."""
        return self.spec.plan


@dataclass(frozen=True)
class Start:
    """The last committed epoch, from which some levels of a slot resume."""

    levels: tuple[int, ...]
    epoch: int
    clock: float
    mode: Mode
    incarnation: str
    now: float = 0.0
    """The coordinator's clock when it says this; `clock` is the time of the committed epoch."""
    directory: str = ""
    """Where the slot can read the files of the log itself."""
    places: Places = field(default_factory=dict)
    """Where saved values are in these files."""
    saved: Mapping[int, Mapping[str, bytes]] = field(default_factory=dict)
    """Saved values by task and name; filled in by the slot."""


def pack_staged(epoch: int, level: int, staged: Staged) -> bytes:
    """Return what a level did in an epoch, as bytes."""
    parts = (
        staged.puts,
        list(staged.deletes),
        (staged.updates.as_bytes(), staged.updates.fail_reasons),
        staged.cursors,
        staged.report,
        staged.moved,
    )
    return pickle.dumps((epoch, level, parts), protocol=5)


def unpack_staged(data: bytes) -> tuple[int, int, Staged]:
    """Return epoch, level, and what the level did in it."""
    epoch, level, (puts, deletes, updates, cursors, report, moved) = pickle.loads(data)
    return epoch, level, Staged(puts, deletes, Updates.of_bytes(*updates), cursors, report, moved)


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


def pack_setup(setup: SlotSetup) -> bytes:
    """Return what a process is to run, as bytes, behind what it takes to read them."""
    return pickle.dumps((setup.import_path, pickle.dumps(setup, protocol=5)), protocol=5)


def unpack_setup(data: bytes) -> SlotSetup:
    """Make importable what a process is to run, and return it."""
    import_path, packed = pickle.loads(data)
    first = [os.path.abspath(name) for name in import_path]
    sys.path[:] = [*first, *(name for name in sys.path if name not in first)]
    setup: SlotSetup = pickle.loads(packed)
    return setup


def pack_value(key: Key, piece: bytes) -> bytes:
    """Return a piece of a saved value, as bytes."""
    task, name = key[0], key[1].encode()
    return _VALUE.pack(task, len(name)) + name + piece


def unpack_value(data: bytes) -> tuple[Key, bytes]:
    """Return task and name of a saved value, and the next piece of it."""
    task, size = _VALUE.unpack_from(data)
    end = _VALUE.size + size
    return (task, data[_VALUE.size : end].decode()), data[end:]


def pack_levels(levels: Iterable[int]) -> bytes:
    """Return some levels of a process, as bytes."""
    return pickle.dumps(tuple(levels))


def unpack_levels(data: bytes) -> tuple[int, ...]:
    """Return some levels of a process."""
    levels: tuple[int, ...] = pickle.loads(data)
    return levels


def pack_start(start: Start) -> bytes:
    """Return what a slot resumes from, as bytes."""
    return pickle.dumps(start, protocol=5)


def unpack_start(data: bytes) -> Start:
    """Return what a slot resumes from."""
    start: Start = pickle.loads(data)
    return start


def pack_committed(epoch: int, moved: int, verdicts: Mapping[int, Verdicts]) -> bytes:
    """Return the word that this epoch, of so many bytes, is committed, with verdicts."""
    return _COMMITTED.pack(epoch, moved) + (pack_verdicts(verdicts) if verdicts else b"")


def unpack_committed(data: bytes) -> tuple[int, int, bytes]:
    """Return a committed epoch, its bytes, and packed verdicts; no bytes if there are none."""
    epoch, moved = _COMMITTED.unpack_from(data)
    return epoch, moved, data[_COMMITTED.size :]


def pack_cut(epoch: int, mode: Mode, clock: float) -> bytes:
    """Return the order to end an epoch, as bytes."""
    return _CUT.pack(epoch, int(mode), clock)


def unpack_cut(data: bytes) -> tuple[int, Mode, float]:
    """Return epoch, mode and time of an order to end one."""
    epoch, mode, clock = _CUT.unpack(data)
    return epoch, Mode(mode), clock


def pack_updated(updates: Updates) -> bytes:
    """Return updates as bytes; nothing if there are none."""
    if updates.is_empty:
        return b""
    return pickle.dumps((updates.as_bytes(), updates.fail_reasons), protocol=5)


def unpack_updated(data: bytes) -> Updates:
    """Return what `pack_updated` was given."""
    return Updates.of_bytes(*pickle.loads(data))
