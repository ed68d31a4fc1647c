"""A spout's pending messages and their saved log do what a plain dictionary does, over restarts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from topo.errors import UnsavableAttributeError
from topo.runtime.pending import PendingMessages
from topo.runtime.pending_log import PendingLog
from topo.storage.saving import MAX_BLOB, Changes

# A batch adds so many messages and concludes a part of all that are pending: every one of a range
# of them, with a stride, in an order. Then the process may die.
BATCHES = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 3, 20, 1023, 1024, 1025, 3000]),
        st.floats(0, 1),
        st.floats(0, 1),
        st.integers(1, 4),
        st.sampled_from(["in order", "backwards", "one by one"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


class World:
    """Pending messages beside a dictionary, and what is saved of them."""

    def __init__(self) -> None:
        self.saved: dict[str, bytes] = {}
        self.model: dict[int, Any] = {}
        self.concluded: list[Any] = []
        self.start(0)

    def start(self, last: int) -> None:
        self.log = PendingLog("spout 's' task 1")
        self.pending = PendingMessages()
        self.pending.restore(self.log.load(self.saved, last), last)

    def add(self, count: int) -> None:
        ids = [f"m{number}" for number in range(self.pending.last, self.pending.last + count)]
        sequences = (
            self.pending.add_all(ids) if count % 2 else [self.pending.add(one) for one in ids]
        )
        self.model.update(zip(sequences, ids, strict=True))

    def conclude(self, sequences: list[int], one_by_one: bool) -> None:
        if one_by_one:
            for sequence in sequences:
                assert sequence in self.pending
                assert self.pending.take(sequence) == self.model.pop(sequence)
                self.concluded.append(np.array([sequence], np.uint64))
            return
        unknown = [self.pending.last + 7, 0xFFFFFF]
        known = self.pending.known(np.array([*sequences, *unknown], np.uint64))
        assert known.tolist() == sequences
        assert self.pending.ids_of(known) == [self.model.pop(one) for one in sequences]
        self.pending.drop(known)
        self.concluded.append(known)

    def save(self) -> Changes:
        changes = Changes()
        self.log.save(self.pending, self.concluded, changes)
        self.concluded.clear()
        changes.apply_to(self.saved)
        return changes

    def check(self) -> None:
        assert len(self.pending) == len(self.model)
        assert self.pending.first == min(self.model, default=None)
        sequences = self.pending.sequences()
        assert sequences.tolist() == sorted(self.model)
        assert self.pending.ids_of(sequences) == [self.model[one] for one in sorted(self.model)]


@given(batches=BATCHES)
@examples(60)
def test_messages_are_what_a_dictionary_has_of_them_after_any_restart(
    batches: list[tuple[int, float, float, int, str, bool]],
) -> None:
    world = World()
    for count, start, size, stride, order, dies in batches:
        world.add(count)
        all_of_them = sorted(world.model)
        first = int(start * len(all_of_them))
        chosen = all_of_them[first : first + int(size * len(all_of_them)) + 1 : stride]
        if order == "backwards":
            chosen.reverse()
        world.conclude(chosen, one_by_one=order == "one by one")
        world.check()
        world.save()
        if dies:
            world.start(world.pending.last)
            world.check()
    assert world.log.load(world.saved, 0) == world.model


def test_what_is_saved_follows_what_changed_and_not_what_is_pending() -> None:
    world = World()
    world.add(50_000)
    world.save()
    world.add(2)
    world.conclude([7, 30_000], one_by_one=True)
    changes = world.save()
    assert sum(map(len, changes.puts.values())) < 300
    assert not changes.deletes


def test_one_message_that_stays_does_not_keep_the_many_that_came_with_it() -> None:
    world = World()
    for _ in range(20):
        world.add(5_000)
        stuck = [one for one in world.model if one % 5_000 == 0]
        world.conclude([one for one in world.model if one not in stuck], one_by_one=False)
        world.save()
        world.add(5_000)
        world.save()
    world.conclude([one for one in world.model if one % 5_000], one_by_one=False)
    world.save()
    assert len(world.model) == 40
    assert sum(map(len, world.saved.values())) < 5_000
    world.start(world.pending.last)
    world.check()


def test_ids_that_are_large_are_saved_in_several_blobs() -> None:
    world = World()
    for number in range(3):
        large = bytes([number]) * (MAX_BLOB // 3)
        world.model[world.pending.add(large)] = large
    world.save()
    assert len(world.saved) == 2
    assert all(len(blob) < MAX_BLOB + 1000 for blob in world.saved.values())
    world.start(3)
    world.check()


def test_an_id_that_cannot_be_saved_is_named() -> None:
    world = World()
    world.pending.add(iter([1]).__class__)
    world.pending.add(n for n in [1])
    with pytest.raises(UnsavableAttributeError, match="spout 's' task 1: a msg_id holds a generat"):
        world.save()
