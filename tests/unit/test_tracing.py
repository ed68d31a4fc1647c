"""Traces of tuple trees: which spans there are, how they hang together, what a collector gets."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from topo import BasicBolt, Bolt, FailTuple, MissingExtra, Spout, TopologyBuilder, Tuple, bolt
from topo.runtime import slot
from topo.streams import StreamBuilder
from topo.testing import FeederSpout, TestCluster, complete_topology
from topo.topology.model import Topology
from topo.tracing import exporting
from topo.tracing.spans import EMIT, EXECUTE, MESSAGE, Span, Tracer
from topo.tracking.ids import mix, root_id

ALL = {"topology.trace.rate": 1}


class Collector:
    """An exporter that keeps the spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def export(self, checkpoint_id: str, spans: Iterable[Span]) -> None:
        self.spans += spans

    def of(self, kind: str) -> list[Span]:
        return [span for span in self.spans if span.kind == kind]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Collector:
    made = Collector()
    monkeypatch.setattr(slot, "exporter_to", lambda endpoint, topology: made)
    return made


@bolt(outputs=("word",))
def split(tup: Tuple) -> Iterator[list[Any]]:
    for word in tup.sentence.split():
        yield [word]


class Pair(Bolt):
    """Joins two words that follow each other; the second may come in a later batch."""

    outputs = ("pair",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.first: Tuple | None = None

    def execute(self, tup: Tuple) -> None:
        if self.first is None:
            self.first = tup
            return
        self.emit([self.first.word + tup.word], anchors=[self.first, tup])
        self.ack(self.first)
        self.ack(tup)
        self.first = None


class Sink(BasicBolt):
    def execute(self, tup: Tuple) -> None:
        if tup[0] == "bad":
            raise FailTuple("as asked")


def words(spout: Spout, *, pairs: bool = False) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("sentences", spout)
    builder.set_bolt("split", split, 2).shuffle_grouping("sentences")
    last = "split"
    if pairs:
        builder.set_bolt("pair", Pair()).global_grouping("split")
        last = "pair"
    builder.set_bolt("sink", Sink(), 2).fields_grouping(last, ["pair" if pairs else "word"])
    return builder.create_topology()


def complete(sentences: list[list[str]], conf: dict[str, Any] = ALL) -> None:
    feeder = FeederSpout(["sentence"])
    complete_topology(words(feeder), mock_sources={"sentences": sentences}, conf=conf)


def test_every_span_hangs_on_its_parent_in_its_trace(collector: Collector) -> None:
    sentences = [["a b"], ["c"], ["d e f"]]
    complete_topology(
        words(FeederSpout(["sentence"])), mock_sources={"sentences": sentences}, conf=ALL
    )

    roots = {root_id(collector.of(MESSAGE)[0].task, n) for n in (1, 2, 3)}
    assert {span.root for span in collector.spans} == roots
    ids = {(span.root, span.id) for span in collector.spans}
    assert len(ids) == len(collector.spans)
    for span in collector.spans:
        assert span.parent is None if span.kind == MESSAGE else (span.root, span.parent) in ids
        assert span.start <= span.end
    executed = Counter(span.component for span in collector.of(EXECUTE))
    assert executed == {"split": 3, "sink": 6}
    assert Counter(span.component for span in collector.of(EMIT)) == {"sentences": 3, "split": 6}
    assert [span.error for span in collector.of(MESSAGE)] == [None] * 3


def test_operators_of_streams_tell_when_each_tuple_was_executed(collector: Collector) -> None:
    feeder = FeederSpout(["n"])
    s = StreamBuilder()
    parts = s.stream(feeder, name="numbers").branch(even=lambda n: n % 2 == 0, default="odd")
    merged = parts["even"].merge(parts["odd"].map(lambda n: -n))
    merged.key_by(lambda n: n > 0).count().named("counts").print()
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build(), ALL)
        for n in (1, 2, 3, 4):
            feeder.feed([n], msg_id=n)
        run.settle()
        assert sorted(feeder.acked) == [1, 2, 3, 4]
    spans = collector.of(EXECUTE)
    executed = Counter(span.component for span in spans)
    assert set(executed.values()) == {4}
    assert len(executed) >= 3
    assert all(span.start <= span.end for span in spans)


def test_a_tuple_with_two_anchors_is_in_both_trees(collector: Collector) -> None:
    feeder = FeederSpout(["sentence"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", words(feeder, pairs=True), ALL)
        feeder.feed(["a"], msg_id=1)
        run.settle()
        feeder.feed(["b"], msg_id=2)
        run.settle()
        assert sorted(feeder.acked) == [1, 2]
    joined = [span for span in collector.of(EMIT) if span.component == "pair"]
    assert len(joined) == 2
    assert len({span.root for span in joined}) == 2
    ids = {(span.root, span.id) for span in collector.of(EXECUTE)}
    assert all((span.root, span.parent) in ids for span in joined)


def test_a_failed_message_says_why(collector: Collector) -> None:
    feeder = FeederSpout(["sentence"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", words(feeder), ALL)
        feeder.feed(["good bad"], msg_id=1)
        run.settle()
    (message,) = collector.of(MESSAGE)
    assert message.error is not None
    assert "as asked" in message.error
    assert message.id == mix(message.root)


def test_a_part_of_the_messages_is_traced_whole(collector: Collector) -> None:
    sentences = [["a b c"] for _ in range(400)]
    conf = {"topology.trace.rate": 0.25}
    complete(sentences, conf)
    by_root = Counter(span.root for span in collector.spans)
    assert set(by_root.values()) == {1 + 2 * (1 + 3)}
    assert 50 < len(by_root) < 150


def test_untracked_tuples_and_topologies_without_ackers_have_no_spans(collector: Collector) -> None:
    feeder = FeederSpout(["sentence"])
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", words(feeder), ALL)
        feeder.feed(["a b"])
        run.settle()
    complete([["a b"]], {**ALL, "topology.acker.executors": 0})
    assert collector.spans == []


def test_an_attempt_that_did_not_commit_leaves_no_span() -> None:
    exported: list[Span] = []
    tracer = Tracer(1.0, exported.extend)
    tracer.begin(1)
    tracer.add(span_of(1))
    tracer.begin(1)  # the batch again
    tracer.add(span_of(2))
    assert exported == []
    tracer.begin(2)
    assert [span.root for span in exported] == [2]


def span_of(root: int) -> Span:
    return Span(EMIT, root, root, None, "c", 1, "default", 0, 0)


def test_a_collector_gets_the_spans_by_otlp() -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    with otlp_server() as (address, bodies):
        conf = {**ALL, "topology.trace.endpoint": address}
        complete([["a b"]], conf)
    got = [ExportTraceServiceRequest.FromString(body) for body in bodies]
    spans = [
        span
        for request in got
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert Counter(span.name for span in spans) == {
        "sentences message": 1,
        "sentences emit": 1,
        "split execute": 1,
        "split emit": 2,
        "sink execute": 2,
    }
    assert len({span.trace_id for span in spans}) == 1
    known = {span.span_id for span in spans}
    assert all(not span.parent_span_id or span.parent_span_id in known for span in spans)


@contextmanager
def otlp_server() -> Iterator[tuple[str, list[bytes]]]:
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_without_the_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "_PACKAGES", ("opentelemetry_that_is_not_there",))
    with pytest.raises(MissingExtra, match=r"(?s)OpenTelemetry is not installed.*spark\[otel\]"):
        complete([["a"]])
