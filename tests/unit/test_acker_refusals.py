"""The service's refusals: too large, not admitted, or invalid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.acker_calls import PLAN, Ackers, acked, emitted, refused, run_batch, u64
from topo._pb import acker_pb2 as pb
from topo.errors import AckerError
from topo.tracking.client import can_restart
from topo.tracking.exchange import Cursor
from topo.tracking.ids import Updates
from topo.tracking.refusals import Refused
from topo.tracking.service import Limits

# -- bounds


def test_a_topology_may_hold_so_much_and_no_more() -> None:
    ackers = Ackers(limits=Limits(topology_bytes=10_000_000))
    client = ackers.register()
    start = client.begin(0, 0)
    message = refused(
        "acker-limit",
        lambda: client.stage(start.clock, 0, 0, 0, 1, emitted(1, 1, 400_000)),
    )
    assert "lower topology.max.spout.pending" in message
    far_apart = Updates(
        init_roots=u64(*((1 << 48) + 1000 * n for n in range(1, 2000))),
        init_values=u64(*range(1, 2000)),
    )
    refused("acker-limit", lambda: client.stage(start.clock, 0, 0, 0, 1, far_apart))
    client.stage(start.clock, 0, 0, 0, 1, emitted(1, 1, 1000))


def test_a_payload_and_a_message_may_be_so_large_and_no_larger() -> None:
    ackers = Ackers(limits=Limits(payload_bytes=10, message_bytes=10_000))
    client = ackers.register()
    start = client.begin(0, 0)
    refused(
        "acker-limit", lambda: client.stage(start.clock, 0, 0, 0, 1, Updates(), payload=b"x" * 11)
    )
    refused("acker-limit", lambda: client.stage(start.clock, 0, 0, 0, 1, emitted(1, 1, 10_000)))
    assert ackers.control.status().staged == ()


def test_an_acker_takes_on_so_many_topologies_and_forgets_those_long_silent() -> None:
    for silence, taken in ((3600.0, False), (0.0, True)):
        ackers = Ackers(limits=Limits(topologies=1, forgotten_after_secs=silence))
        ackers.register()
        ackers.target = replace(ackers.target, topology="others")
        if taken:
            ackers.register()
            ackers.target = replace(ackers.target, topology="words")
            refused("acker-lost", ackers.control.status)
        else:
            assert "takes no more" in refused("acker-limit", ackers.register)


def test_an_unregistered_topology_is_forgotten() -> None:
    ackers = Ackers(limits=Limits(topologies=1))
    client = ackers.register()
    ackers.control.unregister()
    message = refused("acker-lost", lambda: client.begin(0, 0))
    assert "does not know topology 'words'" in message
    assert ackers.register().lease.incarnations != client.lease.incarnations


# -- who may


def test_a_wrong_token_and_a_missing_one_are_refused() -> None:
    ackers = Ackers()
    ackers.register()
    target = ackers.target
    for token in ("", "Secret", "secret ", "s\N{GREEK SMALL LETTER EPSILON}cret"):
        ackers.target = replace(target, token=token)
        refused("acker-token", ackers.control.status)
        refused("acker-token", ackers.register)
    ackers.target = target
    assert ackers.control.status().next_batch == 0


def test_an_acker_with_a_token_of_its_own_registers_only_for_that() -> None:
    ackers = Ackers(admission="let me in")
    target = ackers.target
    for admission in (None, "let me"):
        ackers.target = replace(target, admission=admission)
        refused("acker-token", ackers.register)
        refused("acker-lost", ackers.control.status)
    ackers.target = target
    client = ackers.register()
    ackers.target = replace(target, admission=None)
    client.begin(0, 0)


def test_a_registration_that_cannot_be_read_takes_no_name() -> None:
    ackers = Ackers()
    stranger: dict[str, str | bytes] = {"topology-bin": b"words", "topo-token": "a stranger's"}
    for message in (b"\xff" * 10, b""):
        with pytest.raises(Refused):
            ackers.services[0].handle("Register", message, stranger)
    ackers.register()


def test_secrets_are_not_shown() -> None:
    target = Ackers(admission="let me in").target
    assert "secret" not in repr(target)
    assert "let me in" not in repr(target)


# -- what makes no sense


def test_what_does_not_fit_the_plan_is_refused_and_changes_nothing() -> None:
    ackers = Ackers(count=2)
    client = ackers.register()
    start = run_batch(client, 0, emitted(1, 1, 1, value=0))
    own = Cursor(1, client.lease.incarnations[0], 2)
    before = ackers.control.status()

    def stage(level: int, slot: int, updates: Updates, clock: float = start.clock) -> None:
        client.stage(clock, 1, level, slot, 1, updates)

    foreign = pb.BeginRequest(epoch=client.lease.epoch, batch=1, cursors=[pb.Cursor(task=2)])
    nonsense: list[Callable[[], object]] = [
        lambda: client.wait(start, 0, limit_secs=float("nan")),
        lambda: client.wait(replace(start, wake_at=float("nan")), 0, limit_secs=0.0),
        lambda: stage(2, 0, Updates()),
        lambda: stage(0, 2, Updates()),
        lambda: stage(0, 0, emitted(9, 1, 1)),
        lambda: stage(0, 0, acked(emitted(4, 1, 1))),
        lambda: stage(0, 0, Updates(), clock=float("nan")),
        lambda: stage(0, 0, Updates(), clock=float("inf")),
        lambda: client.begin(1, 2),
        lambda: client.begin(1, 0, [own]),
        lambda: client._caller.one(0, "Begin", foreign.SerializeToString()),
        lambda: client._caller.one(
            1, "Wait", pb.WaitRequest(epoch=client.lease.epoch, batch=1).SerializeToString()
        ),
        lambda: client._caller.one(0, "Command", pb.CommandRequest(mode=77).SerializeToString()),  # type: ignore[arg-type]
    ]
    for call in nonsense:
        refused("acker-malformed", call)
    assert ackers.control.status() == before


@pytest.mark.parametrize(
    "change",
    [
        {"levels": 0},
        {"levels": 257},
        {"slots": 0},
        {"slots": 5000},
        {"spout_tasks": (0,)},
        {"spout_tasks": (1 << 16,)},
        {"spout_tasks": (1, 1)},
        {"timeout_secs": 0.0},
        {"timeout_secs": float("inf")},
        {"tick_secs": (0.0,)},
        {"tick_secs": (float("nan"),)},
        {"components": {"x" * 1001: (1, 1)}},
    ],
    ids=str,
)
def test_a_plan_that_no_topology_has_is_refused(change: dict[str, object]) -> None:
    ackers = Ackers()
    refused("acker-malformed", lambda: ackers.register(plan=replace(PLAN, **change)))  # type: ignore[arg-type]
    assert not ackers.services[0].figures()


@pytest.mark.parametrize(
    "change",
    [
        {"init_roots": b"1234567"},
        {"init_values": b"x" * 16},
        {"ack_roots": b"x" * 8},
        {"held_tasks": b"xyz"},
        {"held_roots": b"x" * 8},
        {"released_tasks": b"x" * 4},
        {"fail_roots": b"\0" * 8},
        {"fail_reason": b"\0" * 4},
        {"fail_roots": b"\0" * 8, "fail_reason": b"\1\0\0\0", "reasons": ["a"]},
        {"reasons": ["x" * 1001]},
    ],
    ids=str,
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, object]) -> None:
    ackers = Ackers()
    client = ackers.register()
    start = client.begin(0, 0)
    message = pb.StageRequest(
        epoch=client.lease.epoch,
        clock=start.clock,
        updates=pb.Updates(**change),  # type: ignore[arg-type]
    )
    refused("acker-malformed", lambda: client._caller.one(0, "Stage", message.SerializeToString()))
    assert ackers.control.status().staged == ()


def test_errors_say_who_and_what_happens() -> None:
    ackers = Ackers(count=2)
    client = ackers.register()
    ackers.services[1] = Ackers().services[0]
    with pytest.raises(AckerError) as caught:
        client.begin(0, 0, [Cursor(2, 0, 0)])
    text = str(caught.value)
    assert "the acker of 'words' at acker-1 (shard 1 of 2)" in text
    assert "has restarted since" in text
    assert "the query starts again from its last commit" in text
    assert "'acker lost'" in text
    assert can_restart(caught.value)
