"""The callers of the ackers: the driver, which begins epochs, and each slot, a few calls a batch.

Calls to several ackers go out at the same time. A call that is not answered is repeated, with
growing pauses, until `give_up_secs` have passed: every call may be repeated, since the acker
recognises a repetition by its nonce. Other failures are an `AckerError` whose `code` says the kind:

    acker-unreachable   no answer for `give_up_secs`
    acker-lost          it answers, and knows nothing of the topology: it has restarted
    acker-epoch         another epoch is in force: this query has been replaced
    acker-batch         the batch is not the one in work
    acker-fence         a slot was executed twice, perhaps with other outputs
    acker-journal       the failures of the batch cannot be written to the checkpoint
    acker-limit         a bound would be passed
    acker-token, acker-malformed, acker-failed

After the first six the query can start again from its last commit (`can_restart`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from topo._pb import acker_pb2 as pb
from topo.errors import AckerError
from topo.tracking import packing
from topo.tracking.exchange import Cursor, Registration
from topo.tracking.figures import AckerStatus, status_of
from topo.tracking.ids import GROUPS, Updates, fresh_nonce
from topo.tracking.plan import Mode, TrackingPlan, shard_of
from topo.tracking.refusals import Refusal, Refused
from topo.tracking.transport import AckerFailed, AckerTarget, Transport, Unreachable, transport_of
from topo.tracking.verdicts import Verdicts

_FIRST_PAUSE_SECS = 0.05
_LONGEST_PAUSE_SECS = 2.0

_CODES = {
    Refusal.TOKEN: "acker-token",
    Refusal.UNKNOWN: "acker-lost",
    Refusal.EPOCH: "acker-epoch",
    Refusal.BATCH: "acker-batch",
    Refusal.FENCE: "acker-fence",
    Refusal.MALFORMED: "acker-malformed",
    Refusal.LIMIT: "acker-limit",
    Refusal.JOURNAL: "acker-journal",
}
_RESTART = {
    "acker-unreachable",
    "acker-lost",
    "acker-epoch",
    "acker-batch",
    "acker-fence",
    "acker-journal",
}
_AGAIN = "the batch fails, and the query starts again from its last commit"
_HINTS = {
    "acker-lost": f"{_AGAIN}; messages pending there are failed as 'acker lost'",
    "acker-unreachable": f"{_AGAIN}; messages pending there are failed if it has lost its memory",
    "acker-epoch": "this query has been replaced by another one of the same topology",
    "acker-batch": _AGAIN,
    "acker-fence": _AGAIN,
    "acker-journal": f"{_AGAIN}; make room for the checkpoint, or bring its file system back",
    "acker-limit": "lower topology.max.spout.pending, or raise the acker's bounds",
    "acker-token": "a topology speaks to its ackers with the token it was registered with",
}


def can_restart(error: AckerError) -> bool:
    """True iff restarting the query from its last commit can overcome this error."""
    return error.code in _RESTART


@dataclass(frozen=True)
class Lease:
    """A topology's present epoch; travels to whoever runs its tasks."""

    target: AckerTarget
    plan: TrackingPlan
    epoch: int
    incarnations: tuple[int, ...]
    clock: float
    run_id: str = ""
    """That of the checkpoint."""
    rebuilds: bool = False
    """The ackers keep a journal of failures, so that lost trees are rebuilt from saved state."""

    def incarnation_of(self) -> dict[int, int]:
        """Return the incarnation of the acker that has the roots of each spout task."""
        shards = shard_of(self.plan.spout_tasks, len(self.incarnations))
        return {task: self.incarnations[shard] for task, shard in shards.items()}


@dataclass(frozen=True)
class BatchStart:
    """The acker's answer to a slot that begins its part of a batch."""

    batch: int
    clock: float
    previous_clock: float
    mode: Mode
    mode_version: int
    verdicts: Mapping[int, Verdicts]
    """Verdicts by spout task, of the tasks whose cursors were sent."""
    incarnations: Mapping[int, int]
    """By spout task, the incarnation of the acker with its roots. Messages of another are lost."""
    wake_at: float | None
    """The time of the next timeout on another shard."""


