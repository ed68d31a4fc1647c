"""cases/windows.jsonl on the inline engine: one runner for each kind, each case with several seeds.

Of the cases that must hold, these are decided otherwise or belong elsewhere, each with its reason
in `ELSEWHERE`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any

import pytest

from tests.conformance import test_storm_windows
from tests.conformance.window_world import (
    ALSO,
    BUNDLED,
    CASES,
    LAG,
    SEEDS,
    Panes,
    World,
    aggregate,
    cases,
    combiner_of,
    name_of,
    trigger_of,
    window_of,
    window_settings,
)
from topo import (
    AfterCount,
    AtWatermark,
    Count,
    EachBatch,
    EventTime,
    Max,
    PerEvent,
    Sum,
    TopologyBuilder,
    Tumbling,
    WindowAggregate,
)
from topo.runtime.watermarks import IdleTimer, WatermarkMerger
from topo.streams import StreamBuilder
from topo.testing import FeederSpout, TestCluster
from topo.windows.assigners import Aligned, Whole, intersects, merge_with

BY_HAND = EventTime("ts", lag=LAG, idle=None)
BY_DATA = EventTime("ts", idle=None)

ELSEWHERE = {
    "closed per key: another key does not close it": "one watermark per component, not per key",
    "a null key is dropped": "None is a key like any other, in windows",
    "at most one key held back": "tables hold no changes back: each one is reported",
    "rate limit of 2 by stream time": "tables hold no changes back: each one is reported",
}


def chosen(
    *kinds: str, source: str = "", without: str = "", around: bool = False, table: bool = False
) -> pytest.MarkDecorator:
    found = [
        case
        for case in cases(*kinds)
        if case["name"] not in ELSEWHERE
        and case["source"].startswith(source)
        and without not in case["settings"]
        and case["settings"].get("table", False) == table
        and ("difference" in window_settings(case["settings"])) == around
    ]
    assert found
    return pytest.mark.parametrize("case", found, ids=name_of)


every_seed = pytest.mark.parametrize("seed", SEEDS)


def same(found: Sequence[Any], wanted: Sequence[Any], *, unordered: bool) -> None:
    """Compare what came out by the fields that the case names."""
    names = [set(one) for one in wanted]
    assert len(found) == len(wanted), (found, wanted)
    if not unordered:
        trimmed = [
            {name: one.get(name) for name in keys} for one, keys in zip(found, names, strict=True)
        ]
        assert trimmed == list(wanted)
        return
    keys = set.union(*names) if names else set()
    own = [{name: one.get(name) for name in keys} for one in found]
    assert sorted(map(repr, map(_sorted, own))) == sorted(map(repr, map(_sorted, wanted)))


def _sorted(one: Mapping[str, Any]) -> list[Any]:
    return sorted(one.items())


# -- without an engine --------------------------------------------------------------------------


@chosen("assign")
def test_assigned_windows(case: dict[str, Any]) -> None:
    assigner = window_of(case["settings"]).in_ticks(BY_DATA)
    assert isinstance(assigner, Aligned | Whole)
    for step in case["steps"]:
        if "ts" in step:
            found = [list(window) for window in assigner.assign(step["ts"])]
        else:
            assert sorted(found) == sorted(step["out"])


@chosen("merge")
def test_merged_windows(case: dict[str, Any]) -> None:
    live: list[tuple[int, int]] = []
    gap = case["settings"]["window"]["gap"] if case["settings"]["window"] != "any" else 0
    for step in case["steps"]:
        if "windows" in step:
            one, other = step["windows"]
            answer: Any = [intersects((one[0], one[1]), (other[0], other[1]))]
        elif "ts" in step or "window" in step:
            new = tuple(step["window"]) if "window" in step else (step["ts"], step["ts"] + gap)
            merged, absorbed = merge_with(live, (new[0], new[1]))
            live = [window for window in live if window not in absorbed] + [merged]
            if "ts" in step:
                answer = [{"session": [merged[0], merged[1] - gap]}]
            else:
                grew = bool(absorbed) and [merged] != absorbed
                answer = [{"becomes": list(merged), "merged": grew}]
        else:
            assert answer == step["out"]


@chosen("watermark-merge")
def test_watermark_of_several_inputs(case: dict[str, Any]) -> None:
    merger = WatermarkMerger(range(case["settings"]["inputs"]))
    events: list[dict[str, Any]] = []
    told, idle = merger.watermark, False
    for step in case["steps"]:
        if "out" in step:
            assert events == step["out"]
            events = []
            continue
        if "watermark" in step:
            merger.observe(step["from"], step["watermark"])
        else:
            merger.set_idle(step["from"], step["idle"])
        if merger.watermark != told:
            told = merger.watermark
            events.append({"watermark": told})
        if merger.all_idle != idle:
            idle = merger.all_idle
            events.append({"idle": idle})


@chosen("idleness")
def test_idle_inputs(case: dict[str, Any]) -> None:
    after = case["settings"]["idle_after"]
    if after <= 0:
        assert case["steps"] == [{"out": [{"error": "IllegalArgumentException"}]}]
        with pytest.raises(ValueError, match="idle after"):
            IdleTimer(after)
        return
    timer, now, answers = IdleTimer(after), 0, []
    for step in case["steps"]:
        if "now" in step:
            now = step["now"]
        elif "in" in step:
            timer.active()
        elif "check" in step:
            answers.append({"idle": timer.is_idle(now)})
        else:
            assert answers == step["out"]
            answers = []


# -- keyed aggregates ---------------------------------------------------------------------------


@every_seed
@chosen("window", source="flink")
def test_windows_of_flink(case: dict[str, Any], seed: int) -> None:
    settings = case["settings"]
    bolt = aggregate(
        settings,
        time=BY_HAND,
        trigger=trigger_of(settings["trigger"]),
        lateness=settings["lateness"],
        result_ts="end",
    )
    world = World(bolt, seed)
    for step in case["steps"]:
        if "in" in step:
            world.feed(step["in"], step["ts"], step["key"])
            world.run.settle()
        elif "watermark" in step:
            world.watermark(step["watermark"], plus=1)
        elif "restart" in step:
            world.run.restart()
        elif "late" in step:
            found = [{"key": key, "in": value, "ts": ts} for key, value, ts in world.late()]
            same(found, step["late"], unordered=False)
        else:
            found = [_pane(row) for row in world.rows()]
            end_of_time = {"ts": None}
            out = [{**one, **end_of_time} if one["ts"] > 1 << 60 else one for one in step["out"]]
            same(found, out, unordered=bool(case.get("unordered")))


def _pane(row: list[Any]) -> dict[str, Any]:
    key, start, end, value, *_ = row
    return {
        "key": key,
        "start": start,
        "end": end,
        "value": value,
        "ts": None if end is None else end - 1,
    }


@every_seed
@chosen("window", source="bytewax")
def test_windows_of_bytewax(case: dict[str, Any], seed: int) -> None:
    settings = case["settings"]
    world = World(aggregate(settings, time=BY_DATA, trigger=None), seed)
    for step in case["steps"]:
        if "in" in step:
            world.feed(step["in"], step["ts"], step.get("key", ""))
            world.run.settle()
        elif "end" in step:
            world.feeder.observe_time(1 << 50)
            world.run.settle()
        else:
            rows = world.rows()
            window = settings["window"]
            starts = sorted(row[1] for row in rows)
            unit = window.get("slide", window.get("length"))
            found = []
            for key, start, _, value in rows:
                number = start // unit if unit else starts.index(start)
                found.append({"window": number, "key": key, "value": value})
            same(found, step["out"], unordered=bool(case.get("unordered")))


@every_seed
@chosen("window", source="quix")
def test_windows_of_quix(case: dict[str, Any], seed: int) -> None:
    settings = case["settings"]
    is_condition = settings["trigger"]["on"] == "condition"
    trigger = trigger_of(settings["trigger"]) if is_condition else None
    # A window that is closed after a grace is one whose watermark lags by it.
    time = EventTime("ts", lag=settings.get("lateness", 0), idle=None)
    world = World(aggregate(settings, time=time, trigger=trigger), seed)
    for step in case["steps"]:
        if "in" in step:
            world.feed(step["in"], step["ts"], step.get("key", ""))
            world.run.settle()
        elif "kept" in step:
            # The value that closed the window begins the next pane, where quix drops it.
            dropped = 3 if settings["trigger"]["when"] == "before" else 0
            (kept,) = step["kept"]
            (record,) = world.held()
            assert record.cell == kept["value"] + dropped
        else:
            rows = world.rows()
            if "partition_expiration" in case["source"]:  # see the case's note
                rows = [row for row in rows if row[1] >= 100]
            same([_pane(row) for row in rows], step["out"], unordered=bool(case.get("unordered")))


@every_seed
@chosen("session", "final-results", source="kafka")
def test_windows_of_kafka_streams(case: dict[str, Any], seed: int) -> None:
    settings = case["settings"]
    emit = settings["emit"]
    gap = settings["window"].get("gap", 0)
    trigger = None
    more: dict[str, Any] = {}
    if emit == "update":
        trigger = AtWatermark(early=AfterCount(1))
        more = {"on_time": "if_new", "mode": "retract" if gap else "accumulate"}
    elif emit.startswith("last"):
        trigger = AtWatermark(early=EachBatch())
        more = {"on_time": "if_new"}
    time = EventTime("ts", lag=settings["grace"], idle=None)
    if any("kept" in step for step in case["steps"]):
        # Kafka's store keeps sessions that are over, for events between them and later ones.
        more["lateness"] = gap
    aggregates = {"value": combiner_of(settings["aggregate"]), "latest": Max("ts")}
    bolt = aggregate(settings, time=time, trigger=trigger, aggregates=aggregates, **more)
    world = World(bolt, seed)
    cached = emit.startswith("last")
    for step in case["steps"]:
        if "in" in step:
            world.feed(step["in"], step["ts"], step["key"])
            if not cached:
                world.run.settle()
        elif "out" in step:
            if cached:
                world.batch()
            found = []
            for key, start, end, value, latest, *rest in world.rows():
                taken_back = rest[:1] == ["-"]
                ts = end - gap if gap else latest
                one = {"key": key, "start": start, "end": end - gap, "ts": ts}
                found.append({**one, "value": None if taken_back else value})
            same(found, step["out"], unordered=bool(case.get("unordered")))
        elif "late" in step:
            found = [{"key": key, "in": value, "ts": ts} for key, value, ts in world.late()]
            same(found, step["late"], unordered=False)
        else:
            kept = [
                {"key": r.key, "start": r.start, "end": r.end - gap, "value": r.cell[0]}
                for r in world.held()
            ]
            same(kept, step["kept"], unordered=True)


@every_seed
@chosen("window", source="kafka")
def test_updates_of_hopping_windows(case: dict[str, Any], seed: int) -> None:
    settings = case["settings"]
    trigger = AtWatermark(early=AfterCount(1), late=AfterCount(1))
    lateness = settings["lateness"]
    bolt = aggregate(settings, time=BY_DATA, trigger=trigger, lateness=lateness, on_time="if_new")
    world = World(bolt, seed)
    for step in case["steps"]:
        if "in" in step:
            world.feed(step["in"], step["ts"], step["key"])
            world.run.settle()
        else:
            # Its windows begin at 0, and it tells the time of the tuple, not of the window.
            found = [_pane(row) for row in world.rows() if row[1] >= 0]
            out = [{name: one[name] for name in one if name != "ts"} for one in step["out"]]
            same(found, out, unordered=bool(case.get("unordered")))


@every_seed
@chosen("session", "micro-batch", source="spark", without="then")
def test_windows_of_spark(case: dict[str, Any], seed: int) -> None:
    settings = case["settings"]
    time = EventTime("ts", lag=settings["lag"], idle=None)
    updates = settings["emit"] == "update"
    trigger = AtWatermark(early=EachBatch()) if updates else None
    on_time = "if_new" if updates else "always"
    world = World(aggregate(settings, time=time, trigger=trigger, on_time=on_time), seed)
    late = 0
    for step in case["steps"]:
        if "in" in step:
            world.feed(step["in"], step["ts"], step["key"])
        elif "batch" in step:
            for ts in step["batch"]:
                world.feed(ts, ts)
            world.batch()
        elif "batch_end" in step:
            world.batch()
        elif "out" in step and "session" in case["kind"]:
            same(
                [_pane(row) for row in world.rows()],
                step["out"],
                unordered=bool(case.get("unordered")),
            )
        elif "out" in step:
            assert sorted([row[1], row[3]] for row in world.rows()) == step["out"]
        else:
            wanted = step.get("late", step.get("dropped"))
            assert world.late_count() - late == wanted
            late = world.late_count()


# -- windows around events ----------------------------------------------------------------------


def _around_events(
    settings: Mapping[str, Any], *, after: bool, trigger: Any, on_time: str = "always"
) -> WindowAggregate:
    """Return a bolt of windows around events; a grace is the lag of the watermark."""
    difference = window_settings(settings)["difference"]
    aggregate = settings.get("aggregate", "list")
    return WindowAggregate(
        key="key",
        window=PerEvent(difference, after=after),
        time=EventTime("ts", lag=settings["grace"], idle=None),
        aggregates={
            "value": combiner_of(aggregate if aggregate in ("sum", "count") else "list"),
            "latest": Max("ts"),
        },
        trigger=trigger,
        on_time=on_time,
        late_stream="late",
    )


def _same_around(rows: Sequence[Any], wanted: Sequence[Any], *, unordered: bool) -> None:
    """Compare windows around events, with their values in any order.

    Values come in the order of their times, where the peers have that of arrival; and the peers'
    windows of the first moments begin at 0.
    """
    found = [
        {"key": key, "start": max(start, 0), "end": end, "value": value, "ts": latest}
        for key, start, end, value, latest, *_ in rows
    ]
    same(*([_in_order(one) for one in side] for side in (found, wanted)), unordered=unordered)


def _in_order(one: Mapping[str, Any]) -> dict[str, Any]:
    value = one["value"]
    return {**one, "value": sorted(value) if isinstance(value, list) else value}


@every_seed
@chosen("sliding-per-event", "final-results", source="kafka", around=True)
def test_windows_around_events_of_kafka(case: dict[str, Any], seed: int) -> None:
    settings = case["settings"]
    trigger = None if settings["emit"] == "final" else AtWatermark(early=AfterCount(1))
    world = World(_around_events(settings, after=True, trigger=trigger, on_time="if_new"), seed)
    for step in case["steps"]:
        if "in" in step:
            world.feed(step["in"], step["ts"], step["key"])
            world.run.settle()
            if seed == 1:
                world.run.restart()
        else:
            _same_around(world.rows(), step["out"], unordered=bool(case.get("unordered")))


@every_seed
@chosen("sliding-per-event", source="quix", around=True)
def test_windows_around_events_of_quix(case: dict[str, Any], seed: int) -> None:
    trigger = AtWatermark(early=AfterCount(1))  # both updates and, at the end, a final result
    world = World(_around_events(case["settings"], after=False, trigger=trigger), seed)
    final_only = World(_around_events(case["settings"], after=False, trigger=None), seed)
    for step in case["steps"]:
        if "in" in step:
            for one in (world, final_only):
                one.feed(step["in"], step["ts"])
                one.run.settle()
        else:
            rows = world.rows()
            for timing, name in (("early", "updated"), ("on_time", "final")):
                found = [row for row in rows if row[5] == timing]
                _same_around(found, step[name], unordered=False)
            _same_around(final_only.rows(), step["final"], unordered=False)


# -- panes --------------------------------------------------------------------------------------


@every_seed
@chosen("trigger")
def test_triggers_by_element(case: dict[str, Any], seed: int) -> None:
    settings = {"window": {"type": "tumbling", "length": 2}, "aggregate": "count"}
    trigger = trigger_of(case["settings"]["trigger"])
    world = World(aggregate(settings, time=BY_HAND, trigger=trigger, lateness="unbounded"), seed)
    answers: list[Any] = []
    for step in case["steps"]:
        if "in" in step:
            world.feed(step["in"], step["window"][0])
            world.run.settle()
            answers.append("fire" if world.rows() else "continue")
        elif "watermark" in step:
            world.watermark(step["watermark"], plus=1)
            fired = [{"window": row[1:3], "result": "fire"} for row in world.rows()]
            answers += fired
        else:
            assert answers == step["out"]
            answers = []


def _of_beam(case: dict[str, Any]) -> dict[str, Any]:
    settings = case["settings"]
    lateness = settings["lateness"]
    return {
        "lateness": lateness,
        "trigger": trigger_of(settings["trigger"]),
        "final": settings.get("final", "if_new"),
        "on_time": "if_new" if settings.get("on_time") == "if not empty" else "always",
    }


@every_seed
@chosen("panes", "trigger-panes", "trigger-transcript")
def test_panes_of_beam(case: dict[str, Any], seed: int) -> None:
    settings = {**case["settings"], "aggregate": "list"}
    result_ts = settings.get("timestamp_of_result", "earliest")
    bolt = aggregate(settings, time=BY_HAND, **_of_beam(case), result_ts=result_ts)
    world = World(bolt, seed)
    found: list[dict[str, Any]] = []
    for step in case["steps"]:
        _move(world, step)
        for row in world.rows():
            _, start, end, value, timing, index, *rest = row
            ts = rest[0] if rest else end - 1
            found.append({"start": start, "end": end, "value": value, "ts": ts, "index": index,
                          "timing": timing.replace("_", "-")})  # fmt: skip
        if "out" in step:
            _check_panes(found, step["out"], case)
            found = []


@every_seed
@pytest.mark.parametrize("case", [c for c in CASES if "bundles" in c["settings"]], ids=name_of)
def test_triggers_looked_at_after_bundles(case: dict[str, Any], seed: int) -> None:
    """Beam looks at its triggers after a bundle of tuples, topo after each tuple.

    A bundle is a batch, and with `EachBatch` a trigger is looked at after one.
    """
    settings = {**case["settings"], "aggregate": "list"}
    trigger = trigger_of(settings["trigger"], bundles=True)
    for size in settings["bundles"]:
        if size < 1:
            continue
        bolt = aggregate(settings, time=BY_HAND, trigger=trigger, lateness="unbounded")
        world = World(bolt, seed)
        waiting, found = 0, []
        for step in [*case["steps"]]:
            if waiting and (waiting == size or "in" not in step):
                world.batch()
                waiting = 0
            _move(world, step, settle=False)
            waiting += "in" in step
            for row in world.rows():
                found.append({"start": row[1], "end": row[2], "value": row[3]})
            if "out" in step:
                _check_panes(found, step["out"], case)


@every_seed
@chosen("panes", "trigger-transcript")
def test_panes_of_beam_as_executions(case: dict[str, Any], seed: int) -> None:
    settings = case["settings"]
    beam = _of_beam(case)
    bolt = Panes().with_event_time(BY_HAND).with_allowed_lateness(beam["lateness"])
    window = settings["window"]
    if window["type"] == "session":
        bolt.with_session(timedelta(milliseconds=window["gap"]))
    else:
        bolt.with_tumbling_window(timedelta(milliseconds=window["length"]))
    mode = "discard" if settings["mode"] == "discarding" else "accumulate"
    bolt.with_trigger(beam["trigger"], mode, on_time=beam["on_time"], final=beam["final"])
    world = World(bolt, seed)
    found: list[dict[str, Any]] = []
    for step in case["steps"]:
        _move(world, step)
        for row in world.rows():
            found.append(dict(zip(Panes.outputs, row, strict=True)))
        if "out" in step:
            _check_panes(found, step["out"], case)
            found = []


def _move(world: World, step: Mapping[str, Any], settle: bool = True) -> None:
    if "in" in step:
        world.feed(step["in"], step["ts"])
        if settle:
            world.run.settle()
    elif "watermark" in step:
        world.watermark(step["watermark"])
    elif "now" in step:
        world.cluster.advance(step["now"] - world.cluster.now)


def _check_panes(
    found: list[dict[str, Any]], wanted: list[dict[str, Any]], case: dict[str, Any]
) -> None:
    if case["kind"] == "trigger-panes":
        found = sorted(found, key=lambda pane: (pane["start"], pane["end"]))
        windows = []
        for (start, end), panes in groupby(found, key=lambda pane: (pane["start"], pane["end"])):
            values = ["".join(sorted(pane["value"])) for pane in panes]
            windows.append({"start": start, "end": end, "panes": values})
        assert windows == sorted(wanted, key=lambda one: (one["start"], one["end"]))
        return
    own = []
    for pane, one in zip(found, wanted, strict=True):
        own.append(_as_wanted(pane, one, case["settings"]))
    assert sorted(map(repr, map(_sorted, own))) == sorted(map(repr, map(_sorted, wanted)))


def _as_wanted(
    pane: dict[str, Any], wanted: dict[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return of a pane what the case names, in its words."""
    value = sorted(pane["value"])
    said = {
        **pane,
        "value": sum(value) if settings.get("aggregate") == "sum" else value,
        "values": value,
        "timestamp": pane.get("ts"),
        "early": pane["timing"] == "early",
        "late": pane["timing"] == "late",
        "final": pane.get("last"),
        "non_speculative_index": pane.get("non_speculative"),
        "nonspeculative_index": pane.get("non_speculative"),
    }
    # A bolt that aggregates does not tell first and last; executions do not tell a time.
    return {name: value if said.get(name) is None else said[name] for name, value in wanted.items()}


