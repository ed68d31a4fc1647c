"""The ledger against sets of edges: whatever is said, in whatever order, both decide the same."""

from __future__ import annotations

from functools import reduce
from operator import xor

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests.property.edge_sets import Batch, EdgeSets
from tests.property.scale import examples
from topo.tracking import few_updates
from topo.tracking.ids import EdgeIds, Updates, root_id
from topo.tracking.ledger import Ledger

TIMEOUT = 10.0
TASKS = (2, 7)
IDS = EdgeIds(0xFEED).take(12).tolist()

edges = st.lists(st.sampled_from(IDS[:6]), max_size=4)
holders = st.sampled_from([11, 12, 13])
known_root = st.tuples(st.sampled_from(TASKS), st.integers(0, 12))
operation = st.one_of(
    st.tuples(st.just("init"), st.sampled_from(TASKS), st.sampled_from([0, 0, 0, 1, 300]), edges),
    st.tuples(st.just("ack"), known_root, edges),
    st.tuples(st.just("finish"), known_root),
    st.tuples(st.just("fail"), known_root, st.sampled_from(["bad", "worse"])),
    st.tuples(st.just("reset"), known_root),
    st.tuples(st.just("held"), known_root, holders),
    st.tuples(st.just("released"), known_root, holders),
)
batches = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 1.0, 9.9, 10.0]), st.lists(operation, max_size=12)),
    max_size=12,
)


class Script:
    """Turns drawn operations into batches; roots are the last few emitted, and the next few."""

    def __init__(self, model: EdgeSets) -> None:
        self.model = model
        self.emitted = {task: [0] for task in TASKS}

    def batch(self, operations: list[tuple[object, ...]]) -> Batch:
        batch = Batch()
        for kind, *arguments in operations:
            getattr(self, f"_{kind}")(batch, *arguments)
        return batch

    def _root(self, place: tuple[int, int]) -> int:
        task, back = place
        sequence = self.emitted[task][-1] + 3 - back
        recent = [known for known in self.emitted[task] if 0 < known <= sequence]
        return root_id(task, sequence if sequence > self.emitted[task][-1] else (recent or [1])[-1])

    def _init(self, batch: Batch, task: int, gap: int, drawn: list[int]) -> None:
        self.emitted[task].append(self.emitted[task][-1] + 1 + gap)
        batch.inits.append((root_id(task, self.emitted[task][-1]), drawn))

    def _ack(self, batch: Batch, place: tuple[int, int], drawn: list[int]) -> None:
        batch.acks.append((self._root(place), drawn))

    def _finish(self, batch: Batch, place: tuple[int, int]) -> None:
        root = self._root(place)
        if root in self.model.roots:
            batch.acks.append((root, sorted(self.model.roots[root].edges)))

    def _fail(self, batch: Batch, place: tuple[int, int], reason: str) -> None:
        batch.fails.append((self._root(place), reason))

    def _reset(self, batch: Batch, place: tuple[int, int]) -> None:
        batch.resets.append(self._root(place))

    def _held(self, batch: Batch, place: tuple[int, int], task: int) -> None:
        batch.held.append((self._root(place), task))

    def _released(self, batch: Batch, place: tuple[int, int], task: int) -> None:
        batch.released.append((self._root(place), task))