@dataclass
class _Caller:
    """Calls to the ackers of a target, repeated until they are answered."""

    target: AckerTarget
    transport: Transport | None = None
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    addresses: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.addresses = self.target.addresses

    def one(self, shard: int, method: str, request: bytes, extra_secs: float = 0.0) -> bytes:
        return self.all(method, {shard: request}, extra_secs)[shard]

    def all(
        self, method: str, requests: Mapping[int, bytes], extra_secs: float = 0.0
    ) -> dict[int, bytes]:
        """Make all of these calls at the same time; return the replies by shard."""
        transport = self.transport or transport_of(self.target)
        replies: dict[int, bytes] = {}
        began, pause = self.monotonic(), _FIRST_PAUSE_SECS
        timeout = self.target.call_secs + extra_secs
        while True:
            calls = {
                shard: transport.start(shard, method, request, timeout)
                for shard, request in requests.items()
                if shard not in replies
            }
            silent: dict[int, str] = {}
            for shard, call in calls.items():
                try:
                    replies[shard] = call.result()
                except Refused as refused:
                    raise self._error(shard, _CODES[refused.kind], refused.message) from None
                except AckerFailed as failed:
                    raise self._error(shard, "acker-failed", str(failed)) from None
                except Unreachable as unreachable:
                    silent[shard] = str(unreachable)
            if not silent:
                return replies
            waited = self.monotonic() - began
            if waited >= self.target.give_up_secs:
                shard, why = next(iter(silent.items()))
                raise self._silence(shard, waited, why)
            self.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECS)

    def _error(self, shard: int, code: str, message: str) -> AckerError:
        return AckerError(f"{self._who(shard)}: {message}", code=code, hint=_HINTS.get(code, ""))

    def _silence(self, shard: int, waited: float, why: str) -> AckerError:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - waited))
        code = "acker-unreachable"
        message = f"{self._who(shard)} has not answered since {since}, for {waited:.0f} s: {why}"
        return AckerError(message, code=code, hint=_HINTS[code])

    def _who(self, shard: int) -> str:
        several = f" (shard {shard} of {len(self.addresses)})" if len(self.addresses) > 1 else ""
        return f"the acker of '{self.target.topology}' at {self.addresses[shard]}{several}"


class AckerControl:
    """The driver's side: epochs, commands, figures."""

    def __init__(
        self, target: AckerTarget, transport: Transport | None = None, *, rebuilds: bool = False
    ) -> None:
        self.target = target
        self._rebuilds = rebuilds
        self._caller = _Caller(target, transport)

    def register(
        self, plan: TrackingPlan, first_batch: int, run_id: str, mode: Mode = Mode.ACTIVE
    ) -> Lease:
        """Begin an epoch whose first batch is this one: all batches before it are committed.

        `run_id` names the checkpoint. What an acker knows of another one does not count.
        """
        first = Registration(
            plan, first_batch, run_id, fresh_nonce(), shards=len(self.target.addresses), mode=mode
        )
        reply = self._register({0: first})[0]
        others = {
            shard: replace(first, shard=shard, epoch=reply.epoch, clock=reply.clock)
            for shard in range(1, first.shards)
        }
        replies = {0: reply, **self._register(others)}
        incarnations = tuple(replies[shard].incarnation for shard in range(first.shards))
        return Lease(
            self.target.for_workers(),
            plan,
            reply.epoch,
            incarnations,
            reply.clock,
            run_id,
            self._rebuilds,
        )

    def command(self, mode: Mode) -> int:
        """Set the mode from the next batch on; `AckerStatus` tells when such a batch has begun."""
        request = pb.CommandRequest(mode=mode.name)
        reply = self._caller.one(0, "Command", request.SerializeToString())
        version: int = pb.CommandReply.FromString(reply).mode_version
        return version

    def status(self, payloads_after: int | None = None) -> AckerStatus:
        """Return figures over all ackers, and the committed payloads after a given number."""
        wanted = pb.StatusRequest(payloads=payloads_after is not None)
        wanted.payloads_after = payloads_after or 0
        requests = {shard: pb.StatusRequest() for shard in range(len(self.target.addresses))}
        requests[0] = wanted
        replies = self._caller.all(
            "Status", {shard: message.SerializeToString() for shard, message in requests.items()}
        )
        messages = (pb.StatusReply.FromString(replies[shard]) for shard in sorted(replies))
        return status_of([packing.unpack_figures(message) for message in messages])

    def let_go_on(self, lease: Lease, batch: int) -> None:
        """Let the slots that wait in this batch resume, as if one of them had data."""
        message = pb.WaitRequest(epoch=lease.epoch, batch=batch, busy=True)
        self._caller.one(0, "Wait", message.SerializeToString())

    def unregister(self) -> None:
        """Make the ackers forget the topology."""
        request = pb.UnregisterRequest().SerializeToString()
        shards = range(len(self.target.addresses))
        self._caller.all("Unregister", dict.fromkeys(shards, request))

    def _register(self, registrations: Mapping[int, Registration]) -> dict[int, pb.RegisterReply]:
        requests = {
            shard: packing.pack_registration(registration).SerializeToString()
            for shard, registration in registrations.items()
        }
        replies = self._caller.all("Register", requests)
        return {shard: pb.RegisterReply.FromString(reply) for shard, reply in replies.items()}


