"""Malformed and hostile messages: each is answered, and nobody else notices.

TOPO_TEST_FUZZ_SECS=60 makes it last a minute instead of a few thousand messages.
"""

from __future__ import annotations

import os
import struct
import time
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from google.protobuf.message import Message

from tests.acker_calls import Ackers, acked, emitted, run_batch
from tests.property.scale import scaled
from topo._pb import acker_pb2 as pb
from topo.tracking import packing
from topo.tracking.exchange import Cursor, Registration
from topo.tracking.ids import GROUPS
from topo.tracking.plan import TrackingPlan
from topo.tracking.refusals import Refusal, Refused
from topo.tracking.service import AckerService, Limits

SECS = float(os.environ.get("TOPO_TEST_FUZZ_SECS", "0"))
MESSAGES = scaled(4000)

INTEGERS = [0, 1, 2, 3, 255, 256, 65_535, 65_536, 1 << 31, (1 << 32) - 1]
LARGE = [*INTEGERS, 1 << 47, (1 << 48) - 1, 1 << 48, (1 << 48) + 1, 1 << 60, (1 << 64) - 1]
FLOATS = [0.0, -1.0, 1e-300, 1e-3, 1.0, 1000.0, 1e12, 1e308, float("inf"), float("nan")]
METHODS: dict[str, type[Message]] = {
    "Register": pb.RegisterRequest,
    "Begin": pb.BeginRequest,
    "Wait": pb.WaitRequest,
    "Stage": pb.StageRequest,
    "Command": pb.CommandRequest,
    "Status": pb.StatusRequest,
    "Unregister": pb.UnregisterRequest,
}


class Hostile:
    """Makes messages that are nearly right, and such that are not at all."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.epoch = 0
        self.batch = 0

    def message(self, method: str) -> bytes:
        if self.rng.random() < 0.1:
            return self.rng.randbytes(self.rng.randrange(300))
        message = METHODS[method]()
        self._fill(message, 0)
        if self.rng.random() < 0.5:
            self._make_plausible(message)
        encoded = bytearray(message.SerializeToString())
        for _ in range(self.rng.choice([0, 0, 0, 1, 5])):
            if encoded:
                encoded[self.rng.randrange(len(encoded))] ^= 1 << self.rng.randrange(8)
        if self.rng.random() < 0.1:
            del encoded[self.rng.randrange(len(encoded) + 1) :]
        return bytes(encoded)

    def _fill(self, message: Message, depth: int) -> None:
        for field in message.DESCRIPTOR.fields:
            if self.rng.random() < 0.3:
                continue
            if field.is_repeated:
                repeated = getattr(message, field.name)
                for _ in range(self.rng.randrange(4)):
                    if field.message_type:
                        self._fill(repeated.add(), depth + 1)
                    else:
                        repeated.append(self._value(field))
            elif field.message_type:
                self._fill(getattr(message, field.name), depth + 1)
            else:
                setattr(message, field.name, self._value(field))

    def _value(self, field: object) -> object:
        kind = field.cpp_type  # type: ignore[attr-defined]
        if kind == field.CPPTYPE_UINT32:  # type: ignore[attr-defined]
            return self.rng.choice(INTEGERS)
        if kind == field.CPPTYPE_UINT64:  # type: ignore[attr-defined]
            return self.rng.choice(LARGE)
        if kind == field.CPPTYPE_DOUBLE:  # type: ignore[attr-defined]
            return self.rng.choice(FLOATS)
        if kind == field.CPPTYPE_BOOL:  # type: ignore[attr-defined]
            return self.rng.random() < 0.5
        if kind == field.CPPTYPE_ENUM:  # type: ignore[attr-defined]
            return self.rng.choice([0, 1, 4, 5, -1, 1 << 30])
        if field.type == field.TYPE_BYTES:  # type: ignore[attr-defined]
            return self._array()
        return self.rng.choice(["", "a", "\N{SNOWMAN}", "x" * 1001, "\0"])

    def _array(self) -> bytes:
        count = self.rng.choice([0, 1, 2, 2, 2, 3, 100])
        numbers = [self._root() for _ in range(count)]
        packed = struct.pack(f"<{count}Q", *numbers)
        return packed[: len(packed) - self.rng.choice([0, 0, 0, 0, 1, 4])]

    def _root(self) -> int:
        if self.rng.random() < 0.7:
            return self.rng.randrange(1, 4) << 48 | self.rng.choice([1, 2, 3, 300, 1 << 40])
        return self.rng.choice(LARGE)

    def _make_plausible(self, message: Message) -> None:
        """With the epoch, batch and plan that are in force, so that it gets further."""
        if hasattr(message, "batch"):
            message.batch = self.batch + self.rng.choice([0, 0, 0, 1, 2])
        if hasattr(message, "epoch"):
            message.epoch = self.epoch
        if hasattr(message, "clock"):
            message.clock = self.rng.choice([0.0, 1000.0, 1e9])
        if isinstance(message, pb.StageRequest):
            message.level, message.slot = self.rng.randrange(2), self.rng.randrange(2)
            message.updates.CopyFrom(self._updates())
        if isinstance(message, pb.RegisterRequest):
            message.CopyFrom(self._registration())

    def _updates(self) -> pb.Updates:
        updates = pb.Updates(reasons=["a"])
        for roots, *values in GROUPS.values():
            beside = "fail_reason" if roots == "fail_roots" else "".join(values)
            count = self.rng.randrange(4)
            picked = [self.rng.randrange(1, 4) << 48 | self.rng.randrange(9) for _ in range(count)]
            setattr(updates, roots, struct.pack(f"<{count}Q", *picked))
            if beside.endswith("values"):
                setattr(
                    updates, beside, struct.pack(f"<{count}Q", *[self.rng.choice(LARGE)] * count)
                )
            elif beside:
                setattr(updates, beside, bytes(4 * count))
        return updates

    def _registration(self) -> pb.RegisterRequest:
        plan = TrackingPlan(
            levels=2,
            slots=2,
            spout_tasks=(1, 2, 3),
            timeout_secs=self.rng.choice([None, 1e-3, 30.0]),
            tick_secs=self.rng.choice([(), (1e-3,), (60.0,)]),
        )
        first = self.batch % (1 << 58) + self.rng.choice([0, 0, 1, 1 << 58])
        run_id = self.rng.choice(["a", "a", "a", "b"])
        nonce = self.rng.getrandbits(64)
        shard = self.rng.choice([0, 0, 0, 1])
        return packing.pack_registration(
            Registration(plan, first, run_id, nonce, shard, shard + 1, self.rng.getrandbits(60))
        )


def turns() -> Iterator[int]:
    end = time.monotonic() + SECS
    turn = 0
    while turn < MESSAGES if not SECS else time.monotonic() < end:
        yield turn
        turn += 1


def send(service: AckerService, method: str, request: bytes, name: bytes, token: str) -> str:
    """Return the service's answer; any other outcome than a reply or a refusal fails the test."""
    try:
        service.handle(method, request, {"topology-bin": name, "topo-token": token})
    except Refused as refused:
        return refused.kind.name
    return "answered"


