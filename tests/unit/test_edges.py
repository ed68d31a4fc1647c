"""Roots, edge ids and updates."""

from __future__ import annotations

import numpy as np
import pytest

from topo.tracking.ids import (
    MAX_SEQUENCE,
    MAX_SPOUT_TASK,
    EdgeIds,
    Updates,
    fresh_nonce,
    root_id,
    root_ids,
    sequence_of,
    sequences_of,
    spout_task_of,
    spout_tasks_of,
)
from topo.tracking.open_edges import OpenEdges
from topo.tuples import HeldTuples


@pytest.mark.parametrize("task", [1, 3, MAX_SPOUT_TASK])
@pytest.mark.parametrize("sequence", [1, 256, MAX_SEQUENCE])
def test_a_root_holds_its_spout_task_and_sequence(task: int, sequence: int) -> None:
    root = root_id(task, sequence)
    assert root < 1 << 64
    assert (spout_task_of(root), sequence_of(root)) == (task, sequence)
    roots = root_ids(task, np.array([sequence], np.uint64))
    assert roots.dtype == np.uint64
    assert roots.tolist() == [root]
    assert spout_tasks_of(roots).tolist() == [task]
    assert sequences_of(roots).tolist() == [sequence]


@pytest.mark.parametrize(
    ("task", "sequence"), [(0, 1), (MAX_SPOUT_TASK + 1, 1), (1, 0), (1, MAX_SEQUENCE + 1)]
)
def test_what_does_not_fit_a_root_is_refused(task: int, sequence: int) -> None:
    with pytest.raises(ValueError, match=f"emit {sequence} of spout task {task}"):
        root_id(task, sequence)


def test_edge_ids_are_splitmix64_and_the_same_one_by_one_as_many_at_once() -> None:
    assert EdgeIds(1234567).take(3).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]
    ids, same = EdgeIds((1 << 64) - 3), EdgeIds((1 << 64) - 3)
    drawn = [*ids.take(5).tolist(), ids.take_one(), ids.take_one(), *ids.take(3).tolist()]
    assert drawn == [same.take_one() for _ in range(10)]
    assert len(set(drawn)) == 10
    sizes = [1, 60, 0, 200, 3, 65, 64, 500, 7] * 5
    some = [one for size in sizes for one in ids.take(size).tolist()]
    assert some == [same.take_one() for _ in range(sum(sizes))]


def test_edge_ids_of_two_executions_differ() -> None:
    first, second = EdgeIds(fresh_nonce()), EdgeIds(fresh_nonce())
    assert not set(first.take(1000).tolist()) & set(second.take(1000).tolist())


def test_updates_are_joined_in_their_order() -> None:
    def u64(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        return np.array(numbers, np.uint64)

    first = Updates(
        ack_roots=u64(1, 2), ack_values=u64(3, 4), fail_roots=u64(9), fail_reasons=["a"]
    )
    second = Updates(ack_roots=u64(5), ack_values=u64(6), fail_roots=u64(8), fail_reasons=["b"])
    joined = Updates.concat([first, Updates.empty(), second])
    assert joined.ack_roots.tolist() == [1, 2, 5]
    assert joined.ack_values.tolist() == [3, 4, 6]
    assert (joined.fail_roots.tolist(), joined.fail_reasons) == ([9, 8], ["a", "b"])
    assert len(joined) == 5
    assert Updates.empty().is_empty
    assert Updates.concat([]).is_empty
    assert not joined.is_empty


def test_a_root_of_two_tuples_dropped_at_once_is_still_open_for_a_new_acker() -> None:
    root = root_id(3, 7)
    edges = OpenEdges(HeldTuples())
    edges.restore((), (), {})
    assert edges.record_forgotten([root, root], 0x1234, now=1.0) == [root]
    again = OpenEdges(HeldTuples())
    again.restore((), (), edges.forgotten)
    roots, values = again.owed_to({3: 2})
    assert (roots.tolist(), values.tolist()) == ([root], [0x1234])
