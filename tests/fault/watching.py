"""Patterns, rules and models over a log that grows, and the process that runs them.

    python -m tests.fault.watching DIRECTORY MASTER

All that comes out follows from the log alone, however it is cut into batches: matches and alerts
are in event time, and a model is asked of one spout task's numbers. So the records that were kept
are compared, each with its count, with what plain loops over the whole log say.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.fault.exactly_once import END, LogSpout, run_job, write
from topo import (
    EventTime,
    LearnBolt,
    Pattern,
    PatternBolt,
    Rule,
    RuleBolt,
    StatefulBasicBolt,
    Topology,
    TopologyBuilder,
    Tuple,
)

_TIME = EventTime("offset", unit="us", idle=None)
_REPORT = 7


def _us(count: int) -> timedelta:
    return timedelta(microseconds=count)


PATTERNS = {
    "pairs": Pattern("a", "offset % 5 == 0")
    .followed_by("b", "offset % 5 == 2")
    .within(_us(60))
    .skip("past_last"),
    "loops": Pattern("a", "offset % 5 == 0")
    .followed_by("b", "offset % 5 == 4", times="+", greedy=True)
    .followed_by("c", "offset % 5 == 2 and count(b) >= 2")
    .within(_us(150)),
    "absent": Pattern("a", "offset % 5 == 1")
    .not_followed_by("b", "offset % 5 == 3")
    .within(_us(80)),
}
RULES = [
    Rule("often", "offset % 3 != 0", by="key", having="count() >= 3", within=90,
         emit={"n": "count()", "total": "sum(offset)"}),
    Rule("both", "offset % 4 != 0", by="key", having="distinct(source) == 2", within=60,
         again="each", emit={"n": "count()"}),
]  # fmt: skip


class Chain:
    """Predicts the number of a source's last example; cannot learn one that is not the next."""

    def __init__(self) -> None:
        self.last: dict[Any, int] = {}

    def predict_one(self, example: Mapping[str, Any]) -> int:
        return self.last.get(example["source"], 0)

    def learn_one(self, example: Mapping[str, Any], label: int) -> None:
        before = self.last.get(example["source"], 0)
        if label != before + 1:
            raise AssertionError(f"{'lost' if label > before else 'doubled'}: {before}, {label}")
        self.last[example["source"]] = label


class Steps:
    """A metric: the share of predictions that are one less than the label."""

    def __init__(self) -> None:
        self.right = self.count = 0

    def update(self, label: int, prediction: int) -> None:
        self.right += label == prediction + 1
        self.count += 1

    def get(self) -> float:
        return self.right / self.count if self.count else 0.0


