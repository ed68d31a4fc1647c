"""Laws of rules: the index finds what asking all finds, and counts are those of a list of events.

Values have None, NaN and several types among them; a condition that raises is no match.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import seeds
from topo import EventTime, Rule, RuleBolt, SubscriptionBolt, TopologyBuilder
from topo.conditions import parse, row_function, terms
from topo.errors import ConditionError
from topo.rules.index import ConditionIndex
from topo.rules.ruleset import Ruleset
from topo.testing import FeederSpout, TestCluster
from topo.timed import Rows

FIELDS = ["a", "b", "s", "x"]
VALUES: list[Any] = [None, math.nan, math.inf, -2, 0, 1, True, 1.5, 3, "", "x", "xy", [1], (1,)]

_CONSTANT = st.sampled_from(["-2", "0", "1", "1.5", "3", "True", "'x'", "'xy'", "''", "None"])
_FIELD = st.sampled_from(FIELDS)
_ATOM = st.one_of(
    st.builds(
        "{} {} {}".format, _FIELD, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), _CONSTANT
    ),
    st.builds("{} == {}".format, _FIELD, _CONSTANT),
    st.builds("{} < {} <= {}".format, _CONSTANT, _FIELD, _CONSTANT),
    st.builds("{} in ({}, {})".format, _FIELD, _CONSTANT, _CONSTANT),
    st.builds("{} in [{}, ({}, 1)]".format, _FIELD, _CONSTANT, _CONSTANT),
    st.builds("{} in ()".format, _FIELD),
    st.builds("{} is None".format, _FIELD),
    st.builds("{} < {}".format, _FIELD, _FIELD),
    st.sampled_from(["True", "False", "not a"]),
)
CONDITIONS = st.recursive(
    _ATOM,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("(not {})".format, inner),
    ),
    max_leaves=5,
)
ROWS = st.tuples(*[st.sampled_from(VALUES)] * 4)


def holds(function: Callable[[Any], Any], row: Sequence[Any]) -> bool:
    try:
        return bool(function(row))
    except ConditionError:
        return False


@given(st.lists(CONDITIONS, max_size=8), st.lists(ROWS, max_size=6), st.sets(st.integers(0, 7)))
def test_the_index_finds_what_asking_all_finds(
    texts: list[str], rows: list[tuple[Any, ...]], removed: set[int]
) -> None:
    index = ConditionIndex()
    functions = {}
    for number, text in enumerate(texts):
        condition = parse(text, "a law")
        index.add(number, terms(condition))
        functions[number] = row_function(condition, FIELDS)
    for number in removed & set(functions):
        index.remove(number)
        del functions[number]
    assert len(index) == len(functions)
    for row in rows:
        sure, open_ones = index.find(dict(zip(FIELDS, row, strict=True)))
        assert not set(sure) & set(open_ones)
        told = set(sure) | {n for n in open_ones if holds(functions[n], row)}
        assert told == {n for n, function in functions.items() if holds(function, row)}
    columns = {name: [row[place] for row in rows] for place, name in enumerate(FIELDS)}
    selected = index.may_hold(columns)
    for row, may_hold in zip(rows, selected or [], strict=selected is not None):
        assert may_hold or not any(holds(function, row) for function in functions.values())


# -- counting -------------------------------------------------------------------------------------

WITHIN = 10
HAVINGS: dict[str, Callable[[Sequence[Any]], bool]] = {
    "count() >= 3": lambda values: len(values) >= 3,
    "sum(v) > 4": lambda values: _sum(values) > 4,
    "avg(v) > 1": lambda values: bool(_numbers(values)) and _sum(values) / _count(values) > 1,
    "min(v) < 0": lambda values: any(v < 0 for v in _numbers(values)),
    "max(v) > 2": lambda values: any(v > 2 for v in _numbers(values)),
    "distinct(v) > 2": lambda values: len({repr(v) for v in values if v is not None}) > 2,
    "first(v) is None": lambda values: values[0] is None,
    "last(v) == 3": lambda values: values[-1] == 3,
}
AGAIN: list[Any] = ["change", "each", 7]
CHOICES: list[Any] = [None, -2, 0.1, 0.2, 3, 3.5, 1e100, -1e100]


def _numbers(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _count(values: Sequence[Any]) -> int:
    return len(_numbers(values))


def _sum(values: Sequence[Any]) -> Any:
    return math.fsum(_numbers(values))


def firings(events: Sequence[tuple[Any, ...]], having: str, again: Any) -> list[Any]:
    """Return the numbers of the events at which a rule fires, worked out from lists."""
    fired: list[Any] = []
    counted: dict[Any, list[tuple[int, Any]]] = {}
    was_true: dict[Any, bool] = {}
    last: dict[Any, int] = {}
    for key, ts, value, number in sorted(events, key=lambda event: event[1]):
        recent = [(at, v) for at, v in counted.get(key, []) if at > ts - WITHIN]
        if not recent:
            was_true[key] = False
        counted[key] = [*recent, (ts, value)]
        is_true = HAVINGS[having]([v for _, v in counted[key]])
        if again == "each":
            fires = is_true
        elif again == "change":
            fires = is_true and not was_true[key]
        else:
            fires = is_true and ts - last.get(key, -math.inf) >= again
        was_true[key] = is_true
        if fires:
            last[key] = ts
            fired.append(number)
    return fired


def batches_of(rows: Sequence[Any], chance: random.Random) -> list[Sequence[Any]]:
    cuts = [0]
    while cuts[-1] < len(rows):
        cuts.append(cuts[-1] + chance.randint(1, 9))
    return [rows[start:end] for start, end in pairwise(cuts)]


@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize("having", HAVINGS)
@pytest.mark.parametrize("seed", seeds(3))
def test_counts_are_those_of_a_list(having: str, again: Any, seed: int) -> None:
    chance = random.Random(f"{seed} {having} {again}")
    events, ts = [], 0
    for number in range(60):
        ts += chance.choice([0, 0, 1, 1, 2, 5, 12])
        late_by = chance.randint(0, 3)  # less than the lag
        events.append((chance.choice("kk"), ts - late_by, chance.choice(CHOICES), number))
    rule = Rule(
        "law", "True", by="key", having=having, within=WITHIN, again=again, emit={"n": "number"},
        let=chance.choice([None, {"one": "1"}]),  # which needs each event as a row
    )  # fmt: skip
    feeder = FeederSpout(["key", "ts", "v", "number"])
    builder = TopologyBuilder()
    builder.set_spout("events", feeder)
    bolt = RuleBolt([rule], key="key", time=EventTime("ts", lag=3))
    builder.set_bolt("rules", bolt, 2).fields_grouping("events", ["key"])
    run = TestCluster(seed=seed).submit_topology("t", builder.create_topology())
    for batch in batches_of(events, chance):
        for event in batch:
            feeder.feed(list(event), msg_id=object())
        run.settle()
        run.restart()
    feeder.observe_time(ts + 100)
    run.settle()
    assert run.tuples("rules", "late") == []
    assert [row[-1] for row in run.tuples("rules", "alerts")] == firings(events, having, again)
    for number in (200, 400):  # two marks, by which all is forgotten
        feeder.observe_time(ts + number)
        run.settle()
    assert run.stats().components["rules"].state_rows == 0


@pytest.mark.parametrize("match", ["all", "first"])
@pytest.mark.parametrize("seed", seeds(5))
def test_rules_that_count_by_themselves_say_what_they_say_by_rows(seed: int, match: str) -> None:
    """Rules with `let` see each event as a row; without, each takes in a batch by itself."""

    def alerts_of(let: dict[str, str] | None) -> list[Any]:
        chance = random.Random(f"{seed} {match}")
        rules = [
            Rule(name, chance.choice(["v == 3", "v in (3, -2)", "v is None or v > 0"]), by="key",
                 having=chance.choice(["count() >= 2", "sum(v) > 4", "count() > 1 and max(v) > 1"]),
                 within=WITHIN, again=chance.choice(AGAIN), let=let,
                 emit={"n": "number", "of": "count()"})
            for name in "abc"
        ]  # fmt: skip
        feeder = FeederSpout(["key", "ts", "v", "number"])
        builder = TopologyBuilder()
        builder.set_spout("events", feeder)
        bolt = RuleBolt(rules, key="key", time=EventTime("ts", lag=3), match=match)
        builder.set_bolt("rules", bolt).fields_grouping("events", ["key"])
        run = TestCluster(seed=seed).submit_topology("t", builder.create_topology())
        rows = []
        for number in range(80):
            key, value = chance.choice([math.nan, "k", None]), chance.choice([None, -2, 0, 3, 4.5])
            rows.append([key, number // 2 - chance.randint(0, 3), value, number])
        for batch in batches_of(rows, chance):
            for row in batch:
                feeder.feed(row, msg_id=object())
            run.settle()
            if chance.random() < 0.3:
                run.restart()
        return list(map(repr, run.tuples("rules", "alerts")))

    alerts = alerts_of(None)
    assert alerts == alerts_of({"one": "1"})
    assert alerts


RULES_OF_EVENTS = st.tuples(CONDITIONS, st.sampled_from([None, {"a": "3"}, {"s": "'x'"}]))


@given(
    st.lists(RULES_OF_EVENTS, min_size=1, max_size=4), st.lists(ROWS, min_size=1, max_size=6),
    st.sampled_from(["all", "first"]),
)  # fmt: skip
def test_what_is_passed_over_by_columns_fires_nothing(
    texts: list[tuple[str, Any]], rows: list[tuple[Any, ...]], match: str
) -> None:
    """A rule that may set what others read is asked in its turn; an event as it has come first."""
    rules = [Rule(f"r{n}", text, set=set_, emit={}) for n, (text, set_) in enumerate(texts)]
    only_first = match == "first"
    ruleset = Ruleset(
        rules, FIELDS, (), (), EventTime(None), lambda *_: None, only_first=only_first
    )
    columns = [[row[place] for row in rows] for place in range(4)]
    asked, masks = ruleset.asked(rows_of(columns), every=False)
    known_masks = dict(zip(asked, masks, strict=False))
    for place, row in enumerate(rows):
        try:
            wanted = ruleset.ask(ruleset.row(row, 0, "events"), 0, None)
        except ConditionError:
            continue
        if place in known_masks:
            outcome = ruleset.ask(ruleset.row(row, 0, "events"), 0, None, known_masks[place])
            assert repr(outcome) == repr(wanted)
        else:
            assert wanted is None


def rows_of(columns: Sequence[Sequence[Any]]) -> Rows:
    make: Any = list(zip(*columns, strict=True)).__getitem__
    return Rows("events", "default", tuple(FIELDS), columns, len(columns[0]), None, make)


# -- subscriptions --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*it is no match there")
@pytest.mark.parametrize("seed", seeds(5))
def test_subscriptions_come_and_go_as_in_a_loop(seed: int) -> None:
    chance = random.Random(seed)
    texts = ["a == 1", "a in (0, 3) and b < 2", "b >= 1.5", "s == 'x' or a > 1", "not s == 'x'"]
    texts += ["x is None", "a < b", "True", "s < 'xy' and a == 3"]
    subscriptions, messages = FeederSpout(["id", "where", "times"]), FeederSpout([*FIELDS, "n"])
    builder = TopologyBuilder()
    builder.set_spout("subscriptions", subscriptions)
    builder.set_spout("messages", messages)
    declarer = builder.set_bolt("match", SubscriptionBolt("subscriptions", emit="list"), 2)
    declarer.fields_grouping("subscriptions", ["id"]).all_grouping("messages")
    run = TestCluster(seed=seed).submit_topology("t", builder.create_topology())
    current: dict[int, list[Any]] = {}
    wanted: list[tuple[int, int]] = []
    for number in range(60):
        if chance.random() < 0.6:
            id, text = chance.randrange(12), chance.choice([*texts, None])
            times = chance.choice([None, None, 2])
            subscriptions.feed([id, text, times], msg_id=object())
            current.pop(id, None)
            if text is not None:
                current[id] = [row_function(parse(text, "a law"), FIELDS), times or math.inf]
        else:
            row = [chance.choice(VALUES) for _ in FIELDS]
            messages.feed([*row, number], msg_id=object())
            for id, entry in list(current.items()):
                if holds(entry[0], row):
                    wanted.append((number, id))
                    entry[1] -= 1
                    if not entry[1]:
                        del current[id]
        run.settle()
        if chance.random() < 0.3:
            run.restart()
    told = [(row[-1], id) for row in run.tuples("match") for id in row[0]]
    assert sorted(told) == sorted(wanted)
    run.settle()
    assert run.stats().components["match"].state_rows == len(current)
