"""Rules and subscriptions: what is refused, and what their rarer options do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from topo import (
    BasicBolt,
    EventTime,
    FailTuple,
    InvalidTopologyError,
    Rule,
    RuleBolt,
    RuleError,
    SubscriptionBolt,
    Table,
    TopologyBuilder,
    UncaughtError,
)
from topo.cli.root import run
from topo.errors import ConditionError
from topo.rules.files import checked_rules, read_rules
from topo.rules.index import ConditionIndex
from topo.rules.rule import Firing
from topo.testing import FeederSpout, TestCluster

MINUTE = timedelta(minutes=1)


def counting(**options: Any) -> Rule:
    return Rule("r", "x > 0", **{"by": "k", "having": "count() > 1", "within": MINUTE, **options})


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rule("", "x > 0"), "a rule has a name"),
        (lambda: Rule("r", None), "rule 'r': its condition is None"),  # type: ignore[arg-type]
        (lambda: Rule("r", "x >"), "rule 'r', when: syntax error"),
        (lambda: Rule("r", "count() > 1"), "count is an aggregate"),
        (lambda: Rule("r", "x > 0", having="count() > 1", within=MINUTE), "having and no by"),
        (lambda: Rule("r", "x > 0", having="count() > 1", by="k"), "having and no within"),
        (lambda: Rule("r", "x > 0", within=MINUTE), "within and no by"),
        (lambda: Rule("r", "x > 0", emit={"n": "count()"}), "count is an aggregate"),
        (lambda: counting(again="chnge"), "again is 'chnge'.*did you mean 'change'"),
        (lambda: Rule("r", "x > 0", again=MINUTE), "counted for each value of a field"),
        (lambda: counting(again=1.5), "a duration is a timedelta"),
        (lambda: counting(within=0), "must be above zero"),
        (lambda: counting(by=()), r"by is \(\)"),
        (lambda: counting(set={"k": "1"}), "sets 'k', a field of its key"),
        (lambda: Rule("r", "x > 0", set={"y": 1}), "set 'y' is 1, and not a text"),  # type: ignore[dict-item]
        (lambda: Rule("r", "x > 0", emit={"a b": "1"}), "'a b', which is no name"),
        (lambda: Rule("r", "x > 0", let="x"), "let is 'x'"),  # type: ignore[arg-type]
        (lambda: Rule("r", "x > 0", then="call"), "is no function"),  # type: ignore[arg-type]
        (lambda: Rule("r", "x > 0", times=0), "times is 0"),
        (lambda: Rule("r", "x > 0", stop="x >"), "rule 'r', stop: syntax error"),
        (lambda: RuleBolt([Rule("r", "x > 0"), Rule("r", "x > 1")]), "there are 2 rules 'r'"),
        (lambda: RuleBolt(["x > 0"]), "'x > 0' is no Rule"),  # type: ignore[list-item]
        (lambda: RuleBolt([counting()]), "there is no rule with no by"),
        (lambda: RuleBolt([Rule("r", "x > 0")], match="frist"), "did you mean 'first'"),
        (lambda: RuleBolt([Rule("r", "x > 0")], tables={"T": 1}), "table 'T' is 1"),
        (lambda: RuleBolt([Rule("r", "x > 0")], tables={"T": {1: 2}}), "2 is no row"),
        (lambda: RuleBolt("/nowhere.toml"), "no such file"),
        (lambda: SubscriptionBolt("subs", emit="all"), "emit is 'all'"),
        (lambda: SubscriptionBolt("subs", limit=0), "limit is 0"),
    ],
)
def test_a_declaration_that_cannot_be(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((RuleError, ConditionError, ValueError), match=message):
        make()


@pytest.mark.parametrize(
    ("bolt", "wire", "message"),
    [
        (RuleBolt([Rule("r", "y > 0")]), "shuffle", "'y' is no field of 's'"),
        (RuleBolt([Rule("r", "x > 0", set={"y": "z"})]), "shuffle", "'z' is no field"),
        (RuleBolt([Rule("r", "x > 0", let={"k": "1"})]), "shuffle", "let names 'k', which is a"),
        (RuleBolt([Rule("r", "x > 0", set={"ts": "1"})]), "shuffle", "'ts' cannot be set"),
        (RuleBolt([Rule("r", "x > 0", emit={"key": "1"})]), "shuffle", "emit names 'key'"),
        (RuleBolt([counting(by="kk")], key="kk"), "shuffle", "by names 'kk'"),
        (RuleBolt([counting()], key="k"), "shuffle", "has rules by 'k' in 2 tasks"),
        (
            RuleBolt([counting(having="sum(y) > 1")], key="k"),
            "fields",
            "'y' is no field of 's'",
        ),
        (
            RuleBolt([Rule("r", "lookup(x, 'T', 'f') == 1")]),
            "shuffle",
            "there is no table 'T'",
        ),
        (
            RuleBolt([Rule("r", "lookup(x, 'T', 'f') == 1")], tables={"T": {1: {"g": 2}}}),
            "shuffle",
            "table 'T' has no field 'f'",
        ),
        (
            RuleBolt([Rule("r", "x > 0")], tables={"T": Table("t", key="id")}),
            "shuffle",
            "which it does not read",
        ),
        (RuleBolt([], changes="c"), "shuffle", "does not read its changes"),
        (SubscriptionBolt("c"), "shuffle", "does not read its subscriptions"),
        (SubscriptionBolt("s"), "shuffle", "subscriptions have no field 'id'"),
    ],
)
def test_a_topology_that_cannot_be(bolt: Any, wire: str, message: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", FeederSpout(["k", "x"]))
    declarer = builder.set_bolt("b", bolt, 2)
    if wire == "fields":
        declarer.fields_grouping("s", ["k"])
    else:
        declarer.shuffle_grouping("s")
    with pytest.raises(InvalidTopologyError, match=message):
        builder.create_topology()


# -- files ----------------------------------------------------------------------------------------

RULES = """
[[rule]]
name = "slow"
when = "secs > 10 and city in ('Rome', 'Oslo')"
emit = { level = "'high'" }

