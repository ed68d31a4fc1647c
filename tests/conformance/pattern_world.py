"""One case of a pattern on the inline engine: a feeder, the bolt, and what came out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.cases import Case, read_cases
from tests.property.scale import seeds
from topo import EventTime, Pattern, PatternBolt, TopologyBuilder
from topo.patterns import Match
from topo.testing import FeederSpout, TestCluster

CASES = read_cases(Path(__file__).parent / "cases" / "patterns.jsonl")
LAG = 1 << 40
"""With this lag no tuple moves the watermark: a case that sets it by hand observes W + LAG."""
END_OF_TIME = 1 << 50
SEEDS = seeds(6)

NOT_YET = {"lasting", "then_by", "miss"}
"""Words of cases that are for later, or that topo does not have."""


def words_of(value: Any) -> Iterator[str]:
    """Yield the keys of all tables in a value."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from words_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from words_of(inner)


def cases(*, errors: bool = False) -> list[Case]:
    """Return the cases that must hold, and those of alternatives, which do."""
    return [
        case
        for case in CASES
        if (case["kind"] == "error") == errors
        and case["topo"] != "differs"
        and not NOT_YET & set(words_of(case["settings"]))
    ]


def function_of(text: str) -> Callable[..., Any]:
    """Return a case's expression over e, m and ts as a function."""
    code = compile(text, "a case", "eval")

    def holds(e: Any, m: Any = None) -> Any:
        return eval(code, {"e": e, "m": m, "ts": e.ts})

    if "m" in code.co_names or any("m" in getattr(c, "co_names", ()) for c in code.co_consts):
        return lambda e, m: holds(e, m)
    return lambda e: holds(e)


def with_functions(value: Any) -> Any:
    """Return a pattern's document with functions in place of its expressions."""
    if isinstance(value, Mapping):
        return {
            key: function_of(inner) if key in ("where", "until") else with_functions(inner)
            for key, inner in value.items()
        }
    return list(map(with_functions, value)) if isinstance(value, list) else value


def pattern_of(case: Case) -> Pattern:
    return Pattern.from_dict(with_functions(case["settings"]["pattern"]))


class PatternWorld:
    """A running case."""

    def __init__(
        self, case: Case, cluster: TestCluster, *, tasks: int = 1, max_rows: int | None = None
    ) -> None:
        settings = case["settings"]
        names = [name for step in case["steps"] for name in step.get("in", ())]
        self.fields = [*dict.fromkeys([*names, "kind", "volume"]), "id", "ts"]
        self.by_steps = settings.get("watermark") == "steps"
        self.feeder = FeederSpout(self.fields)
        key = settings.get("key")
        time = EventTime("ts", lag=LAG if self.by_steps else 0, idle=None)
        bolt = PatternBolt(
            pattern_of(case), key=key, time=time, timed_out_stream="timed_out", late_stream="late",
            limit=10_000,
        )  # fmt: skip
        builder = TopologyBuilder()
        builder.set_spout("events", self.feeder)
        declared = builder.set_bolt("matches", bolt, tasks if key else 1)
        if key:
            declared.fields_grouping("events", [key])
        else:
            declared.shuffle_grouping("events")
        self.run = cluster.submit_topology("case", builder.create_topology())
        self._taken: dict[str, int] = {}

    def feed(self, step: Mapping[str, Any]) -> None:
        values = {**step["in"], "id": step["id"], "ts": step["ts"]}
        self.feeder.feed([values.get(name) for name in self.fields])

    def watermark(self, watermark: int) -> None:
        self.run.settle()
        self.feeder.observe_time(watermark + (LAG if self.by_steps else 0))
        self.run.settle()

    def _rows(self, stream: str) -> list[list[Any]]:
        self.run.settle()
        rows = self.run.tuples("matches", stream)
        start, self._taken[stream] = self._taken.get(stream, 0), len(rows)
        return rows[start:]

    def matches(self) -> list[Match]:
        """Return the matches since the last call."""
        return [row[-1] for row in self._rows("default")]

    def timed_out(self) -> list[dict[str, Any]]:
        matches = [row[-1] for row in self._rows("timed_out")]
        return [{"events": labels(match), "ts": match.end} for match in matches]

    def late(self) -> list[str]:
        return [row[0].id for row in self._rows("late")]

    def open(self) -> int:
        """Return how many partial matches are kept."""
        host: Any = vars(self.run)["_level"].host
        return sum(task._operator._machine.count for task in host.timed)


def labels(match: Match) -> list[str]:
    """Return the labels of a match's events in the order of time."""
    taken = [event for events in match.values() for event in events]
    return [event.id for event in sorted(taken, key=lambda event: event.ts)]


def play(case: Case, world: PatternWorld, *, restarts: bool) -> None:
    """Do what the steps say, and compare."""
    for step in case["steps"]:
        if "in" in step:
            world.feed(step)
        elif "watermark" in step:
            world.watermark(step["watermark"])
        elif "end" in step:
            world.watermark(END_OF_TIME)
        elif "restart" in step:
            world.run.settle()
            world.run.restart()
        elif "open" in step:
            world.run.settle()
            assert world.open() == step["open"]
        else:
            compare(case, step, world)
        if restarts:
            world.run.settle()
            world.run.restart()


def compare(case: Case, step: Mapping[str, Any], world: PatternWorld) -> None:
    if "matches" in step:
        matches = world.matches()
        wanted = step["matches"]
        if wanted and isinstance(wanted[0], Mapping):
            found: list[Any] = [
                {part: [event.id for event in events] for part, events in match.items() if events}
                for match in matches
            ]
            assert list(map(list, found)) == list(map(list, wanted))  # the order of the parts
        else:
            found = list(map(labels, matches))
        same(found, wanted, unordered=case.get("unordered", False))
    if "timed_out" in step:
        same(world.timed_out(), step["timed_out"], unordered=True)
    if "late" in step:
        same(world.late(), step["late"], unordered=True)


def same(found: list[Any], wanted: list[Any], *, unordered: bool) -> None:
    if unordered:
        found, wanted = sorted(found, key=repr), sorted(wanted, key=repr)
    assert found == wanted