class Keep(StatefulBasicBolt):
    """Counts the records that come, all of them by their values."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Tuple) -> None:
        own = [name for name in tup.fields if name != "source"]  # the number of a task
        values = [getattr(tup, name) for name in own]
        record = json.dumps([f"{tup.source_component} {tup.source_stream}", *values])
        self.state[record] = self.state.get(record, 0) + 1

    def cleanup(self) -> None:
        write(self.directory, "kept", dict(self.state))


def topology(directory: str) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("log", LogSpout(directory), parallelism=2)
    keep = Keep(directory)
    for name, pattern in PATTERNS.items():
        bolt = PatternBolt(
            pattern, key="key", time=_TIME, timed_out_stream="out",
            select={"key": "key", "start": "start", "end": "end"},
        )  # fmt: skip
        builder.set_bolt(name, bolt, parallelism=2).fields_grouping("log", "key")
    rules = RuleBolt(RULES, key="key", time=_TIME)
    builder.set_bolt("rules", rules, parallelism=2).fields_grouping("log", "key")
    learn = LearnBolt(
        Chain(), label="number", features=["source"], key="key", emit="predictions",
        metrics={"right": Steps()}, report=_REPORT,
    )  # fmt: skip
    builder.set_bolt("learn", learn, parallelism=2).fields_grouping("log", "key")
    kept = builder.set_bolt("keep", keep).global_grouping("rules", "alerts")
    kept.global_grouping("learn").global_grouping("learn", "evaluation")
    for name in PATTERNS:
        kept.global_grouping(name).global_grouping(name, "out")
    return builder.create_topology()


def check_result(directory: Path) -> dict[str, int]:
    """Compare the records that were kept with those of plain loops; return some figures."""
    keys = directory.joinpath("log").read_text(encoding="utf-8").split()
    assert keys.pop() == END
    kept = json.loads(directory.joinpath("kept.json").read_text(encoding="utf-8"))
    wanted = Counter(map(json.dumps, wanted_records(keys)))
    lost, added = wanted - Counter(kept), Counter(kept) - wanted
    assert not lost, f"lost: {sorted(lost)[:5]}; added: {sorted(added)[:5]}"
    assert not added, f"added: {sorted(added)[:5]}"
    spouts = [json.loads(file.read_text()) for file in sorted(directory.glob("log-*.json"))]
    assert sum(len(known["acked"]) for known in spouts) == len(keys), "every message was acked"
    failed = sum(known["failed"] for known in spouts)
    by_kind = Counter(str(json.loads(record)[0]) for record in wanted.elements())
    return {"messages": len(keys), "failed": failed, **by_kind}


def wanted_records(keys: Sequence[str]) -> Iterator[list[Any]]:
    """Yield all records that a whole log brings about."""
    offsets: dict[str, list[int]] = defaultdict(list)
    for offset, key in enumerate(keys):
        offsets[key].append(offset)
    for key, own in offsets.items():
        yield from _pairs(key, own)
        yield from _loops(key, own)
        for start in own:
            if start % 5 == 1 and not any(o % 5 == 3 and 0 < o - start < 80 for o in own):
                yield ["absent default", key, start, start + 80]
        yield from _alerts(key, own)
        numbers = [0, 0]
        for offset in own:
            numbers[offset % 2] += 1
            number = numbers[offset % 2]
            yield ["learn default", key, offset, number, number - 1]
        for count in range(_REPORT, len(own) + 1, _REPORT):
            yield ["learn evaluation", key, count, 1.0]


def _pairs(key: str, own: Sequence[int]) -> Iterator[list[Any]]:
    starts: list[int] = []
    for offset in [*own, 1 << 40]:
        while starts and offset - starts[0] >= 60:
            start = starts.pop(0)
            yield ["pairs out", key, start, start + 60]
        if offset % 5 == 0:
            starts.append(offset)
        elif offset % 5 == 2 and starts:
            yield ["pairs default", key, starts[0], offset]
            starts = []


def _loops(key: str, own: Sequence[int]) -> Iterator[list[Any]]:
    starts: dict[int, int] = {}  # how many of part b each has
    asks: set[int] = set()  # those whose last part b may still be followed by c
    for offset in [*own, 1 << 40]:
        for start in [start for start in starts if offset - start >= 150]:
            del starts[start]  # the loop is open to the end
            yield ["loops out", key, start, start + 150]
        if offset % 5 == 0:
            starts[offset] = 0
        elif offset % 5 == 4:
            starts = {start: count + 1 for start, count in starts.items()}
            asks = set(starts)
        elif offset % 5 == 2:
            for start in sorted(asks & starts.keys()):
                if starts[start] >= 2:
                    asks.remove(start)
                    yield ["loops default", key, start, offset]


def _alerts(key: str, own: Sequence[int]) -> Iterator[list[Any]]:
    has_fired = False
    for now in own:
        recent = [offset for offset in own if now - 90 < offset <= now and offset % 3]
        if now % 3:
            if len(recent) >= 3 and not has_fired:
                yield ["rules alerts", "often", key, now, len(recent), sum(recent)]
            has_fired = len(recent) >= 3
        recent = [offset for offset in own if now - 60 < offset <= now and offset % 4]
        if now % 4 and len({offset % 2 for offset in recent}) == 2:
            yield ["rules alerts", "both", key, now, len(recent), None]


if __name__ == "__main__":
    run_job(topology)
