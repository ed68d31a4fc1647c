"""The service, batch by batch: two phases, epochs, the fence, the clock, commands, waiting."""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np
import pytest

from tests.acker_calls import PLAN, Ackers, acked, emitted, refused, run_batch, u64
from topo.errors import AckerError
from topo.tracking import epochs as tracking
from topo.tracking import packing
from topo.tracking.client import AckerClient, Lease
from topo.tracking.exchange import Cursor
from topo.tracking.ids import Updates, root_id
from topo.tracking.plan import Mode, TrackingPlan
from topo.tracking.service import Limits
from topo.tracking.transport import AckerTarget, PendingCall


def heard(client: AckerClient, batch: int, task: int, number: int = 0) -> list[str | None]:
    cursor = Cursor(task, client.lease.incarnations[0], number)
    return client.begin(batch, 0, [cursor]).verdicts[task].reasons


# -- two phases


def test_a_verdict_is_heard_in_the_batch_after_the_one_that_completed_the_tree() -> None:
    ackers = Ackers()
    client = ackers.register()
    out = emitted(1, 1, 3)
    run_batch(client, 0, out, acked(out))
    assert heard(client, 0, 1) == []
    assert heard(client, 1, 1) == [None] * 3
    assert heard(client, 1, 1, number=2) == [None]


def test_a_verdict_is_heard_again_until_a_committed_cursor_has_passed_it() -> None:
    ackers = Ackers()
    client = ackers.register()
    run_batch(client, 0, emitted(1, 1, 1, value=0))
    cursor = [Cursor(1, client.lease.incarnations[0], 0)]
    for _ in range(2):
        assert client.begin(1, 0, cursor).verdicts[1].sequences.tolist() == [1]
    client = ackers.register(first_batch=1)
    assert heard(client, 1, 1) == [None]
    assert ackers.control.status().unheard == 1
    assert heard(client, 1, 1, number=1) == []
    assert ackers.control.status().unheard == 0


def test_an_epoch_applies_what_is_staged_below_its_first_batch_and_drops_the_rest() -> None:
    for first_batch, verdicts in ((0, 0), (1, 1)):
        ackers = Ackers()
        client = ackers.register()
        run_batch(client, 0, emitted(1, 1, 1, value=0))
        again = ackers.register(first_batch)
        assert again.lease.incarnations == client.lease.incarnations
        assert len(heard(again, first_batch, 1)) == verdicts
        with pytest.raises(AckerError, match="is over") as caught:
            client.begin(1, 0)
        assert caught.value.code == "acker-epoch"


@pytest.mark.parametrize("first_batch", [0, 2, 7])
def test_a_restart_from_elsewhere_is_another_incarnation(first_batch: int) -> None:
    """Batch 1 is half staged: the acker does not know all that is committed before 2 or 7."""
    ackers = Ackers()
    client = ackers.register()
    run_batch(client, 0, emitted(1, 1, 1))
    client.begin(1, 0)
    again = ackers.register(first_batch)
    assert again.lease.incarnations != client.lease.incarnations
    assert ackers.control.status().pending == 0
    cursor = Cursor(1, client.lease.incarnations[0], 5)
    assert again.begin(first_batch, 0, [cursor]).verdicts[1].reasons == []


def test_another_checkpoint_is_another_incarnation() -> None:
    ackers = Ackers()
    client = ackers.register()
    run_batch(client, 0, emitted(1, 1, 1))
    lease = ackers.control.register(PLAN, 1, "another checkpoint")
    assert lease.incarnations != client.lease.incarnations


def test_a_cursor_of_another_incarnation_hears_everything() -> None:
    client = Ackers().register()
    run_batch(client, 0, emitted(1, 1, 2, value=0))
    start = client.begin(1, 0, [Cursor(1, 12345, 99)])
    assert start.verdicts[1].sequences.tolist() == [1, 2]
    assert start.incarnations == {1: client.lease.incarnations[0]}


# -- the fence