[[rule]]
name = "often"
when = "True"
by = ["city", "street"]
having = "count() >= 3"
within = "2m"
again = "1h"
"""


def test_a_file_has_the_rules_of_a_program(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    slow, often = read_rules(path)
    assert slow == Rule("slow", "secs > 10 and city in ('Rome', 'Oslo')", emit={"level": "'high'"})
    assert often.within == timedelta(minutes=2)
    assert often.again == timedelta(hours=1)
    assert often.key == ("city", "street")
    for rule in (slow, often):
        assert Rule.from_dict(rule.name, rule.to_dict()) == rule


def test_all_mistakes_of_a_file_are_told_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        RULES
        + """
[[rule]]
name = "a"
when = "x > 1"
withn = "2m"
[[rule]]
name = "slow"
when = "x > 1"
[[rule]]
name = "b"
when = "exec(x)"
[[rule]]
name = "c"
when = "x > 1"
by = "k"
within = "2 minutes"
[[rule]]
when = "x > 1"
[rules]
"""
    )
    rules, errors = checked_rules(path)
    assert [rule.name for rule in rules] == ["slow", "often"]
    lines = {int(error.at.rpartition(":")[2]): error.message for error in errors}
    assert sorted(lines) == [18, 19, 24, 29, 30, 32]
    assert "'withn' is no key of a rule" in lines[18]
    assert "two rules 'slow'" in lines[19]
    assert "exec is no function" in lines[24]
    assert "'2 minutes', which is no duration" in lines[29]
    assert "has no name" in lines[30]
    with pytest.raises(RuleError, match="has 6 mistakes"):
        read_rules(path)


@pytest.mark.parametrize("text", ["", "x = [", "rule = 5", "[[rule]]\nname = 1\nwhen = 'x > 1'"])
def test_a_file_without_rules_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    assert checked_rules(path)[1]


def test_the_command_checks_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    assert run(["rules", "check", str(path), "--fields", "secs,city,street"]) == 0
    assert "2 by city" in capsys.readouterr().out
    assert run(["rules", "check", str(path), "--fields", "secs,city"]) == 3
    assert "by names 'street', no field" in capsys.readouterr().out
    assert run(["rules", "check", str(path), "--json"]) == 0
    assert [rule["name"] for rule in json.loads(capsys.readouterr().out)["rules"]] == [
        "slow",
        "often",
    ]


@pytest.mark.parametrize(
    ("typed", "words", "hint"),
    [
        (["rules.toml"], "'rules.toml' is not 'check'", "topo rules check rules.toml"),
        (["check"], "FILE is missing", "topo rules check FILE"),
    ],
)
def test_a_command_that_lacks_a_word_has_it_in_the_hint(
    typed: list[str], words: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rules", *typed]) == 2
    printed = capsys.readouterr().err
    assert printed == f"error: {words}\n  at: topo rules\n  hint: {hint}\n"


# -- what rules do --------------------------------------------------------------------------------


class World:
    """Feeders `events`, `others`, and a bolt `rules` under test."""

    def __init__(
        self, bolt: Any, others: Sequence[str] = (), *, key: str = "", tasks: int = 1
    ) -> None:
        self.events, self.others = FeederSpout(["k", "x", "ts"]), FeederSpout(others or ["id"])
        builder = TopologyBuilder()
        builder.set_spout("events", self.events)
        declarer = builder.set_bolt("rules", bolt, tasks)
        if key:
            declarer.fields_grouping("events", [key])
        else:
            declarer.shuffle_grouping("events")
        if others:
            builder.set_spout("others", self.others)
            declarer.all_grouping("others")
        self.cluster = TestCluster()
        self.run = self.cluster.submit_topology("t", builder.create_topology())

    def feed(self, *rows: Sequence[Any]) -> None:
        for row in rows:
            self.events.feed(list(row), msg_id=object())
        self.run.settle()

    def tell(self, *rows: Sequence[Any]) -> None:
        for row in rows:
            self.others.feed(list(row), msg_id=object())
        self.run.settle()

    def alerts(self) -> list[list[Any]]:
        return self.run.tuples("rules", "alerts")

    def counters(self) -> dict[str, int]:
        return dict(self.run.stats().components["rules"].counters)


calls: list[tuple[Any, ...]] = []


def note(event: Any, firing: Firing) -> None:
    calls.append((event.x, firing.rule, firing.key, firing.values))


def test_then_is_called_with_the_event_and_the_firing() -> None:
    calls.clear()
    rule = counting(then=note, emit={"n": "count()"})
    world = World(RuleBolt([rule], key="k"), key="k")
    world.feed(["a", 1, 0], ["a", 2, 0])
    assert calls == [(2, "r", "a", {"n": 2})]
    assert [alert[-1] for alert in world.alerts()] == [2]


def test_firings_are_counted_by_rule() -> None:
    world = World(RuleBolt([Rule("low", "x < 5"), Rule("odd", "x % 2 == 1")]))
    world.feed(["a", 1, 0], ["a", 2, 0], ["a", 9, 0])
    assert world.counters() == {'firings{rule="low"}': 2, 'firings{rule="odd"}': 2}


def test_explain_says_how_rules_are_found() -> None:
    builder = TopologyBuilder()
    builder.set_spout("events", FeederSpout(["k", "x", "ts"]))
    rules = [Rule(f"r{n}", f"x == {n}") for n in range(5)]
    rules += [Rule("low", "x < 5"), Rule("both", "k == x")]
    bolt = RuleBolt(rules)
    builder.set_bolt("rules", bolt).shuffle_grouping("events")
    builder.create_topology()
    words = "7 rules (5 by x, 1 by x < ..., 1 always asked)"
    assert bolt.describe_time() == words


def test_late_events_are_not_counted() -> None:
    world = World(RuleBolt([counting()], key="k", time=EventTime("ts")), key="k")
    world.feed(["a", 1, 10_000])
    world.feed(["a", 1, 9_999])
    world.feed(["a", 1, 10_000])
    assert [row[0].ts for row in world.run.tuples("rules", "late")] == [9_999]
    assert [alert[2] for alert in world.alerts()] == [10_000]


def test_by_arrival_the_clock_counts() -> None:
    world = World(RuleBolt([counting()], key="k"), key="k")
    world.feed(["a", 1, 0])
    world.cluster.advance(secs=61)
    world.feed(["a", 1, 0])
    assert world.alerts() == []
    world.run.restart()
    world.feed(["a", 1, 0])
    assert len(world.alerts()) == 1


@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize(
    ("when", "fires"),
    [
        ("source == 'events'", True),
        ("source == 'web'", False),
        ("source == 'events' and v > 0", True),
        ("source == 'web' and v > 0", False),
        ("ts >= 100", True),
        ("ts >= 100 and v > 0", True),
        ("ts < 100", False),
        ("ts == 200", True),
    ],
)
def test_ts_and_source_are_the_events_own_whatever_fields_are_called_so(
    when: str, fires: bool, key: str
) -> None:
    feeder = FeederSpout(["source", "ts", "v", "k", "at"])
    builder = TopologyBuilder()
    builder.set_spout("events", feeder)
    bolt = RuleBolt([Rule("r", when, by=key or None)], key=key or None, time=EventTime("at"))
    builder.set_bolt("rules", bolt).fields_grouping("events", ["k"])
    run = TestCluster().submit_topology("t", builder.create_topology())
    feeder.feed(["web", 1, 1, "a", 200], msg_id=1)
    run.settle()
    feeder.feed(["web", 1, 0, "a", 90_000], msg_id=2)
    run.settle()
    assert (200 in [alert[2] for alert in run.tuples("rules", "alerts")]) == fires


def test_values_that_cannot_be_counted_together_are_named() -> None:
    world = World(RuleBolt([counting(having="sum(x) > 1")], key="k"), key="k")
    world.feed(["a", Decimal("0.5"), 0])
    with pytest.raises(UncaughtError, match=r"rule 'r' cannot count \{'x': 0.5\}"):
        world.feed(["a", 0.5, 0])


def test_a_rule_with_a_key_alone_fires_no_more_often_than_it_may() -> None:
    rule = Rule("r", "x > 0", by="k", again=MINUTE)
    world = World(RuleBolt([rule], key="k", time=EventTime("ts")), key="k")
    for ts in (0, 59_999, 60_000, 200_000):
        world.feed(["a", 1, ts])
        world.run.restart()
    assert [alert[2] for alert in world.alerts()] == [0, 60_000, 200_000]


def test_a_rule_begins_and_ends() -> None:
    rules = [
        Rule("conditions", "True", start="x == 2", stop="x == 4"),
        Rule("times", "True", start=3, stop=5),
        Rule("twice", "True", times=2),
    ]
    world = World(RuleBolt(rules, time=EventTime("ts")))
    for x in range(1, 6):
        world.feed(["a", x, x])
        world.run.restart()
    fired = [(alert[0], alert[2]) for alert in world.alerts()]
    assert sorted(fired) == [
        ("conditions", 2),
        ("conditions", 3),
        ("times", 3),
        ("times", 4),
        ("twice", 1),
        ("twice", 2),
    ]


def test_a_key_or_a_value_that_cannot_be_counted_is_named() -> None:
    world = World(RuleBolt([counting()], key="k"), key="k")
    with pytest.raises(UncaughtError, match=r"key .* is a list, which cannot be"):
        world.feed([["a"], 1, 0])
    world = World(RuleBolt([counting(having="sum(k) > 1")], key="k"), key="k")
    with pytest.raises(UncaughtError, match=r"rule 'r' cannot count \{'k': 'a'\}"):
        world.feed(["a", 1, 0])


def test_what_rules_without_a_key_emit_is_anchored() -> None:
    class Refuses(BasicBolt):
        def execute(self, tup: Any) -> None:
            raise FailTuple("no such pager")

    feeder = FeederSpout(["x"])
    builder = TopologyBuilder()
    builder.set_spout("events", feeder)
    builder.set_bolt("rules", RuleBolt([Rule("r", "x > 1")])).shuffle_grouping("events")
    builder.set_bolt("pager", Refuses()).shuffle_grouping("rules", "alerts")
    run = TestCluster().submit_topology("t", builder.create_topology())
    for x in (1, 2, 3):
        feeder.feed([x], msg_id=x)
    run.settle()
    stats = run.stats().components["events"]
    assert stats.acked == 1
    assert stats.failed == 2


def test_a_table_follows_its_component() -> None:
    rule = Rule("r", "lookup(k, 'T', 'level') > 1", emit={"name": "lookup(k, 'T', 'name')"})
    bolt = RuleBolt([rule], tables={"T": Table("others", key="id")})
    world = World(bolt, ["id", "level", "name"])
    world.tell(["a", 2, "one"])
    world.feed(["a", 1, 0], ["b", 1, 0])
    world.run.restart()
    world.tell(["a", 3, "two"])
    world.feed(["a", 1, 0], [["odd"], 1, 0])
    world.tell(["a", None, None])
    world.feed(["a", 1, 0])
    assert [alert[-1] for alert in world.alerts()] == ["one", "two"]


def test_rules_change_while_they_run() -> None:
    first = counting(emit={"n": "count()"})
    bolt = RuleBolt([first], key="k", time=EventTime("ts"), changes="others")
    world = World(bolt, ["name", "rule"], key="k")
    changed = {"when": "x > 0", "by": "k", "having": "count() > 2", "within": "1m"}
    changed["emit"] = {"n": "count()"}  # type: ignore[assignment]
    world.feed(["a", 1, 1])
    world.tell(["r", changed], ["other", {"when": "x > 0"}], ["bad", {"when": "y > 0", "by": "k"}])
    world.run.restart()
    world.feed(["a", 1, 2], ["a", 1, 3])
    assert world.alerts() == []  # the counts began anew
    world.feed(["a", 1, 4])
    assert world.alerts() == [["r", "a", 4, 3]]
    world.tell(["r", None])
    world.run.restart()
    world.feed(["a", 1, 5])
    world.tell(["r", changed])
    world.run.restart()
    world.feed(["a", 1, 6], ["a", 1, 7])
    assert len(world.alerts()) == 1
    assert [row[0] for row in world.run.tuples("rules", "rejected")] == ["bad"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"when": "__import__('os')"}, "is no function"),
        ({"when": "x > 0", "then": "f"}, "'then' is no key"),
        ({"when": "x > 0", "emit": {"evil": "1"}}, "alerts do not have"),
        ({"when": "x > 0", "set": {"y": "1"}}, "which the output does not have"),
        ({"when": "lookup(x, 'T', 'y') > 1"}, "no table 'T'"),
        ({"when": "x > 0", "start": [1]}, "the time is"),
        ({"when": "x > 0", 5: 6}, "5 is no key"),
        ({}, "has no condition"),
        ("x > 0", "is no table of a rule's keys"),
        ({"when": 5}, "its condition is 5"),
        ({"when": "x > 0", "times": "many"}, "times is 'many'"),
    ],
)
def test_a_bad_change_is_rejected_and_the_others_continue(data: Any, reason: str) -> None:
    bolt = RuleBolt([Rule("r", "x > 0")], changes="others")
    world = World(bolt, ["name", "rule"], tasks=2)
    world.tell(["new", data])
    [(name, _, told)] = world.run.tuples("rules", "rejected")
    assert name == "new"
    assert reason in told
    world.feed(["a", 1, 0])
    assert [alert[0] for alert in world.alerts()] == ["r"]


# -- subscriptions --------------------------------------------------------------------------------


def test_a_list_of_all_that_match() -> None:
    world = World(SubscriptionBolt("others", emit="list"), ["id", "where"])
    world.tell([2, "x > 1"], [1, "x > 0"], [3, "x > 5"])
    world.feed(["a", 3, 0], ["a", 0, 0])
    assert world.run.tuples("rules") == [[[2, 1], "a", 3, 0]]


def test_subscriptions_begin_and_end_by_conditions() -> None:
    world = World(SubscriptionBolt("others"), ["id", "where", "start", "stop"])
    world.tell(["s", "True", "x == 2", "x == 4"], ["t", "x > 1", None, "x == 3"])
    for x in range(1, 6):
        world.feed(["a", x, 0])
        world.run.restart()
    assert [(row[0], row[2]) for row in world.run.tuples("rules")] == [("s", 2), ("t", 2), ("s", 3)]
    world.run.step()
    assert world.run.stats().components["rules"].state_rows == 0


def test_a_message_is_only_looked_up_if_some_subscription_may_want_it() -> None:
    world = World(SubscriptionBolt("others"), ["id", "where", "times"])
    world.tell([1, "x == 3", 1], [2, "x > 7", None], [3, "x == 5 and k == 'b'", None])
    with patch.object(
        ConditionIndex, "find", autospec=True, side_effect=ConditionIndex.find
    ) as find:
        world.feed(*(["a", n % 10, n] for n in range(20)), ["a", None, 20])
    assert find.call_count == 8  # 3, 5, 8 and 9, twice each
    assert [row[:3] for row in world.run.tuples("rules")] == [
        [1, "a", 3], [2, "a", 8], [2, "a", 9], [2, "a", 8], [2, "a", 9],
    ]  # fmt: skip
    world.tell([4, "k == 'a'", None])
    world.feed(["a", 0, 21], ["b", 1, 22], ["b", 5, 23])
    assert [row[0] for row in world.run.tuples("rules")[5:]] == [4, 3]


def test_more_than_the_limit_is_rejected_and_a_known_id_is_not() -> None:
    world = World(SubscriptionBolt("others", limit=2), ["id", "where"])
    world.tell([1, "x > 0"], [2, "x > 0"], [3, "x > 0"], [2, "x > 5"], [[4], "x > 0"])
    told = world.run.tuples("rules", "rejected")
    assert [(row[0], row[2].partition(",")[0]) for row in told] == [
        (3, "there are 2 subscriptions"),
        ([4], "the id is a list"),
    ]
    world.feed(["a", 3, 0])
    assert [row[0] for row in world.run.tuples("rules")] == [1]


def test_a_subscription_that_raises_is_no_match_and_told_once() -> None:
    world = World(SubscriptionBolt("others"), ["id", "where"])
    world.tell(["bad", "k > 1"], ["ok", "x > 0"])
    with pytest.warns(UserWarning, match="subscription 'bad': 'k > 1' raised TypeError"):
        world.feed(["a", 1, 0])
    world.feed(["a", 2, 0])
    assert [row[0] for row in world.run.tuples("rules")] == ["ok", "ok"]
    assert world.counters()["subscription_errors"] == 2
