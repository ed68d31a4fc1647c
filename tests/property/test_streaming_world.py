"""Exactly-once over deaths at any moment, in order; and ways to get it wrong, which show here."""

from __future__ import annotations

import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from tests.property.streaming_world import Stuck, World
from topo.engine.spark.realtime import level
from topo.engine.spark.realtime.align import Alignment, Marker
from topo.engine.spark.realtime.rounds import SavedRound
from topo.runtime.laps import Laps
from topo.runtime.roundabout import Round
from topo.wire.frame import LOOPED

seeds = st.integers(0, 2**32)


@examples(12)
@given(seeds, st.integers(0, 6))
def test_every_word_is_counted_once_whatever_dies_and_when(seed: int, deaths: int) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        closing(World(Path(directory), seed)) as world,
    ):
        world.run(deaths)
        assert world.mistakes() == []


class Unaligned(Alignment[Any]):
    """Works on whatever comes, whether its source has ended the epoch or not."""

    def receive(self, source: int, item: Any) -> None:
        if isinstance(item, Marker):
            self._ended[source] = item
        else:
            self._ready.append(item)


def goes_wrong(seed: int, directory: Path, *, uncommitted: bool = False) -> bool:
    with closing(World(directory, seed, lines=100)) as world:
        world.restores_uncommitted = uncommitted
        with suppress(Stuck):  # which is wrong enough, and shows in what was acked
            world.run(12)
        return bool(world.mistakes())


def test_without_alignment_the_counts_are_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(level, "Alignment", Unaligned)
    assert any(goes_wrong(seed, tmp_path / str(seed)) for seed in range(5))


def test_with_uncommitted_records_the_counts_are_wrong(tmp_path: Path) -> None:
    assert any(goes_wrong(seed, tmp_path / str(seed), uncommitted=True) for seed in range(5))


class Late(SavedRound):
    """Forgets what goes round an epoch after the one that executes it."""

    _last = Round()

    def note_saved(self) -> None:
        self._roundabout.drop(self._last.upto)
        super().note_saved()
        self._last = self._saved

    def take(self) -> Round:
        taken, self._saved = self._saved, Round()
        return taken


def test_what_goes_round_is_forgotten_in_the_epoch_that_executes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(level, "SavedRound", Late)
    assert any(goes_wrong(seed, tmp_path / str(seed)) for seed in range(5))


def test_what_goes_round_is_part_of_what_is_restored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Laps, "load", lambda *_: LOOPED)
    assert any(goes_wrong(seed, tmp_path / str(seed)) for seed in range(5))


def test_without_waiting_for_the_end_of_the_epoch_words_come_before_their_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(level, "_longer_ways", lambda *_: {})
    worlds = [World(tmp_path / str(seed), seed) for seed in range(5)]
    for world in worlds:
        with closing(world):
            world.run(0)
    assert any("came before" in mistake for world in worlds for mistake in world.mistakes())
