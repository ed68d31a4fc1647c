"""State of a savepoint as rows, and savepoints out of rows; Spark itself is in tests/spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from topo.engine.spark.driver.state_frames import SCHEMA, ReadTasks
from topo.errors import CheckpointError
from topo.runtime.dealing import places_of
from topo.state import write_state
from topo.storage.entries import entries_of
from topo.storage.savepoints import Component, Savepoint, read_savepoint, write_savepoint
from topo.storage.saving import Changes, SavedMapping

pa = pytest.importorskip("pyarrow")
types = pytest.importorskip("pyspark.sql.types")

Row = types.Row
TASKS = 3
WORDS = {f"word{number}": number for number in range(30)}
DAYS = {(f"user{number}", number % 7): {"n": number} for number in range(30)}


@dataclass(frozen=True)
class Account:
    owner: str
    cents: int


class Frame:
    """What of a DataFrame a writer takes."""

    sparkSession = None

    def __init__(self, rows: Iterable[tuple[Any, ...]], *columns: str) -> None:
        self.columns = list(columns)
        self._rows = [Row(*columns)(*row) for row in rows]

    def toLocalIterator(self, prefetchPartitions: bool) -> Iterator[Any]:
        return iter(self._rows)


def blobs(state: dict[Any, Any]) -> dict[str, bytes]:
    changes = Changes()
    SavedMapping("state", "").save(state, state, changes)
    return {**changes.puts, "core": b"core", "attributes": b"more"} if state else {}


def by_task(state: dict[Any, Any], width: int) -> list[dict[Any, Any]]:
    keys = list(state)
    columns = [keys] if width == 1 else [list(column) for column in zip(*keys, strict=True)]
    tasks: list[dict[Any, Any]] = [{} for _ in range(TASKS)]
    for key, place in zip(keys, places_of(columns, TASKS) if keys else [], strict=True):
        tasks[place][key] = state[key]
    return tasks


@pytest.fixture
def point(tmp_path: Path) -> Path:
    states = {
        "words": by_task(WORDS, 1),
        "days": by_task(DAYS, 2),
        "odd": [{"b": 1}, {"a": 2}, {}],
        "empty": [{}, {}, {}],
        "one": [{"x": 1}],
        "mixed": [{}, {7: Account("ann", 3)}, {}],
    }
    reads = {"days": ("s stream default by fields(user, day)",), "mixed": ()}
    components = {
        name: Component(
            "bolt", 1 + 3 * at, len(tasks), True, reads.get(name, ("s stream x by fields(word)",))
        )
        for at, (name, tasks) in enumerate(states.items())
    }
    saved = Savepoint(
        "t", "c0ffee", 41, "micro-batch", 1.5, "0.2.0", "3.11", components,
        directory=tmp_path / "saved", pending=2,
    )  # fmt: skip
    files = [
        (name, index, blobs(of)) for name, tasks in states.items() for index, of in enumerate(tasks)
    ]
    write_savepoint(saved, files)
    return tmp_path / "saved"


def state_in(place: Path, component: str) -> list[dict[Any, Any]]:
    saved = read_savepoint(place)
    tasks: list[dict[Any, Any]] = [{} for _ in range(saved.components[component].tasks)]
    for entry in entries_of(saved, component, None):
        tasks[entry.index][entry.key] = entry.value
    return tasks


def rows_of(place: Path, component: str, schema: str = "") -> list[dict[str, Any]]:
    """Read as Spark's workers do."""
    parsed = struct(schema or SCHEMA)
    saved = read_savepoint(place)
    reading = ReadTasks(saved, component, parsed, not schema, {}, [])
    tasks = [pa.record_batch({"id": [index]}) for index in range(TASKS)]
    return [row for batch in reading(tasks) for row in batch.to_pylist()]


def struct(schema: str) -> Any:
    """Return the schema, of simple types and one level of structs, without a JVM."""
    made = types.StructType()
    simple = {
        "string": types.StringType(),
        "int": types.IntegerType(),
        "long": types.LongType(),
        "binary": types.BinaryType(),
        "user": types.StructType().add("user", "string").add("day", "long"),
        "account": types.StructType().add("owner", "string").add("cents", "long"),
        "counts": types.MapType(types.StringType(), types.LongType()),
    }
    for name, kind in (part.split() for part in schema.split(",")):
        made.add(name, simple[kind])
    return made


def test_state_is_rows_of_text_and_pickles(point: Path) -> None:
    rows = rows_of(point, "days")
    assert {row["component"] for row in rows} == {"days"}
    assert [(row["task"], row["key"], row["value"]) for row in rows] == [
        (index, repr(key), f'{{"n": {value["n"]}}}')
        for index, of in enumerate(state_in(point, "days"))
        for key, value in of.items()
    ]
    assert {pickle.loads(row["pickled_key"]): pickle.loads(row["pickled_value"]) for row in rows}
    assert rows_of(point, "words")[0]["key"] in WORDS
    assert rows_of(point, "empty") == []


def test_state_is_rows_by_a_schema(point: Path) -> None:
    rows = rows_of(point, "words", "value long,key string")
    assert {row["key"]: row["value"] for row in rows} == WORDS
    days = rows_of(point, "days", "key user,value counts,task int")
    assert {(row["key"]["user"], row["key"]["day"]): dict(row["value"]) for row in days} == DAYS
    assert {row["task"] for row in days} == {0, 1, 2}
    [account] = rows_of(point, "mixed", "key long,value account")
    assert account == {"key": 7, "value": {"owner": "ann", "cents": 3}}