def test_a_second_execution_poisons_the_batch_until_the_next_epoch() -> None:
    ackers = Ackers()
    client = ackers.register()
    start = client.begin(0, 0)
    client.stage(start.clock, 0, 1, 0, nonce=1, updates=Updates())
    client.stage(start.clock, 0, 1, 0, nonce=1, updates=Updates())
    second = refused("acker-fence", lambda: client.stage(start.clock, 0, 1, 0, 2, Updates()))
    assert "slot 0 of level 1 was executed twice in batch 0" in second
    refused("acker-fence", lambda: client.begin(0, 1))
    refused("acker-fence", lambda: client.begin(1, 0))
    assert ackers.control.status().poisoned
    again = ackers.register(first_batch=0)
    assert not ackers.control.status().poisoned
    assert again.lease.incarnations == client.lease.incarnations
    run_batch(again, 0)


def test_a_batch_cannot_pass_over_an_execution() -> None:
    client = Ackers().register()
    start = client.begin(0, 0)
    client.stage(start.clock, 0, 0, 0, 1, Updates())
    message = refused("acker-fence", lambda: client.begin(1, 0))
    assert "batch 1 begins, but slot 1 of level 0 said nothing of batch 0" in message


def test_calls_for_other_batches_than_that_in_work_are_refused() -> None:
    client = Ackers().register(first_batch=5)
    run_batch(client, 5)
    run_batch(client, 6)
    message = refused("acker-batch", lambda: client.begin(5, 0))
    assert "batch 5 was applied already; batch 6 is in work" in message
    refused("acker-batch", lambda: client.stage(0.0, 5, 0, 0, 1, Updates()))
    message = refused("acker-batch", lambda: client.begin(8, 0))
    assert "batch 8 is not the next one" in message
    client.begin(7, 0)


# -- the clock


def test_the_clock_of_a_batch_is_read_once_and_never_goes_back() -> None:
    ackers = Ackers(count=2)
    client = ackers.register()
    assert client.begin(0, 0).clock == 1000.0
    ackers.clock.now = 1007.0
    assert client.begin(0, 1, [Cursor(2, 0, 0)]).clock == 1000.0
    run_batch(client, 0)
    start = client.begin(1, 0)
    assert (start.previous_clock, start.clock) == (1000.0, 1007.0)
    ackers.clock.now = 900.0
    again = ackers.register(first_batch=1)
    start = again.begin(1, 0)
    assert (start.previous_clock, start.clock) == (1000.0, 1007.0)
    run_batch(again, 1)
    start = ackers.register(first_batch=2).begin(2, 0)
    assert (start.previous_clock, start.clock) == (1007.0, 1007.0)


def test_roots_time_out_by_the_clock_of_batches_on_every_shard() -> None:
    ackers = Ackers(count=3)
    client = ackers.register()
    said = Updates.concat([emitted(task, 1, 1) for task in (1, 2, 3)])
    held = Updates(held_roots=said.init_roots[:1], held_tasks=u64(5).astype("uint32"))
    run_batch(client, 0, said, held)
    for batch, now in ((1, 1001.0), (2, 1030.9)):
        ackers.clock.now = now
        run_batch(client, batch)
    ackers.clock.now = 1031.0
    cursors = [Cursor(task, 0, 0) for task in (1, 2, 3)]
    verdicts = client.begin(3, 0, cursors).verdicts
    assert verdicts[1].reasons == ["timeout after 30 s; held by 'count' task 5"]
    assert verdicts[2].reasons == verdicts[3].reasons == ["timeout after 30 s"]
    status = ackers.control.status()
    assert (status.pending, status.acked, status.failed_by) == (0, 0, {"timeout": 3})


# -- commands


def test_a_command_counts_from_the_next_batch_on_for_all_slots() -> None:
    ackers = Ackers()
    client = ackers.register()
    assert client.begin(0, 0).mode is Mode.ACTIVE
    version = ackers.control.command(Mode.INACTIVE)
    assert ackers.control.command(Mode.INACTIVE) == version
    start = client.begin(0, 1)
    assert (start.mode, start.mode_version) == (Mode.ACTIVE, version - 1)
    assert ackers.control.status().mode_version_begun == version - 1
    run_batch(client, 0)
    start = client.begin(1, 0)
    assert (start.mode, start.mode_version) == (Mode.INACTIVE, version)
    status = ackers.control.status()
    assert (status.mode, status.mode_version_begun) == (Mode.INACTIVE, version)


