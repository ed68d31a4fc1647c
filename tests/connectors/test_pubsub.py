"""PubSubSpout and PubSubBolt with their client, against a server that plays Pub/Sub over gRPC."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.moving import Once, RollsBack, Told, committed_numbers, counters, moved_until
from tests.connectors.scripted_pubsub import PubSubServer, failing
from topo import Bolt, ComponentError, TopologyBuilder, Tuple, Unavailable
from topo.connectors import Secret
from topo.connectors.pubsub import Message, PubSubBolt, PubSubSpout
from topo.connectors.pubsub.spout import Subscriber
from topo.connectors.retries import Backoff
from topo.testing import TestCluster, make_tuple, run_bolt, run_spout
from topo.testing.cluster import SteppedRun

TOPIC, SUBSCRIPTION = "projects/p/topics/t", "projects/p/subscriptions/t"


@pytest.fixture
def server() -> Iterator[PubSubServer]:
    server = PubSubServer()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def fails() -> Iterator[dict[Any, int]]:
    Told.fails.clear()
    yield Told.fails
    Told.fails.clear()


# -- the source ---------------------------------------------------------------------------------


def spout(server: PubSubServer, **more: Any) -> PubSubSpout:
    return PubSubSpout(SUBSCRIPTION, emulator=server.emulator, **{"fields": "n", **more})


def numbers(*values: int) -> list[bytes]:
    return [b'{"n": %d}' % number for number in values]


def started(
    cluster: TestCluster, source: PubSubSpout, bolt: type[Bolt] = Told, conf: Any = None
) -> SteppedRun:
    builder = TopologyBuilder()
    builder.set_spout("s", source)
    builder.set_bolt("b", bolt()).shuffle_grouping("s")
    run: SteppedRun = cluster.submit_topology("t", builder.create_topology(), conf)
    return run


def test_a_message_is_acknowledged_once_its_tree_is_acked(server: PubSubServer) -> None:
    server.write(*numbers(0, 1), key="k", a="b")
    parts = ("id", "key", "attempt", "published", "attributes", "value")
    with TestCluster() as cluster:
        run = started(cluster, spout(server, fields=parts))
        moved_until(cluster, lambda: not server.values())
        assert run.tuples("s") == [
            [str(n + 1), "k", 1, datetime.fromtimestamp(1_700_000_000, UTC), {"a": "b"}, {"n": n}]
            for n in range(2)
        ]
        server.write(*numbers(2))
        moved_until(cluster, lambda: not server.values())
        assert counters(run)["messages"] == 3


class Waits(Bolt):
    """Acks nothing."""

    def execute(self, tup: Tuple) -> None:
        pass


def test_the_lease_of_what_is_in_flight_is_extended(server: PubSubServer) -> None:
    server.write(*numbers(0, 1))
    with TestCluster() as cluster:
        run = started(cluster, spout(server, lease_secs=20), Waits)
        moved_until(cluster, lambda: run.pending == 2)
        # The subscription may have lent them for less.
        assert server.extended == [("handle-1", 20), ("handle-2", 20)]
        for _ in range(22):
            cluster.advance(1)
        assert server.extended[2:4] == [("handle-1", 20), ("handle-2", 20)]
        assert len(server.extended) == 6
        run.restart()
        cluster.advance(0.1)
        assert sorted(set(server.extended[6:])) == [("handle-1", 20), ("handle-2", 20)]
        assert len(run.tuples("s")) == 2


def test_leases_are_extended_while_the_spout_is_at_its_limit(server: PubSubServer) -> None:
    server.write(*numbers(0, 1, 2))
    with TestCluster() as cluster:
        limit = {"topology.max.spout.pending": 2}
        run = started(cluster, spout(server, lease_secs=20), Waits, limit)
        moved_until(cluster, lambda: run.pending == 2)
        before = len(server.extended)
        for _ in range(22):
            cluster.advance(1)
        assert server.extended[before:] == [("handle-1", 20), ("handle-2", 20)] * 2
        run.deactivate()
        for _ in range(12):
            cluster.advance(1)
        assert len(server.extended) == before + 6


def test_what_has_come_is_emitted_though_its_lease_cannot_be_extended(server: PubSubServer) -> None:
    server.fails["ModifyAckDeadline"] = failing("UNAVAILABLE", "not now")
    server.write(*numbers(0))
    with TestCluster() as cluster:
        run = started(cluster, spout(server))
        moved_until(cluster, lambda: not server.values())
        assert run.tuples("s") == [[0]]


def test_no_more_is_lent_than_may_be_in_flight(server: PubSubServer) -> None:
    server.write(*numbers(*range(9)))
    with TestCluster() as cluster:
        run = started(cluster, spout(server, max_in_flight=4), Waits)
        moved_until(cluster, lambda: run.pending == 4)
        for _ in range(5):
            cluster.advance(0.1)
        assert (run.pending, server.lent()) == (4, 4)


def test_what_is_given_up_goes_back_and_is_buried_by_the_subscription(
    server: PubSubServer, fails: dict[Any, int]
) -> None:
    fails[1] = 1_000
    server.dead_after = 2
    server.write(*numbers(0, 1, 2))
    with TestCluster() as cluster:
        run = started(cluster, spout(server, retry=Backoff(retries=1)))
        moved_until(cluster, lambda: server.dead, 0.1)
        assert [each.message.data for each in server.dead] == numbers(1)
        assert [row[0] for row in run.tuples("s")].count(1) == 4  # twice, two times
        moved_until(cluster, lambda: not server.values())
        assert counters(run)["dead"] == 2


class RollsBackOnce(Bolt):
    """Rolls its first batch back, after the spout has emitted."""

    left = 1

    def execute(self, tup: Tuple) -> None:
        self.ack(tup)

    def pre_commit(self, batch_id: int) -> None:
        if RollsBackOnce.left and batch_id > 1:
            RollsBackOnce.left -= 1
            raise Unavailable("now", after_secs=0)


def test_what_was_received_in_a_batch_that_is_rolled_back_comes_again_at_once(
    server: PubSubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RollsBackOnce, "left", 1)
    with TestCluster() as cluster:
        run = started(cluster, spout(server), RollsBackOnce)
        cluster.advance(0.1)
        server.write(*numbers(0, 1, 2))
        moved_until(cluster, lambda: not server.values())
        assert RollsBackOnce.left == 0
        assert sorted(row[0] for row in run.tuples("s")) == [0, 0, 1, 1, 2, 2]  # of both attempts
        assert {handle for handle, secs in server.extended if secs == 0} == {
            "handle-1",
            "handle-2",
            "handle-3",
        }


def test_what_has_come_and_is_not_looked_for_goes_back(server: PubSubServer) -> None:
    has_come = threading.Event()
    access = {"emulator": server.emulator, "endpoint": None, "credentials": None}
    subscriber = Subscriber(SUBSCRIPTION, has_come.set, **access)
    assert subscriber.pulled(10) == ()
    server.write(*numbers(0))
    assert has_come.wait(10)
    assert server.lent() == 1
    subscriber.close()
    assert server.lent() == 0


def test_one_that_is_deactivated_leaves_what_comes_to_others(server: PubSubServer) -> None:
    with TestCluster() as cluster:
        run = started(cluster, spout(server))
        moved_until(cluster, lambda: server.open_pulls == 1)
        run.deactivate()
        moved_until(cluster, lambda: server.open_pulls == 0)
        server.write(*numbers(0))
        assert server.lent() == 0
        run.activate()
        moved_until(cluster, lambda: run.tuples("s"))


def test_bad_messages_are_counted_and_acknowledged(server: PubSubServer) -> None:
    server.write(b"{", *numbers(1))
    with TestCluster() as cluster:
        run = started(cluster, spout(server, on_bad="skip"))
        moved_until(cluster, lambda: not server.values())
        assert run.tuples("s") == [[1]]
        assert counters(run)["bad_records"] == 1


def refuse(server: PubSubServer, method: str, answer: str) -> None:
    """Have a method answer once for its first handle, as with exactly-once delivery."""
    from google.protobuf import any_pb2
    from google.rpc import error_details_pb2, status_pb2
    from grpc_status import rpc_status

    def refuses(request: Any, context: Any) -> None:
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.ErrorInfo(metadata={request.ack_ids[0]: answer}))
        del server.fails[method]
        status = status_pb2.Status(code=9, message="some were not acked", details=[detail])
        context.abort_with_status(rpc_status.to_status(status))

    server.fails[method] = refuses


def test_the_lease_of_what_has_expired_meanwhile_is_no_error(server: PubSubServer) -> None:
    refuse(server, "ModifyAckDeadline", "PERMANENT_FAILURE_INVALID_ACK_ID")
    server.write(*numbers(0))
    with TestCluster() as cluster:
        run = started(cluster, spout(server), Waits)
        moved_until(cluster, lambda: "ModifyAckDeadline" not in server.fails, 1)
        server.expire(["handle-1"])
        moved_until(cluster, lambda: len(run.tuples("s")) == 2, 0.1)


@pytest.mark.parametrize(("answer", "expired"), [("PERMANENT_FAILURE_INVALID_ACK_ID", 1),
                                                 ("TRANSIENT_FAILURE_OTHER", 0)])  # fmt: skip
def test_handles_that_exactly_once_delivery_refuses(
    server: PubSubServer, answer: str, expired: int
) -> None:
    refuse(server, "Acknowledge", answer)
    server.write(*numbers(0))
    with TestCluster() as cluster:
        run = started(cluster, spout(server))
        moved_until(cluster, lambda: "Acknowledge" not in server.fails, 0.1)
        if expired:
            server.expire(["handle-1"])  # it comes again
        moved_until(cluster, lambda: not server.values(), 0.1)
        assert len(run.tuples("s")) == 1 + expired
        assert counters(run).get("expired", 0) == expired


def test_a_service_that_is_away_is_asked_again(server: PubSubServer) -> None:
    server.fails["Pull"] = failing("UNAVAILABLE", "not now")
    server.write(*numbers(0))
    with TestCluster() as cluster:
        run = started(cluster, spout(server))
        moved_until(cluster, lambda: run.status == "STALLED", 0.1)
        assert "not now" in run.reason
        del server.fails["Pull"]
        moved_until(cluster, lambda: not server.values(), 0.5)


@pytest.mark.parametrize(
    ("code", "hint"),
    [("NOT_FOUND", "made beforehand"), ("PERMISSION_DENIED", "roles/pubsub.subscriber")],
)
def test_what_no_waiting_mends(server: PubSubServer, code: str, hint: str) -> None:
    server.fails["Pull"] = failing(code, "as scripted")
    source = spout(server)
    run = run_spout(source)
    with pytest.raises(ComponentError, match="as scripted") as caught:
        run.next(10_000_000)
    assert hint in str(caught.value.hint)
    source.close()


def test_translate_is_given_the_message_and_the_emulator_is_in_the_environment(
    server: PubSubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.emulator)
    server.write(b"x", source="web")

    def translate(message: Message) -> Any:
        return [message.attributes["source"], message.value]

    source = PubSubSpout(SUBSCRIPTION, value="str", fields=("a", "b"), translate=translate)
    run = run_spout(source)
    while not run.emitted:
        run.next()
    assert list(run.emitted[0]) == ["web", "x"]
    source.close()


def test_credentials_that_cannot_be_used_are_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text("{}")
    for credentials in (Secret('{"private_key": "s3cret"'), str(tmp_path / "key.json")):
        source = PubSubSpout(SUBSCRIPTION, credentials=credentials)
        with pytest.raises(ComponentError, match="the credentials cannot be used") as caught:
            run_spout(source)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"subscription": "orders"}, "it is projects/PROJECT/subscriptions/NAME"),
        ({"lease_secs": 5}, "lease_secs=5; Pub/Sub has 10 to 600"),
        ({"emulator": "http://h:1"}, "emulator='http://h:1'"),
        ({"credentials": '{"private_key": "s3cret"}'}, "credentials are in the open"),
        ({"credentials": {"private_key": "s3cret"}}, "credentials are a dict"),
        ({"max_messages": 3}, "it is called max_in_flight="),
    ],
)
def test_what_a_source_cannot_mean(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ComponentError) as caught:
        PubSubSpout(**{"subscription": SUBSCRIPTION, **more})
    assert words in caught.value.message
    assert "s3cret" not in str(caught.value)


# -- the sink -----------------------------------------------------------------------------------


def rows(*values: Any) -> list[Tuple]:
    return [make_tuple({"user": user, "n": n}) for user, n in values]


def write(server: PubSubServer, *batches: list[Tuple], **more: Any) -> Any:
    more = {"emulator": server.emulator, "retry_secs": 5.0, **more}
    return run_bolt(PubSubBolt(more.pop("topic", TOPIC), **more), batches=list(batches))


def test_messages_with_attributes_and_topics_by_tuple(server: PubSubServer) -> None:
    write(server, rows(("ann", 1), ("bob", 2), ("eve", 0)), attributes=lambda tup: {"u": tup[0]},
          topic=lambda tup: f"projects/p/topics/{tup[0]}" if tup[1] else None)  # fmt: skip
    assert {name: [json.loads(value)["n"] for value in server.values(name)]
            for name in server.messages} == {"ann": [1], "bob": [2]}  # fmt: skip
    assert dict(server.messages["ann"][0].message.attributes) == {"u": "ann"}


def test_messages_of_a_key_stay_in_order_and_have_their_own_requests(server: PubSubServer) -> None:
    given = [("ann", 1), ("bob", 2), ("ann", 3), ("bob", 4), ("ann", 5)]
    server.loses_answer = 1
    write(server, rows(*given), key="user", value="str", map=lambda tup: tup["n"])
    assert all(len({key for key, _ in request}) == 1 for request in server.requests)
    by_key = {key: [value for _, value in request] for request in server.requests
              for key in [request[0][0]]}  # fmt: skip
    assert by_key == {"ann": [b"1", b"3", b"5"], "bob": [b"2", b"4"]}
    assert len(server.requests) == 3  # the one whose answer was lost came again, and no other


def test_many_messages_go_in_several_requests(server: PubSubServer) -> None:
    write(server, rows(*(("u", n) for n in range(1_500))))
    assert sorted(map(len, server.requests)) == [500, 1_000]
    assert [json.loads(value)["n"] for value in server.values()] == [*range(1_500)]


def test_messages_that_are_refused_are_rejected_alone(server: PubSubServer) -> None:
    def schema(request: Any, context: Any) -> None:
        if any(b"x" in each.data for each in request.messages):
            failing("INVALID_ARGUMENT", "it does not fit the schema")(request, context)

    server.fails["Publish"] = schema
    tuples = [*rows(*((n, n) for n in range(5))), *rows(("x", 1), ({1, 2}, object()), (6, 6))]
    run = write(server, tuples, value="str", map=lambda tup: json.dumps(tup["user"]),
                on_bad="stream")  # fmt: skip
    assert server.values() == [b"0", b"1", b"2", b"3", b"4", b"6"]
    assert [emitted[1].partition(":")[0] for emitted in run.emitted] == ["TypeError", "ValueError"]
    assert "does not fit the schema" in run.emitted[1][1]
    for more, words in (
        ({"attributes": lambda tup: {"n": 1}}, "attributes are texts"),
        ({"value": "bytes", "map": lambda tup: b""}, "without a value"),
        ({"value": "bytes", "map": lambda tup: bytes(10**7)}, "are the most"),
    ):
        with pytest.raises(ValueError, match=words):
            write(server, rows(("a", 1)), **more)


def test_what_is_refused_beside_a_request_that_fails_is_rejected_once(
    server: PubSubServer,
) -> None:
    is_away = True

    def schema(request: Any, context: Any) -> None:
        nonlocal is_away
        if any(each.data == b"x" for each in request.messages):
            failing("INVALID_ARGUMENT", "it does not fit the schema")(request, context)
        if server.requests and is_away:
            is_away = False
            failing("UNAVAILABLE", "not now")(request, context)

    server.fails["Publish"] = schema
    run = write(server, rows(("x", 1), ("a", 1), ("b", 1), ("c", 1)), value="str",
                map=lambda tup: tup["user"], on_bad="stream")  # fmt: skip
    assert not is_away
    assert server.values() == [b"a", b"b", b"c"]
    assert len(run.emitted) == 1


def test_what_is_published_after_the_commit_bears_the_same_id_twice(server: PubSubServer) -> None:
    class Sink(RollsBack, PubSubBolt):
        pass

    server.loses_answer = 1
    sink = Sink(TOPIC, emulator=server.emulator, after_commit=True, map=lambda tup: {"n": tup[0]})
    committed = committed_numbers(sink, 0)
    by_id = {each.message.attributes["topo_id"]: json.loads(each.message.data)["n"]
             for each in server.messages["t"]}  # fmt: skip
    assert sorted(by_id.values()) == sorted(committed)
    assert len(server.messages["t"]) > len(by_id)  # the control: some came twice
    assert len(committed) < len(Once.given)


def test_a_service_that_is_away(server: PubSubServer) -> None:
    server.fails["Publish"] = failing("UNAVAILABLE", "not now")
    with pytest.raises(Unavailable, match="not now; 1 messages are not published"):
        write(server, rows(("a", 1)), retry_secs=0.05)
    assert write(server, rows(("a", 1)), guarantee="none").emitted == []
    server.fails["Publish"] = failing("NOT_FOUND", "no such topic")
    with pytest.raises(ComponentError, match="no such topic"):
        write(server, rows(("a", 1)))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"topic": "t"}, "it is projects/PROJECT/topics/NAME"),
        ({"topic": "projects/p/topics/\ud800"}, "it is projects/PROJECT/topics/NAME"),
        ({"guarantee": "exactly_once"}, "is not to be had"),
        ({"after_commit": True, "guarantee": "none"}, "after_commit=True with guarantee='none'"),
        ({"ordering_key": "user"}, "it is called key="),
        ({"value": "xml"}, "value='xml'"),
    ],
)
def test_what_a_sink_cannot_mean(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ComponentError) as caught:
        PubSubBolt(**{"topic": TOPIC, **more})
    assert words in caught.value.message
