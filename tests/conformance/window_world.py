"""One window case on the inline engine: a feeder, the bolt under test, and what came out of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.cases import read_cases
from tests.property.scale import seeds
from topo import (
    AfterCount,
    AfterDelay,
    AllOf,
    AtWatermark,
    Bolt,
    Collect,
    Combiner,
    Count,
    EachBatch,
    EventTime,
    EveryEventTime,
    Global,
    Max,
    Session,
    Sliding,
    Sum,
    Then,
    TopologyBuilder,
    Trigger,
    Tumbling,
    When,
    WindowAggregate,
    WindowedBolt,
)
from topo import Any as AnyOf
from topo.testing import FeederSpout, TestCluster
from topo.windows.assigners import WindowSpec

CASES = read_cases(Path(__file__).parent / "cases" / "windows.jsonl")

LAG = 1 << 40
"""With this lag no tuple moves the watermark: a case that sets it by hand observes W + LAG."""
END_OF_TIME = 1 << 50
SEEDS = seeds(3)


ALSO = {
    "no empty pane on time when not wanted; the last one says late",
    "an empty pane on time, from or-finally",
    "no empty pane on time when not wanted, then late data",
    "processing time: early, on time, late, last",
    "hopping windows, updates: testAggBasic",
    "trigger: test_sessions_after_all #1",
    "trigger: test_sessions_after_all #2",
} | {case["name"] for case in CASES if case["kind"] == "sliding-per-event"}
"""Cases that need not hold, and do."""

BUNDLED = {case["name"] for case in CASES if "bundles" in case["settings"]}
"""Cases of triggers that are looked at after several tuples, as topo does with `EachBatch`."""


def cases(*kinds: str) -> Iterator[dict[str, Any]]:
    """Yield the cases of these kinds that must hold, or do."""
    return (
        case
        for case in CASES
        if case["kind"] in kinds and (case["topo"] == "must" or case["name"] in ALSO)
    )


def name_of(case: Mapping[str, Any]) -> str:
    return f"{case['kind']}: {case['name']} ({case['source'].split()[0]})"


class CountBy(Combiner):
    """Counts by value, as an own combiner."""

    def init(self) -> dict[Any, int]:
        return {}

    def add(self, acc: dict[Any, int], value: Any) -> dict[Any, int]:
        acc[value] = acc.get(value, 0) + 1
        return acc

    def merge(self, a: dict[Any, int], b: dict[Any, int]) -> dict[Any, int]:
        return {key: a.get(key, 0) + b.get(key, 0) for key in [*a, *(k for k in b if k not in a)]}

    def result(self, acc: dict[Any, int]) -> dict[Any, int]:
        return dict(acc)


def window_settings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of a case's window; some have them among the others."""
    window = settings.get("window")
    return window if isinstance(window, dict) else settings


def window_of(settings: Mapping[str, Any]) -> WindowSpec:
    window = settings["window"]
    kind = window["type"]
    if kind == "tumbling":
        return Tumbling(window["length"], window.get("offset", 0))
    if kind == "sliding":
        return Sliding(window["length"], window["slide"], window.get("offset", 0))
    return Session(window["gap"]) if kind == "session" else Global()


def trigger_of(trigger: Mapping[str, Any], top: bool = True, bundles: bool = False) -> Trigger:
    """Return the trigger of a case; on top, `once` ends the window after it has fired.

    With `bundles`, counts are looked at after a batch only.
    """

    def part_of(part: Mapping[str, Any]) -> Trigger:
        return trigger_of(part, top=False, bundles=bundles)

    on = trigger["on"]
    made: Trigger
    if on == "count":
        made = AfterCount(trigger["n"])
        made = AllOf(made, EachBatch()) if bundles else made
        return Then(made) if top and trigger.get("once") else made
    if on == "delay":
        return AfterDelay(timedelta(seconds=trigger["after"]))
    if on == "repeat" and trigger["of"]["on"] == "each":
        return Then(*map(part_of, trigger["of"]["of"]), again=True)
    if on == "repeat":
        return part_of(trigger["of"])
    if on in ("any", "all"):
        made = (AnyOf if on == "any" else AllOf)(*map(part_of, trigger["of"]))
        once = any(part.get("once") for part in trigger["of"])
        return Then(made) if top and once else made
    if on == "event-time-every":
        return EveryEventTime(trigger["every"])
    if on == "condition":
        return condition_of(trigger)
    if on == "each" and "or_finally" in trigger.get("of", [{}])[0]:
        # Again and again until the watermark passes, then by another rule: early and late.
        before, after = map(part_of, trigger["of"])
        return AtWatermark(early=before, late=after)
    if on == "each":
        parts = trigger.get("of")
        return Then(*map(part_of, parts)) if parts else AtWatermark(early=AfterCount(1))
    early, late = trigger.get("early"), trigger.get("late", {"on": "count", "n": 1})
    return AtWatermark(
        early=part_of(early) if early else None, late=part_of(late) if late else None
    )


