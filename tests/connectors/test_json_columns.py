"""JSON of topics and files as columns: nobody can tell it from one row a record.

The other way is the one that decodes each record by itself, and makes a row of it.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.connectors.moving import ticking
from tests.connectors.scripted_kafka import Broker, ScriptedSpout
from topo import (
    BasicBolt,
    Bolt,
    ComponentError,
    Count,
    EventTime,
    TopologyBuilder,
    Tumbling,
    Tuple,
    WindowAggregate,
)
from topo.connectors import formats, translation
from topo.connectors.files import FileSpout, readers
from topo.connectors.formats import decoder, decoder_of_many
from topo.connectors.retries import Backoff
from topo.errors import TopoError
from topo.runtime import bulk_emit
from topo.wire.arrow import ArrowColumn
from topo.wire.plain_arrays import column_of_values

pa = pytest.importorskip("pyarrow")

FIELDS = ("user", "n", "share", "old", "more")
NOTES: list[Any] = []
"""What the components of the run have seen: they are unpickled in this process."""


def good(n: int) -> dict[str, Any]:
    more: Any = {"tags": [n, "x"]} if n % 3 else None
    return {"user": f"u{n % 40}", "n": n, "share": n / 7, "old": n % 2 == 0, "more": more}


ODD = [
    b'{"user": null, "n": null, "share": null, "old": null}',
    b'{"user": "a", "n": 1.5, "share": 2, "old": 1}',
    b'{"user": "a", "n": 9223372036854775808}',
    b'{"n": -9223372036854775809, "user": "b"}',
    b'{"user": "c", "share": NaN, "n": 0}',
    b'{"user": "d", "share": -Infinity}',
    b'{"user": "e", "share": 1e400, "n": -0}',
    b'{"user": "half \\ud800", "n": 1}',
    b'{"user": "zero \\u0000", "n": 1, "n": 2}',
    b' \n{"user": "\xc3\xa4", "n": 1,\n"more": [1, 2.5, "x", {"y": null}]}\t',
    b'{"user": 5, "more": "text"}',
    b"{}",
    None,
]
"""Values with records that are read: the last one is a tombstone."""

BAD = [
    b'{"user":',
    b'"}',
    b'{"user": "a"}, {"user": "b"}',
    b'[{"user": "a"}',
    b'{"user": "b"}]',
    b"[1]",
    b"null",
    b"",
    b'{"user": "\xff"}',
    b'{"user": "a"} x',
    b"\xef\xbb\xbf{}",
    b'{"more": ' + b"[" * 300 + b"]" * 300 + b"}",
    b'{"more": ' + b"9" * 5000 + b"}",
]
"""Values that cannot be read; pairs of them could, if they were one text."""


class Noted(ScriptedSpout):
    """Notes the verdicts that it hears, and its state."""

    def ack(self, msg_id: Any) -> None:
        NOTES.append(("ack", *msg_id))
        super().ack(msg_id)

    def fail(self, msg_id: Any, reason: str = "") -> None:
        NOTES.append(("fail", *msg_id, reason))
        super().fail(msg_id, reason)

    def pre_commit(self, batch_id: int) -> None:
        super().pre_commit(batch_id)
        positions = {key: one.__getstate__()[0] for key, one in self.state.raw().items()}
        NOTES.append(("positions", repr(positions)))


class ByTuple(Bolt):
    """Fails some tuples when it first sees them."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.seen: set[Any] = set()

    def execute(self, tup: Tuple) -> None:
        NOTES.append(repr(tup.values))
        number = tup["n"]
        if isinstance(number, int) and number % 97 == 5 and number not in self.seen:
            self.seen.add(number)
            self.fail(tup, "first time")
        else:
            self.ack(tup)


class ByBatch(BasicBolt):
    def process_batch(self, batch: Any) -> None:
        NOTES.append(str(batch.schema))
        NOTES.extend(map(repr, batch.to_pylist()))


class Told(BasicBolt):
    def __init__(self, stream: str) -> None:
        self.stream = stream

    def execute(self, tup: Tuple) -> None:
        NOTES.append((self.stream, repr(tup.values)))


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(ScriptedSpout, "broker", broker)
    return broker


@pytest.fixture(autouse=True)
def notes() -> None:
    NOTES.clear()