def test_an_epoch_begins_in_the_mode_it_is_given() -> None:
    ackers = Ackers()
    lease = ackers.control.register(PLAN, 0, "checkpoint", Mode.INACTIVE)
    assert AckerClient(lease, ackers).begin(0, 0).mode is Mode.INACTIVE


# -- waiting


def test_waiting_ends_for_all_when_one_slot_has_data() -> None:
    ackers = Ackers()
    client = ackers.register()
    start = client.begin(0, 0)
    assert not client.wait(start, 0, limit_secs=0.0)
    assert client.wait(start, 1, limit_secs=0.0, busy=True)
    assert client.wait(start, 0, limit_secs=0.0)


def test_waiting_ends_for_all_when_the_driver_says_so() -> None:
    ackers = Ackers()
    client = ackers.register()
    start = client.begin(0, 0)
    ackers.control.let_go_on(client.lease, 0)
    assert client.wait(start, 0, limit_secs=0.0)
    assert client.wait(start, 1, limit_secs=0.0)
    refused("acker-batch", lambda: ackers.control.let_go_on(client.lease, 7))


@pytest.mark.parametrize("busy", [True, False])
def test_waiting_ends_when_a_busy_slot_has_staged(busy: bool) -> None:
    client = Ackers().register()
    start = client.begin(0, 0)
    client.stage(start.clock, 0, 0, 1, 7, Updates(), busy=busy)
    assert client.wait(start, 0, limit_secs=0.0) is busy


def test_waiting_ends_with_a_tick_a_timeout_or_a_command() -> None:
    ackers = Ackers()
    ackers.clock.now = 1080.0 - 50.0
    client = ackers.register()
    start = run_batch(client, 0, emitted(1, 1, 1), busy=False)
    start = client.begin(1, 0)  # pending since 1030, ticks at 1080
    assert not client.wait(start, 0, 0.0)
    ackers.clock.now = 1060.0
    assert client.wait(start, 0, 0.0)
    run_batch(client, 1, busy=False)
    start = client.begin(2, 0)
    assert not client.wait(start, 0, 0.0)
    ackers.clock.now = 1080.0
    assert client.wait(start, 0, 0.0)
    run_batch(client, 2, busy=False)
    start = client.begin(3, 0)
    assert not client.wait(start, 0, 0.0)
    ackers.control.command(Mode.DRAIN)
    assert client.wait(start, 0, 0.0)
    assert client.wait(start, 1, 0.0)


def test_waiting_ends_with_a_timeout_on_another_shard() -> None:
    ackers = Ackers(count=2)
    client = ackers.register()
    run_batch(client, 0, emitted(2, 1, 1), busy=False)
    cursors = [Cursor(task, 0, 0) for task in (1, 2, 3)]
    start = client.begin(1, 0, cursors)
    assert start.wake_at == 1030.0
    assert not client.wait(start, 0, 0.0)
    ackers.clock.now = 1030.0
    assert client.wait(start, 0, 0.0)


def test_those_who_really_wait_are_woken_together() -> None:
    ackers = Ackers(limits=Limits(wait_secs=60.0))
    client = ackers.register()
    start = client.begin(0, 0)
    went: list[bool] = []
    waiters = [
        threading.Thread(target=lambda s=slot: went.append(client.wait(start, s, 60.0)))
        for slot in range(2)
    ]
    for waiter in waiters:
        waiter.start()
    while ackers.control.status().waiting < 2:
        pass
    ackers.control.command(Mode.INACTIVE)
    for waiter in waiters:
        waiter.join()
    assert went == [True, True]
    assert ackers.control.status().waiting == 0


def test_the_fence_ends_the_waiting() -> None:
    ackers = Ackers(limits=Limits(wait_secs=60.0))
    client = ackers.register()
    start = client.begin(0, 0)
    refusals: list[str] = []
    waiter = threading.Thread(
        target=lambda: refusals.append(refused("acker-fence", lambda: client.wait(start, 0, 60.0)))
    )
    waiter.start()
    while ackers.control.status().waiting < 1:
        pass
    client.stage(start.clock, 0, 0, 1, 1, Updates(), busy=False)
    refused("acker-fence", lambda: client.stage(start.clock, 0, 0, 1, 2, Updates(), busy=False))
    waiter.join()
    assert len(refusals) == 1