def condition_of(trigger: Mapping[str, Any]) -> Trigger:
    if trigger["expression"] == "sum >= 9":
        return When(lambda results: results["value"] >= 9)
    assert trigger["expression"] == "sum + value > 10"
    return When(lambda results, new: results["value"] + new["value"] > 10, before=True)


def combiner_of(aggregate: str) -> Combiner:
    made: dict[str, Combiner] = {
        "sum": Sum("value"),
        "list": Collect("value", by_time=False),  # the peers' lists are in the order of arrival
        "count": Count(),
        "max": Max("value"),
        "count by value": CountBy("value"),
    }
    return made[aggregate]


class LateOnes(Bolt):
    """Emits what it finds in late tuples."""

    outputs = ("values",)

    def execute(self, tup: Any) -> None:
        self.emit([tup["late_tuple"].values], anchors=tup)
        self.ack(tup)


class World:
    """A running topology: feeder `in` with key, value and ts, bolt `w`, and its late tuples."""

    def __init__(self, bolt: Any, seed: int, conf: Mapping[str, Any] | None = None) -> None:
        self.feeder = FeederSpout(["key", "value", "ts"])
        builder = TopologyBuilder()
        builder.set_spout("in", self.feeder)
        key = ["key"]
        builder.set_bolt("w", bolt, 2 if isinstance(bolt, WindowAggregate) else 1).fields_grouping(
            "in", key
        )
        self._has_late = bolt.late_stream is not None
        if self._has_late:
            builder.set_bolt("late", LateOnes()).shuffle_grouping("w", bolt.late_stream)
        self.cluster = TestCluster(seed=seed)
        self.run = self.cluster.submit_topology("t", builder.create_topology(), conf)
        self._taken = {"w": 0, "late": 0, "acked": 0}
        self._fed = 0

    def feed(self, value: Any, ts: int, key: Any = "") -> None:
        """Feed a tuple without running it; its number is its message id."""
        self.feeder.feed([key, value, ts], msg_id=self._fed)
        self._fed += 1

    def watermark(self, watermark: Any, plus: int = 0) -> None:
        """Bring the watermark to a value, with what was fed before."""
        self.run.settle()
        at = END_OF_TIME if watermark == "end" else watermark + plus
        self.feeder.observe_time(at + LAG)
        self.run.settle()

    def batch(self) -> None:
        """Run all that was fed in one batch."""
        self.run.step(max(1, len(self.feeder._feed.waiting)))

    def rows(self, component: str = "w") -> list[list[Any]]:
        """Return what came out since the last call."""
        found = self.run.tuples(component)
        start, self._taken[component] = self._taken[component], len(found)
        return found[start:]

    def late(self) -> list[list[Any]]:
        return [row[0] for row in self.rows("late")]

    def acked(self) -> list[int]:
        start, self._taken["acked"] = self._taken["acked"], len(self.feeder.acked)
        return self.feeder.acked[start:]

    def late_count(self) -> int:
        return self.run.stats().components["w"].late

    def held(self) -> list[Any]:
        """Return the windows in state, as records."""
        host: Any = vars(self.run)["_level"].host
        return [record for task in host.timed for record in task._operator._windows.records()]


def aggregate(
    settings: Mapping[str, Any],
    *,
    time: EventTime,
    trigger: Trigger | None,
    lateness: Any = 0,
    aggregates: Mapping[str, Combiner] | None = None,
    **more: Any,
) -> WindowAggregate:
    """Return the bolt of a case that aggregates."""
    if "mode" in settings and "mode" not in more:
        more["mode"] = {"discarding": "discard", "accumulating": "accumulate"}[settings["mode"]]
    return WindowAggregate(
        key="key",
        window=window_of(settings),
        time=time,
        aggregates=aggregates or {"value": combiner_of(settings.get("aggregate", "list"))},
        trigger=trigger,
        allowed_lateness=lateness,
        late_stream="late",
        **more,
    )


class Panes(WindowedBolt):
    """Emits everything that a pane says of itself."""

    outputs = ("start", "end", "value", "timing", "index", "non_speculative", "first", "last")

    def execute(self, window: Any) -> None:
        pane = window.pane
        self.emit(
            [
                window.start,
                window.end,
                [tup.value for tup in window],
                pane.timing.replace("_", "-"),
                pane.index,
                pane.non_speculative,
                pane.first,
                pane.last,
            ]
        )
