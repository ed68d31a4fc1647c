"""Savepoints: what was written is read, damage is told of, what does not fit is named."""

from __future__ import annotations

import errno
import json
import os
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_plan import bolt, spout
from topo.engine.spark.plan import Plan, make_plan
from topo.engine.spark.realtime.beginning import differences, records_for, start_of
from topo.errors import CheckpointError
from topo.storage.savepoints import (
    Component,
    Savepoint,
    read_savepoint,
    tasks_of,
    write_savepoint,
)
from topo.storage.trust import UnwritablePlace
from topo.topology.model import GroupingDef, InputDef, Topology

RECORDS = {
    ("s", 0): {"core": pickle.dumps({"last": 3, "cursor": 2, "incarnation": "7"}, 5)},
    ("a/b ä", 0): {"state/000": b"one", "attributes": b""},
    ("a/b ä", 1): {"state/000": b"two", "state/001": bytes(range(256))},
}


@dataclass
class Held:
    """A value of a tuple that a bolt holds."""

    number: int


def saved(directory: Path, **more: Any) -> Savepoint:
    components = {
        "a/b ä": Component("bolt", 1, 2, True),
        "s": Component("spout", 4, 1, True),
        "none": Component("bolt", 3, 1, False),
    }
    point = Savepoint(
        "words", "c0ffee", 41, "micro-batch", 1.5, "0.3.0", "3.12", components, directory=directory
    )
    tasks = [(name, index, records) for (name, index), records in RECORDS.items()]
    return write_savepoint(replace(point, **more), tasks)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    place = tmp_path / "sub" / "point"
    written = saved(place, failures={"7": "timeout"})
    again = read_savepoint(place)
    assert again == written
    assert {at: again.records(*at) for at in RECORDS} == RECORDS
    assert again.records("none", 0) == {}
    assert list(tasks_of(again)) == [("a/b ä", 0), ("a/b ä", 1), ("s", 0), ("none", 0)]
    assert again.bytes_of("s") > 0
    assert again.bytes_of("none") == 0
    assert place.stat().st_mode & 0o77 == 0
    assert sorted(path.name for path in place.iterdir()) == [
        "a%2Fb%20%C3%A4",
        "s",
        "savepoint.json",
    ]


def test_equal_states_are_equal_files(tmp_path: Path) -> None:
    assert saved(tmp_path / "a").files == saved(tmp_path / "b").files


def test_a_directory_with_other_things_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(CheckpointError, match="is not empty"):
        saved(tmp_path)


def test_a_place_that_cannot_be_written_to_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UnwritablePlace, match="the savepoint cannot be written: ") as refused:
            saved(place)
        assert refused.value.at == str(place)

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UnwritablePlace, match="cannot be written: no space left on device"):
            saved(tmp_path / "full")
    assert list((tmp_path / "full").iterdir()) == []
    assert saved(tmp_path / "full").files  # and not "is not empty"


def test_damage_is_told_of(tmp_path: Path) -> None:
    point = saved(tmp_path / "p")
    path = tmp_path / "p" / "s" / "0"
    whole = path.read_bytes()
    for damaged in (whole[:-1], b"", whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="is not what was written"):
            point.records("s", 0)
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        point.records("s", 0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (None, "holds no savepoint"),
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ({"format": 9}, "is of format 9"),
        ({"state": 1}, "with state of format 1"),
        ({"components": 3}, "cannot be read"),
        ({"new": 3}, "cannot be read"),
    ],
)
def test_what_is_no_savepoint_is_refused(tmp_path: Path, change: Any, why: str) -> None:
    saved(tmp_path / "p")
    path = tmp_path / "p" / "savepoint.json"
    document = json.loads(path.read_text())
    if change is None:
        path.unlink()
    else:
        text = change if isinstance(change, str) else json.dumps({**document, **change})
        path.write_text(text)
    with pytest.raises(CheckpointError, match=why):
        read_savepoint(tmp_path / "p")


def test_one_that_others_may_write_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "p")
    (tmp_path / "p" / "savepoint.json").chmod(0o666)
    with pytest.raises(CheckpointError, match="others may write"):
        read_savepoint(tmp_path / "p")