def by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no columns made any more."""
    for name in ("LEAST_OF_COLUMNS", "_LEAST_TOGETHER"):
        monkeypatch.setattr(translation, name, 10**9)


def noted(spout: Any, bolt: Any, cut: int = 0, **conf: Any) -> list[Any]:
    """Return what is seen by the end, an error at last; all is rebuilt after `cut` batches."""
    NOTES.clear()
    builder = TopologyBuilder()
    builder.set_spout("s", spout)
    builder.set_bolt("b", bolt, 2).fields_grouping("s", ["user"])
    for stream in ("bad", "dead"):
        if stream in spout.translation.outputs:
            builder.set_bolt(stream, Told(stream)).shuffle_grouping("s", stream)
    run = ticking(builder.create_topology(), conf)
    try:
        for step in range(1, 25):
            if run.status == "COMPLETED":
                break
            run.step()
            if cut and step % cut == 0 and run.status == "ACTIVE":
                run.restart()
    except TopoError as error:
        NOTES.append(str(error))
    if run.status == "ACTIVE":
        run.stop()
    return list(NOTES)


def write(broker: Broker, bad: bool, count: int) -> None:
    """Write records to three partitions: odd and bad ones in some stretches of them."""
    random = Random(1)
    for n in range(count):
        data: bytes | None = json.dumps(good(n)).encode()
        place = n % 700
        if n > 600 and 100 < place < 150 and random.random() < 0.3:
            data = random.choice(ODD)
        if bad and n > 600 and 300 < place < 330 and random.random() < 0.3:
            data = random.choice(BAD)
        broker.write("t", random.randrange(3) if n % 900 < 450 else 0, 1, data=data)


@pytest.mark.parametrize(
    ("bolt", "bad", "more"),
    [
        (ByTuple, False, {"guarantee": "at_least_once"}),
        (ByTuple, True, {"guarantee": "at_least_once", "on_bad": "stream", "max_in_flight": 300}),
        (ByTuple, True, {"guarantee": "exactly_once", "on_bad": "skip", "missing": "bad"}),
        (ByTuple, True, {"guarantee": "at_most_once", "on_bad": "stream"}),
        (ByTuple, True, {"guarantee": "exactly_once", "until": "latest"}),
        (ByTuple, False, {"guarantee": "at_least_once", "retry": Backoff(first=0, retries=0)}),
        (ByBatch, False, {"guarantee": "exactly_once", "fields": ("user", "n"), "odd": False}),
        (ByBatch, False, {"guarantee": "at_least_once", "fields": ("user", "n")}),
    ],
)
def test_columns_of_a_topic_do_what_rows_do(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, bolt: Any, bad: bool, more: Any
) -> None:
    more = {"fields": FIELDS, **more}
    write(broker, bad, 1000 if not more.pop("odd", True) else 1600)

    def run() -> list[Any]:
        spout = Noted("t", value="json", **more)
        return noted(spout, bolt(), 2, **{"topology.max.spout.pending": 800})

    columns = run()
    by_rows(monkeypatch)
    assert columns == run()
    assert sum(isinstance(one, str) for one in columns) > 400


@pytest.mark.parametrize("mode", ["once", "tail"])
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("has_bad", [False, True])
def test_columns_of_lines_do_what_rows_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any, guarantee: Any, has_bad: bool
) -> None:
    lines = [json.dumps(good(n)).encode() for n in range(1200)]
    lines[700:700] = [one.replace(b"\n", b" ") for one in ODD if one is not None]
    if has_bad:
        lines[1100:1100] = [*BAD, b'{"user": "' + b"x" * 3000 + b'"}']
    (tmp_path / "a.json").write_bytes(b"\n".join(lines) + b"\r\n" + lines[0])

    def run() -> list[Any]:
        spout = FileSpout(
            tmp_path / "a.json",
            "json",
            mode=mode,
            fields=FIELDS,
            guarantee=guarantee,
            on_bad="stream",
            max_record=2000,
            page=300,
        )
        return noted(spout, ByTuple(), 3)

    columns = run()
    by_rows(monkeypatch)
    monkeypatch.setattr(formats, "decoder_of_many", lambda form: None)
    monkeypatch.setattr(readers, "decoder_of_many", lambda form: None)
    assert columns == run()
    assert sum(isinstance(one, str) for one in columns) >= 1200
    assert sum(one[0] == "bad" for one in columns) == (len(BAD) if has_bad else 0)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_file_that_is_read_on_is_never_gone_back_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What it gives is what readers give that are opened anew for each piece."""
    monkeypatch.setattr(readers, "_CHUNK_BYTES", 1_000)
    random = Random(2)
    lines = [json.dumps(["x" * random.choice([0, 9, 99, 990, 1_500])]) for _ in range(300)]
    data = "".join(line + random.choice(["\n", "\r\n", "\n\n"]) for line in lines).encode() + b"[5]"
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)

    def read(reader: Any, anew: bool) -> tuple[list[Any], list[str], int]:
        records: list[Any] = []
        bad: list[str] = []
        piece = readers.Piece()
        while not piece.finished:
            reader = readers.open_reader(str(path), "json", (), True, 1_200) if anew else reader
            piece = reader.read(piece.end, 7, whole=True)
            records += zip(piece.starts, piece.records, strict=True)
            bad += map(str, piece.bad)
        return records, bad, piece.end

    reader: Any = readers.open_reader(str(path), "json", (), True, 1_200)
    monkeypatch.setattr(reader._file, "seek", None)
    read_on = read(reader, False)
    monkeypatch.undo()
    monkeypatch.setattr(readers, "_CHUNK_BYTES", 1_000)
    assert read_on == read(None, True)
    records, bad, end = read_on
    assert len(records) + len(bad) == 301
    assert bad
    assert end == len(data)


