"""cases/rules.jsonl on the inline engine, with a restart after each event as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cases import read_cases
from tests.conformance.join_world import same
from tests.property.scale import seeds
from topo import EventTime, Rule, RuleBolt, SubscriptionBolt, TopologyBuilder
from topo.testing import FeederSpout, TestCluster

CASES = read_cases(Path(__file__).parent / "cases" / "rules.jsonl")
RULES = [case for case in CASES if case["kind"] == "rule"]
SUBSCRIPTIONS = [case for case in CASES if case["kind"] == "subscription"]

every_way = pytest.mark.parametrize("restart", [False, True])
every_seed = pytest.mark.parametrize("seed", seeds(3))


def chosen(cases: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


def fields_of(case: dict[str, Any]) -> list[str]:
    """Return the fields of the events of a case, its label, and its time."""
    events = [step["in"] for step in case["steps"] if "in" in step]
    return [*dict.fromkeys(name for event in events for name in event), "id", "ts"]


@every_way
@every_seed
@chosen(RULES)
def test_rules(case: dict[str, Any], seed: int, restart: bool) -> None:
    settings, fields = case["settings"], fields_of(case)
    key = next((rule["by"] for rule in settings["rules"] if "by" in rule), None)
    rules = [Rule(**rule) for rule in settings["rules"]]
    emits = all(rule.set is None for rule in rules)
    if emits:
        rules = [Rule(**{**rule, "emit": {"id": "id"}}) for rule in settings["rules"]]
    bolt = RuleBolt(
        rules,
        key=key,
        time=EventTime("ts"),
        match=settings.get("match", "all"),
        tables=settings.get("tables"),
        fields=settings.get("fields", ()),
        unmatched="unmatched",
    )
    feeder = FeederSpout(fields)
    builder = TopologyBuilder()
    builder.set_spout("events", feeder)
    builder.set_bolt("rules", bolt).global_grouping("events")
    run = TestCluster(seed=seed).submit_topology("t", builder.create_topology())
    taken = {"alerts": 0, "default": 0, "unmatched": 0}

    def rows(stream: str) -> list[list[Any]]:
        every = run.tuples("rules", stream)
        start, taken[stream] = taken[stream], len(every)
        return every[start:]

    for step in case["steps"]:
        if "in" in step:
            event = {**step["in"], "id": step["id"], "ts": step["ts"]}
            feeder.feed([event.get(name) for name in fields], msg_id=object())
            run.settle()
            if restart:
                run.restart()
        elif "fired" in step:
            same([[row[0], row[-1]] for row in rows("alerts")], step["fired"], case)
        elif "out" in step:
            names = [*fields, *(name for name in settings["fields"] if name not in fields)]
            records = [dict(zip(names, row, strict=True)) for row in rows("default")]
            wanted = [
                {name: record[name] for name in record if name not in ("id", "ts")}
                for record in records
            ]
            same(wanted, step["out"], case)
        else:
            label = fields.index("id")
            same([row[label] for row in rows("unmatched")], step["unmatched"], case)


@every_way
@every_seed
@chosen(SUBSCRIPTIONS)
def test_subscriptions(case: dict[str, Any], seed: int, restart: bool) -> None:
    fields = fields_of(case)
    messages = FeederSpout(fields)
    subscriptions = FeederSpout(["id", "where", "start", "stop", "times"])
    builder = TopologyBuilder()
    builder.set_spout("messages", messages)
    builder.set_spout("subscriptions", subscriptions)
    declarer = builder.set_bolt("notify", SubscriptionBolt("subscriptions", time=EventTime("ts")))
    declarer.global_grouping("messages").all_grouping("subscriptions")
    run = TestCluster(seed=seed).submit_topology("t", builder.create_topology())
    label = 1 + fields.index("id")
    told = rejected = 0

    def settle() -> None:
        run.settle()
        if restart:
            run.restart()

    for step in case["steps"]:
        if "in" in step:
            message = {**step["in"], "id": step["id"], "ts": step["ts"]}
            messages.feed([message.get(name) for name in fields], msg_id=object())
            settle()
        elif "subscribe" in step:
            options = step["subscribe"]
            names = ("id", "where", "start", "stop", "times")
            subscriptions.feed([options.get(name) for name in names], msg_id=object())
            settle()
        elif "unsubscribe" in step:
            subscriptions.feed([step["unsubscribe"], None, None, None, None], msg_id=object())
            settle()
        elif "notified" in step:
            rows = run.tuples("notify")
            same([[row[0], row[label]] for row in rows[told:]], step["notified"], case)
            told = len(rows)
        elif "rejected" in step:
            rows = run.tuples("notify", "rejected")
            same([row[0] for row in rows[rejected:]], step["rejected"], case)
            rejected = len(rows)
        else:
            run.step()
            assert run.stats().components["notify"].state_rows == len(step["kept"])
