"""The connectors of Kinesis and SQS against a server that plays them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet
import pytest

from tests.connectors.moving import RollsBack, committed_numbers
from tests.connectors.scripted_kafka import Keeps
from tests.connectors.test_redis_sources import Counts, counting
from tests.servers import aws
from tests.servers.aws import AwsServer
from tests.servers.processes import free_port
from tests.wiring import line
from topo import (
    ComponentError,
    Count,
    EventTime,
    TopologyBuilder,
    Tumbling,
    Tuple,
    Unavailable,
    WindowAggregate,
)
from topo.connectors.aws import KinesisBolt, KinesisSpout, SqsBolt, SqsSpout
from topo.connectors.files import FileBolt, FileSpout
from topo.testing import TestCluster, make_tuple, run_bolt, run_spout

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("servers")]


@pytest.fixture(scope="module")
def server() -> Iterator[AwsServer]:
    server = aws.start()
    yield server
    server.stop()


def numbers(count: int) -> list[Tuple]:
    return [make_tuple({"n": number}) for number in range(count)]


# -- Kinesis ------------------------------------------------------------------------------------


def test_every_record_of_every_shard_counts_once(server: AwsServer) -> None:
    stream = server.stream(shards=3)
    spout = KinesisSpout(stream, fields="n", page=7, poll_secs=0.01, **server.options)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", counting(spout, tasks=2))
        for part in range(4):
            tuples = [make_tuple({"n": f"{part}-{number}"}) for number in range(30)]
            run_bolt(KinesisBolt(stream, **server.options), batches=[tuples])
            cluster.advance(0.1)
            run.restart()
        for _ in range(60):
            cluster.advance(0.1)
        assert Counts.seen == {f"{part}-{n}": 1 for part in range(4) for n in range(30)}


@pytest.mark.parametrize("ackers", [0, 1])
def test_shards_in_order_of_time_are_not_late_for_each_other(
    server: AwsServer, ackers: int
) -> None:
    stream = server.stream(shards=4)
    client = server.client("kinesis")
    for start in range(0, 400, 100):
        records = [
            {"Data": b'{"at": %d}' % at, "PartitionKey": "k", "ExplicitHashKey": str(shard << 126)}
            for shard in range(4)
            for at in range(start, start + 100)
        ]
        client.put_records(StreamName=stream, Records=records)
    window = WindowAggregate(
        window=Tumbling(10), time=EventTime("at", lag=1), aggregates={"n": Count()}
    )
    builder = TopologyBuilder()
    spout = KinesisSpout(stream, fields="at", page=150, poll_secs=0.01, **server.options)
    builder.set_spout("s", spout)
    builder.set_bolt("w", window).global_grouping("s")
    with TestCluster() as cluster:
        conf = {"topology.acker.executors": ackers}
        run = cluster.submit_topology("t", builder.create_topology(), conf)
        for _ in range(40):
            cluster.advance(0.1)
        cluster.advance(20)
        run.settle()
        assert run.stats().components["w"].late == 0
        assert sum(row[-1] for row in run.tuples("w")) == 4 * 390


def test_children_are_read_after_their_parents(server: AwsServer) -> None:
    stream = server.stream()
    client = server.client("kinesis")
    client.put_records(
        StreamName=stream,
        Records=[{"Data": b"%d" % number, "PartitionKey": f"{number}"} for number in range(20)],
    )
    client.split_shard(
        StreamName=stream, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(1 << 127)
    )
    client.put_records(
        StreamName=stream,
        Records=[{"Data": b"%d" % number, "PartitionKey": f"{number}"} for number in range(20, 40)],
    )
    spout = KinesisSpout(stream, page=8, poll_secs=0.01, **server.options)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Keeps()))
        for _ in range(25):
            cluster.advance(0.1)
            run.restart()
        rows = run.tuples("s")
        values = [values[-1] for values in rows]
        assert values[:20] == list(range(20))
        assert sorted(values[20:]) == list(range(20, 40))
        assert {row[2]: row[4] for row in rows} == {str(number): number for number in range(40)}


def test_the_latest_and_what_cannot_be_read(server: AwsServer) -> None:
    stream = server.stream()
    client = server.client("kinesis")
    client.put_record(StreamName=stream, Data=b"1", PartitionKey="k")
    spout = KinesisSpout(
        stream,
        start="latest",
        fields="n",
        translate=lambda record: [record.value] if record.value != 3 else None,
        on_bad="stream",
        poll_secs=0.01,
        **server.options,
    )
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout))
        cluster.advance(0.1)
        for data in (b"2", b"3", b"{", b"4"):
            client.put_record(StreamName=stream, Data=data, PartitionKey="k")
        for _ in range(10):
            cluster.advance(0.1)
        assert run.tuples("s") == [[2], [4]]
        ((raw, error, where),) = run.tuples("s", "bad")
        assert raw == b"{"
        assert "Error" in error
        assert where.startswith(f"{stream}/shardId-000000000000 at ")


def test_records_that_are_refused_are_sent_again(server: AwsServer) -> None:
    sink = KinesisBolt(server.stream(), key="n", retry_secs=0.2, **server.options)
    run = run_bolt(sink)
    service: Any = sink._service
    sent: list[list[str]] = []

    class Refusing:
        refused = 1

        def put_records(self, StreamName: str, Records: list[Any]) -> Any:
            sent.append([one["PartitionKey"] for one in Records])
            last = {"ErrorCode": "Throttled", "ErrorMessage": "slow"} if self.refused else {}
            self.refused -= 1 if self.refused else 0
            return {"Records": [{}] * (len(Records) - 1) + [last]}

        def close(self) -> None: ...

    service.client = Refusing()
    run.batch(numbers(3))
    assert sent == [["0", "1", "2"], ["2"]]
    service.client.refused = 1000
    for tup in numbers(2):
        sink.execute(tup)
    with pytest.raises(Unavailable, match="1 refused: slow"):
        sink.pre_commit(1)


# -- SQS ----------------------------------------------------------------------------------------


class Recording(SqsSpout):
    """Notes by which handles messages were received, also in batches that are rolled back."""

    received: ClassVar[set[str]] = set()

    def next_tuple(self) -> None:
        super().next_tuple()
        self.received.update(self._open)


def test_every_message_counts_once(server: AwsServer) -> None:
    queue = server.queue()
    spout = Recording(queue, fields="n", poll_secs=0.01, **server.options)
    Recording.received.clear()
    run_bolt(SqsBolt(queue, **server.options), batches=[numbers(45)])
    with TestCluster() as cluster:
        run: Any = cluster.submit_topology("t", counting(spout, tasks=2))
        for _ in range(20):
            cluster.advance(1)
            if run._host is not None:
                give_back(server, queue, [spout.component for spout in run._host.spouts])
        assert Counts.seen == {str(number): 1 for number in range(45)}
    assert left_in(server, queue) == 0


def give_back(server: AwsServer, queue: str, spouts: list[SqsSpout]) -> None:
    """End the visibility of what was received and rolled back, as time would."""
    client = server.client("sqs")
    kept = {handle for spout in spouts for own in spout.state.values() for handle in own}
    for handle in Recording.received - kept - {h for spout in spouts for h in spout._open}:
        with suppress(client.exceptions.ClientError):  # it is deleted
            client.change_message_visibility(
                QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=0
            )
    Recording.received.clear()


def left_in(server: AwsServer, queue: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = server.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=names)
    return sum(int(found["Attributes"][name]) for name in names)


def test_a_fifo_queue_keeps_groups_and_knows_what_comes_again(server: AwsServer) -> None:
    queue = server.queue(FifoQueue="true")
    sink = SqsBolt(queue, group=lambda tup: f"g{tup.n % 2}", id="n", **server.options)
    run_bolt(sink, batches=[numbers(6), numbers(6)])
    spout = SqsSpout(queue, poll_secs=0.01, **server.options)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Keeps()))
        for _ in range(10):
            cluster.advance(0.1)
        rows = run.tuples("s")
    assert [json.dumps(row[4]) for row in rows if row[1] == "g0"] == [
        f'{{"n": {number}}}' for number in (0, 2, 4)
    ]
    assert Counter(row[1] for row in rows) == {"g0": 3, "g1": 3}


def test_messages_of_a_long_batch_stay_invisible(server: AwsServer) -> None:
    queue = server.queue()
    run_bolt(SqsBolt(queue, **server.options), batches=[numbers(1)])
    run = run_spout(SqsSpout(queue, visibility_secs=10, **server.options))
    spout = run.spout
    assert isinstance(spout, SqsSpout)
    (handle,) = spout._open
    now = spout.context.now()
    spout._lend([handle], now - 6)
    spout.keep_alive()
    assert spout._open[handle] >= now + 10
    spout.keep_alive()
    spout.committed(0)
    assert left_in(server, queue) == 1  # it is not acked
    run.ack(run.emitted[0].msg_id)
    spout.committed(1)
    assert spout._open == {}
    assert left_in(server, queue) == 0


# -- S3 -----------------------------------------------------------------------------------------


@pytest.fixture
def bucket(server: AwsServer) -> str:
    return server.bucket()


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_every_record_of_every_object_once(
    server: AwsServer, bucket: str, form: str, tmp_path: Path
) -> None:
    client = server.client("s3")
    for number in range(4):
        values = range(number * 10, number * 10 + 10)
        path = tmp_path / f"{number}.{form}"
        if form == "parquet":
            pyarrow.parquet.write_table(pyarrow.table({"n": list(values)}), path)
        else:
            lines = ["n", *map(str, values)] if form == "csv" else [f'{{"n":{n}}}' for n in values]
            path.write_text("\n".join(lines) + "\n")
        client.upload_file(str(path), bucket, f"in/day={number % 2}/{number}.{form}")
    client.put_object(Bucket=bucket, Key="in/_unfinished", Body=b"?")
    client.put_object(Bucket=bucket, Key="other/1.json", Body=b"?")
    spout = FileSpout(
        f"s3://{bucket}/in/",
        form,  # type: ignore[arg-type]
        fields="n",
        translate=lambda record: [int(record["n"] if form != "parquet" else record[0])],
        after="move:done",
        page=3,
        storage=server.options,
    )
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Keeps()))
        while run.status == "ACTIVE":
            run.step()
            if run.status == "ACTIVE":
                run.restart()
        assert sorted(run.tuples("s")) == [[number] for number in range(40)]
    keys = [one["Key"] for one in client.list_objects_v2(Bucket=bucket)["Contents"]]
    assert keys == [*(f"done/{n}.{form}" for n in range(4)), "in/_unfinished", "other/1.json"]


@pytest.mark.parametrize("tasks", [1, 2])
def test_objects_of_one_name_are_all_kept(server: AwsServer, bucket: str, tasks: int) -> None:
    client = server.client("s3")
    for place in ("in/a/x", "in/b/x", "done/x"):
        client.put_object(Bucket=bucket, Key=place, Body=place.encode())
    spout = FileSpout(f"s3://{bucket}/in/", after="move:done", storage=server.options)
    with TestCluster() as cluster:
        builder = TopologyBuilder()
        builder.set_spout("s", spout, parallelism=tasks)
        builder.set_bolt("b", Keeps()).shuffle_grouping("s")
        run = cluster.submit_topology("t", builder.create_topology())
        run.settle()
        assert run.status == "COMPLETED", run.reason
    keys = [one["Key"] for one in client.list_objects_v2(Bucket=bucket)["Contents"]]
    bodies = [client.get_object(Bucket=bucket, Key=key)["Body"].read().decode() for key in keys]
    assert sorted(bodies) == ["done/x", "in/a/x", "in/b/x"]
    expected = ["done/x", "done/x-2", "done/x-3"] if tasks == 1 else ["done/a/x", "done/b/x",
                                                                     "done/x"]  # fmt: skip
    assert sorted(keys) == expected


def test_an_object_that_comes_again_is_another(server: AwsServer, bucket: str) -> None:
    client = server.client("s3")
    spout = FileSpout(f"s3://{bucket}/*.txt", mode="watch", storage=server.options)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Keeps()))
        for body in (b"one\n", b"two\n", b"two\n", b"three\n"):
            client.put_object(Bucket=bucket, Key=f"{'k' * 300}.txt", Body=body)
            cluster.advance(2)
            cluster.advance(2)
        assert run.tuples("s") == [["one"], ["two"], ["three"]]


def test_objects_that_appear_are_read(server: AwsServer, bucket: str) -> None:
    client = server.client("s3")
    spout = FileSpout(f"s3://{bucket}/*.txt", mode="watch", storage=server.options)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Keeps()))
        for number in range(3):
            client.put_object(Bucket=bucket, Key=f"{number}.txt", Body=b"line %d\n" % number)
            cluster.advance(2)
        assert run.tuples("s") == [["line 0"], ["line 1"], ["line 2"]]


class Rollback(RollsBack, FileBolt):
    pass


@pytest.mark.parametrize(
    ("guarantee", "form"),
    [("exactly_once", "parquet"), ("exactly_once", "csv"), ("by_batch", "json")],
)
def test_objects_have_what_was_committed(
    server: AwsServer, bucket: str, guarantee: Any, form: Any
) -> None:
    place = f"s3://{bucket}/out"
    sink = Rollback(
        place,
        form,
        guarantee=guarantee,
        roll_bytes=40 if form == "csv" else 4000,
        storage=server.options,
    )
    committed = committed_numbers(sink, 2)
    spout = FileSpout(f"{place}/", form, fields=("number", "name"), storage=server.options)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Keeps()))
        run.settle()
        numbers = sorted(int(number) for number, _ in run.tuples("s"))
    assert numbers == committed
    listed = server.client("s3").list_objects_v2(Bucket=bucket)["Contents"]
    assert 1 < len(listed) <= len(numbers)


class Held(Rollback):
    """The same; notes how much it has in state when a batch has committed."""

    bytes: ClassVar[list[int]] = []

    def committed(self, batch_id: int) -> None:
        super().committed(batch_id)
        held = [len(value) for key, value in self.state.raw().items() if key[0] == "piece"]
        self.bytes.append(sum(held))


@pytest.mark.parametrize("ends", [True, False])
def test_a_large_object_is_uploaded_in_parts(
    server: AwsServer, bucket: str, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """Parts go out as they are committed; batches are rolled back before and after that."""
    monkeypatch.setattr("topo.connectors.files.places.PART_BYTES", 200)
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
    Held.bytes.clear()
    place = f"s3://{bucket}/out"
    client = server.client("s3")
    sink = Held(
        place,
        "json",
        guarantee="exactly_once",
        roll_bytes=1_000 if ends else 1 << 20,
        storage=server.options,
    )
    committed = committed_numbers(sink, 4)
    assert 0 < max(Held.bytes) < 600
    listed = client.list_objects_v2(Bucket=bucket)["Contents"]
    assert len(listed) == 1 or ends
    tags = [one["ETag"] for one in listed]
    assert any("-" in tag for tag in tags)  # of several parts
    texts = [client.get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in listed]
    numbers = [json.loads(text)["number"] for data in texts for text in data.splitlines()]
    assert sorted(numbers) == committed
    assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket)


# -- mistakes -----------------------------------------------------------------------------------


def test_what_cannot_be_is_said(server: AwsServer) -> None:
    with TestCluster() as cluster:
        away = {**server.options, "endpoint_url": f"http://127.0.0.1:{free_port()}"}
        run = cluster.submit_topology("t", line(KinesisSpout("s", **away)))
        run.step()
        assert run.status == "STALLED"
        assert "stream 's'" in run.reason
    for make, said in (
        (lambda: run_spout_once(KinesisSpout("absent", **server.options)), "stream 'absent'.*not"),
        (lambda: run_bolt(SqsBolt("q", **server.options), batches=[numbers(1)]), "q"),
        (lambda: KinesisSpout("s", start="first"), "start='first'"),  # type: ignore[arg-type]
        (lambda: KinesisSpout("s", regoin="x"), "no argument 'regoin'"),
        (lambda: KinesisSpout("s", translate=list), "fields of what translate returns"),
        (lambda: SqsBolt("q.fifo"), "needs group="),
        (lambda: SqsSpout("q", aws_access_key_id="a"), "is in the open"),
        (lambda: FileSpout("s3://b/k", mode="tail"), "objects do not"),
        (lambda: FileSpout("s3:///k"), "names no bucket"),
        (lambda: FileSpout("k", storage=server.options), "'k' is a path"),
        (
            lambda: run_spout_once(FileSpout("s3://absent/k", storage=server.options)),
            "s3://absent: .*NoSuchBucket",
        ),
    ):
        with pytest.raises(ComponentError, match=said):
            make()
    rejected = run_bolt(
        KinesisBolt("s", key="n", on_bad="stream", **server.options),
        [make_tuple({"n": ""}), make_tuple({"n": b"\xff"})],
    )
    assert [emitted.stream for emitted in rejected.emitted] == ["rejected"] * 2


def run_spout_once(spout: Any) -> None:
    with TestCluster() as cluster:
        cluster.submit_topology("t", line(spout)).step()