def test_what_a_bolt_over_batches_reads_was_a_column_all_the_way(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(2_000):
        broker.write("t", 0, 1, data=json.dumps(good(n)).encode())
    given: list[Any] = []
    columns_of = bulk_emit.columns_of

    def noting(rows: Any, *more: Any) -> Any:
        given.append(rows)
        return columns_of(rows, *more)

    monkeypatch.setattr(bulk_emit, "columns_of", noting)
    fields = ("user", "n", "share", "old")
    noted(Noted("t", value="json", fields=fields, until="latest"), ByBatch())
    assert isinstance(given[0], list)  # the names are looked for in the first records
    more = [one for one in given if isinstance(one, dict)]
    assert len(more) == 3
    for columns in more:
        assert [str(columns[name].array.type) for name in fields] == [
            "string", "int64", "double", "bool",
        ]  # fmt: skip


def test_a_record_that_stops_the_topology_leaves_the_position_at_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(900):
        broker.write("t", 0, 1, data=b"{" if n == 777 else json.dumps(good(n)).encode())

    def run() -> list[Any]:
        return noted(Noted("t", value="json", fields=FIELDS), ByTuple())

    columns = run()
    assert "t-0 at 777" in columns[-1]
    by_rows(monkeypatch)
    assert columns == run()


def test_times_of_partitions_are_those_of_rows(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in range(3):
        for n in range(900):
            broker.write("t", partition, 1, data=json.dumps({"at": n, "user": "u"}).encode())

    def run() -> list[Any]:
        NOTES.clear()
        builder = TopologyBuilder()
        builder.set_spout("s", ScriptedSpout("t", value="json", fields=("at", "user")), 2)
        window = WindowAggregate(
            window=Tumbling(100), time=EventTime("at", lag=1), aggregates={"n": Count()}
        )
        builder.set_bolt("w", window).global_grouping("s")
        builder.set_bolt("told", Told("w")).global_grouping("w")
        run = ticking(builder.create_topology())
        run.settle()
        assert run.stats().components["w"].late == 0
        run.stop()
        return list(NOTES)

    columns = run()
    assert len(columns) == 8  # the last one is open
    by_rows(monkeypatch)
    assert columns == run()


# -- many values at once -------------------------------------------------------------------------


PIECES = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"1",
    b'"a"',
    b"null",
    b" ",
    b"\n",
    b"\xff",
]
values = st.one_of(
    st.sampled_from([one for one in (*ODD, *BAD) if one is not None]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ).map(lambda value: json.dumps(value).encode()),
    st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join),
)


@given(st.lists(values, min_size=1, max_size=6))
def test_many_values_are_what_each_is_by_itself(datas: list[bytes]) -> None:
    decode, decode_many = decoder("json", "X", "value"), decoder_of_many("json")
    assert decode_many is not None
    try:
        singly = [decode(data) for data in datas]
    except ValueError:
        assert decode_many(datas) is None
        return
    together = decode_many(datas)
    assert together is None or repr(together) == repr(singly)
    if not any(len(data) > 400 for data in datas):
        assert together is not None


def test_texts_that_only_together_are_json_are_not_read() -> None:
    decode_many = decoder_of_many("json")
    assert decode_many is not None
    for datas in (
        [b"1,2", b"[3", b"4]"],
        [b'{"a": 1}, {"a": 2}', b'{"a": [1', b"2]}"],
        [b'"a', b'b"'],
        [b"1, 2, 3"],
        [b"1]", b"[2"],
        [b"1", b"2,"],
    ):
        assert decode_many(datas) is None, datas


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (["a", None, ""], "string"),
        ([1, None, -(2**63)], "int64"),
        ([0.5, float("nan"), None], "double"),
        ([True, None], "bool"),
        ([1, 2.0], None),
        ([1, True], None),
        ([2**63, 1], None),
        (["a", 1], None),
        (["\ud800"], None),
        ([None], None),
        ([[1]], None),
        ([{"a": 1}, {"b": 2}], None),
        ([], None),
    ],
)
def test_values_are_a_column_of_arrow_if_nobody_can_tell(column: list[Any], kind: Any) -> None:
    result = column_of_values(column)
    if kind is None:
        assert result is column
    else:
        assert isinstance(result, ArrowColumn)
        assert str(result.array.type) == kind
        assert repr(result.tolist()) == repr(column)


def test_columns_of_unlike_types_are_the_error_that_rows_are(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(1_500):
        data = {"user": "u", "n": n if n < 900 else n + 0.5}
        broker.write("t", 0, 1, data=json.dumps(data).encode())

    def run() -> list[Any]:
        fields = ("user", "n")
        return noted(Noted("t", value="json", fields=fields, until="latest"), ByBatch())

    columns = run()
    assert "mixed numbers" in columns[-1]
    by_rows(monkeypatch)
    assert columns == run()


def test_a_form_of_the_users_is_read_one_by_one() -> None:
    assert decoder_of_many("str") is None
    assert decoder_of_many(json.loads) is None
    with pytest.raises(ComponentError, match="is no part of a record"):
        ScriptedSpout("t", value="str", fields="user")
