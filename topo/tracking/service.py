"""The acker's calls for any number of topologies: access, checks, limits and waiting.

This is everything between bytes and `tracking`, and it knows no transport: `server` puts it on
gRPC, tests call `handle`. A call is `bytes` with metadata; it is answered with `bytes`, or
`Refused`, and then nothing has changed. A token is checked before anything is parsed.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from topo._pb import acker_pb2 as pb
from topo.tracking import packing
from topo.tracking.clock import SteadyClock
from topo.tracking.epochs import Tracking
from topo.tracking.exchange import Cursor, StagedExecution, TrackingFigures
from topo.tracking.ids import ARRAYS, Updates
from topo.tracking.journal import FailureJournal
from topo.tracking.pages import page_bytes
from topo.tracking.refusals import Refusal, Refused
from topo.tracking.security import ADMISSION_KEY, TOKEN_KEY, TOPOLOGY_KEY, same_token
from topo.tracking.verdicts import reasons_bytes

Metadata = Mapping[str, str | bytes]


@dataclass(frozen=True)
class Limits:
    """The limits beyond which an acker refuses calls."""

    topologies: int = 64
    topology_bytes: int = 2 << 30
    """Bytes that one topology may hold: roots, staged updates, verdicts not yet heard."""
    message_bytes: int = 64 << 20
    payload_bytes: int = 4 << 20
    """Bytes that one execution may send for the driver."""
    waiting: int = 256
    """Slots that may wait at the same time; others are told to retry."""
    wait_secs: float = 2.0
    forgotten_after_secs: float = 3600.0
    """Seconds of silence after which a topology may be dropped to make room for another."""


class Occupied(Exception):
    """A call has waited for its turn for as long as it may; nothing has changed."""


@dataclass
class _Entry:
    """A topology with its lock and its token."""

    token: str
    changed: threading.Condition = field(default_factory=threading.Condition)
    tracking: Tracking | None = None
    waiting: int = 0
    heard: float = 0.0

    def take_turn(self, secs: float) -> None:
        """Lock the topology, or raise Occupied if another call keeps it for so long."""
        if not self.changed.acquire(timeout=min(max(0.0, secs), threading.TIMEOUT_MAX)):
            raise Occupied(
                f"another call has been in work for {secs:g} s; one that writes failures to the "
                "checkpoint takes as long as its file system does"
            )


class AckerService:
    """One acker. `clock` is the time of batches; code that moves it by hand calls `wake`."""

    def __init__(
        self,
        limits: Limits | None = None,
        clock: Callable[[], float] | None = None,
        admission: str | None = None,
    ) -> None:
        self.journal: FailureJournal | None = None
        """Set before the first registration by a driver that runs its own ackers."""
        self.limits = limits or Limits()
        self._clock = clock or SteadyClock()
        self._admission = admission
        self._lock = threading.Lock()
        self._known: dict[str, _Entry] = {}
        self._waiting = 0
        self._stopping = False
        self._methods: dict[str, tuple[Any, Callable[[_Entry, Any], Any]]] = {
            "Register": (pb.RegisterRequest, self._register),
            "Begin": (pb.BeginRequest, self._begin),
            "Wait": (pb.WaitRequest, self._wait),
            "Stage": (pb.StageRequest, self._stage),
            "Command": (pb.CommandRequest, self._command),
            "Status": (pb.StatusRequest, self._status),
            "Unregister": (pb.UnregisterRequest, self._unregister),
        }

    @property
    def methods(self) -> list[str]:
        return list(self._methods)

    def handle(
        self, method: str, request: bytes, metadata: Metadata, secs: float | None = None
    ) -> bytes:
        """Answer one call, which may wait for its turn for so long: without a limit, for ever."""
        if len(request) > self.limits.message_bytes:
            raise Refused(
                Refusal.LIMIT,
                f"a message of {len(request):,} bytes; {self.limits.message_bytes:,} is the most",
            )
        message_class, answer = self._methods[method]
        known = self._authenticate(method, metadata)
        message = message_class()
        try:
            message.ParseFromString(request)
        except DecodeError:
            self._forget_if_empty(known)
            raise Refused(Refusal.MALFORMED, f"this is no {message_class.__name__}") from None
        if secs is not None:
            known.take_turn(secs)
        try:
            reply: bytes = answer(known, message).SerializeToString()
        finally:
            if secs is not None:
                known.changed.release()
        return reply

    def wake(self) -> None:
        """Make waiting calls read the clock again."""
        for known in self._all():
            with known.changed:
                known.changed.notify_all()

    def stop_waiting(self) -> None:
        """End all waiting, present and future: the acker is about to stop."""
        self._stopping = True
        self.wake()

    def figures(self) -> dict[str, TrackingFigures]:
        """Return the figures of every topology by name."""
        found = {}
        with self._lock:
            topologies = list(self._known.items())
        for name, known in topologies:
            with known.changed:
                if known.tracking:
                    found[name] = known.tracking.figures(self._clock())
        return found

    # -- who may

    def check_caller(self, method: str, metadata: Metadata) -> None:
        """Raise Refused unless the metadata may make this call; the message is not there yet."""
        with self._lock:
            self._find(method, metadata)

    def _find(self, method: str, metadata: Metadata) -> _Entry | None:
        """Return the topology that a call is about, None if the call may register it."""
        name, token = _text(metadata, TOPOLOGY_KEY), _text(metadata, TOKEN_KEY)
        if len(name) > packing.MAX_NAME_CHARS:
            raise Refused(Refusal.MALFORMED, "the topology's name is too long")
        if not name or not token:
            raise Refused(Refusal.TOKEN, "a call needs a topology and its token in the metadata")
        known = self._known.get(name)
        if known is not None and not same_token(token, known.token):
            raise Refused(Refusal.TOKEN, f"this is not the token of topology {name!r}")
        if known is None and method != "Register":
            raise _unknown(name)
        if known is None:
            self._check_admission(metadata)
        return known

    def _check_admission(self, metadata: Metadata) -> None:
        if self._admission and not same_token(_text(metadata, ADMISSION_KEY), self._admission):
            raise Refused(Refusal.TOKEN, "this acker admits new topologies with its own token only")

    def _authenticate(self, method: str, metadata: Metadata) -> _Entry:
        with self._lock:
            known = self._find(method, metadata) or self._admit(
                _text(metadata, TOPOLOGY_KEY), _text(metadata, TOKEN_KEY)
            )
        known.heard = time.monotonic()
        return known

    def _admit(self, name: str, token: str) -> _Entry:
        if len(self._known) >= self.limits.topologies:
            longest = min(self._known, key=lambda other: self._known[other].heard)
            silent = time.monotonic() - self._known[longest].heard
            if silent < self.limits.forgotten_after_secs:
                raise Refused(
                    Refusal.LIMIT,
                    f"this acker has {len(self._known)} topologies, and takes no more",
                )
            del self._known[longest]
        known = self._known[name] = _Entry(token)
        return known

    # -- the calls

    def _register(self, known: _Entry, message: pb.RegisterRequest) -> pb.RegisterReply:
        try:
            registration = packing.unpack_registration(message)
        except Refused:
            self._forget_if_empty(known)
            raise
        now = max(self._clock(), registration.clock)
        with known.changed:
            if known.tracking is None:
                known.tracking = Tracking(registration, now, self.journal)
            else:
                known.tracking.register(registration, now)
            known.changed.notify_all()
            tracking = known.tracking
            return pb.RegisterReply(
                epoch=tracking.epoch, clock=tracking.clock, incarnation=tracking.incarnation
            )

    def _begin(self, known: _Entry, message: pb.BeginRequest) -> pb.BeginReply:
        cursors = [Cursor(c.task, c.incarnation, c.number) for c in message.cursors]
        clock = packing.check_clock(message.clock)
        with self._tracking(known) as tracking:
            begun = tracking.begin(
                message.epoch, message.batch, message.slot, clock, cursors, self._clock()
            )
        return pb.BeginReply(
            incarnation=begun.incarnation,
            clock=begun.clock,
            previous_clock=begun.previous_clock,
            mode=begun.mode.name,
            mode_version=begun.mode_version,
            verdicts=[packing.pack_verdicts(*item) for item in begun.verdicts.items()],
            next_timeout=begun.next_timeout,
        )

    def _wait(self, known: _Entry, message: pb.WaitRequest) -> pb.WaitReply:
        wake_at = message.wake_at if message.HasField("wake_at") else float("inf")
        if math.isnan(wake_at) or math.isnan(message.limit_secs):
            raise Refused(Refusal.MALFORMED, "nobody waits for what is not a number")
        until = time.monotonic() + min(max(message.limit_secs, 0.0), self.limits.wait_secs)
        with self._tracking(known) as tracking:
            if not tracking.is_coordinator:
                raise Refused(Refusal.MALFORMED, "slots wait at the coordinator, shard 0")
            if not self._take_seat(known):
                return pb.WaitReply(pause_secs=min(1.0, max(0.0, message.limit_secs)))
            try:
                while True:
                    now = self._clock()
                    if tracking.should_go(message.epoch, message.batch, message.busy, wake_at, now):
                        known.changed.notify_all()
                        return pb.WaitReply(go=True)
                    left = min(until - time.monotonic(), tracking.wakes_at(wake_at) - now)
                    if until <= time.monotonic() or self._stopping:
                        return pb.WaitReply(go=False)
                    known.changed.wait(max(left, 0.0))
            finally:
                self._leave_seat(known)

    def _stage(self, known: _Entry, message: pb.StageRequest) -> pb.StageReply:
        if len(message.payload) > self.limits.payload_bytes:
            raise Refused(
                Refusal.LIMIT,
                f"a payload of {len(message.payload):,} bytes; "
                f"{self.limits.payload_bytes:,} is the most",
            )
        clock = packing.check_clock(message.clock)
        updates = packing.unpack_updates(message.updates)
        size = _cost(updates) + len(message.payload)
        part, parts = message.part, max(1, message.parts)
        if part >= parts:
            raise Refused(Refusal.MALFORMED, f"part {part} of {parts}")
        said = StagedExecution(message.nonce, updates, message.payload, size, part, parts)
        with self._tracking(known) as tracking:
            packing.only_tasks(updates, tracking.spout_tasks)
            if tracking.nbytes + size > self.limits.topology_bytes:
                raise Refused(
                    Refusal.LIMIT,
                    f"the topology holds {tracking.nbytes:,} bytes here, and this would make it "
                    f"more than {self.limits.topology_bytes:,}; lower topology.max.spout.pending",
                )
            try:
                next_timeout = tracking.stage(
                    message.epoch,
                    message.batch,
                    message.level,
                    message.slot,
                    clock,
                    said,
                    message.busy,
                    self._clock(),
                )
            finally:  # the fence, too, ends the waiting
                known.changed.notify_all()
        return pb.StageReply(next_timeout=next_timeout)

    def _command(self, known: _Entry, message: pb.CommandRequest) -> pb.CommandReply:
        mode = packing.unpack_mode(message.mode)
        with self._tracking(known) as tracking:
            version = tracking.command(mode)
            known.changed.notify_all()
        return pb.CommandReply(mode_version=version)

    def _status(self, known: _Entry, message: pb.StatusRequest) -> pb.StatusReply:
        with self._tracking(known) as tracking:
            after = message.payloads_after if message.payloads else None
            figures = tracking.figures(self._clock(), known.waiting, after)
        return packing.pack_figures(figures)

    def _unregister(self, known: _Entry, message: pb.UnregisterRequest) -> pb.UnregisterReply:
        with known.changed:
            known.tracking = None
            known.changed.notify_all()
        self._forget_if_empty(known)
        return pb.UnregisterReply()

    # -- what they share

    @contextmanager
    def _tracking(self, known: _Entry) -> Any:
        with known.changed:
            if known.tracking is None:
                raise Refused(Refusal.UNKNOWN, "the topology is not registered here any more")
            yield known.tracking

    def _forget_if_empty(self, known: _Entry) -> None:
        with self._lock:
            if known.tracking is None:
                self._known = {n: k for n, k in self._known.items() if k is not known}

    def _take_seat(self, known: _Entry) -> bool:
        with self._lock:
            if self._waiting >= self.limits.waiting:
                return False
            self._waiting += 1
        known.waiting += 1
        return True

    def _leave_seat(self, known: _Entry) -> None:
        with self._lock:
            self._waiting -= 1
        known.waiting -= 1

    def _all(self) -> list[_Entry]:
        with self._lock:
            return list(self._known.values())


def _unknown(name: str) -> Refused:
    return Refused(
        Refusal.UNKNOWN,
        f"this acker does not know topology {name!r}: it was never registered here, or "
        f"the acker has restarted since",
    )


def _cost(updates: Updates) -> int:
    """Return the bytes that the acker may have to hold for these updates."""
    arrays: int = sum(getattr(updates, name).nbytes for name in ARRAYS)
    return arrays + page_bytes(updates.init_roots) + reasons_bytes(updates.fail_reasons)


def _text(metadata: Metadata, key: str) -> str:
    value = metadata.get(key, "")
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
