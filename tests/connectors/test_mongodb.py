"""MongoChanges and MongoBolt with their client, against a server that speaks MongoDB's protocol."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import bson
import pytest

from tests.certificates import make_certificates
from tests.connectors.moving import Keeps, Once, RollsBack, committed_numbers, counters, moved_until
from tests.connectors.scripted_mongodb import MongoServer, failed
from topo import ComponentError, TopologyBuilder, Tuple, Unavailable
from topo.connectors import Secret
from topo.connectors.mongodb import Change, MongoBolt, MongoChanges
from topo.testing import TestCluster, make_tuple, run_bolt, run_spout
from topo.testing.cluster import SteppedRun

URL = "mongodb://h"


@pytest.fixture
def server() -> Iterator[MongoServer]:
    server = MongoServer()
    yield server
    server.close()


# -- the sink -----------------------------------------------------------------------------------


def rows(*values: Any) -> list[Tuple]:
    return [make_tuple({"user": user, "n": n}) for user, n in values]


def write(server: MongoServer, *batches: list[Tuple], **more: Any) -> Any:
    more = {"retry_secs": 5.0, **more}
    return run_bolt(MongoBolt(server.url, "d", "clicks", **more), batches=list(batches))


def users(server: MongoServer) -> dict[Any, int]:
    return {document["user"]: document["n"] for document in server.values("clicks")}


def test_documents_by_id_replace_each_other(server: MongoServer) -> None:
    write(server, rows(("ann", 1), ("bob", 2), ("ann", 3)), rows(("ann", 4)), id="user")
    assert users(server) == {"ann": 4, "bob": 2}
    assert server.requests == [3, 1]


def test_a_document_has_its_own_id_or_a_new_one(server: MongoServer) -> None:
    write(server, rows(("ann", 1)), map=lambda tup: {"_id": 7, "user": "ann", "n": tup["n"]})
    write(server, rows(("bob", 2), ("bob", 3)), mode="insert")
    own, *new = server.collections["clicks"]
    assert own == 7
    assert [type(key) for key in new] == [bson.ObjectId, bson.ObjectId]


def test_modes(server: MongoServer) -> None:
    run = write(server, rows(("ann", 1), ("ann", 2), ("bob", 3)), id="user", mode="insert")
    assert users(server) == {"ann": 1, "bob": 3}
    assert run.emitted == []
    assert server.requests == [3]  # what is there already does not hold up the others
    write(server, rows(("ann", 9), ("eve", 8)), id="user", mode="update",
          map=lambda tup: {"total": tup["n"]})  # fmt: skip
    assert server.values("clicks") == [
        {"_id": "ann", "user": "ann", "n": 1, "total": 9},
        {"_id": "bob", "user": "bob", "n": 3},
        {"_id": "eve", "total": 8},
    ]
    write(server, rows(("ann", 0), ("nobody", 0), ("eve", 0)), id="user", mode="delete")
    assert users(server) == {"bob": 3}


def test_of_versions_the_highest_stays_whatever_comes_last(server: MongoServer) -> None:
    more: dict[str, Any] = {"id": "user", "version": "n"}
    write(server, rows(("ann", 5), ("ann", 3)), rows(("ann", 4), ("bob", 1), ("ann", 6)), **more)
    assert users(server) == {"ann": 6, "bob": 1}
    for number in (None, float("nan"), Decimal("NaN")):
        with pytest.raises(ValueError, match="without its version, 'n'"):
            write(server, rows(("ann", number)), **more)


def test_a_document_of_too_many_levels_is_rejected_alone(server: MongoServer) -> None:
    def nested(tup: Tuple) -> Any:
        value: Any = list(range(200))
        for level in range(tup["n"] - 2):
            value = [value] if level % 2 else {"a": value}
        return {"user": tup["user"], "value": value}

    run = write(server, rows(("a", 3), ("b", 180), ("c", 181), ("d", 300)), map=nested,
                on_bad="stream")  # fmt: skip
    assert [document["user"] for document in server.values("clicks")] == ["a", "b"]
    assert ["more than 180 levels" in emitted[1] for emitted in run.emitted] == [True, True]


def test_a_collection_by_tuple_and_tuples_that_are_skipped(server: MongoServer) -> None:
    bolt = MongoBolt(server.url, "d", lambda tup: f"u-{tup['user']}" if tup["n"] else None)
    run_bolt(bolt, batches=[rows(("bob", 1), ("ann", 1), ("eve", 0), ("bob", 2))])
    assert {name: len(there) for name, there in server.collections.items()} == {
        "u-ann": 1,
        "u-bob": 2,
    }


def test_values_of_python_are_written_as_bson_has_them(server: MongoServer) -> None:
    number = UUID(int=7)
    values = {"d": date(2026, 1, 2), "x": Decimal("1.5"), "s": {1}, "u": number, "t": (1, 2)}
    write(server, rows(("ann", 1)), map=lambda tup: values)
    ((document),) = server.values("clicks")
    del document["_id"]
    assert document == {
        "d": datetime(2026, 1, 2),
        "x": bson.Decimal128("1.5"),
        "s": [1],
        "u": bson.Binary.from_uuid(number),
        "t": [1, 2],
    }


@pytest.mark.parametrize("mode", ["upsert", "insert"])
def test_documents_that_are_refused_are_rejected_alone(server: MongoServer, mode: str) -> None:
    server.unique = "n"
    tuples = rows(("a", 1), ("b", "x"), ("", 3), ("c", 1), ("d", 2**70), ("e", 5), ("f", object()))
    run = write(server, tuples, id="user", mode=mode, on_bad="stream")
    assert users(server) == {"a": 1, "e": 5}
    assert sorted(emitted[1] for emitted in run.emitted) == [
        "OverflowError: integers of BSON have 64 bits",
        "TypeError: BSON has nothing for a object",
        "ValueError: Document failed validation",
        "ValueError: a document without an id",
        "ValueError: n",  # of another document, as scripted
    ]
    with pytest.raises(ValueError, match="failed validation"):
        write(server, rows(("b", "x")))


@pytest.mark.parametrize("mode", ["upsert", "insert", "update", "delete"])
def test_an_id_is_no_query_for_other_documents(server: MongoServer, mode: str) -> None:
    ids = ({"$gt": ""}, {"$ne": 1}, re.compile("a"), bson.Regex("a"), bson.DBRef("a", 1), [1], (1,))
    run = write(server, rows(*((number, 1) for number in ids)), id="user", mode=mode,
                on_bad="stream")  # fmt: skip
    assert len(run.emitted) == len(ids)
    assert run.emitted[0][1] == "ValueError: an id that asks for documents: {'$gt': ''}"
    assert server.requests == []


@pytest.mark.parametrize(
    "name", ["", "a$b", ".a", "a.", "a..b", "a\0b", "\ud800", "system.users", 5]
)
def test_a_name_of_a_tuple_that_no_collection_has_is_rejected_alone(
    server: MongoServer, name: Any
) -> None:
    bolt = MongoBolt(server.url, "d", lambda tup: name if tup["n"] else "a.b", on_bad="stream")
    run = run_bolt(bolt, batches=[rows(("ann", 0), ("bob", 1), ("eve", 0))])
    assert len(server.values("a.b")) == 2
    assert ["is no name of a collection" in emitted[1] for emitted in run.emitted] == [True]


def test_those_that_are_not_taken_for_now_are_written_again(server: MongoServer) -> None:
    server.busy = 2
    write(server, rows(*((f"u{n}", n) for n in range(5))), id="user", mode="insert")
    assert len(users(server)) == 5
    assert server.requests == [5, 2]
    server.busy = 1
    write(server, rows(("u0", 7), ("u0", 8), ("u1", 9)), id="user")
    assert [users(server)[user] for user in ("u0", "u1")] == [8, 9]  # in their order
    server.busy = 1000
    with pytest.raises(Unavailable, match="2 documents are not taken: WriteConflict"):
        write(server, rows(("x", 1), ("y", 2)), id="user", mode="insert", retry_secs=0.15)


def test_what_a_majority_has_not_confirmed_is_written_again(server: MongoServer) -> None:
    concern = {"code": 64, "errmsg": "waiting for replication timed out"}
    server.answers["update"] = lambda command: {
        "ok": 1,
        "n": 1,
        "nModified": 1,
        "writeConcernError": concern,
    }
    with pytest.raises(Unavailable, match="1 documents are not taken: waiting for replication"):
        write(server, rows(("a", 1)), id="user", retry_secs=0.05)


def test_many_documents_go_in_several_requests(server: MongoServer) -> None:
    write(server, rows(*((f"u{n}", n) for n in range(2_500))), guarantee="exactly_once")
    assert server.requests == [1_000, 1_000, 500]
    with pytest.raises(ValueError, match="MongoDB takes 16,777,216"):
        write(server, rows(("x" * (16 << 20), 1)))


@pytest.mark.parametrize(("mode", "seed"), [("upsert", 0), ("insert", 1)])
def test_exactly_once_though_batches_are_rolled_back_and_answers_are_lost(
    server: MongoServer, mode: str, seed: int
) -> None:
    class Sink(RollsBack, MongoBolt):
        pass

    server.answers_then = 3
    sink = Sink(server.url, "d", "all", mode=mode, guarantee="exactly_once",
                map=lambda tup: {"n": tup[0]})  # fmt: skip
    numbers = committed_numbers(sink, seed)
    assert sorted(document["n"] for document in server.values("all")) == sorted(numbers)
    assert len(numbers) < len(Once.given)  # the control: there were batches that are not to be seen


def test_a_server_that_is_away(server: MongoServer) -> None:
    server.answers["update"] = lambda command: failed(189, "a primary stepped down")
    with pytest.raises(Unavailable, match="a primary stepped down"):
        write(server, rows(("a", 1)), id="user", retry_secs=0.15)
    run = write(server, rows(("a", 1)), id="user", guarantee="none")
    assert run.emitted == []
    away = MongoBolt("mongodb://ann:s3cret@127.0.0.1:1/?serverSelectionTimeoutMS=50", "d", "c",
                     retry_secs=0.01)  # fmt: skip
    with pytest.raises(Unavailable, match="refused") as caught:
        run_bolt(away, batches=[rows(("a", 1))])
    assert "ann:***@127.0.0.1" in caught.value.message
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("code", [13, 18])
def test_access_that_is_refused_is_no_outage(server: MongoServer, code: int) -> None:
    server.answers["update"] = lambda command: failed(code, "not authorized on d")
    with pytest.raises(ComponentError, match="not authorized on d") as caught:
        write(server, rows(("a", 1)))
    assert "authSource" in str(caught.value.hint)


def test_a_certificate_of_an_authority_of_ones_own(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    server = MongoServer(context)
    url = f"{server.url}/?serverSelectionTimeoutMS=500"
    try:
        for tls in ({"ca": str(tmp_path / "ca.pem")}, {"check": False}):
            bolt = MongoBolt(url, "d", "clicks", id="user", tls=tls)
            run_bolt(bolt, batches=[rows(("ann", 1))])
            assert server.collections.pop("clicks")
        with pytest.raises(ComponentError, match="certificate is refused") as caught:
            run_bolt(MongoBolt(url, "d", "clicks", tls={}), batches=[rows(("ann", 1))])
        assert "names the authority" in str(caught.value.hint)
    finally:
        server.close()
    with pytest.raises(ComponentError, match=r"the files of tls=.* cannot be used"):
        run_bolt(MongoBolt(url, "d", "c", tls={"ca": "/nowhere.pem"}), batches=[rows(("a", 1))])


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://ann:se/cret@127.0.0.1:1/",
        "mongodb://127.0.0.1:port/?tlsCertificateKeyFilePassword=se/cret",
    ],
)
def test_a_url_that_the_client_refuses_is_not_repeated(url: str) -> None:
    with pytest.raises(ComponentError, match="the URL or settings= cannot be read") as caught:
        run_bolt(MongoBolt(Secret(url), "d", "c"), batches=[rows(("a", 1))])
    assert "cret" not in f"{caught.value} {caught.value.__cause__}".replace("Secret", "")
    assert "quote_plus" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"mode": "replace"}, "mode='replace'"),
        ({"mode": "delete"}, "mode='delete' of which document"),
        ({"version": "n", "mode": "update", "id": "u"}, "version= goes with mode='upsert'"),
        ({"guarantee": "by_batch"}, "is not to be had"),
        ({"url": "http://h"}, "url='http://h'"),
        ({"url": "http://u:pw@h"}, "url='http://u:***@h'"),
        ({"collection": ""}, "collection=''"),
        ({"collection": "a..b"}, "collection='a..b' is no name of a collection"),
        ({"database": ""}, "database=''"),
        ({"database": "a.b"}, "database='a.b' is no name of a database"),
        ({"tls": {"key": "k"}}, "wants the key in the certificate's file"),
        ({"tls": {"cacert": "k"}}, "tls has no 'cacert'"),
        ({"settings": {"tlsCAFile": "f"}}, "the connector sets it"),
        ({"settings": {"password": "pw"}}, "is in the open"),
        ({"uri": "mongodb://h"}, "it is called url="),
    ],
)
def test_what_a_sink_cannot_mean(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ComponentError) as caught:
        MongoBolt(**{"url": URL, "database": "d", "collection": "c", **more})
    assert words in caught.value.message
    assert "pw" not in str(caught.value)


# -- the source ---------------------------------------------------------------------------------


def started(cluster: TestCluster, spout: MongoChanges) -> SteppedRun:
    builder = TopologyBuilder()
    builder.set_spout("s", spout)
    builder.set_bolt("b", Keeps()).shuffle_grouping("s")
    run: SteppedRun = cluster.submit_topology("t", builder.create_topology())
    return run


def changes(server: MongoServer, *collections: str, **more: Any) -> MongoChanges:
    more = {"poll_secs": 0.01, "start": datetime(2020, 1, 1, tzinfo=UTC), **more}
    return MongoChanges(server.url, "d", collections, **more)


def on(run: Any, stream: str) -> list[Any]:
    return [list(emitted) for emitted in run.emitted if emitted.stream == stream]


def test_every_kind_of_change_of_a_collection(server: MongoServer) -> None:
    server.insert("a", {"_id": 1, "n": 1})
    server.insert("b", {"_id": 1, "n": 9})
    run_bolt(MongoBolt(server.url, "d", "a", id="user", mode="update"), batches=[rows((1, 2))])
    run_bolt(MongoBolt(server.url, "d", "a", id="user"), batches=[rows((1, 3))])
    run_bolt(MongoBolt(server.url, "d", "a", id="user", mode="delete"), batches=[rows((1, 0))])
    server.change("drop", "a")
    server.change("invalidate", "a")
    server.insert("a", {"_id": 2, "n": 4})
    spout = changes(server, "a", fields=("op", "collection", "key", "after"))
    with TestCluster() as cluster:
        run = started(cluster, spout)
        moved_until(cluster, lambda: len(run.tuples("s")) == 6)
        assert run.tuples("s") == [
            ["insert", "a", 1, {"_id": 1, "n": 1}],
            ["update", "a", 1, {"_id": 1, "user": 1, "n": 2}],
            ["replace", "a", 1, {"_id": 1, "user": 1, "n": 3}],
            ["delete", "a", 1, None],
            ["drop", "a", None, None],
            ["insert", "a", 2, {"_id": 2, "n": 4}],  # of the collection that was made anew
        ]
    assert server.opened[1]["startAfter"] == {"_data": "000007"}


def test_a_pipeline_that_leaves_out_the_end_of_a_collection_does_not_end_the_reading(
    server: MongoServer,
) -> None:
    server.insert("a", {"_id": 1, "n": 1})
    pipeline = [{"$match": {"operationType": {"$in": ["insert"]}}}]
    with TestCluster() as cluster:
        run = started(cluster, changes(server, "a", fields="n", pipeline=pipeline))
        moved_until(cluster, lambda: run.tuples("s"))
        server.change("drop", "a")
        server.change("invalidate", "a")
        cluster.advance(1)
        server.insert("a", {"_id": 2, "n": 2})
        moved_until(cluster, lambda: len(run.tuples("s")) == 2)
    assert server.opened[-1]["startAfter"] == {"_data": "000003"}


def test_a_pipeline_leaves_out_what_it_likes_but_the_token(server: MongoServer) -> None:
    server.insert("a", {"_id": 1, "n": 1})
    pipeline = [{"$project": {"fullDocument": 1}}]
    names = ("op", "collection", "key", "after", "at")
    (row,) = run_spout(changes(server, "a", fields=names, pipeline=pipeline), calls=2).emitted
    assert list(row) == ["", "", None, {"_id": 1, "n": 1}, None]


def test_parts_of_a_change_and_the_collections_of_a_database(server: MongoServer) -> None:
    for name in ("a", "b", "c"):
        server.insert(name, {"_id": 1, "n": 1})
    server.change("update", "b", 1, fullDocument={"_id": 1}, fullDocumentBeforeChange={"n": 1},
                  updateDescription={"updatedFields": {}, "removedFields": ["n"]})  # fmt: skip
    names = ("collection", "before", "update", "at")
    spout = changes(server, "a", "b", fields=names, full_document_before_change="whenAvailable")
    emitted = run_spout(spout, calls=3).emitted
    assert [list(row)[:1] for row in emitted] == [["a"], ["b"], ["b"]]
    assert list(emitted[-1]) == [
        "b",
        {"n": 1},
        {"updatedFields": {}, "removedFields": ["n"]},
        datetime.fromtimestamp(1_700_000_004, UTC),
    ]
    assert emitted[-1][3].tzinfo is UTC
    assert server.opened[0]["fullDocumentBeforeChange"] == "whenAvailable"
    assert [row[0] for row in run_spout(changes(server, fields="collection"), calls=3).emitted] == [
        "a", "b", "c", "b",
    ]  # fmt: skip


def test_types_of_bson_are_plain_values_unless_they_are_wanted(server: MongoServer) -> None:
    key = bson.ObjectId()
    given = {
        "_id": key,
        "x": [bson.Decimal128("1.5"), bson.Int64(3)],
        "at": {"t": bson.Timestamp(10, 1)},
        "far": bson.DatetimeMS(2**60),
        "u": bson.Binary.from_uuid(UUID(int=7)),
        "b": bson.Binary(b"x", 5),
    }
    server.insert("a", given)
    names = ("_id", "x", "at", "far", "u", "b")
    (row,) = run_spout(changes(server, "a", fields=names), calls=2).emitted
    assert list(row) == [
        str(key), [Decimal("1.5"), 3], {"t": datetime.fromtimestamp(10, UTC)}, 2**60, UUID(int=7),
        b"x",
    ]  # fmt: skip
    assert [type(each) for each in row[1]] == [Decimal, int]
    assert type(row[5]) is bytes
    (row,) = run_spout(changes(server, "a", fields=names, plain=False), calls=2).emitted
    assert list(row)[:2] == [key, given["x"]]


def test_a_document_that_is_damaged_is_a_bad_record_alone(server: MongoServer) -> None:
    server.insert(
        "a", {"_id": 1, "text": "good"}, {"_id": 2, "text": "odd_"}, {"_id": 3, "text": ""}
    )
    entire = bson.encode

    def damaged(*args: Any, **more: Any) -> bytes:
        return bytes(entire(*args, **more)).replace(b"odd_", b"od\xff_")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bson, "encode", damaged)
        run = run_spout(changes(server, "a", fields="text", on_bad="stream"), calls=2)
    assert [row[0] for row in on(run, "default")] == ["good", ""]
    ((raw, error, where),) = on(run, "bad")
    assert b"od\xff_" in raw
    assert error.startswith("InvalidBSON")
    assert where == "d.a at 000002"


def test_latest_is_the_moment_of_the_first_start(server: MongoServer) -> None:
    server.insert("a", {"_id": 0, "n": 0})
    with TestCluster() as cluster:
        run = started(cluster, changes(server, "a", start="latest", fields="n"))
        moved_until(cluster, lambda: server.opened)
        cluster.advance(1)
        run.restart()
        server.insert("a", {"_id": 1, "n": 1})  # while nobody looks
        moved_until(cluster, lambda: run.tuples("s"))
        assert run.tuples("s") == [[1]]
    assert "startAfter" in server.opened[-1]


def test_a_cursor_or_connection_that_is_lost_repeats_nothing(server: MongoServer) -> None:
    with TestCluster() as cluster:
        run = started(cluster, changes(server, "a", fields="n", page=2))
        for number in range(12):
            server.insert("a", {"_id": number, "n": number})
            cluster.advance(0.05)
            if number == 5:
                server.drop_connections()
        moved_until(cluster, lambda: len(run.tuples("s")) == 12, 0.5)
        assert run.tuples("s") == [[number] for number in range(12)]
        assert counters(run)["changes"] == 12


def test_a_quiet_collection_keeps_its_place_in_the_log(server: MongoServer) -> None:
    server.insert("a", {"_id": 1, "n": 1})
    with TestCluster() as cluster:
        run = started(cluster, changes(server, "a", fields="n"))
        moved_until(cluster, lambda: run.tuples("s"))
        for number in range(50):
            server.insert("other", {"_id": number})
        cluster.advance(61)
        cluster.advance(1)
        server.forgotten = 40
        run.restart()
        server.insert("a", {"_id": 2, "n": 2})
        moved_until(cluster, lambda: len(run.tuples("s")) == 2)


@pytest.mark.parametrize(
    ("answer", "words", "hint"),
    [
        (failed(286, "gone"), "are gone from the oplog", "fresh checkpoint"),
        (failed(40573, "only supported on replica sets"), "replica sets", "rs.initiate"),
        (failed(18, "Authentication failed."), "Authentication failed", "authSource"),
        (failed(9, "unknown stage"), "unknown stage", ""),
    ],
)
def test_what_no_waiting_mends(
    server: MongoServer, answer: dict[str, Any], words: str, hint: str
) -> None:
    server.answers["aggregate"] = lambda command: answer
    with pytest.raises(ComponentError, match=words) as caught:
        run_spout(changes(server, "a"))
    assert hint in str(caught.value.hint)


def test_translate_is_given_the_change(server: MongoServer) -> None:
    server.insert("a", {"_id": 1, "n": 1}, {"_id": 2, "n": 2})
    seen: list[Change] = []

    def translate(change: Change) -> Any:
        seen.append(change)
        return None if change.key == 1 else ("others", [change.after["n"]])  # type: ignore[index]

    spout = changes(server, "a", fields="n", translate=translate, streams={"others": "n"})
    run = run_spout(spout, calls=2)
    assert on(run, "others") == [[2]]
    assert [change.op for change in seen] == ["insert", "insert"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"start": "earliest"}, "start='earliest'"),
        ({"full_document": "always"}, "full_document='always'"),
        ({"full_document_before_change": "updateLookup"}, "full_document_before_change="),
        ({"collection": "a"}, "it is called collections="),
        ({"page": 0}, "page=0"),
        ({"start": datetime(1960, 1, 1)}, "begin in 1970"),
        ({"database": ""}, "database=''"),
        ({"database": "a.b"}, "database='a.b' is no name of a database"),
        ({"url": "h:27017"}, "url='h:27017'"),
    ],
)
def test_what_a_source_cannot_mean(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ComponentError) as caught:
        MongoChanges(**{"url": URL, "database": "d", **more})
    assert words in caught.value.message