@pytest.mark.parametrize("schema", ["key long,value long", "key string,value account"])
def test_what_does_not_fit_a_schema_is_named(point: Path, schema: str) -> None:
    with pytest.raises(CheckpointError, match=r"'one' task 0: the (key|value) of key 'x' is no "):
        list(
            ReadTasks(read_savepoint(point), "one", struct(schema), False, {}, [])(
                [pa.record_batch({"id": [0]})]
            )
        )


def test_the_frame_is_the_new_state_and_the_rest_stays(point: Path, tmp_path: Path) -> None:
    place = tmp_path / "new"
    rows = [(key, value * 2) for key, value in WORDS.items() if value % 2]
    written = write_state(Frame(rows, "key", "value"), place, component="words", of=point)
    assert written == read_savepoint(place)
    assert state_in(place, "words") == by_task(dict(rows), 1)
    before = read_savepoint(point)
    for name in ("days", "odd", "empty", "one", "mixed"):
        for index in range(before.components[name].tasks):
            assert written.records(name, index) == before.records(name, index)
    assert written.records("words", 0)["core"] == b"core"
    assert (written.pending, written.batch, written.checkpoint) == (2, 41, "c0ffee")


def test_new_keys_go_where_their_tuples_go(point: Path, tmp_path: Path) -> None:
    more = {f"new{number}": -number for number in range(20)}
    write_state(
        Frame(more.items(), "key", "value"), tmp_path / "a", component="words", of=point, keep=True
    )
    assert state_in(tmp_path / "a", "words") == by_task({**WORDS, **more}, 1)
    days = [(Row("user", "day")(f"user{n}", 8), Row("n")(n)) for n in range(20)]
    write_state(Frame(days, "key", "value"), tmp_path / "b", component="days", of=point, keep=True)
    both = {**DAYS, **{(f"user{n}", 8): {"n": n} for n in range(20)}}
    assert state_in(tmp_path / "b", "days") == by_task(both, 2)


def test_pickles_are_written_as_they_are_with_one_task_named(point: Path, tmp_path: Path) -> None:
    rows = [(pickle.dumps(("k", 1)), pickle.dumps(Account("eve", 5)), 2)]
    frame = Frame(rows, "pickled_key", "pickled_value", "task")
    write_state(frame, tmp_path / "a", component="mixed", of=point)
    assert state_in(tmp_path / "a", "mixed") == [{}, {}, {("k", 1): Account("eve", 5)}]
    moved = Frame([("word3", 0, index) for index in range(1)], "key", "value", "task")
    write_state(moved, tmp_path / "b", component="words", of=point, keep=True)
    assert sum("word3" in of for of in state_in(tmp_path / "b", "words")) == 1


def test_what_was_read_is_written_back(point: Path, tmp_path: Path) -> None:
    rows = rows_of(point, "days", "pickled_key binary,pickled_value binary,task int")
    frame = Frame([tuple(row.values()) for row in rows], *rows[0])
    write_state(frame, tmp_path / "same", component="days", of=point)
    assert state_in(tmp_path / "same", "days") == state_in(point, "days")


@pytest.mark.parametrize(
    ("component", "rows", "columns", "more", "why"),
    [
        ("wordz", [("a", 1)], "key value", {}, "has no component 'wordz'"),
        ("words", [("a", 1)], "key valeu", {}, "is no state"),
        ("words", [(1, b"", b"")], "value pickled_key pickled_value", {}, "only one of them can"),
        ("words", [("a", 1), ("a", 2)], "key value", {}, "the key 'a' twice"),
        ("words", [(["a"], 1)], "key value", {}, "which cannot be a key"),
        ("words", [("a", 1, 3)], "key value task", {}, "has 3 tasks, and key 'a' is for task 3"),
        ("words", [("a", 1, "days")], "key value component", {}, "has a row of 'days'"),
        ("days", [("a", 1)], "key value", {}, "is not made of the 2 fields"),
        ("odd", [("c", 1)], "key value", {}, "is not what its input is grouped by"),
        ("odd", [("c", 1)], "key value", {"by_key": True}, "is not what its input is grouped by"),
        ("empty", [("c", 1)], "key value", {}, "has saved 0 keys in 3 tasks, which proves nothing"),
        ("mixed", [("c", 1)], "key value", {"by_key": True}, "no grouping by fields"),
    ],
)
def test_what_cannot_be_written_is_refused(
    point: Path,
    tmp_path: Path,
    component: str,
    rows: list[Any],
    columns: str,
    more: dict[str, Any],
    why: str,
) -> None:
    frame = Frame(rows, *columns.split())
    with pytest.raises(CheckpointError, match=why):
        write_state(frame, tmp_path / "new", component=component, of=point, **more)
    assert not (tmp_path / "new").exists()


def test_an_empty_state_is_filled_by_key(point: Path, tmp_path: Path) -> None:
    frame = Frame(WORDS.items(), "key", "value")
    write_state(frame, tmp_path / "new", component="empty", of=point, by_key=True)
    assert state_in(tmp_path / "new", "empty") == by_task(WORDS, 1)
    write_state(Frame([("y", 2)], "key", "value"), tmp_path / "one", component="one", of=point)
    assert state_in(tmp_path / "one", "one") == [{"y": 2}]
