"""Tables against brute force: random changes, cut into batches anyhow, with restarts in between.

After every batch the result must be what a computation over the whole tables gives, each change's
old row must be what was reported before, and no key may change twice in a batch: so nothing is ever
seen half done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from math import inf, isfinite, isnan, nan
from random import Random
from statistics import pvariance, variance
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.errors import StreamError
from topo.event_time import AFTER_ALL, BEFORE_ALL, EventTime
from topo.operators.aggregates import combiners
from topo.operators.aggregates.combiners import (
    ArgMax,
    Collect,
    Combiner,
    Count,
    Distinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    Sum,
    TopK,
    Var,
    in_tables,
)
from topo.operators.aggregates.retractable import RetractableAggregate
from topo.storage.saving import Changes
from topo.streams.combiners import ValueOf
from topo.tables.by_hand import ByHand
from topo.tables.changelog import KeyedTablesBolt
from topo.tables.expression import Join, Projection, TableRows
from topo.tables.foreign import ChangesByKeyBolt, ForeignJoinBolt
from topo.tables.groups import GroupedTableBolt
from topo.tables.leaving import ByForeignKey, ByGroup, ByKey
from topo.tables.lookup import ROWS, LookupBolt
from topo.tables.sources import UPSERTS, SourcePlan
from topo.tables.table import LookupRules
from topo.timed import Clock, Rows

Row = tuple[str, Any]
TIME = EventTime("ts")


class Task:
    """The task of one operator, without an engine: it emits to lists and restarts at will."""

    owner = "bolt 'tables' task 1"
    conf: dict[str, Any] = {}

    def __init__(self, bolt: Any) -> None:
        self.component = bolt
        self.emitted: dict[str, list[list[Any]]] = defaultdict(list)
        self.late: list[Any] = []
        self.expired = 0
        self.clock = 0.0
        self.saved: dict[str, bytes] = {}
        self.watermark = BEFORE_ALL
        self.operator: Any = bolt.operator(self)

    def now(self) -> float:
        return self.clock

    def emit(self, rows: list[list[Any]], stream: str = "default") -> None:
        self.emitted[stream] += rows

    def set_aside(self, rows: Rows, places: Iterable[int]) -> None:
        self.late += [rows.tuple(place) for place in places]

    def note_expired(self, count: int) -> None:
        self.expired += count

    def acks(self, tuples: Iterable[Any]) -> None:
        raise AssertionError

    def fails(self, tuples: Iterable[Any], reason: str | None) -> None:
        raise AssertionError

    def users_code(self) -> AbstractContextManager[None]:
        return nullcontext()

    def failed(self, error: BaseException) -> None:
        raise error

    def warn_once(self, text: str) -> None:
        raise AssertionError(text)

    def give(self, component: str, rows: Sequence[Sequence[Any]], stream: str = "default") -> None:
        """Give the operator some tuples; their last value is the time."""
        if rows:
            columns = [list(column) for column in zip(*rows, strict=True)]
            self.operator.rows(
                Rows(component, stream, (), columns, len(rows), columns[-1], lambda p: rows[p])  # type: ignore[arg-type, return-value]
            )

    def batch(self, *, restart: bool, watermark: int | None = None) -> dict[str, list[list[Any]]]:
        """End the batch; return what came out."""
        self.emitted.clear()
        before, after = self.watermark, self.watermark if watermark is None else watermark
        self.operator.advance(Clock(before, after, self.clock))
        self.watermark = after
        changes = Changes()
        self.operator.save(changes)
        changes.apply_to(self.saved)
        found = dict(self.emitted)
        if restart:
            self.operator = self.component.operator(self)
            self.operator.load(self.saved, self.watermark)
        return found


class Reported:
    """A table as its readers see it, from its changes alone."""

    def __init__(self) -> None:
        self.rows: dict[Any, Any] = {}

    def take(self, changes: Iterable[Sequence[Any]]) -> None:
        seen = set()
        for key, old, new, *_ in changes:
            assert key not in seen, "a key changes once a batch"
            seen.add(key)
            assert self.rows.get(key) == old, "the old row is what was reported before"
            assert old != new
            if new is None:
                del self.rows[key]
            else:
                self.rows[key] = new


def cut(events: Sequence[Any], random: Random) -> list[list[Any]]:
    """Cut events into batches."""
    rest, batches = list(events), []
    while rest:
        size = random.choice((1, 1, 3, 20))
        batches.append(rest[:size])
        rest = rest[size:]
    return batches


def put(table: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


keys = st.sampled_from("abcd")
values = st.none() | st.integers(0, 5)
seeds = st.integers(0, 10_000)
changes_of_two = st.lists(st.tuples(st.integers(0, 1), keys, values, st.integers(0, 30)))


def upserts(name: str, history: int | None = None) -> SourcePlan:
    return SourcePlan(name, "default", UPSERTS, history)


# -- by the same key ------------------------------------------------------------------------------


def expected_join(how: str, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    wanted = {
        "inner": left.keys() & right.keys(),
        "left": left.keys(),
        "right": right.keys(),
        "outer": left.keys() | right.keys(),
    }[how]
    return {key: (left.get(key), right.get(key)) for key in wanted}


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
@pytest.mark.parametrize("time", [TIME, None], ids=["timed", "untimed"])
@given(events=changes_of_two, seed=seeds)
def test_a_join_is_that_of_the_tables_at_every_batch(
    time: EventTime | None, how: str, events: list[tuple[int, str, Any, int]], seed: int
) -> None:
    random = Random(seed)
    plans = [upserts("l"), upserts("r")]
    bolt = KeyedTablesBolt(plans, Join(TableRows(0), TableRows(1), how), time, unchanged=False)
    bolt.leave(ByKey())
    task, reported = Task(bolt), Reported()
    tables: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for batch in cut(events, random):
        for side, key, value, ts in batch:
            put(tables[side], key, value)
            task.give("lr"[side], [(key, value, ts)])
        reported.take(task.batch(restart=random.random() < 0.3).get("default", []))
        assert reported.rows == expected_join(how, *tables)


@given(events=changes_of_two, seed=seeds)
def test_older_rows_of_a_versioned_table_change_nothing(
    events: list[tuple[int, str, Any, int]], seed: int
) -> None:
    random = Random(seed)
    plans = [upserts("l", 1000), upserts("r")]
    bolt = KeyedTablesBolt(plans, Join(TableRows(0), TableRows(1), "outer"), TIME, unchanged=False)
    bolt.leave(ByKey())
    task, reported = Task(bolt), Reported()
    newest: dict[str, tuple[int, Any]] = {}
    right: dict[str, Any] = {}
    for batch in cut(events, random):
        for side, key, value, ts in batch:
            if side:
                put(right, key, value)
            elif ts >= newest.get(key, (0, None))[0]:
                newest[key] = (ts, value)
            task.give("lr"[side], [(key, value, ts)])
        reported.take(task.batch(restart=random.random() < 0.3).get("default", []))
        left = {key: value for key, (_, value) in newest.items() if value is not None}
        assert reported.rows == expected_join("outer", left, right)


@given(events=st.lists(st.tuples(st.integers(0, 2), keys, values, st.integers(0, 30))), seed=seeds)
def test_several_joins_in_one_bolt_are_one_change(
    events: list[tuple[int, str, Any, int]], seed: int
) -> None:
    random = Random(seed)
    plans = [upserts("0"), upserts("1"), upserts("2")]
    doubled = Projection(TableRows(2), lambda value: None if value == 3 else 2 * value)
    tree = Join(Join(TableRows(0), TableRows(1), "outer"), doubled, "left")
    bolt = KeyedTablesBolt(plans, tree, TIME, unchanged=False)
    bolt.leave(ByKey())
    task, reported = Task(bolt), Reported()
    tables: list[dict[str, Any]] = [{}, {}, {}]
    for batch in cut(events, random):
        for side, key, value, ts in batch:
            put(tables[side], key, value)
            task.give(str(side), [(key, value, ts)])
        reported.take(task.batch(restart=random.random() < 0.3).get("default", []))
        third = {key: 2 * value for key, value in tables[2].items() if value != 3}
        first = expected_join("outer", tables[0], tables[1])
        assert reported.rows == expected_join("left", first, third)


# -- groups ---------------------------------------------------------------------------------------

AGGREGATES: dict[str, tuple[Combiner | None, Any]] = {
    "count": (Count(), len),
    "sum": (Sum("v"), sum),
    "mean": (Mean("v"), lambda found: sum(found) / len(found)),
    "var": (Var("v"), pvariance),
    "min": (Min("v"), min),
    "max": (Max("v"), max),
    "distinct": (Distinct("v"), lambda found: len(set(found))),
    "top": (TopK(2, "v"), lambda found: sorted(found, reverse=True)[:2]),
    "collect": (Collect("v"), sorted),
    "argmax": (ArgMax("v", "v"), max),
    "by hand": (None, sorted),
}


def adder(acc: list[Any], value: Any) -> list[Any]:
    acc.append(value["v"])  # in place, as people do
    acc.sort()
    return acc


def subtractor(acc: list[Any], value: Any) -> list[Any] | None:
    acc.remove(value["v"])
    return acc or None


def aggregate(name: str) -> tuple[RetractableAggregate, Any]:
    combiner = AGGREGATES[name][0]
    if combiner is None:
        return ByHand(list, adder, subtractor), None
    return in_tables(combiner), ValueOf(combiner)


@pytest.mark.parametrize("name", AGGREGATES)
@given(
    events=st.lists(
        st.tuples(keys, st.sampled_from(["x", "y", None]), st.integers(-3, 3), st.booleans())
    ),
    seed=seeds,
)
def test_groups_are_those_of_the_table_at_every_batch(
    name: str, events: list[tuple[str, str | None, int, bool]], seed: int
) -> None:
    random = Random(seed)
    made, part = aggregate(name)
    source = KeyedTablesBolt([upserts("t")], TableRows(0), TIME, unchanged=False)
    source.leave(ByGroup(lambda key, row: row["group"], part))
    table = Task(source)
    grouped = GroupedTableBolt(made, TIME, unchanged=False)
    grouped.leave(ByKey())
    groups, reported = Task(grouped), Reported()
    rows: dict[str, Any] = {}
    for batch in cut(events, random):
        for number, (key, group, value, deleted) in enumerate(batch):
            row = None if deleted else {"group": group, "v": value}
            put(rows, key, row)
            table.give("t", [(key, row, number)])
        restart = random.random() < 0.3
        groups.give("table", table.batch(restart=restart).get("default", []))
        reported.take(groups.batch(restart=restart).get("default", []))
        members: dict[str, list[int]] = defaultdict(list)
        for row in rows.values():
            if row["group"] is not None:
                members[row["group"]].append(row["v"])
        wanted = {group: AGGREGATES[name][1](found) for group, found in members.items()}
        assert reported.rows == wanted


def coming_and_going(
    made: RetractableAggregate, events: list[tuple[Any, int]]
) -> Iterator[tuple[Any, list[Any]]]:
    """Add values, or take away some that are there; yield the accumulator and what is left."""
    acc = made.init()
    there: list[Any] = []
    for value, place in events:
        if there and place:
            acc = made.remove(acc, there.pop(place % len(there)))
        else:
            acc = made.add(acc, value)
            there.append(value)
        yield acc, there


@given(
    events=st.lists(
        st.tuples(
            st.one_of(st.integers(-5, 5), st.floats(-1e9, 1e9), st.none()), st.integers(0, 3)
        ),
        max_size=40,
    ),
    sample=st.booleans(),
)
def test_a_variance_is_that_of_the_values_that_are_left(
    events: list[tuple[float | None, int]], sample: bool
) -> None:
    made = in_tables(Var("v", sample=sample))
    for acc, there in coming_and_going(made, events):
        exact = [Fraction(value) for value in there if value is not None]
        least = 2 if sample else 1
        wanted = (variance if sample else pvariance)(exact) if len(exact) >= least else None
        assert made.result(acc) == (None if wanted is None else float(wanted))


def test_every_aggregate_says_what_it_is_in_tables() -> None:
    """A new one is one class: it has its own way there, or says why it has none."""
    kinds = [kind for kind in vars(combiners).values() if isinstance(kind, type)]
    public = [kind for kind in kinds if issubclass(kind, Combiner) and kind.__name__[0] != "_"]
    silent = [kind for kind in public if kind.in_tables is Combiner.in_tables]
    assert silent == [Combiner]
    compared = {type(combiner) for combiner, _ in AGGREGATES.values() if combiner is not None}
    assert set(public) - {Combiner} == compared | {First, Last}


class Doubled(Sum):
    """A sum that adds in a way of its own."""

    def add(self, acc: Any, value: Any) -> Any:
        return acc + 2 * value


class DoubledBack(Doubled):
    """The same with the way back."""

    def remove(self, acc: Any, value: Any) -> Any:
        return acc - 2 * value


def test_a_subclass_that_adds_in_its_own_way_is_not_added_as_its_base() -> None:
    with pytest.raises(StreamError, match="Doubled cannot take a value away again"):
        in_tables(Doubled("v"))
    made = in_tables(DoubledBack("v"))
    acc = made.add(made.add(made.init(), 3), 4)
    assert made.result(acc) == 14
    assert made.result(made.remove(acc, 4)) == 6


def test_a_subclass_that_adds_as_its_base_has_the_way_of_its_base() -> None:
    class Named(Sum):
        """A sum under another name."""

    made = in_tables(Named("v"))
    assert made.result(made.remove(made.add(made.add(made.init(), 0.1), 1e16), 1e16)) == 0.1


WITHOUT_NONE: dict[str, tuple[Combiner, Callable[[list[int]], Any]]] = {
    "sum": (Sum("v"), sum),
    "mean": (Mean("v"), lambda values: sum(values) / len(values) if values else None),
    "min": (Min("v"), lambda values: min(values, default=None)),
    "max": (Max("v"), lambda values: max(values, default=None)),
    "distinct": (Distinct("v"), lambda values: len(set(values))),
    "count": (Count("v"), len),
}


@pytest.mark.parametrize("name", WITHOUT_NONE)
@given(events=st.lists(st.tuples(st.none() | st.integers(-3, 3), st.integers(0, 2)), max_size=40))
def test_none_is_no_value_of_a_group_as_of_a_window(
    name: str, events: list[tuple[int | None, int]]
) -> None:
    combiner, of = WITHOUT_NONE[name]
    made = in_tables(combiner)
    for acc, there in coming_and_going(made, events):
        wanted = of([value for value in there if value is not None]) if there else None
        assert made.result(acc) == wanted


def test_a_variance_of_what_is_no_finite_number_is_none() -> None:
    made = in_tables(Var("v"))
    acc = made.add(made.add(made.init(), 1.0), inf)
    assert isnan(made.result(acc))
    assert made.result(made.remove(acc, inf)) == 0.0
    assert made.result(made.add(made.add(made.init(), 1e300), -1e300)) == inf


@pytest.mark.parametrize("combiner", [Sum("v"), Mean("v"), Var("v")])
@pytest.mark.parametrize("value", ["3", b"3", [3], (3,)])
def test_what_plus_only_joins_is_no_number(combiner: Combiner, value: Any) -> None:
    made = in_tables(combiner)
    with pytest.raises(StreamError, match=rf"adds and subtracts .* {type(value).__name__}"):
        made.add(made.init(), value)


@pytest.mark.parametrize("combiner", [Sum("v"), Mean("v")])
def test_floats_of_other_libraries_are_taken_away_exactly_too(combiner: Combiner) -> None:
    made = in_tables(combiner)
    acc = made.init()
    for value in (1e16, 1.0, nan):
        acc = made.add(acc, np.float64(value))
    assert isnan(made.result(acc))
    for value in (1e16, nan):
        acc = made.remove(acc, np.float64(value))
    assert made.result(acc) == 1.0


@given(st.lists(st.tuples(st.floats(allow_nan=False), st.integers(0, 3)), max_size=40))
def test_a_sum_of_floats_has_no_trace_of_what_has_gone(events: list[tuple[float, int]]) -> None:
    made = in_tables(Sum("v"))
    acc = made.init()
    there: list[float] = []
    for value, place in events:
        if there and place:
            gone = there.pop(place % len(there))
            acc = made.remove(acc, gone)
        acc = made.add(acc, value)
        there.append(value)
    finite = [value for value in there if isfinite(value)]
    odd = {value for value in there if not isfinite(value)}
    found = made.result(acc) if there else None
    if not there:
        assert found is None
    elif len(odd) == 2:
        assert found != found
    elif odd:
        assert found == (inf if inf in odd else -inf)
    else:
        total = sum(map(Fraction, finite), Fraction(0))
        assert found == rounded(total)


def rounded(total: Fraction) -> float:
    """The nearest float, which is infinite if the total is too far beyond the largest."""
    try:
        return float(total)
    except OverflowError:
        return inf if total > 0 else -inf


# -- by foreign key -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("tasks", [1, 3])
@given(
    events=st.lists(
        st.tuples(st.booleans(), keys, st.sampled_from(["x", "y", "z", None]), st.integers(0, 3))
    ),
    seed=seeds,
)
def test_a_join_by_foreign_key_is_that_of_the_tables_at_every_batch(
    how: str, tasks: int, events: list[tuple[bool, str, str | None, int]], seed: int
) -> None:
    random = Random(seed)
    source = KeyedTablesBolt([upserts("l")], TableRows(0), TIME, unchanged=False)
    source.leave(ByForeignKey(lambda row: row[0]))
    left = Task(source)
    joins = []
    for _ in range(tasks):
        bolt = ForeignJoinBolt(upserts("r"), how, lambda a, b: (a, b), TIME, unchanged=False)
        bolt.leave(ByKey())
        joins.append(Task(bolt))
    together = ChangesByKeyBolt(TIME, unchanged=False)
    together.leave(ByKey())
    by_key, reported = Task(together), Reported()
    lefts: dict[str, Any] = {}
    rights: dict[str, Any] = {}
    task_of = {"x": 0, "y": 1 % tasks, "z": 2 % tasks, None: 0}
    for batch in cut(events, random):
        for number, (is_left, key, pointed, value) in enumerate(batch):
            if is_left:
                row = None if value == 0 else (pointed, value)
                put(lefts, key, row)
                left.give("l", [(key, row, number)])
            elif pointed is not None:
                new = None if value == 0 else value
                put(rights, pointed, new)
                joins[task_of[pointed]].give("r", [(pointed, new, number)])
        for moved in left.batch(restart=random.random() < 0.3).get("default", []):
            joins[task_of[moved[0]]].give("left", [moved])
        answers = [join.batch(restart=random.random() < 0.3).get("default", []) for join in joins]
        random.shuffle(answers)
        for answer in answers:
            by_key.give("joined", answer)
        reported.take(by_key.batch(restart=False).get("default", []))
        wanted = {key: (row, rights.get(row[0])) for key, row in lefts.items()}
        if how == "inner":
            wanted = {key: both for key, both in wanted.items() if both[1] is not None}
        assert reported.rows == wanted


# -- lookups --------------------------------------------------------------------------------------


@given(
    events=st.lists(st.tuples(st.booleans(), keys, values, st.integers(0, 40)), max_size=60),
    seed=seeds,
    history=st.integers(0, 10),
)
def test_a_row_gets_what_was_valid_at_its_time(
    events: list[tuple[bool, str, Any, int]], seed: int, history: int
) -> None:
    """With rows and versions that keep to the watermark, no result depends on the batches."""
    random = Random(seed)
    rules = LookupRules(True, history, waits=True)
    bolt = LookupBolt(rules, lambda a, b: (a, b), TIME, ("key", "value", "ts"))
    bolt.kinds = {("s", "default"): ROWS, ("t", "default"): UPSERTS}
    task = Task(bolt)
    versions: dict[str, dict[int, Any]] = defaultdict(dict)
    wanted, late, out = [], 0, []
    watermark = BEFORE_ALL
    for number, batch in enumerate(cut(events, random)):
        for is_row, key, value, ts in batch:
            if is_row:
                task.give("s", [(key, number, ts)])
                if ts < watermark:
                    late += 1
                else:
                    wanted.append((key, number, ts))
            else:
                ts = max(ts, watermark)
                versions[key][ts] = value
                task.give("t", [(key, value, ts)])
        watermark = max(watermark, max(ts for *_, ts in batch) - random.randint(0, 15))
        found = task.batch(restart=random.random() < 0.3, watermark=watermark)
        assert all(row[2] < watermark for row in found.get("default", []))
        times = [row[2] for row in found.get("default", [])]
        assert times == sorted(times)
        out += found.get("default", [])
    out += task.batch(restart=False, watermark=AFTER_ALL).get("default", [])
    answers = []
    for key, number, ts in wanted:
        own = sorted(versions[key])
        at = bisect_right(own, ts)
        answers.append([key, (number, versions[key][own[at - 1]] if at else None), ts])
    assert sorted(map(repr, out)) == sorted(map(repr, answers))
    assert len(task.late) == late
    assert task.expired == 0
    assert not task.operator._waiting
    kept = task.operator._store
    assert len(kept) <= len(versions), "of each key, the newest version at most"
