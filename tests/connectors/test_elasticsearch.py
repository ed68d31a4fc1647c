"""ElasticsearchBolt against a server that answers bulk requests over HTTP, as scripted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.connectors.moving import Once, RollsBack, committed_numbers
from tests.connectors.scripted_elasticsearch import Elasticsearch
from topo import ComponentError, Tuple, Unavailable
from topo.connectors import Secret
from topo.connectors.elasticsearch import ElasticsearchBolt
from topo.testing import make_tuple, run_bolt


@pytest.fixture
def server() -> Iterator[Elasticsearch]:
    server = Elasticsearch()
    yield server
    server.close()


def rows(*values: Any) -> list[Tuple]:
    return [make_tuple({"user": user, "n": n}) for user, n in values]


def write(server: Elasticsearch, *batches: list[Tuple], **more: Any) -> Any:
    more = {"retry_secs": 5.0, **more}
    return run_bolt(ElasticsearchBolt(server.url, "clicks", **more), batches=list(batches))


def test_documents_by_id_replace_each_other(server: Elasticsearch) -> None:
    write(server, rows(("ann", 1), ("bob", 2)), rows(("ann", 3)), id="user")
    assert server.values("clicks") == [{"user": "ann", "n": 3}, {"user": "bob", "n": 2}]
    assert server.requests == [2, 1]


def test_of_versions_the_newest_stays_whatever_comes_last(server: Elasticsearch) -> None:
    more: dict[str, Any] = {"id": "user", "version": lambda tup: tup["n"]}
    run = write(server, rows(("ann", 5), ("ann", 3)), rows(("ann", 4), ("ann", 6)), **more)
    assert server.values("clicks") == [{"user": "ann", "n": 6}]
    assert run.emitted == []
    write(server, rows(("ann", 7)), mode="delete", **more)
    assert server.values("clicks") == []


def test_modes(server: Elasticsearch) -> None:
    write(server, rows(("ann", 1), ("ann", 2)), id="user", mode="create")
    assert server.values("clicks") == [{"user": "ann", "n": 1}]
    write(server, rows(("ann", 9), ("eve", 8)), id="user", mode="update",
          map=lambda tup: {"total": tup["n"]})  # fmt: skip
    assert server.values("clicks") == [{"user": "ann", "n": 1, "total": 9}, {"total": 8}]
    write(server, rows(("ann", 0), ("nobody", 0)), id="user", mode="delete")
    assert server.values("clicks") == [{"total": 8}]


def test_an_index_by_tuple_and_tuples_that_are_skipped(server: Elasticsearch) -> None:
    bolt = ElasticsearchBolt(server.url, lambda tup: f"u-{tup['user']}" if tup["n"] else None)
    run_bolt(bolt, batches=[rows(("ann", 1), ("bob", 0))])
    assert list(server.documents) == ["u-ann"]


def test_documents_that_are_refused_are_rejected_alone(server: Elasticsearch) -> None:
    run = write(server, rows(("a", 1), ("b", "x"), ("", 3), ("d", 4)), id="user", on_bad="stream")
    assert [document["n"] for document in server.values("clicks")] == [1, 4]
    errors = sorted(emitted[1] for emitted in run.emitted)
    assert errors == ["ValueError: a document without an id",
                      "ValueError: document_parsing_exception: as scripted"]  # fmt: skip
    with pytest.raises(ValueError, match="document_parsing_exception"):
        write(server, rows(("b", "x")))


def test_those_that_are_not_taken_for_now_are_sent_again(server: Elasticsearch) -> None:
    server.busy = 3
    write(server, rows(*((f"u{n}", n) for n in range(5))), id="user")
    assert len(server.values("clicks")) == 5
    assert server.requests == [5, 3]
    server.busy = 1000
    with pytest.raises(Unavailable, match="2 documents are not taken: es_rejected_execution"):
        write(server, rows(("x", 1), ("y", 2)), id="user", retry_secs=0.3)


def test_many_documents_go_in_several_requests(server: Elasticsearch) -> None:
    write(server, rows(*((f"u{n}", n) for n in range(2_500))), guarantee="exactly_once")
    assert server.requests == [1_000, 1_000, 500]
    server.requests.clear()
    write(server, rows(*(("x" * 2_000_000, n) for n in range(4))))
    assert server.requests == [2, 2]


@pytest.mark.parametrize("seed", range(2))
def test_exactly_once_though_batches_are_rolled_back_and_answers_are_lost(
    server: Elasticsearch, seed: int
) -> None:
    class Sink(RollsBack, ElasticsearchBolt):
        pass

    server.answers_then = 3
    sink = Sink(server.url, "all", guarantee="exactly_once", map=lambda tup: {"n": tup[0]})
    numbers = committed_numbers(sink, seed)
    assert sorted(document["n"] for document in server.values("all")) == sorted(numbers)
    assert len(numbers) < len(Once.given)  # the control: there were batches that are not to be seen


def test_a_cluster_that_is_away(server: Elasticsearch) -> None:
    server.status = 503
    with pytest.raises(Unavailable, match="HTTP 503"):
        write(server, rows(("a", 1)), retry_secs=0.3)
    run = write(server, rows(("a", 1)), guarantee="none")
    assert run.emitted == []
    with pytest.raises(Unavailable, match="refused"):
        run_bolt(ElasticsearchBolt("http://127.0.0.1:1", "i", retry_secs=0.1),
                 batches=[rows(("a", 1))])  # fmt: skip


def test_what_no_waiting_mends(server: Elasticsearch, monkeypatch: pytest.MonkeyPatch) -> None:
    server.makes_indexes = False
    with pytest.raises(ComponentError, match="there is no index 'clicks'"):
        write(server, rows(("a", 1)))
    server.makes_indexes, server.login = True, ("elastic", "s3cret")
    with pytest.raises(ComponentError, match=r"HTTP 401.*who are you"):
        write(server, rows(("a", 1)))
    monkeypatch.setenv("ES_PASSWORD", "s3cret")
    write(server, rows(("a", 1)), user="elastic", password=Secret.env("ES_PASSWORD"))
    assert len(server.values("clicks")) == 1
    with pytest.raises(ComponentError, match="HTTP 404"):
        run_bolt(ElasticsearchBolt(f"{server.url}/nowhere", "i", user="elastic",
                 password=Secret.env("ES_PASSWORD")), batches=[rows(("a", 1))])  # fmt: skip


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"mode": "upsert"}, "mode='upsert'"),
        ({"mode": "delete"}, "mode='delete' of which document"),
        ({"version": "n"}, "version= goes with id="),
        ({"version": "n", "id": "user", "mode": "create"}, "version= goes with id="),
        ({"user": "elastic"}, "user= and password= belong together"),
        ({"guarantee": "by_batch"}, "is not to be had"),
        ({"op_type": "create"}, "it is called mode="),
        ({"url": "ftp://h"}, "url='ftp://h'"),
        ({"index": ""}, "index=''"),
    ],
)
def test_what_cannot_be_meant(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ComponentError) as caught:
        ElasticsearchBolt(**{"url": "http://h", "index": "i", **more})
    assert words in caught.value.message
