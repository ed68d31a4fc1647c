"""Conversion between the numpy arrays of the acker and the messages of its protocol.

Messages from the wire are checked here, so that the code behind may rely on their shape.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np

from topo._pb import acker_pb2 as pb
from topo.tracking.exchange import CommittedPayload, Registration, TrackingFigures
from topo.tracking.ids import GROUPS, TYPES, U32, U64, Updates
from topo.tracking.plan import Mode, TrackingPlan
from topo.tracking.refusals import Refusal, Refused
from topo.tracking.verdicts import Verdicts

MAX_REASON_CHARS = 1000
MAX_NAME_CHARS = 1000
MAX_BATCH = 1 << 60
MAX_CLOCK = 1e12

# The bounds of one part of an execution's updates: 16 MB of arrays, and as much of reasons.
_PART_ENTRIES = 1 << 20
_PART_CHARS = 4 << 20

_NUMBERS = {figure.name for figure in fields(TrackingFigures)} - {
    "staged",
    "mode",
    "failed_by",
    "payloads",
}
"""The figures that a message has as they are."""

if sys.byteorder != "little":
    raise ImportError("the acker's protocol is little-endian, and so must be the machine")


def pack_updates(updates: Updates) -> pb.Updates:
    """Pack updates into one message; neighbouring acks of the same root become one."""
    acks, values = _merged(updates.ack_roots, updates.ack_values)
    merged = updates
    if acks is not updates.ack_roots:
        merged = Updates(**(vars(updates) | {"ack_roots": acks, "ack_values": values}))
    reasons, which = _table(updates.fail_reasons)
    return pb.Updates(**merged.as_bytes(), fail_reason=which.tobytes(), reasons=reasons)


def in_parts(updates: Updates) -> list[Updates]:
    """Split updates into one part per message; nearly always it is one."""
    small = len(updates) <= _PART_ENTRIES
    if small and sum(map(len, updates.fail_reasons)) <= _PART_CHARS:
        return [updates]
    return updates.parts(_PART_ENTRIES, _PART_CHARS)


def unpack_updates(message: pb.Updates) -> Updates:
    """Return the arrays of a message; refuse arrays whose lengths disagree."""
    reasons = list(message.reasons)
    if any(len(reason) > MAX_REASON_CHARS for reason in reasons):
        raise Refused(Refusal.MALFORMED, f"a reason is longer than {MAX_REASON_CHARS} characters")
    which = np.frombuffer(_whole(message.fail_reason, "fail_reason", 4), np.uint32)
    if len(which) and int(which.max()) >= len(reasons):
        raise Refused(
            Refusal.MALFORMED, f"fail_reason names reason {which.max()} of {len(reasons)}"
        )
    arrays = {
        name: _whole(getattr(message, name), name, kind.itemsize) for name, kind in TYPES.items()
    }
    updates = Updates.of_bytes(arrays, [reasons[index] for index in which.tolist()])
    for first, names in {**GROUPS, "fail_roots": ("fail_roots", "fail_reasons")}.items():
        lengths = [len(getattr(updates, name)) for name in names]
        if lengths[0] != lengths[-1]:
            raise Refused(
                Refusal.MALFORMED,
                f"{lengths[0]} {first} and {lengths[-1]} {names[-1]}; they go together",
            )
    return updates


def pack_verdicts(task: int, verdicts: Verdicts) -> pb.TaskVerdicts:
    reasons, which = _table(verdicts.failures.values())
    return pb.TaskVerdicts(
        task=task,
        first=verdicts.first,
        sequences=verdicts.sequences.tobytes(),
        failed=np.fromiter(verdicts.failures, np.uint32, len(verdicts.failures)).tobytes(),
        failed_reason=which.tobytes(),
        reasons=reasons,
    )


def unpack_verdicts(message: pb.TaskVerdicts) -> Verdicts:
    failed = np.frombuffer(message.failed, np.uint32).tolist()
    which = np.frombuffer(message.failed_reason, np.uint32).tolist()
    reasons = list(message.reasons)
    return Verdicts(
        first=message.first,
        sequences=np.frombuffer(message.sequences, np.uint64),
        failures={at: reasons[reason] for at, reason in zip(failed, which, strict=True)},
    )


def pack_plan(plan: TrackingPlan) -> pb.Plan:
    return pb.Plan(
        levels=plan.levels,
        slots=plan.slots,
        spout_tasks=plan.spout_tasks,
        components=[
            pb.Component(name=name, first_task=first, tasks=count)
            for name, (first, count) in plan.components.items()
        ],
        timeout_secs=plan.timeout_secs,
        tick_secs=plan.tick_secs,
    )


def pack_registration(registration: Registration) -> pb.RegisterRequest:
    return pb.RegisterRequest(
        plan=pack_plan(registration.plan),
        first_batch=registration.first_batch,
        run_id=registration.run_id,
        nonce=registration.nonce,
        shard=registration.shard,
        shards=registration.shards,
        epoch=registration.epoch,
        clock=registration.clock,
        mode=registration.mode.name,
    )


def unpack_registration(message: pb.RegisterRequest) -> Registration:
    """Return a message's registration; refuse a plan that no topology can have."""
    if not message.shards or message.shard >= message.shards:
        raise Refused(Refusal.MALFORMED, f"shard {message.shard} of {message.shards}")
    names = [component.name for component in message.plan.components]
    if any(len(name) > MAX_NAME_CHARS for name in (message.run_id, *names)):
        raise Refused(Refusal.MALFORMED, f"a name is longer than {MAX_NAME_CHARS} characters")
    plan = TrackingPlan(
        levels=message.plan.levels,
        slots=message.plan.slots,
        spout_tasks=tuple(message.plan.spout_tasks),
        components={
            component.name: (component.first_task, component.tasks)
            for component in message.plan.components
        },
        timeout_secs=message.plan.timeout_secs if message.plan.HasField("timeout_secs") else None,
        tick_secs=tuple(message.plan.tick_secs),
    )
    plan.check()
    if message.first_batch > MAX_BATCH:
        raise Refused(Refusal.MALFORMED, f"no query has come to batch {message.first_batch}")
    return Registration(
        plan=plan,
        first_batch=message.first_batch,
        run_id=message.run_id,
        nonce=message.nonce,
        shard=message.shard,
        shards=message.shards,
        epoch=message.epoch,
        clock=check_clock(message.clock),
        mode=unpack_mode(message.mode),
    )