def test_whoever_moves_the_clock_wakes_those_who_wait_for_a_tick() -> None:
    ackers = Ackers(limits=Limits(wait_secs=60.0))
    client = ackers.register()
    start = client.begin(0, 0)
    went: list[bool] = []
    waiter = threading.Thread(target=lambda: went.append(client.wait(start, 0, 60.0)))
    waiter.start()
    while ackers.control.status().waiting < 1:
        pass
    ackers.clock.now = 1020.0
    ackers.services[0].wake()
    waiter.join()
    assert went == [True]


def test_one_too_many_to_wait_is_told_to_come_again() -> None:
    ackers = Ackers(limits=Limits(waiting=0))
    client = ackers.register()
    paused: list[float] = []
    client._caller.sleep = paused.append
    assert not client.wait(client.begin(0, 0), 0, limit_secs=0.25)
    assert paused == [0.25]


# -- what comes along


def test_payloads_are_handed_on_once_their_batch_is_committed() -> None:
    ackers = Ackers()
    client = ackers.register()
    start = client.begin(0, 0)
    for level in range(2):
        for slot in range(2):
            note = f"{level}/{slot}".encode()
            client.stage(start.clock, 0, level, slot, 7 + level, Updates(), note)
    assert ackers.control.status(payloads_after=0).payloads == ()
    client.begin(1, 0)
    payloads = ackers.control.status(payloads_after=0).payloads
    assert [kept.payload for kept in payloads] == [b"0/0", b"0/1", b"1/0", b"1/1"]
    assert [kept.number for kept in payloads] == [1, 2, 3, 4]
    rest = ackers.control.status(payloads_after=3).payloads
    assert [(kept.batch, kept.level, kept.slot) for kept in rest] == [(0, 1, 1)]
    assert ackers.control.status().payloads == ()


def test_updates_of_one_execution_reach_the_shards_of_their_roots() -> None:
    ackers = Ackers(count=3)
    client = ackers.register()
    out = Updates.concat([emitted(task, 1, task) for task in (1, 2, 3)])
    both = Updates(
        fail_roots=out.init_roots[[0, 2]],
        fail_reasons=["a", "b"],
        reset_roots=out.init_roots,
    )
    run_batch(client, 0, out, both)
    start = client.begin(1, 0, [Cursor(task, 0, 0) for task in (1, 2, 3)])
    assert {task: v.reasons for task, v in start.verdicts.items()} == {1: ["a"], 2: ["b"], 3: []}
    incarnations = client.lease.incarnations
    assert dict(start.incarnations) == dict(zip((1, 2, 3), incarnations, strict=True))
    assert [service.figures()["words"].pending for service in ackers.services] == [0, 1, 3]


def test_there_may_be_more_ackers_than_a_byte_counts() -> None:
    tasks = tuple(range(1, 301))
    target = AckerTarget("words", "token", tuple(f"acker-{number}" for number in tasks))
    plan = TrackingPlan(levels=1, slots=1, spout_tasks=tasks)
    client = AckerClient(Lease(target, plan, 1, (1,) * len(tasks), 0.0))
    parts = client._split(Updates.concat([emitted(task, 1, 1) for task in tasks]))
    assert [part.init_roots.tolist() for part in parts] == [[root_id(task, 1)] for task in tasks]


def test_what_the_driver_has_seen_is_let_go_and_one_batch_is_never_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracking, "MAX_PAYLOAD_BYTES", 3_500)
    ackers = Ackers()
    client = ackers.register()

    def batch(number: int) -> None:
        start = client.begin(number, 0)
        for level, slot in PLAN.executions():
            client.stage(start.clock, number, level, slot, 7, Updates(), b"x" * 1000)
        client.begin(number + 1, 0)

    batch(0)
    held = ackers.control.status().held_bytes
    assert len(ackers.control.status(payloads_after=0).payloads) == 4
    assert ackers.control.status(payloads_after=4).payloads == ()
    assert ackers.control.status().held_bytes == held - 4000
    batch(1)
    batch(2)  # by now nobody can fetch those of batch 1
    status = ackers.control.status(payloads_after=4)
    assert [kept.number for kept in status.payloads] == [9, 10, 11, 12]
    assert status.payloads_lost == 4


