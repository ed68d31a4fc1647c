"""Windows over raw tuples: that they are saved, and how, changes nothing that is executed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from topo import Window, WindowedBolt
from topo.event_time import AFTER_ALL, BEFORE_ALL
from topo.storage.saving import Changes
from topo.timed import Clock, OperatorTask, Rows
from topo.tuples import UNTRACKED, Source, Tuple, new_tuple

SOURCES = [
    Source("a", "default", 1, ("key", "ts", "n")),
    Source("a", "default", 2, ("key", "ts", "n")),
    Source("b", "default", 3, ("ts", "key", "n", "more")),
]


class Told(WindowedBolt):
    """Notes what it is told."""

    outputs = ()

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.kept: list[Window] = []

    def execute(self, window: Window) -> None:
        lists = (window.tuples, window.new, window.expired)
        own = tuple([tup["n"] for tup in tuples] for tuples in lists)
        self.told.append((window.key, window.start, window.end, *own))


class Task:
    """The task, as far as the operator sees it."""

    owner = "bolt 'w' task 1"
    conf: dict[str, Any] = {}

    def __init__(self) -> None:
        self.late: list[int] = []
        self.clock = 0.0

    def now(self) -> float:
        return self.clock

    def set_aside(self, rows: Rows, places: Iterable[int]) -> None:
        self.late += [rows.tuple(place)["n"] for place in places]

    def users_code(self) -> AbstractContextManager[None]:
        return nullcontext()

    def failed(self, error: BaseException) -> None:
        raise error

    def warn_once(self, text: str) -> None:
        raise AssertionError(text)


def rows_of(source: Source, tuples: list[dict[str, Any]], timed: bool) -> Rows:
    columns = [[values[name] for values in tuples] for name in source.fields]

    def make(place: int) -> Tuple:
        return new_tuple(source, [column[place] for column in columns], UNTRACKED)

    times = [values["ts"] for values in tuples] if timed else None
    return Rows(
        source.component, source.stream, source.fields, columns, len(tuples), times, make, source
    )


class Life:
    """An executor that is fed batches; each may be followed by a restart."""

    def __init__(self, made: Callable[[], Told], saves: bool) -> None:
        self._made = made
        self._saves = saves
        self.saved: dict[str, bytes] = {}
        self.watermark = BEFORE_ALL
        self.told: list[Any] = []
        self.task = Task()
        self._begin()

    def _begin(self) -> None:
        self.bolt = self._made()
        collector: Any = SimpleNamespace(window_anchors=())
        self.bolt.collector = collector
        task: Any = self.task
        operator_task: OperatorTask = task
        self.executor = self.bolt.operator(operator_task)
        self.executor.load(self.saved, self.watermark)

    def restart(self) -> None:
        self.told += self.bolt.told
        self._begin()

    def batch(self, rows: list[Rows], watermark: int) -> None:
        before, ended = self.watermark, watermark >= AFTER_ALL
        self.executor.begin(Clock(before, before, self.task.clock))
        for one in rows:
            self.executor.rows(one)
        self.watermark = max(before, watermark)
        self.executor.advance(Clock(before, self.watermark, self.task.clock, ended))
        self.task.clock += 1
        if self._saves:
            changes = Changes()
            self.executor.save(changes)
            changes.apply_to(self.saved)


WINDOWS: dict[str, Callable[[Told], Told]] = {
    "tumbling": lambda bolt: bolt.with_tumbling_window(timedelta(milliseconds=7)),
    "sliding": lambda bolt: bolt.with_window(timedelta(milliseconds=20), timedelta(milliseconds=5)),
    "counts": lambda bolt: bolt.with_window(5, 2),
    "full": lambda bolt: bolt.with_window(5, 2).with_full_windows(),
    "gaps": lambda bolt: bolt.with_window(2, 3),
    "count by time": lambda bolt: bolt.with_window(4, timedelta(milliseconds=6)),
    "time by count": lambda bolt: bolt.with_window(timedelta(milliseconds=9), 3),
}

tuples = st.lists(
    st.tuples(st.sampled_from("aab"), st.integers(0, 40), st.integers(0, 2)), max_size=120
)


Run = tuple[Source, list[dict[str, Any]]]


def batches_of(given_tuples: list[Any], random: Random) -> Iterator[tuple[list[Run], int]]:
    """Yield batches of tuples, as runs of one source, each with a watermark that only rises."""
    rest = [
        (SOURCES[place], {"key": key, "ts": ts + n // 3, "n": n, "more": None})
        for n, (key, ts, place) in enumerate(given_tuples)
    ]
    watermark = BEFORE_ALL
    while rest:
        size = random.choice((1, 1, 4, 30))
        batch, rest = rest[:size], rest[size:]
        watermark = max(watermark, max(values["ts"] for _, values in batch) - random.randint(0, 30))
        runs: list[Run] = []
        for source, values in batch:
            if not runs or runs[-1][0] != source:
                runs.append((source, []))
            runs[-1][1].append(values)
        yield runs, watermark


@pytest.mark.parametrize("by_arrival", [False, True], ids=["event time", "arrival"])
@pytest.mark.parametrize("keyed", [False, True], ids=["of all", "by key"])
@pytest.mark.parametrize("name", WINDOWS)
@given(given_tuples=tuples, seed=st.integers(0, 1 << 30))
@examples(15)
def test_restarts_change_nothing(
    name: str, keyed: bool, by_arrival: bool, given_tuples: list[Any], seed: int
) -> None:
    def made() -> Told:
        bolt = WINDOWS[name](Told())
        if not by_arrival:
            bolt.with_timestamp_field("ts")
        return bolt.with_key("key") if keyed else bolt

    whole, cut = Life(made, saves=False), Life(made, saves=True)
    random = Random(seed)
    for runs, watermark in batches_of(given_tuples, random):
        for life in (whole, cut):
            life.batch([rows_of(source, own, not by_arrival) for source, own in runs], watermark)
        if random.random() < 0.4:
            cut.restart()
            assert cut.executor.state_rows == whole.executor.state_rows
    for life in (whole, cut):
        life.batch([], AFTER_ALL)
        life.restart()
    assert cut.told == whole.told
    assert cut.task.late == whole.task.late


def test_a_trickle_makes_few_records_and_what_is_gone_leaves_none() -> None:
    def made() -> Told:
        return Told().with_tumbling_window(timedelta(seconds=1)).with_timestamp_field("ts")

    life = Life(made, saves=True)
    for n in range(900):
        source = SOURCES[n % 2]
        life.batch([rows_of(source, [{"key": "a", "ts": n, "n": n}], True)], BEFORE_ALL)
    waiting = [name for name in life.saved if name.startswith("waiting/")]
    assert 0 < len(waiting) <= 12
    assert life.executor.state_rows == 900
    life.restart()
    life.batch([], 5000)
    assert [name for name in life.saved if name.startswith("waiting/")] == []
    # A window of Storm's has its end: the first one has the tuple of time 0 alone.
    assert [told[4] for told in life.bolt.told] == [[0], list(range(1, 900))]


def test_a_chunk_with_few_rows_left_is_written_without_the_others() -> None:
    def made() -> Told:
        return Told().with_tumbling_window(2).with_key("key")

    life = Life(made, saves=True)
    columns = [{"key": "rare" if n == 77 else "often", "ts": n, "n": n} for n in range(2001)]
    life.batch([rows_of(SOURCES[0], columns, False)], BEFORE_ALL)
    assert life.executor.state_rows == 3  # the last two that were in a window, and the rare one
    (blob,) = [data for name, data in life.saved.items() if name.startswith("waiting/")]
    assert len(blob) < 500
    life.restart()
    life.batch([rows_of(SOURCES[0], [{"key": "rare", "ts": 0, "n": -1}], False)], BEFORE_ALL)
    assert [told[3] for told in life.bolt.told] == [[77, -1]]


def test_large_values_are_saved_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.windows.rows.MAX_BLOB", 20_000)

    def made() -> Told:
        return Told().with_tumbling_window(1000)

    life = Life(made, saves=True)
    columns = [{"key": "k" * 500 + str(n), "ts": n, "n": n} for n in range(999)]
    life.batch([rows_of(SOURCES[0], columns, False)], BEFORE_ALL)
    sizes = [len(data) for name, data in life.saved.items() if name.startswith("waiting/")]
    assert len(sizes) > 20
    assert max(sizes) <= 20_000
    life.restart()
    assert life.executor.state_rows == 999
    life.batch([rows_of(SOURCES[0], [{"key": "last", "ts": 0, "n": 999}], False)], BEFORE_ALL)
    assert [told[3] for told in life.bolt.told] == [list(range(1000))]
    life.batch([], AFTER_ALL)


class Keeping(Told):
    """Keeps windows, unread."""

    def execute(self, window: Window) -> None:
        self.kept.append(window)


class Reading(Told):
    """Keeps windows, once they are read."""

    def execute(self, window: Window) -> None:
        super().execute(window)
        self.kept.append(window)


def test_a_window_that_was_kept_can_be_read_when_its_tuples_are_gone() -> None:
    def made() -> Told:
        return Keeping().with_window(4, 2)

    life = Life(made, saves=True)
    for n in range(0, 12, 2):
        two = [{"key": "a", "ts": m, "n": m} for m in (n, n + 1)]
        life.batch([rows_of(SOURCES[0], two, False)], BEFORE_ALL)
    life.batch([], AFTER_ALL)
    kept = life.bolt.kept
    assert [len(window) for window in kept] == [2, 4, 4, 4, 4, 4]
    assert [[tup["n"] for tup in window] for window in kept[:3]] == [
        [0, 1], [0, 1, 2, 3], [2, 3, 4, 5]
    ]  # fmt: skip
    assert [tup["n"] for tup in kept[3].expired] == [2, 3]
    assert [tup["n"] for tup in kept[3].new] == [6, 7]


def test_windows_that_share_a_tuple_have_the_same_one() -> None:
    def made() -> Told:
        return Reading().with_window(4, 2)

    life = Life(made, saves=True)
    for n in range(0, 8, 2):
        two = [{"key": "a", "ts": m, "n": m} for m in (n, n + 1)]
        life.batch([rows_of(SOURCES[n // 2 % 2], two, False)], BEFORE_ALL)
    first, second = life.bolt.kept[1:3]
    assert second.tuples[0] is first.tuples[2]
