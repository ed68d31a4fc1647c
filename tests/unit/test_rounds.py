"""What goes round in a slot: the hand-over between level 0 and the level that made it."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from topo.engine.spark.worker.messages import Payload
from topo.engine.spark.worker.rounds import TakenRound, drop_taken
from topo.errors import EngineError
from topo.runtime.laps import Laps, has_laps
from topo.runtime.roundabout import Round
from topo.storage.saving import Changes
from topo.tracking.ids import root_id
from topo.wire.frame import LOOPED, SEQUENCE_STEP, Frame, PackedFrame, Section, Trees
from topo.wire.payload import TAKEN


def frame(number: int, *values: int, roots: list[int] | None = None) -> PackedFrame:
    trees = None
    if roots is not None:
        trees = Trees(np.array(roots, np.uint64), np.array([7 + r for r in roots], np.uint64))
    section = Section("default", len(values), [list(values)], trees)
    (packed,) = Frame(1, 2, LOOPED + number * SEQUENCE_STEP, [section]).pack()
    return packed


def test_what_is_taken_is_dropped_and_no_more() -> None:
    laps = Laps()
    for number in (1, 2, 3):
        laps.add(frame(number, number, number))
    host: Any = SimpleNamespace(roundabout=SimpleNamespace(drop=lambda upto: laps.drop(upto[1])))
    taken = TakenRound(2, b"abc", Round(upto={1: frame(2).sequence}))
    payloads: list[Payload] = [taken.pack(), b"\1"]
    assert payloads[0][0] == TAKEN
    drop_taken(host, payloads, b"abc")
    assert payloads == [b"\1"]
    assert [waiting.sequence for waiting in laps] == [frame(3).sequence]
    assert laps.count == 2


def test_what_was_taken_of_another_commit_ends_the_batch() -> None:
    host: Any = SimpleNamespace(roundabout=None)
    with pytest.raises(EngineError, match="another commit"):
        drop_taken(host, [TakenRound(2, b"abc").pack()], b"abd")


def test_laps_are_saved_until_they_are_dropped() -> None:
    saved: dict[str, bytes] = {}
    random, laps, waiting = Random(1), Laps(), dict[int, int]()
    number = 1
    for _ in range(200):
        if random.random() < 0.5:
            laps.add(frame(number, number))
            waiting[frame(number).sequence] = number
            number += 1
        elif waiting:
            upto = random.choice(list(waiting))
            laps.drop(upto)
            waiting = {key: value for key, value in waiting.items() if key > upto}
        if random.random() < 0.5:
            changes = Changes()
            laps.save(changes)
            changes.apply_to(saved)
            laps = Laps()
            assert laps.load(saved) > max(waiting, default=LOOPED)
            assert has_laps(saved) == bool(waiting)
        assert [each.sequence for each in laps] == list(waiting)
        assert (laps.count, laps.last) == (len(waiting), max(waiting, default=0))


def test_an_acker_that_has_lost_its_trees_hears_of_what_goes_round_once() -> None:
    laps = Laps()
    own, other = root_id(3, 1), root_id(4, 1)
    assert len(laps.owed_to({3: 1, 4: 1})[0]) == 0
    laps.add(frame(1, 5, 6, roots=[own, other]))
    assert len(laps.owed_to({3: 1, 4: 1})[0]) == 0
    roots, edges = laps.owed_to({3: 2, 4: 1})
    assert (roots.tolist(), edges.tolist()) == ([own], [7 + own])
    assert len(laps.owed_to({3: 2, 4: 1})[0]) == 0
    changes = Changes()
    laps.save(changes)
    again = Laps()
    again.load(changes.puts)
    assert len(again.owed_to({3: 2, 4: 1})[0]) == 0
    assert again.owed_to({3: 5, 4: 5})[0].tolist() == [own, other]