def plan(*components: Any) -> Plan:
    return make_plan(Topology([*components, spout("s")]), 2)


KEEPS = bolt("a/b ä", ("s", "shuffle"), parallelism=2)
NONE = bolt("none", ("s", "shuffle"), stateless=True)
BY_VALUE = replace(KEEPS, inputs=(InputDef("s", "default", GroupingDef("fields", ("a",))),))


@pytest.mark.parametrize(
    ("now", "begin", "problems"),
    [
        (plan(KEEPS, NONE), {}, []),
        (plan(KEEPS), {}, []),
        (plan(KEEPS, NONE, bolt("new", ("s", "shuffle"))), {}, []),
        (plan(NONE), {}, ["bolt 'a/b ä' is gone: --drop a/b ä, or --rename a/b ä=NEW"]),
        (plan(NONE), {"drop": ["a/b ä"]}, []),
        (plan(replace(KEEPS, id="b")), {"rename": {"a/b ä": "b"}}, []),
        (plan(KEEPS), {"rename": {"x": "b"}}, ["there is no 'x' in it"]),
        (plan(KEEPS), {"drop": ["y"]}, ["there is no 'y' in it"]),
        (plan(replace(KEEPS, parallelism=3)), {}, ["bolt 'a/b ä' had 2 tasks, now 3"]),
        (
            plan(replace(KEEPS, stateless=True)),
            {},
            ["bolt 'a/b ä' kept state, and keeps none now: --drop a/b ä"],
        ),
        (
            plan(BY_VALUE),
            {},
            [
                "bolt 'a/b ä' keeps state and now reads s stream default by fields(a), "
                "before nothing by value"
            ],
        ),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, now: Plan, begin: dict[str, Any], problems: list[str]
) -> None:
    saved(tmp_path)
    start = start_of({"from": str(tmp_path), **begin})
    assert [
        line.replace("by fields on a", "by fields(a)") for line in differences(start, now)
    ] == problems
    if problems:
        with pytest.raises(CheckpointError, match="does not fit the topology"):
            records_for(start, now, "micro-batch")


def test_what_a_bolt_holds_is_left_packed(tmp_path: Path) -> None:
    core = pickle.dumps({"held": {1: Held(3)}}, 5).replace(b"Held", b"Gone")
    point = replace(saved(tmp_path / "first"), directory=tmp_path / "second", files={})
    write_savepoint(point, [("a/b ä", 0, {"core": core})])
    now = plan(KEEPS, NONE)
    tasks = records_for(start_of({"from": str(tmp_path / "second")}), now, "micro-batch")
    assert tasks == {now.component("a/b ä").tasks.start: {"core": core}}


def test_records_go_to_the_tasks_of_their_component_and_index(tmp_path: Path) -> None:
    saved(tmp_path)
    now = plan(KEEPS, NONE, bolt("a", ("s", "shuffle")))  # whose task is the first one now
    tasks = records_for(start_of({"from": str(tmp_path)}), now, "real-time")
    first = now.component("a/b ä").tasks.start
    assert first == 2
    assert tasks == {
        first: RECORDS["a/b ä", 0],
        first + 1: RECORDS["a/b ä", 1],
        now.component("s").tasks.start: {
            "core": pickle.dumps({"last": 3, "cursor": 0, "incarnation": ""}, 5)
        },
    }


@pytest.mark.parametrize(
    ("mode", "more", "refused"),
    [
        ("micro-batch", (), False),
        ("real-time", (), True),
        ("micro-batch", (bolt("a", ("s", "shuffle")),), True),
    ],
)
def test_what_is_pending_names_tasks_and_acks(
    tmp_path: Path, mode: str, more: tuple[Any, ...], *, refused: bool
) -> None:
    saved(tmp_path, pending=3)
    start, now = start_of({"from": str(tmp_path)}), plan(KEEPS, NONE, *more)
    if not refused:
        assert records_for(start, now, mode)
        return
    with pytest.raises(CheckpointError, match="3 pending messages"):
        records_for(start, now, mode)
