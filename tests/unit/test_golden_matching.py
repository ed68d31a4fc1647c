"""Open matches and counts of earlier days: what 0.2.0 saved goes on where it was.

The golden states are those of the first half of some events, in which matches are open, events wait
and rules have fired; the second half has the results of a run that was never interrupted.
"""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.property.pattern_task import World
from tests.property.pattern_truth import Event
from topo import EventTime, Rule, RuleBolt
from topo.event_time import BEFORE_ALL
from topo.storage.saving import Changes
from topo.timed import Clock, InputFields, Rows

GOLDEN = Path(__file__).with_name("golden") / "matching-1.pickle"
PATTERN = {"parts": [
    {"name": "a", "where": "kind == 'a'", "times": [1, 2]},
    {"name": "b", "where": "kind == 'b' and n >= a.n", "how": "followed_by_any"},
    {"name": "c", "where": "kind == 'c'", "how": "followed_by"},
], "within": 30, "skip": "to_next"}  # fmt: skip
EVENTS = [Event(n, n, n % 2, "aabcabdc"[n % 8], n % 3) for n in range(60)]
HALF, LAG = 36, 4
RULES = [
    Rule("often", "kind == 'a'", by="key", having="count() >= 3",
         within=timedelta(milliseconds=12)),
    Rule("sum", "kind != 'd'", by="key", having="sum(n) > 2 and distinct(kind) > 1",
         within=timedelta(milliseconds=9), again="each", emit={"most": "max(n)"}),
    Rule("now and then", "kind == 'b'", by="key", again=timedelta(milliseconds=15)),
]  # fmt: skip


def run_pattern(world: World, events: list[Event]) -> list[Any]:
    """Match events in batches of six; return the new results."""
    before = {stream: len(world.results(stream)) for stream in ("default", "out")}
    for at in range(0, len(events), 6):
        batch = events[at : at + 6]
        world.batch(batch, batch[-1].ts - LAG)
    return [world.results(stream)[count:] for stream, count in before.items()]


def run_rules(
    events: list[Event], saved: dict[str, bytes], watermark: int
) -> tuple[list[Any], dict[str, bytes], int]:
    """Ask rules of events in batches of six; return alerts, state and watermark."""
    alerts: list[Any] = []
    nothing: Any = SimpleNamespace(
        gauge=lambda *_: None, counter=lambda *_, **__: None, this_task_index=0
    )
    task: Any = SimpleNamespace(owner="bolt 'rules'", emit=lambda rows, _: alerts.extend(rows))
    task.component, task.now = SimpleNamespace(context=nothing), lambda: 0.0
    bolt = RuleBolt(RULES, key="key", time=EventTime("ts", lag=LAG))
    fields = ("ts", "key", "kind", "n")
    bolt.read_inputs([InputFields("events", "default", fields, "fields", ("key",))])
    operator, saved = bolt.operator(task), dict(saved)
    operator.load(saved, watermark)
    for at in range(0, len(events), 6):
        rows = [(event.ts, event.key, event.kind, event.n) for event in events[at : at + 6]]
        columns: list[Any] = list(map(list, zip(*rows, strict=True)))
        make: Any = rows.__getitem__
        operator.rows(Rows("events", "default", fields, columns, len(rows), columns[0], make))
        before, watermark = watermark, columns[0][-1] - LAG
        operator.advance(Clock(before, watermark, 0.0))
        changes = Changes()
        operator.save(changes)
        changes.apply_to(saved)
    return alerts, saved, watermark


def make_golden() -> None:
    """Write the golden states anew, for a format with another number."""
    world = World(PATTERN, LAG)
    run_pattern(world, EVENTS[:HALF])
    states = {"pattern": (world.saved, world.watermark)}
    states["rules"] = run_rules(EVENTS[:HALF], {}, BEFORE_ALL)[1:]
    GOLDEN.write_bytes(pickle.dumps(states, protocol=5))


def state_of(name: str) -> tuple[dict[str, bytes], int]:
    states: dict[str, tuple[dict[str, bytes], int]] = pickle.loads(GOLDEN.read_bytes())
    return states[name]


def test_open_matches_of_earlier_days_go_on() -> None:
    whole, later = World(PATTERN, LAG), World(PATTERN, LAG)
    run_pattern(whole, EVENTS[:HALF])
    wanted = run_pattern(whole, EVENTS[HALF:])
    later.saved, later.watermark = state_of("pattern")
    later.restart()
    assert later.operator.state_rows == 31
    assert run_pattern(later, EVENTS[HALF:]) == wanted
    assert all(wanted), "there are matches, and what timed out"


def test_counts_of_earlier_days_go_on() -> None:
    early, *state = run_rules(EVENTS[:HALF], {}, BEFORE_ALL)
    whole = run_rules(EVENTS, {}, BEFORE_ALL)[0]
    assert early + run_rules(EVENTS[HALF:], *state_of("rules"))[0] == whole
    assert early + run_rules(EVENTS[HALF:], *state)[0] == whole  # type: ignore[arg-type]
    assert {alert[0] for alert in early} == {rule.name for rule in RULES}
    assert {alert[0] for alert in whole[len(early) :]} == {
        "sum",
        "now and then",
    }  # "often" has been
    assert early + run_rules(EVENTS[HALF:], {}, state_of("rules")[1])[0] != whole