# -- what is too much for one message


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_PART_ENTRIES", 100)
    monkeypatch.setattr(packing, "_PART_CHARS", 1000)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("count", [1, 3])
def test_an_execution_may_say_more_than_fits_a_message(count: int) -> None:
    ackers = Ackers(count, limits=Limits(message_bytes=4_000))
    client = ackers.register()
    out = Updates.concat([emitted(1, 1, 1000), emitted(2, 1, 150)])
    done = acked(out)
    done.fail_roots = out.init_roots[:50]
    done.fail_reasons = [f"{number} is bad " + "x" * 90 for number in range(50)]
    done.held_roots, done.held_tasks = out.init_roots[:120], np.full(120, 4, np.uint32)
    run_batch(client, 0, out, done)
    heard = client.begin(1, 0, [Cursor(1, 0, 0), Cursor(2, 0, 0)]).verdicts
    assert sorted(filter(None, heard[1].reasons)) == sorted(done.fail_reasons)
    assert heard[1].reasons.count(None) == 950
    assert heard[2].reasons == [None] * 150


def part_way(ackers: Ackers, client: AckerClient, nonce: int, count: int) -> None:
    """An attempt that ends when it has made this many calls."""
    calls = 0
    start = ackers.start

    def dies(shard: int, method: str, request: bytes, timeout: float) -> PendingCall:
        nonlocal calls
        calls += 1
        if calls > count:
            raise InterruptedError
        return start(shard, method, request, timeout)

    ackers.start = dies  # type: ignore[method-assign]
    with suppress(InterruptedError):
        client.stage(client.lease.clock, 0, 0, 0, nonce, emitted(1, 1, 250))
    ackers.start = start  # type: ignore[method-assign]


@pytest.mark.usefixtures("small_parts")
def test_an_attempt_that_has_not_said_all_has_said_nothing() -> None:
    ackers = Ackers()
    client = ackers.register()
    client.begin(0, 0)
    held = ackers.control.status().held_bytes
    for dying in (1, 2):
        part_way(ackers, client, nonce=dying, count=dying)
        assert ackers.control.status().staged == ()
    client.stage(client.lease.clock, 0, 0, 0, 3, emitted(1, 1, 10))
    assert ackers.control.status().staged == ((0, 0),)
    assert ackers.control.status().held_bytes < held + 100_000
    run_rest(client)
    client.begin(1, 0)
    assert ackers.control.status().pending == 10


@pytest.mark.usefixtures("small_parts")
def test_an_attempt_that_another_one_began_beside_does_not_come_to_its_end() -> None:
    ackers = Ackers()
    client = ackers.register()
    client.begin(0, 0)
    start, calls = ackers.start, 0

    def overtaken(shard: int, method: str, request: bytes, timeout: float) -> PendingCall:
        nonlocal calls
        calls += 1
        if calls == 2:
            part_way(ackers, client, nonce=2, count=1)
        return start(shard, method, request, timeout)

    ackers.start = overtaken  # type: ignore[method-assign]
    message = refused(
        "acker-fence",
        lambda: client.stage(client.lease.clock, 0, 0, 0, 1, emitted(1, 1, 250)),
    )
    assert "slot 0 of level 0 was executed by two attempts at a time" in message
    assert ackers.control.status().poisoned


@pytest.mark.usefixtures("small_parts")
def test_a_part_may_be_said_again() -> None:
    ackers = Ackers()
    client = ackers.register()
    client.begin(0, 0)
    part_way(ackers, client, nonce=1, count=2)
    for _ in range(2):
        client.stage(client.lease.clock, 0, 0, 0, 1, emitted(1, 1, 250))
    run_rest(client)
    client.begin(1, 0)
    assert ackers.control.status().pending == 250


def run_rest(client: AckerClient) -> None:
    """Every execution of the first batch but its first."""
    for level, slot in PLAN.executions():
        if (level, slot) != (0, 0):
            client.stage(client.lease.clock, 0, level, slot, 9, Updates())