class AckerClient:
    """The slot's side. An instance is cheap: channels are made once per process and shared."""

    def __init__(self, lease: Lease, transport: Transport | None = None) -> None:
        self.lease = lease
        self._caller = _Caller(lease.target, transport)
        self._shards = len(lease.target.addresses)
        self._shard_of = shard_of(lease.plan.spout_tasks, self._shards)
        self._routes = np.zeros(1 << 16, np.uint16)
        for task, shard in self._shard_of.items():
            self._routes[task] = shard

    def begin(self, batch: int, slot: int, cursors: Iterable[Cursor] = ()) -> BatchStart:
        """Begin a slot's part of a batch.

        The cursors are those of the slot's spout tasks in the state that the batch starts from.
        A task that has heard nothing yet says so with number 0 and any incarnation.
        """
        by_shard: dict[int, list[Cursor]] = {0: []}
        for cursor in cursors:
            by_shard.setdefault(self._shard_of[cursor.task], []).append(cursor)
        first = self._begin(batch, slot, {0: by_shard.pop(0)}, 0.0)[0]
        replies = {0: first, **self._begin(batch, slot, by_shard, first.clock)}
        verdicts: dict[int, Verdicts] = {}
        for reply in replies.values():
            for packed in reply.verdicts:
                verdicts[packed.task] = packing.unpack_verdicts(packed)
        due = [r.next_timeout for s, r in replies.items() if s and r.HasField("next_timeout")]
        return BatchStart(
            batch=batch,
            clock=first.clock,
            previous_clock=first.previous_clock,
            mode=Mode(first.mode),
            mode_version=first.mode_version,
            verdicts=verdicts,
            incarnations={task: replies[self._shard_of[task]].incarnation for task in verdicts},
            wake_at=min(due, default=None),
        )

    def wait(self, start: BatchStart, slot: int, limit_secs: float, busy: bool = False) -> bool:
        """Wait for at most `limit_secs`; return True if all slots waiting in this batch resume now.

        `busy` says that this slot has data, so that all slots resume at once.
        """
        message = pb.WaitRequest(
            epoch=self.lease.epoch,
            batch=start.batch,
            slot=slot,
            limit_secs=limit_secs,
            wake_at=start.wake_at,
            busy=busy,
        )
        answer = self._caller.one(0, "Wait", message.SerializeToString(), limit_secs)
        reply = pb.WaitReply.FromString(answer)
        if reply.pause_secs:
            self._caller.sleep(reply.pause_secs)
        return bool(reply.go)

    def stage(
        self,
        start_clock: float,
        batch: int,
        level: int,
        slot: int,
        nonce: int,
        updates: Updates,
        payload: bytes = b"",
        busy: bool = True,
    ) -> None:
        """Stage an execution's updates at every acker; once per task attempt, with its nonce.

        `payload` goes to the driver when the batch is committed. If `busy` is False, the execution
        had nothing to do, and waiting slots may continue to wait.
        """
        split = [packing.in_parts(own) for own in self._split(updates)]
        for number in range(max(map(len, split))):
            requests = {}
            for shard, parts in enumerate(split):
                if number >= len(parts):
                    continue
                ends = number == len(parts) - 1
                message = pb.StageRequest(
                    epoch=self.lease.epoch,
                    batch=batch,
                    level=level,
                    slot=slot,
                    nonce=nonce,
                    clock=start_clock,
                    updates=packing.pack_updates(parts[number]),
                    payload=payload if ends and not shard else b"",
                    busy=busy,
                    part=number,
                    parts=len(parts),
                )
                requests[shard] = message.SerializeToString()
            self._caller.all("Stage", requests)

    def _begin(
        self, batch: int, slot: int, cursors: Mapping[int, list[Cursor]], clock: float
    ) -> dict[int, pb.BeginReply]:
        requests = {}
        for shard, asked in cursors.items():
            message = pb.BeginRequest(
                epoch=self.lease.epoch,
                batch=batch,
                slot=slot,
                clock=clock,
                cursors=[
                    pb.Cursor(task=c.task, incarnation=c.incarnation, number=c.number)
                    for c in asked
                ],
            )
            requests[shard] = message.SerializeToString()
        replies = self._caller.all("Begin", requests)
        return {shard: pb.BeginReply.FromString(reply) for shard, reply in replies.items()}

    def _split(self, updates: Updates) -> list[Updates]:
        """Split the updates by the shard that has their roots."""
        if self._shards == 1:
            return [updates]
        parts = [Updates() for _ in range(self._shards)]
        for roots_name, names in GROUPS.items():
            roots = getattr(updates, roots_name)
            which = self._routes[roots >> np.uint64(48)]
            for shard, part in enumerate(parts):
                chosen = np.flatnonzero(which == shard)
                for name in names:
                    setattr(part, name, getattr(updates, name)[chosen])
                if roots_name == "fail_roots":
                    part.fail_reasons = [updates.fail_reasons[at] for at in chosen.tolist()]
        return parts