@pytest.mark.timeout(max(300, 3 * SECS + 60))
def test_hostile_messages_change_nothing_for_anyone_else() -> None:
    ackers = Ackers(limits=Limits(wait_secs=0.0, topology_bytes=50 << 20))
    service = ackers.services[0]
    client = ackers.register()
    out = emitted(1, 1, 100)
    run_batch(client, 0, out)
    client.begin(1, 0)
    before = ackers.control.status()
    hostile, answers = Hostile(1), Counter[str]()
    for turn in turns():
        if turn % 50 == 0:
            registered = service.handle(
                "Register",
                hostile._registration().SerializeToString(),
                {"topology-bin": b"hostile", "topo-token": "its own"},
            )
            hostile.epoch = pb.RegisterReply.FromString(registered).epoch
        if figures := service.figures().get("hostile"):
            hostile.batch = figures.next_batch
            assert figures.held_bytes < 60 << 20
        method = hostile.rng.choice(["Stage", "Stage", "Stage", "Begin", *METHODS])
        answers[send(service, method, hostile.message(method), b"hostile", "its own")] += 1
        if turn % 5 == 0:
            as_victim = send(service, method, hostile.message(method), b"words", "a guess")
            assert as_victim == Refusal.TOKEN.name
            method = hostile.rng.choice(["Begin", "Stage", "Wait"])
            hostile.epoch, epoch = 12345, hostile.epoch
            stale = send(service, method, hostile.message(method), b"words", "secret")
            assert stale in ("EPOCH", "MALFORMED")
            hostile.epoch = epoch
    assert ackers.control.status() == before
    run_batch(client, 1, acked(out))
    start = client.begin(2, 0, [Cursor(1, client.lease.incarnations[0], 0)])
    assert start.verdicts[1].reasons == [None] * 100
    assert set(answers) >= {"answered", "MALFORMED", "EPOCH", "BATCH", "FENCE"}
