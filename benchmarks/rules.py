"""`topo bench rules`: one rule that counts by key, and a plain loop over a deque for each key.

Beside it a rule that counts nothing, and a loop with an `if`. Rules and loops work on the same
columns, in processor time: the operator alone, without a spout and frames. Saving is measured
beside it. `share` is the part of the events that the rule is fulfilled by.
"""

from __future__ import annotations

import gc
import random
from collections import deque
from datetime import timedelta
from time import process_time
from types import SimpleNamespace
from typing import Any

from benchmarks.model import BenchOptions, Measurement
from topo import EventTime, Rule, RuleBolt
from topo.engine.spark.process.slot import GARBAGE_THRESHOLDS
from topo.event_time import BEFORE_ALL
from topo.storage.saving import Changes
from topo.timed import Clock, InputFields, Rows

_BATCH = 5_000
_EVENTS_A_SECOND = 100_000  # a guess that turns --seconds into an amount of work
_WITHIN = 120_000
_MANY = 20
FIELDS = ("dst", "ts", "group")

Columns = tuple[list[int], list[int], list[str]]

OFTEN = Rule(
    "often", "group == 'brute'", by="dst", having=f"count() >= {_MANY}",
    within=timedelta(minutes=2), emit={"n": "count()"},
)  # fmt: skip


EACH = Rule("each", "group == 'brute'", emit={"dst": "dst"})


def run(options: BenchOptions) -> list[Measurement]:
    total = max(_BATCH, int(options.seconds * _EVENTS_A_SECOND))
    cases = ((OFTEN, 1_000, 1.0), (OFTEN, 1_000, 0.1), (OFTEN, 100_000, 1.0), (EACH, 1_000, 0.1))
    return [_measure(options, total, rule, keys, share) for rule, keys, share in cases]


def events(total: int, keys: int, share: float) -> list[Columns]:
    """Return batches of events, a millisecond apart."""
    chance = random.Random(1)
    groups = chance.choices(["brute", "scan"], [share, 1 - share], k=total)
    targets = [chance.randrange(keys) for _ in range(total)]
    return [
        (
            targets[at : at + _BATCH],
            list(range(at, min(at + _BATCH, total))),
            groups[at : at + _BATCH],
        )
        for at in range(0, total, _BATCH)
    ]


def _measure(options: BenchOptions, total: int, rule: Rule, keys: int, share: float) -> Measurement:
    params = {"counts": rule is OFTEN, "keys": keys, "share": share}
    rates, loop_rates, verified, saving = [], [], True, 0.0
    batches = events(total, keys, share)
    for repeat in range(options.repeat):
        options.progress(f"rules {params}: {repeat + 1} of {options.repeat}")
        before = process_time()
        wanted = counted_by_hand(batches) if rule is OFTEN else picked_by_hand(batches)
        loop_rates.append(total / (process_time() - before))
        count, seconds, saved = fired(batches, rule)
        rates.append(total / seconds)
        saving += saved
        verified = verified and count == wanted
    detail = {"saving_us": round(saving / options.repeat / total * 1e6, 2)}
    return Measurement.of(
        "rules", params, "events", rates, verified=verified, loop_rates=loop_rates, detail=detail
    )


class _Task:
    """Stands for the task of an operator, and counts what it emits."""

    owner = "bolt 'rules'"
    this_task_index = 0

    def __init__(self) -> None:
        self.count = 0
        self.context = SimpleNamespace(gauge=_nothing, counter=_nothing, this_task_index=0)
        self.component = self

    def emit(self, rows: list[list[Any]], stream: str = "default") -> None:
        self.count += len(rows)

    def emit_anchored(
        self, rows: Rows, places: Any, values: list[list[Any]], stream: str = "default"
    ) -> None:
        self.count += len(values)


def _nothing(*arguments: Any, **labels: Any) -> None:
    """Stand for the figures of a task."""


def fired(batches: list[Columns], rule: Rule) -> tuple[int, float, float]:
    """Return how many alerts an operator emits, and its seconds of work and of saving."""
    task: Any = _Task()
    bolt = RuleBolt([rule], key=rule.by, time=EventTime("ts"))
    bolt.read_inputs([InputFields("events", "default", FIELDS, "fields", ("dst",))])
    operator = bolt.operator(task)
    operator.load({}, BEFORE_ALL)
    counting = saving = 0.0
    watermark = BEFORE_ALL
    thresholds = gc.get_threshold()
    gc.freeze()  # with the thresholds, as in a slot's process
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    for columns in batches:
        make: Any = list(zip(*columns, strict=True)).__getitem__
        rows = Rows("events", "default", FIELDS, columns, len(columns[0]), columns[1], make)
        before = process_time()
        operator.rows(rows)
        passed, watermark = watermark, columns[1][-1]
        operator.advance(Clock(passed, watermark, 0.0))
        then = process_time()
        operator.save(Changes())
        counting, saving = counting + then - before, saving + process_time() - then
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    return task.count, counting, saving


def counted_by_hand(batches: list[Columns]) -> int:
    """Return how many alerts a plain loop finds."""
    recent: dict[int, deque[int]] = {}
    fired: set[int] = set()
    count = 0
    for targets, times, groups in batches:
        for key, ts, group in zip(targets, times, groups, strict=True):
            if group != "brute":
                continue
            own = recent.get(key)
            if own is None:
                own = recent[key] = deque()
            last = ts - _WITHIN
            while own and own[0] <= last:
                own.popleft()
            own.append(ts)
            if len(own) < _MANY:
                fired.discard(key)
            elif key not in fired:
                fired.add(key)
                count += 1
    return count


def picked_by_hand(batches: list[Columns]) -> int:
    """Return how many alerts a loop with an `if` makes."""
    alerts = []
    for targets, times, groups in batches:
        for key, ts, group in zip(targets, times, groups, strict=True):
            if group == "brute":
                alerts.append(["each", None, ts, key])
    return len(alerts)
