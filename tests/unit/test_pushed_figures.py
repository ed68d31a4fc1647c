"""Figures for others: `/metrics` of `topo local`, and pushes by OpenTelemetry's protocol."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from tests.servers.processes import free_port
from topo.cli.root import run as topo_main
from topo.config import Config
from topo.errors import MissingExtra
from topo.manage.exposing import exposed_figures
from topo.metrics.prometheus import Exposed
from topo.tracing import exporting
from topo.tracing.figures import metrics_data

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")


class Collector:
    """A collector, which takes what is pushed."""

    def __init__(self) -> None:
        pushes = self.pushes = SimpleQueue[Any]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as pb

                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    import gzip

                    body = gzip.decompress(body)
                pushes.put(pb.ExportMetricsServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    yield server
    server.stop()


def test_figures_are_pushed_again_and_again_and_at_the_end(collector: Collector) -> None:
    exposed = Exposed("words", "ACTIVE", {"components": {}}, [], 2)
    conf = Config({"topology.metrics.endpoint": collector.url, "topology.metrics.secs": 0.01})
    with exposed_figures("words", conf, lambda: exposed):
        pushes = [collector.pushes.get(timeout=30) for _ in range(2)]
    pushes.append(collector.pushes.get(timeout=30))
    for push in pushes:
        (resource,) = push.resource_metrics
        names = {a.key: a.value.string_value for a in resource.resource.attributes}
        assert names["service.name"] == "words"
        metrics = {m.name: m for m in resource.scope_metrics[0].metrics}
        (point,) = metrics["topo_restarts"].sum.data_points
        assert point.as_int == 2
        active = [p for p in metrics["topo_up"].gauge.data_points if p.as_double or p.as_int]
        assert [a.value.string_value for a in active[0].attributes] == ["words", "ACTIVE"]


def test_each_kind_of_family_has_its_own() -> None:
    histogram = HistogramMetricFamily("h", "a histogram", labels=("t",))
    histogram.add_metric(("x",), [("0.1", 2), ("1.0", 5), ("+Inf", 6)], 3.5)
    counter = CounterMetricFamily("c", "a counter", labels=("t",))
    counter.add_metric(("x",), 7)
    gauge = GaugeMetricFamily("g", "a gauge")
    gauge.add_metric((), 1.5)
    data = metrics_data([histogram, counter, gauge, GaugeMetricFamily("none", "-")], None, 1, 9)
    first, second, third = data.resource_metrics[0].scope_metrics[0].metrics
    (point,) = first.data.data_points
    assert (point.bucket_counts, point.explicit_bounds) == ([2, 3, 1], [0.1, 1.0])
    assert (point.count, point.sum, point.attributes) == (6, 3.5, {"t": "x"})
    assert [(p.value, p.time_unix_nano) for p in second.data.data_points] == [(7, 9)]
    assert second.data.is_monotonic
    assert [p.value for p in third.data.data_points] == [1.5]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "_PACKAGES", ("opentelemetry.nothing",))
    conf = Config({"topology.metrics.endpoint": "http://localhost:4318/v1/metrics"})
    with (
        pytest.raises(MissingExtra, match=r"topology.metrics.endpoint asks .*topo-spark\[otel\]"),
        exposed_figures("t", conf, lambda: Exposed("t", "ACTIVE", {})),
    ):
        pass


TARGET = """
import socket
from pathlib import Path
from topo import Spout, TopologyBuilder

class Waits(Spout):
    outputs = ("n",)
    def open(self, *args): socket.create_connection(("127.0.0.1", PORT)).close()
    def next_tuple(self): ...
    def is_exhausted(self): return Path("scraped").exists()

builder = TopologyBuilder()
builder.set_spout("waits", Waits())
topology = builder.create_topology()
"""


def test_topo_local_serves_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    monkeypatch.chdir(tmp_path)
    Path("waits.py").write_text(TARGET.replace("PORT", str(port)), encoding="utf-8")
    pages: list[str] = []

    def scrape() -> None:
        pause = threading.Event()
        while not pages:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as p:
                pages.append(p.read().decode())
            pause.wait(0.01)
        Path("scraped").touch()

    scraper = threading.Thread(target=scrape, daemon=True)
    scraper.start()
    bind = f"topology.metrics.bind=127.0.0.1:{port}"
    assert topo_main(["local", "--engine", "inline", "waits.py", "-c", bind]) == 0
    scraper.join()
    assert re.search(r"^topo_up{.*} 1", pages[0], re.MULTILINE)
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")
