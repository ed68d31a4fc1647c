"""Saving and restoring is as if nothing had been saved, and costs what changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from tests.wiring import Fed
from topo import Bolt, StatefulBolt, Tuple
from topo.state import KeyValueState
from topo.storage import saving
from topo.storage.saving import Changes, SavedMapping
from topo.wire.column import dump

# -- the log of a mapping --------------------------------------------------------------------------

names = st.integers(0, 30)
sizes = st.sampled_from([1, 10, 200])
batches = st.lists(
    st.tuples(
        st.dictionaries(names, sizes, max_size=6),  # written
        st.sets(names, max_size=4),  # deleted
        st.booleans(),  # restored afterwards
    ),
    max_size=60,
)


@given(batches=batches, largest=st.sampled_from([100, 300, saving.MAX_BLOB]))
@examples(60)
def test_a_log_always_restores_exactly_what_was_saved(batches: Any, largest: int) -> None:
    data: dict[int, str] = {}
    saved: dict[str, bytes] = {}
    log = SavedMapping("state", "bolt 'b'")
    with (
        mock.patch.object(saving, "_SMALL_LOG", 200),
        mock.patch.object(saving, "MAX_BLOB", largest),
    ):
        for number, (written, deleted, restored) in enumerate(batches):
            for key in deleted:
                data.pop(key, None)
            data.update((key, f"{number}" * size) for key, size in written.items())
            changes = Changes()
            log.save(data, {*written, *deleted}, changes)
            assert not set(changes.deletes) & set(changes.puts)
            assert bool(changes) == bool(written or deleted)
            changes.apply_to(saved)
            assert SavedMapping("state", "bolt 'b'").load(saved) == data
            if restored:
                log = SavedMapping("state", "bolt 'b'")
                data = log.load(saved)


def test_what_many_keys_hold_is_cut_into_blobs_that_spark_can_take() -> None:
    data = {key: bytes(key % 1000) for key in range(3000)}
    changes = Changes()
    with mock.patch.object(saving, "MAX_BLOB", 50_000):
        SavedMapping("state", "bolt 'b'").save(data, data, changes)
        (alone,) = _saved({0: bytes(200_000)}).puts.values()
    assert len(changes.puts) > 20
    assert max(map(len, changes.puts.values())) <= 50_000
    assert len(alone) > 200_000, "a value is never cut"
    assert SavedMapping("state", "bolt 'b'").load(changes.puts) == data


def _saved(data: dict[int, bytes]) -> Changes:
    changes = Changes()
    SavedMapping("state", "bolt 'b'").save(data, data, changes)
    return changes


def written_by(
    rounds: int, changes_of: Callable[[int, dict[int, str]], set[int]], restart_every: int
) -> list[tuple[int, int, int]]:
    """After each batch: the bytes of the log, of the live data, and of what was written."""
    data: dict[int, str] = {}
    saved: dict[str, bytes] = {}
    log = SavedMapping("state", "bolt 'b'")
    seen = []
    with mock.patch.object(saving, "_SMALL_LOG", 1000):
        for number in range(rounds):
            changes = Changes()
            log.save(data, changes_of(number, data), changes)
            changes.apply_to(saved)
            if number % restart_every == restart_every - 1:
                log = SavedMapping("state", "bolt 'b'")
                restored = log.load(saved)
                assert restored == data
                data = restored
            live = len(dump((list(data), list(data.values()), [])))
            seen.append((sum(map(len, saved.values())), live, sum(map(len, changes.puts.values()))))
    return seen


def one_key_of_many(number: int, data: dict[int, str]) -> set[int]:
    if not number:
        data.update((key, f"{key:050}") for key in range(200))
        return set(data)
    data[number % 7] = f"{number:050}"
    return {number % 7}


def one_large_key_beside_small_ones(number: int, data: dict[int, str]) -> set[int]:
    if not number:
        data.update((key, f"x{key}") for key in range(200))
        return set(data)
    data[0] = f"{number:05000}"
    return {0}


def all_deleted_after_a_while(number: int, data: dict[int, str]) -> set[int]:
    if number < 200:
        data[number] = f"{number:0100}"
        return {number}
    gone = number % 200
    data.pop(gone, None)
    return {gone}


def the_same_key(number: int, data: dict[int, str]) -> set[int]:
    data[1] = "x" * 100
    return {1}


WORKLOADS = [
    one_key_of_many,
    one_large_key_beside_small_ones,
    all_deleted_after_a_while,
    the_same_key,
]


@given(workload=st.sampled_from(WORKLOADS), restart_every=st.sampled_from([1, 3, 50, 10_000]))
@examples(16)
def test_a_log_stays_within_a_small_multiple_of_the_live_data(
    workload: Any, restart_every: int
) -> None:
    seen = written_by(400, workload, restart_every)
    most = 0
    for log, live, _ in seen:
        most = max(most, live)
        assert log <= 8 * most + 4000
    log, live, _ = seen[-1]
    assert log <= 8 * live + 4000


def test_a_batch_costs_what_changed_and_not_the_size_of_the_state() -> None:
    seen = written_by(400, one_key_of_many, 10_000)
    _, live, first = seen[0]
    assert first >= live
    assert max(written for _, _, written in seen[1:]) < live / 10


# -- a bolt's state, with restarts -----------------------------------------------------------------

values = st.integers(0, 9)
keyed = st.one_of(
    st.tuples(st.just("put"), values, values),
    st.tuples(st.just("append"), values, values),
    st.tuples(st.just("delete"), values, values),
    st.tuples(st.just("pop"), values, values),
    st.tuples(st.just("clear"), values, values),
    st.tuples(st.just("attribute"), values, values),
    st.tuples(st.just("drop"), values, values),
    st.tuples(st.just("hold"), values, values),
    st.tuples(st.just("release"), values, values),
    st.tuples(st.just("fail"), values, values),
)


class Machine(StatefulBolt):
    """Does to its state what tuples tell it; what it emits shows all of it."""

    outputs = ("seen",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.count = 0
        self.table: dict[int, list[int]] = {}
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        what, key, value = tup.x[0]
        self.count += 1
        state: KeyValueState[Any, Any] = self.state
        if what == "put":
            state[key] = [value]
        elif what == "append":
            state.setdefault(key, []).append(value)
        elif what == "delete":
            state.delete(key)
        elif what == "pop" and state:
            state.pop(min(state, key=str))
        elif what == "clear" and value == 0:
            state.clear()
        elif what == "attribute":
            self.table.setdefault(key, []).append(value)
            setattr(self, f"extra{key % 3}", value)
        elif what == "drop" and hasattr(self, f"extra{key % 3}"):
            delattr(self, f"extra{key % 3}")
        elif what == "hold":
            self.held.append(tup)
            if value % 2:
                state["kept"] = [*state.get("kept", []), tup]
            self.emit(["held"], anchors=tup)
            return
        elif what in ("release", "fail") and self.held:
            kept = self.held.pop(key % len(self.held))
            self.emit(["released"], anchors=[kept, tup])
            (self.ack if what == "release" else self.fail)(kept)
            state.pop("kept", None)
        self.emit([self.shown()], anchors=tup)
        self.ack(tup)

    def shown(self) -> str:
        extra = [getattr(self, f"extra{n}", None) for n in range(3)]
        state = sorted((str(k), v) for k, v in self.state.items() if k != "kept")
        held = [tup.values for tup in self.held]
        return repr((self.count, self.table, extra, state, held))


class Ack(Bolt):
    def execute(self, tup: Tuple) -> None:
        self.ack(tup)


def life(operations: Any, restart_after: set[int]) -> tuple[Any, ...]:
    fed = Fed(Machine(), Ack())
    for number, operation in enumerate(operations):
        fed.feed((operation, number))
        if number in restart_after:
            fed.run.restart()
    fed.run.settle()
    held = fed.run.stats().components["b1"].held
    fed.cluster.advance(100)
    return fed.out(), fed.feeder.acked, fed.feeder.failed, fed.feeder.reasons, held


@given(
    operations=st.lists(keyed, max_size=25),
    restart_after=st.sets(st.integers(0, 25)),
)
@examples(40)
def test_restarts_change_nothing(operations: Any, restart_after: set[int]) -> None:
    with mock.patch.object(saving, "_SMALL_LOG", 100):
        assert life(operations, restart_after) == life(operations, set())