def updates_of(batch: Batch) -> Updates:
    def roots(pairs: list[tuple[int, list[int]]] | list[tuple[int, int]]) -> list[int]:
        return [root for root, _ in pairs]

    def values(pairs: list[tuple[int, list[int]]]) -> list[int]:
        return [reduce(xor, ids, 0) for _, ids in pairs]

    def u64(numbers: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        return np.array(numbers, np.uint64)

    return Updates(
        init_roots=u64(roots(batch.inits)),
        init_values=u64(values(batch.inits)),
        ack_roots=u64(roots(batch.acks)),
        ack_values=u64(values(batch.acks)),
        fail_roots=u64([root for root, _ in batch.fails]),
        fail_reasons=[reason for _, reason in batch.fails],
        reset_roots=u64(batch.resets),
        held_roots=u64(roots(batch.held)),
        held_tasks=np.array([task for _, task in batch.held], np.uint32),
        released_roots=u64(roots(batch.released)),
        released_tasks=np.array([task for _, task in batch.released], np.uint32),
    )


def split(updates: Updates, at: int) -> list[Updates]:
    """The same updates as two executions would send them."""
    names = ("init_roots", "init_values", "ack_roots", "ack_values")
    first = {name: getattr(updates, name)[:at] for name in names}
    rest = {name: getattr(updates, name)[at:] for name in names}
    others = {k: v for k, v in vars(updates).items() if k not in names}
    return [Updates(**first), Updates(**rest, **others)]


@given(batches, st.integers(0, 5), st.sampled_from([0, few_updates.FEW]))
@examples(300)
def test_ledger_decides_as_sets_of_edges_do(
    drawn: list[tuple[float, list[tuple[object, ...]]]], at: int, few: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(few_updates, "FEW", few)  # 0: all of them by columns
        decide_alike(drawn, at)


def decide_alike(drawn: list[tuple[float, list[tuple[object, ...]]]], at: int) -> None:
    model, ledger = EdgeSets(TIMEOUT), Ledger(TIMEOUT)
    script, now = Script(model), 100.0
    for advance, operations in drawn:
        now += advance
        batch = script.batch(operations)
        note(f"{now}: {batch}")
        ledger.apply(split(updates_of(batch), at), now)
        model.apply(batch, now)
        compare(ledger, model)
        held = {root: model.holders(root) for root, entry in model.roots.items() if entry.emitted}
        heard = {task: len(model.verdicts.get(task, [])) for task in TASKS}
        ledger.expire(now)
        model.expire(now)
        compare(ledger, model)
        for task in TASKS:
            expired = ledger.verdicts(task, heard[task])
            for sequence, reason in zip(expired.sequences.tolist(), expired.reasons, strict=True):
                holding = held[root_id(task, sequence)]
                assert reason is not None
                assert ("held by" in reason) == bool(holding)
                assert all(f"task {holder}" in reason for holder in holding)
    ledger.expire(now + TIMEOUT)
    assert ledger.pending() == 0
    assert ledger.next_timeout() is None
    assert len(ledger._pages) <= len(TASKS)
    assert not ledger._early
    assert not len(ledger._holders)


def compare(ledger: Ledger, model: EdgeSets) -> None:
    assert ledger.pending() == model.pending()
    assert ledger.next_timeout() == model.next_timeout()
    for task in TASKS:
        verdicts = ledger.verdicts(task)
        said = [reason and reason.split(";")[0] for reason in verdicts.reasons]
        expected = model.verdicts.get(task, [])
        assert list(zip(verdicts.sequences.tolist(), said, strict=True)) == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 6)), max_size=20))
@examples(100)
def test_verdicts_are_heard_from_any_cursor_until_it_is_committed(
    turns: list[tuple[int, int, int]],
) -> None:
    ledger, every, forgotten, emitted = Ledger(None), list[tuple[int, bool]](), 0, 0
    for emits, ahead, forget in turns:
        roots = [root_id(3, emitted + 1 + which) for which in range(emits)]
        emitted += emits
        zeros = np.zeros(emits, np.uint64)
        fails = roots[::2]
        ledger.apply(
            Updates(
                init_roots=np.array(roots, np.uint64),
                init_values=zeros,
                fail_roots=np.array(fails, np.uint64),
                fail_reasons=["no"] * len(fails),
            ),
            0.0,
        )
        order = [(root & 0xFFFF, root in fails) for root in [*fails, *roots[1::2]]]
        every.extend(order)
        forgotten = min(len(every), forgotten + forget)
        ledger.forget(3, forgotten)
        after = min(len(every), forgotten + ahead)
        heard = ledger.verdicts(3, after)
        assert heard.first == after + 1
        assert heard.last == len(every)
        pairs = zip(heard.sequences.tolist(), heard.reasons, strict=True)
        assert [(sequence, reason == "no") for sequence, reason in pairs] == every[after:]
