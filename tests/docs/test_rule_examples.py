"""The examples of rules, compared with plain loops over the same data."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from examples import intrusion, mediation
from topo.testing import complete_topology


def test_intrusions_are_those_of_a_loop(capsys: pytest.CaptureFixture[str]) -> None:
    count = 2000
    result = complete_topology(intrusion.topology(str(count)))
    chance = random.Random(1)
    attempts, scans = (
        defaultdict[str, list[int]](list),
        defaultdict[str, list[tuple[int, str]]](list),
    )
    is_attacked, is_scanning = set[str](), set[str]()
    brute, scanned, shared = [], [], []
    for number in range(count):
        group, name, source, target, ts = intrusion.event(chance, number)
        if group == "generalbruteforce":
            attempts[target] = [t for t in attempts[target] if t > ts - 120_000] + [ts]
            hits = len(attempts[target])
            if hits < 20:
                is_attacked.discard(target)
            elif target not in is_attacked:
                is_attacked.add(target)
                brute.append(["brute force", target, ts, "high", hits])
        elif group == "httpscan":
            scans[source] = [s for s in scans[source] if s[0] > ts - 180_000] + [(ts, name)]
            if len({event for _, event in scans[source]}) <= 5:
                is_scanning.discard(source)
            elif source not in is_scanning:
                is_scanning.add(source)
                scanned.append(["http scan", source, ts])
        elif group == "p2p":
            shared.append(["p2p", None, ts])
    assert brute
    assert scanned
    assert shared
    assert sorted(result.tuples("by_target", "alerts")) == sorted(brute)
    assert sorted(result.tuples("by_source", "alerts")) == sorted(scanned)
    assert sorted(result.tuples("single", "alerts"), key=lambda row: row[2]) == shared
    assert len(capsys.readouterr().out.splitlines()) == len(brute + scanned + shared)


def test_records_are_completed_as_in_a_loop() -> None:
    count = 200
    result = complete_topology(mediation.topology(str(count)))
    chance, routes = random.Random(1), dict(mediation.ROUTES)
    records, errors = [], []
    for _ in range(count):
        kind, route, duration = mediation.record(chance)
        if kind in (1, 4):
            records.append([kind, route, duration, "O", None])
        elif kind == 2:
            records.append([kind, route, duration, "I", routes.get(route, "UNKNOWN")])
        elif duration is not None and duration < 0:
            records.append([kind, route, 0, None, None])
        else:
            errors.append([kind, route, duration])
    assert sorted(map(str, result.tuples("mediate"))) == sorted(map(str, records))
    assert sorted(map(str, result.tuples("mediate", "errors"))) == sorted(map(str, errors))
