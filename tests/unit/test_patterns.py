"""Patterns: what is refused and said when they are built, and the work of the bolt."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest

from tests.property.pattern_task import World
from tests.property.pattern_truth import Event
from topo import (
    CheckpointError,
    ConditionError,
    EventTime,
    FromList,
    InvalidTopologyError,
    Pattern,
    PatternBolt,
    PatternError,
    TopologyBuilder,
    UncaughtError,
)
from topo.errors import StreamError
from topo.patterns import Match, any_order, either, machine
from topo.streams import StreamBuilder
from topo.testing import FeederSpout, TestCluster, complete_topology

MINUTE = timedelta(minutes=1)
PAIR = Pattern("a", "kind == 'a'").followed_by("b", "kind == 'b'").within(MINUTE)
PAIR_ALONE = Pattern("x").followed_by("y")


def built(
    bolt: PatternBolt, fields: Sequence[str] = ("key", "ts", "kind", "n"), tasks: int = 1
) -> Any:
    builder = TopologyBuilder()
    builder.set_spout("events", FeederSpout(list(fields)))
    declared = builder.set_bolt("p", bolt, tasks)
    if tasks > 1:
        declared.fields_grouping("events", ["key"])
    else:
        declared.shuffle_grouping("events")
    return builder.create_topology()


def problems(bolt: PatternBolt, **options: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidTopologyError) as caught:
        built(bolt, **options)
    return [(problem.code, str(problem)) for problem in caught.value.problems]


def results(
    bolt: PatternBolt, rows: Sequence[Sequence[Any]], fields: Sequence[str] = ("ts", "kind", "n")
) -> list[list[Any]]:
    """Return what the bolt emits for rows, each in a batch of its own."""
    feeder = FeederSpout(list(fields))
    builder = TopologyBuilder()
    builder.set_spout("events", feeder)
    builder.set_bolt("p", bolt).shuffle_grouping("events")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for row in rows:
            feeder.feed(list(row))
            run.settle()
        return run.tuples("p")


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda: PAIR.next("a"), "pattern-name", "two parts have the name 'a'"),
        (lambda: Pattern("ts"), "pattern-name", "which has a meaning in conditions"),
        (lambda: Pattern("class"), "pattern-name", "which has a meaning in conditions"),
        (lambda: Pattern(" "), "pattern-name", "a part has a name"),
        (lambda: Pattern("a", times=0), "pattern-times", "times is 0"),
        (lambda: Pattern("a", times=(3, 2)), "pattern-times", "times is (3, 2)"),
        (lambda: Pattern("a", times=1.5), "pattern-times", "it takes whole numbers"),  # type: ignore[arg-type]
        (lambda: Pattern("a", times="!"), "pattern-times", "it takes whole numbers"),
        (lambda: PAIR.not_followed_by("n").followed_by("c", gap=0), "pattern-within", "above zero"),
        (lambda: Pattern("a", gretdy=1), "", "unexpected keyword"),  # type: ignore[call-arg]
        (lambda: Pattern("a", greedy=True), "pattern-option", "greedy without a quantifier"),
        (lambda: Pattern("a", inner="any"), "pattern-option", "inner is for loops"),
        (lambda: Pattern("a", times=2, inner="stric"), "pattern-option", "did you mean 'strict'?"),
        (
            lambda: Pattern("a", times="+", inner="any", greedy=True),
            "pattern-option",
            'greedy and inner="any"',
        ),
        (
            lambda: Pattern(PAIR_ALONE, times="+", greedy=True),
            "pattern-option",
            "greedy is of a group",
        ),
        (lambda: Pattern(PAIR_ALONE, "x > 1"), "pattern-option", "a group has no condition"),
        (lambda: Pattern(PAIR), "pattern-option", "a group has no within"),
        (lambda: Pattern("a", times=2, until="x"), "pattern-option", "until goes with a loop"),
        (lambda: PAIR.within(1.5), "pattern-within", "a float is not exact"),  # type: ignore[arg-type]
        (lambda: PAIR.within("1m"), "pattern-within", "a duration is a timedelta"),  # type: ignore[arg-type]
        (lambda: PAIR.within(timedelta(0)), "pattern-within", "above zero"),
        (lambda: PAIR.skip("past_lst"), "pattern-skip", "did you mean 'past_last'?"),
        (lambda: PAIR.skip("to_first"), "pattern-skip", "takes the name of a part"),
        (lambda: PAIR.skip("to_next", "a"), "pattern-skip", "takes no part"),
        (lambda: PatternBolt(PAIR.skip("to_first", "bb")), "pattern-skip", "did you mean 'b'?"),
        (lambda: Pattern("a", 5), "condition", "a condition is text or a function"),  # type: ignore[arg-type]
        (lambda: Pattern("a", lambda: True), "condition", "takes 0 parameters"),
        (lambda: Pattern("a", lambda e, m, x: True), "condition", "takes 3 parameters"),
        (lambda: Pattern("a", "x >"), "condition", "part 'a': syntax error"),
        (
            lambda: PatternBolt(PAIR.followed_by("c", "aa.x > 1")),
            "condition",
            "'aa' is no part that takes events",
        ),
        (
            lambda: PatternBolt(Pattern("a").followed_by("b")),
            "pattern-unbounded",
            "partial matches of the pattern would never end",
        ),
        (
            lambda: PatternBolt(Pattern("a").followed_by("b", gap=2 * MINUTE).within(MINUTE)),
            "pattern-within",
            "gap is longer than within",
        ),
        (
            lambda: PatternBolt(Pattern(Pattern("a", times=200), times=100), limit=5),
            "pattern-times",
            "more than 10,000 positions",
        ),
        (
            lambda: PatternBolt(PAIR, late_stream="late"),
            "pattern-input",
            "a late stream needs event time",
        ),
        (lambda: PatternBolt(PAIR, limit=0), "pattern", "it must be above zero"),
        (lambda: PatternBolt(PAIR, select={"x": "a"}), "condition", "'a' is of no part"),
        (lambda: PatternBolt(PAIR, select={"x": "c.n"}), "condition", "'c' is no part"),
        (lambda: PatternBolt(PAIR, select=len), "pattern", 'give outputs=("a", "b")'),  # type: ignore[arg-type]
        (lambda: either(PAIR_ALONE), "pattern-option", "either takes two patterns or more"),
        (lambda: any_order(PAIR_ALONE, PAIR_ALONE), "pattern-name", "two parts have the name"),
        (
            lambda: any_order(Pattern("x", times="*"), Pattern("y")),
            "pattern-option",
            "any_order has a pattern that may take nothing",
        ),
        (
            lambda: Pattern(Pattern("x").not_followed_by("n")),
            "pattern-negation",
            "is a negation at the end of a group",
        ),
    ],
)
def test_a_mistake_is_told_when_it_is_written(
    make: Callable[[], Any], code: str, words: str
) -> None:
    with pytest.raises((PatternError, ConditionError, TypeError)) as caught:
        make()
    assert words in str(caught.value)
    assert getattr(caught.value, "code", "") == code


def test_bounds_of_each_kind() -> None:
    PatternBolt(PAIR)
    PatternBolt(Pattern("a").next("b", times="+", inner="strict"))
    PatternBolt(Pattern("a").followed_by("b", gap=MINUTE, times="+", inner_gap=MINUTE))
    PatternBolt(Pattern("a").followed_by("b"), limit=1)


def test_problems_of_the_inputs() -> None:
    where = Pattern("a", "knd == 'a'").followed_by("b", "n > a.nn", of="evnts").within(MINUTE)
    told = problems(PatternBolt(where, key="ky", time=EventTime("ts")))
    assert [code for code, _ in told] == ["pattern-key", "condition", "pattern-input"]
    assert "did you mean 'key'?" in told[0][1]
    assert "did you mean 'kind'?" in told[1][1]
    assert "did you mean 'events'?" in told[2][1]
    read = Pattern("a").followed_by("b", "n > a.nn").within(MINUTE)
    [(code, text)] = problems(PatternBolt(read))
    assert (code, "'nn' is no field" in text) == ("condition", True)
    [(code, text)] = problems(PatternBolt(Pattern("kind").next("b")))
    assert (code, "part 'kind' has the name of a field" in text) == ("pattern-name", True)
    [(code, text)] = problems(PatternBolt(PAIR, key="kind"), tasks=2)
    assert (code, "tuples of one key come to several tasks" in text) == ("pattern-key", True)


def test_warnings() -> None:
    assert not list(Pattern("a", times=3).next("b", times=2).warnings())
    texts = [
        *Pattern("a").followed_by("b", times="+").warnings(),
        *Pattern("a").followed_by("b", times="+", greedy=True).skip("past_last").warnings(),
        *Pattern("a").not_followed_by("n").followed_by("b", times="?").warnings(),
    ]
    for text, words in zip(
        texts, ["a match for each length", "which has no effect", "only optional"], strict=True
    ):
        assert words in text


# -- what it does -------------------------------------------------------------------------------


def test_a_pattern_is_frozen_and_shares_beginnings() -> None:
    begun = Pattern("a", "kind == 'a'")
    one, two = begun.next("b"), begun.followed_by("c")
    assert (begun.names, one.names, two.names) == (("a",), ("a", "b"), ("a", "c"))
    with pytest.raises(AttributeError):
        begun.duration = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    "pattern",
    [
        PAIR,
        Pattern("a", "n > 1", times=(2, None), greedy=True, until="n > 9", inner_gap=MINUTE)
        .not_next("n", "kind == 'n'")
        .next("b", "n > a.n", of="events", gap=timedelta(milliseconds=1500))
        .skip("to_last", "b"),
        Pattern(Pattern("x").next("y"), times="*").followed_by("z").within(90),
        Pattern(either(Pattern("x"), Pattern("y"))).followed_by_any(
            any_order(Pattern("u"), Pattern("v"), inner="strict")
        ),
        Pattern(any_order(Pattern("u"), Pattern("v")), times="+", inner="strict").next("w"),
    ],
)
def test_a_pattern_as_plain_data_and_back(pattern: Pattern) -> None:
    document = pattern.to_dict()
    again = Pattern.from_dict(document)
    assert again == pattern
    assert again.to_dict() == document


def test_what_a_file_says_wrongly() -> None:
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"parts": []}, "a pattern has a list of parts"),
        ({"parts": [{"name": "a", "wher": "x"}]}, "did you mean 'where'?"),
        ({"parts": [{"name": "a"}], "within": "1 minute"}, "which is no duration"),
        ({"parts": [{"where": "x"}]}, "a part has a name, or one of group"),
        ({"parts": [{"name": "a"}, {"name": "b", "how": "nxt"}]}, "did you mean 'next'?"),
        ({"parts": [5]}, "a part is a table of names"),
    ]
    for document, words in mistakes:
        with pytest.raises(PatternError) as caught:
            Pattern.from_dict(document)
        assert words in str(caught.value)
    with pytest.raises(PatternError, match="where is a function, which no file holds"):
        Pattern("a", lambda e: True).to_dict()


PEAK = (
    Pattern("low")
    .next("up", "n > coalesce(up.n, low.n)", times=(3, None), inner="strict")
    .next("fall", "up.n - n > 0.1 * (up.n - low.n)")
    .within(timedelta(hours=1))
    .skip("past_last")
)


def test_conditions_over_what_was_taken() -> None:
    bolt = PatternBolt(
        PEAK,
        time=EventTime("ts"),
        select={
            "bottom": "low.n", "top": "up.n", "first": "up[0].n", "rises": "count(up)",
            "least": "min(up.n)", "most": "max(up.n)", "mean": "avg(up.n)", "sum": "sum(up.n)",
            "kinds": "distinct(up.n)", "end": "end",
        },
    )  # fmt: skip
    numbers = [5, 1, 2, 4, 8, 7, 6, 9, 10, 11, 3]
    rows = [[n * 1_000, "t", number] for n, number in enumerate(numbers)]
    assert results(bolt, rows) == [
        [1, 8, 2, 3, 2, 8, 14 / 3, 14, 3, 5_000],
        [6, 11, 9, 3, 9, 11, 10, 30, 3, 10_000],
    ]


def test_a_match_is_a_mapping() -> None:
    [[start, end, match]] = results(
        PatternBolt(PAIR.followed_by("c", "kind == 'c'", times="?"), time=EventTime("ts")),
        [[1, "a", 0], [5, "b", 1]],
    )
    assert isinstance(match, Match)
    assert (start, end, match.start, match.end, match.key) == (1, 5, 1, 5, None)
    assert list(match) == ["a", "b", "c"]
    assert [event.n for event in match["b"]] == [1]
    assert match["c"] == []
    assert len(match) == 3


def test_functions_get_tuples_and_matches() -> None:
    pattern = (
        Pattern("a", lambda e: e.kind == "a", times=2)
        .followed_by("b", lambda e, m: e.n > sum(one.n for one in m["a"]))
        .within(MINUTE)
    )
    bolt = PatternBolt(
        pattern, time=EventTime("ts"), select=lambda m: [m["b"][0].n, m.start], outputs=("n", "at")
    )
    rows = [[1, "a", 2], [2, "a", 3], [3, "x", 5], [4, "x", 6]]
    assert results(bolt, rows) == [[6, 1]]


def test_a_condition_that_raises_names_text_and_values() -> None:
    bolt = PatternBolt(Pattern("a").followed_by("b", "n > a.n").within(MINUTE))
    with pytest.raises(UncaughtError) as caught:
        results(bolt, [[1, "a", 2], [2, "b", "three"]])
    assert "part 'b': 'n > a.n' raised TypeError" in str(caught.value)
    assert "n='three', a.n=2" in str(caught.value)


def test_datetimes_are_what_conditions_and_matches_see() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    bolt = PatternBolt(
        PAIR, time=EventTime("ts", unit="datetime"), select={"start": "start", "end": "end"}
    )
    later = start + timedelta(seconds=59)
    assert results(bolt, [[start, "a", 0], [later, "b", 0]]) == [[start, later]]


def test_by_arrival_the_clock_is_the_time() -> None:
    feeder = FeederSpout(["kind"])
    builder = TopologyBuilder()
    builder.set_spout("events", feeder)
    bolt = PatternBolt(PAIR, timed_out_stream="out", select={"n": "count(a)"})
    builder.set_bolt("p", bolt).shuffle_grouping("events")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for wait in (30, 60):
            feeder.feed(["a"])
            run.settle()
            run.restart()
            cluster.advance(wait)
            feeder.feed(["b"])
            run.settle()
        assert run.tuples("p") == [[1]]
        cluster.advance(60)
        run.restart()
        cluster.advance(60)
        assert run.tuples("p", "out") == [[1]]


def test_too_many_open_matches_drop_the_oldest_and_say_so() -> None:
    feeder = FeederSpout(["ts", "kind"])
    builder = TopologyBuilder()
    builder.set_spout("events", feeder)
    bolt = PatternBolt(PAIR, time=EventTime("ts"), limit=3)
    builder.set_bolt("p", bolt).shuffle_grouping("events")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for ts in range(5):
            feeder.feed([ts, "a"])
        feeder.feed([9, "b"])
        with pytest.warns(UserWarning, match=r"key None has more than 3 open .* <pattern a b>"):
            run.settle()
        assert [row[0] for row in run.tuples("p")] == [2, 3, 4]
        stats = run.stats().components["p"]
        assert dict(stats.counters) == {"matches": 3, "dropped": 2}
        assert {"partial_matches", "waiting_events", "waiting_matches"} <= set(stats.gauges)


def test_late_events_are_counted_and_go_aside() -> None:
    feeder = FeederSpout(["ts", "kind"])
    builder = TopologyBuilder()
    builder.set_spout("events", feeder)
    bolt = PatternBolt(PAIR, time=EventTime("ts", lag=timedelta(seconds=1)), late_stream="late")
    builder.set_bolt("p", bolt).shuffle_grouping("events")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for row in ([5_000, "a"], [4_000, "a"], [3_999, "a"], [9_000, "b"], [20_000, "x"]):
            feeder.feed(row)
            run.settle()
        assert [row[0].ts for row in run.tuples("p", "late")] == [3_999]
        assert run.stats().components["p"].late == 1
        assert [row[:2] for row in run.tuples("p")] == [[4_000, 9_000], [5_000, 9_000]]


ORDER = Pattern("order", "kind == 'order'")


@pytest.mark.parametrize(
    ("pattern", "kinds", "matches"),
    [
        (
            ORDER.followed_by(
                either(Pattern("card", "kind == 'card'"), Pattern("cash", "kind == 'cash'"))
            ),
            ["order", "x", "cash", "card"],
            [["order", "cash"]],
        ),
        (
            Pattern(any_order(Pattern("u", "kind == 'u'"), Pattern("v", "kind == 'v'"),
                              Pattern("w", "kind == 'w'"))).next("end", "kind == 'end'"),
            ["v", "x", "u", "u", "w", "end"],
            [["u", "v", "w", "end"]],
        ),
        (
            Pattern(any_order(Pattern("u", "kind == 'u'"), Pattern("v", "kind == 'v'"),
                              inner="strict")),
            ["v", "x", "u", "v", "v", "u"],
            [["u", "v"], ["u", "v"]],
        ),
    ],
)  # fmt: skip
def test_alternatives_and_any_order(
    pattern: Pattern, kinds: list[str], matches: list[list[str]]
) -> None:
    rows = [[n, kind, n] for n, kind in enumerate(kinds)]
    rows_out = results(PatternBolt(pattern.within(MINUTE), time=EventTime("ts")), rows)
    found = [[event.kind for events in row[-1].values() for event in events] for row in rows_out]
    assert found == matches


# -- in streams ---------------------------------------------------------------------------------

LOGINS = [
    ("u1", 1_000, False, "a"), ("u1", 2_000, False, "a"), ("u2", 2_500, False, "b"),
    ("u1", 3_000, False, "a"), ("u1", 4_000, True, "z"), ("u2", 5_000, True, "b"),
    ("u2", 700_000, False, "b"),
]  # fmt: skip
GUESSED = (
    Pattern("bad", "ok == False", times=(3, None), greedy=True)
    .followed_by("good", lambda e, m: e.ok and e.ip != m["bad"][0].ip)
    .within(timedelta(minutes=5))
    .skip("past_last")
)


def logins(builder: StreamBuilder) -> Any:
    spout = FromList(LOGINS, fields=("user", "ts", "ok", "ip"))
    return builder.stream(spout, time=EventTime("ts")).key_by("user")


def test_detect_in_a_stream() -> None:
    builder = StreamBuilder()
    guessed = logins(builder).detect(GUESSED)
    guessed.map(lambda m: (m["good"][0].user, len(m["bad"]), m.key)).named("found")
    guessed.timed_out.map(lambda m: (m.key, len(m["bad"]), len(m["good"]))).named("given_up")
    completed = complete_topology(builder.build())
    assert completed.tuples("found") == [[("u1", 3, "u1"), 4_000]]
    rows = [row[0] for row in completed.tuples("given_up")]
    assert ("u2", 1, 0) in rows


def test_detect_selects_records_or_what_a_function_makes() -> None:
    builder = StreamBuilder()
    stream = logins(builder)
    pair = Pattern("one", "not ok").next("two", "ip == one.ip").within(MINUTE)
    stream.detect(pair, {"user": "key", "ip": "two.ip", "at": "end"}).map(
        lambda r: (r.user, r.ip, r.at)
    ).named("records")
    stream.detect(pair, lambda m: m["two"][0].ts).named("times")
    completed = complete_topology(builder.build())
    assert sorted(completed.tuples("records")) == [
        [("u1", "a", 2_000), 2_000],
        [("u1", "a", 3_000), 3_000],
        [("u2", "b", 5_000), 5_000],
    ]
    assert sorted(row[0] for row in completed.tuples("times")) == [2_000, 3_000, 5_000]


def test_detect_reads_mappings_and_names_what_an_element_lacks() -> None:
    builder = StreamBuilder()
    spout = FromList([(1, {"kind": "a"}), (2, {"kind": "b", "n": 1})], fields=("ts", "value"))
    keyed = builder.stream(spout, time=EventTime("ts")).map(lambda r: r.value).key_by(lambda v: 1)
    pattern = Pattern("a", "kind == 'a' and n is None").next("b", "n == 1")
    keyed.detect(pattern.within(MINUTE)).map(len).named("found")
    assert [row[0] for row in complete_topology(builder.build()).tuples("found")] == [2]
    builder = StreamBuilder()
    logins(builder).detect(Pattern("a", "usr == 'x'").within(MINUTE))
    with pytest.raises(UncaughtError, match=r"reads 'usr', which an element .* lacks") as caught:
        complete_topology(builder.build())
    assert caught.value.hint == "did you mean 'user'?"


def test_what_detect_refuses() -> None:
    builder = StreamBuilder()
    stream = logins(builder)
    with pytest.raises(StreamError, match="detect takes a Pattern"):
        stream.detect("a")
    with pytest.raises(PatternError, match="it needs within, or a gap"):
        stream.detect(Pattern("a").not_followed_by("n"))
    stream.detect(Pattern("a").followed_by("b"))
    with pytest.raises(StreamError, match="would never end"):
        builder.build()


def test_several_inputs_are_one_sequence_in_the_order_of_time() -> None:
    """The events of both wait until both have come so far; fields that one lacks are None."""
    orders, payments = FeederSpout(["id", "ts"]), FeederSpout(["id", "ts", "amount"])
    builder = TopologyBuilder()
    builder.set_spout("orders", orders)
    builder.set_spout("payments", payments)
    paid = (
        Pattern("order", of="orders")
        .next("paid", "source == 'payments' and amount > 5", of="payments")
        .followed_by("more", "amount is None and id == order.id")
        .within(MINUTE)
    )
    bolt = PatternBolt(
        paid, key="id", time=EventTime("ts", idle=None),
        select={"id": "id", "amount": "paid.amount", "at": "more.ts"},
    )  # fmt: skip
    declared = builder.set_bolt("p", bolt, 2)
    declared.fields_grouping("orders", ["id"]).fields_grouping("payments", ["id"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for row in ([1, 10], [2, 20], [1, 40], [2, 50]):
            orders.feed(row)
        run.settle()
        run.restart()
        assert run.tuples("p") == []
        for payment in ([1, 30, 6], [2, 30, 5], [9, 60, 0]):
            payments.feed(payment)
        run.settle()
        assert run.tuples("p") == [[1, 6, 40]]


@pytest.mark.parametrize(
    "function", [lambda e: e.n > "x", lambda e, m: e.n > "x"], ids=["of the event", "of both"]
)
def test_an_error_of_a_function_names_the_part(function: Callable[..., Any]) -> None:
    bolt = PatternBolt(Pattern("a", function).next("b").within(MINUTE))
    with pytest.raises(UncaughtError) as caught:
        results(bolt, [[1, "a", 2]])
    assert "in the condition of part 'a', asked of <Tuple of 'events'" in str(caught.value)


def test_a_match_travels() -> None:
    [[_, _, match]] = results(PatternBolt(PAIR, time=EventTime("ts")), [[1, "a", 0], [5, "b", 1]])
    again = pickle.loads(pickle.dumps(match))
    assert [event.n for event in again["b"]] == [1]
    assert (again.start, again.end, list(again)) == (1, 5, ["a", "b"])


def test_open_matches_of_another_pattern_are_refused() -> None:
    document = {"parts": [{"name": "a", "where": "kind == 'a'"}, {"name": "b"}], "within": 9}
    world = World(document)
    world.batch([Event(0, 0, 0, "a", 0)], 0)
    changed = {**document, "parts": [{"name": "a"}, {"name": "c", "how": "followed_by"}]}
    other = World(changed)
    other.saved = world.saved
    with pytest.raises(CheckpointError, match="open matches of another pattern"):
        other.restart()
    world.batch([], 1_000)  # nothing is open any more
    other.saved = world.saved
    other.restart()


# -- odd keys -----------------------------------------------------------------------------------


def matches_of_keys(keys: Sequence[Any]) -> list[Any]:
    """Return the matches of a then b, by keys of one or two fields, with a restart in between."""
    feeder = FeederSpout(["k", "j", "ts", "kind"])
    bolt = PatternBolt(PAIR, key=["k", "j"], time=EventTime("ts"), select={"k": "k", "n": "end"})
    builder = TopologyBuilder()
    builder.set_spout("s", feeder)
    builder.set_bolt("b", bolt).global_grouping("s")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for ts, (key, kind) in enumerate(zip(keys, "ab", strict=True)):
            feeder.feed([key, 1, ts, kind])
            run.settle()
            run.restart()
        return run.tuples("b")


def test_each_nan_is_the_same_key() -> None:
    [[key, end]] = matches_of_keys([float("nan"), float("nan")])
    assert (key != key, end) == (True, 1)


def test_a_value_that_cannot_be_a_key_is_told() -> None:
    with pytest.raises(UncaughtError, match=r"the key \(\[1\], 1\) is a tuple, which cannot be"):
        matches_of_keys([[1], [1]])


# -- the cost of an event -----------------------------------------------------------------------


def looks_at_an_event(open_matches: int) -> int:
    """Return how often a state or a match is looked at for 100 events that change nothing."""
    world = World({"parts": [
        {"name": "a", "where": "kind == 'a'"},
        {"name": "b", "where": "kind == 'b'", "how": "followed_by", "times": [2, 2]},
        {"name": "c", "where": "kind == 'c'", "how": "followed_by"},
    ], "within": 1_000_000})  # fmt: skip
    starts = [Event(n, n, 0, "a", 0) for n in range(open_matches)]
    world.batch(starts, open_matches)
    machine, at = world.operator._machine, open_matches
    assert machine.count == open_matches
    before = machine.looks
    world.batch([Event(at + n, at + n, 0, "cdx"[n % 3], 0) for n in range(100)], at + 100)
    return int(machine.looks - before)


def test_the_cost_of_an_event_does_not_grow_with_the_open_matches() -> None:
    assert {looks_at_an_event(count) for count in (1, 1_000, 4_000, 16_000)} == {34}


def test_starts_that_have_ended_are_let_go_before_their_time() -> None:
    """Each pair is matched at once; only the last start is open, for a long time."""
    with patch.object(machine, "_SWEPT_AT", 10):
        world = World({"parts": [
            {"name": "a", "where": "kind == 'a'"},
            {"name": "b", "where": "kind == 'b'", "how": "followed_by"},
        ], "within": 1_000_000, "skip": "past_last"})  # fmt: skip
        for at in range(0, 100, 5):
            world.batch([Event(at + n, at + n, 0, "ab"[(at + n) % 2], 0) for n in range(5)], at + 4)
    assert len(world.results("default")) == 50
    assert len(world.operator._machine._aging) <= 12


def test_a_clock_of_arrivals_that_goes_back_ends_the_older_start_first() -> None:
    world = World({"parts": [
        {"name": "a", "where": "kind == 'a'"},
        {"name": "b", "where": "kind == 'b'", "how": "followed_by"},
    ], "within": 9}, by_arrival=True)  # fmt: skip
    world.arrive([Event(0, 10, 0, "a", 0)], 10)
    world.arrive([Event(1, 5, 0, "a", 0)], 5)
    world.arrive([Event(2, 11, 0, "a", 0)], 11)
    world.arrive([], 14)
    assert world.results("out") == [(0, [("a", 1)], 14)]
    world.arrive([Event(3, 15, 0, "b", 0)], 15)
    assert world.results("default") == [
        (0, [("a", 0), ("b", 3)], 15), (0, [("a", 2), ("b", 3)], 15),
    ]  # fmt: skip


def test_a_commit_costs_what_a_batch_has_changed() -> None:
    """A hundred of many open matches move on, and what is written is about these."""

    def written(open_matches: int) -> int:
        document = {"parts": [
            {"name": "a", "where": "kind == 'a'"},
            {"name": "b", "where": "kind == 'b' and n == a.n", "how": "followed_by"},
            {"name": "c", "where": "kind == 'c'", "how": "followed_by"},
        ], "within": 1_000_000}  # fmt: skip
        world = World(document)
        count = open_matches
        world.batch([Event(n, n, 0, "a", n) for n in range(count)], count)
        before = dict(world.saved)
        world.batch([Event(count + n, count + n, 0, "b", n) for n in range(100)], count + 100)
        return sum(len(blob) for name, blob in world.saved.items() if name not in before)

    assert written(2_000) < 1.6 * written(200)