def pack_figures(figures: TrackingFigures) -> pb.StatusReply:
    """Return the figures as a message."""
    return pb.StatusReply(
        **{name: getattr(figures, name) for name in _NUMBERS},
        staged=[pb.Execution(level=level, slot=slot) for level, slot in figures.staged],
        mode=figures.mode.name,
        failed_by=figures.failed_by,
        payloads=[pb.Payload(**vars(payload)) for payload in figures.payloads],
    )


def unpack_figures(reply: pb.StatusReply) -> TrackingFigures:
    """Return the figures of a message, which an acker has sent."""
    numbers: dict[str, Any] = {name: getattr(reply, name) for name in _NUMBERS}
    return TrackingFigures(
        **numbers,
        staged=[(execution.level, execution.slot) for execution in reply.staged],
        mode=Mode(reply.mode),
        failed_by=dict(reply.failed_by),
        payloads=[
            CommittedPayload(each.number, each.batch, each.level, each.slot, each.payload)
            for each in reply.payloads
        ],
    )


def unpack_mode(number: int) -> Mode:
    try:
        return Mode(number)
    except ValueError:
        raise Refused(Refusal.MALFORMED, f"there is no mode {number}") from None


def check_clock(clock: float) -> float:
    if not 0 <= clock < MAX_CLOCK:
        raise Refused(Refusal.MALFORMED, f"no clock shows {clock}")
    return clock


def only_tasks(updates: Updates, tasks: Iterable[int]) -> None:
    """Refuse updates for roots of other spout tasks than these."""
    known = np.zeros(1 << 16, np.bool_)
    known[list(tasks)] = True
    arrays = (
        updates.init_roots,
        updates.ack_roots,
        updates.fail_roots,
        updates.reset_roots,
        updates.held_roots,
        updates.released_roots,
    )
    for roots in arrays:
        of = roots >> np.uint64(48)
        if not known[of].all():
            task = int(of[~known[of]][0])
            raise Refused(Refusal.MALFORMED, f"roots of task {task}, no spout task of this acker")


def _merged(roots: U64, values: U64) -> tuple[U64, U64]:
    starts = np.flatnonzero(roots[1:] != roots[:-1]) + 1
    if len(starts) + 1 >= len(roots):
        return roots, values
    starts = np.concatenate(([0], starts))
    return roots[starts], np.bitwise_xor.reduceat(values, starts)


def _table(reasons: Iterable[str]) -> tuple[list[str], U32]:
    """Return the distinct reasons, and the index of each one among them."""
    table: dict[str, int] = {}
    which = [table.setdefault(reason[:MAX_REASON_CHARS], len(table)) for reason in reasons]
    return list(table), np.array(which, np.uint32)


def _whole(data: bytes, name: str, size: int) -> bytes:
    """Return the bytes, which are of numbers of this size; refuse others."""
    if len(data) % size:
        raise Refused(Refusal.MALFORMED, f"{name} has {len(data)} bytes, not a multiple of {size}")
    return data