def test_windows_of_windows() -> None:
    """Results of a window go on to the next one in the same batch, with its watermark."""
    (case,) = (case for case in cases("micro-batch") if "then" in case["settings"])
    for seed in SEEDS:
        feeder = FeederSpout(["ts"])
        builder = TopologyBuilder()
        builder.set_spout("in", feeder)
        first = WindowAggregate(window=Tumbling(5), time=BY_DATA, aggregates={"n": Count()})
        second = WindowAggregate(
            window=Tumbling(10), time=EventTime(), aggregates={"n": Count(), "sum": Sum("n")}
        )
        builder.set_bolt("w", first).global_grouping("in")
        builder.set_bolt("w2", second).global_grouping("w")
        run = TestCluster(seed=seed).submit_topology("t", builder.create_topology())
        seen = 0
        for step in case["steps"]:
            if "batch" in step:
                for ts in step["batch"]:
                    feeder.feed([ts])
                run.step(len(step["batch"]))
            elif "out" in step:
                rows = [[start, n, total] for start, _, n, total in run.tuples("w2")[seen:]]
                seen += len(rows)
                assert rows == step["out"]


@every_seed
@chosen("final-results", table=True)
def test_a_table_grouped_by_its_values(case: dict[str, Any], seed: int) -> None:
    """A group without rows is deleted, where Kafka reports that it has 0."""
    feeder = FeederSpout(["key", "value"])
    s = StreamBuilder()
    values = s.stream(feeder).key_by("key").map_values(lambda row: row.value).to_table()
    counts = values.group_by(lambda key, value: value).count().to_stream()
    counts.map(lambda change: change).named("counts")
    read = 0
    with TestCluster(seed=seed) as cluster:
        run = cluster.submit_topology("t", s.build())
        for step in case["steps"]:
            if "in" in step:
                feeder.feed([step["key"], step["in"]])
                run.settle()
                continue
            rows = [row[0] for row in run.tuples("counts")]
            assert rows[read:] == [(one["key"], one["value"] or None) for one in step["out"]]
            read = len(rows)


def test_no_case_is_left_out() -> None:
    """Every case that must hold has a runner here, in test_storm_windows, or a reason."""
    run_here: Counter[str] = Counter()
    for module in (sys.modules[__name__], test_storm_windows):
        for test in vars(module).values():
            for mark in getattr(test, "pytestmark", ()):
                if mark.name == "parametrize" and mark.args[0] == "case":
                    run_here.update(case["name"] for case in mark.args[1])
    by_itself = {case["name"] for case in cases("micro-batch") if "then" in case["settings"]}
    wanted = {case["name"] for case in CASES if case["topo"] == "must"} - set(ELSEWHERE)
    assert set(ELSEWHERE) <= {case["name"] for case in CASES if case["topo"] == "must"}
    also = ALSO | {case["name"] for case in CASES if case["topo"] != "must"} & BUNDLED
    assert wanted == set(run_here) - also | by_itself
    assert set(run_here) >= also
    left = {case["name"] for case in CASES if case["topo"] == "later"} - set(run_here)
    assert not left
