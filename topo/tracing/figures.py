"""Figures by OpenTelemetry's protocol over HTTP: what `/metrics` shows, pushed to a collector.

A collector has exporters to Graphite, StatsD, CloudWatch and the like, so one way out of topo is
enough. Pushed are the families that Prometheus gets, whole: their counts never begin anew within a
topology's life, so a push that is lost makes no difference.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from threading import Event, Thread
from typing import Any

from topo.tracing.exporting import check_installed
from topo.tracking.clock import SteadyClock

_NANOS = 1_000_000_000
_log = logging.getLogger(__name__)


class FigurePusher:
    """A thread that pushes families of figures now and then, and once more at the end."""

    def __init__(
        self,
        endpoint: str,
        topology: str,
        secs: float,
        families: Callable[[], Iterable[Any]],
    ) -> None:
        check_installed("topology.metrics.endpoint asks for figures")
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.resources import Resource

        self._exporter = OTLPMetricExporter(endpoint=endpoint)
        self._resource = Resource.create({"service.name": topology})
        self._families = families
        self._secs = secs
        self._clock = SteadyClock()
        self._start = int(self._clock() * _NANOS)
        self._has_failed = False
        self._endpoint = endpoint
        self._ending = Event()
        self._thread = Thread(target=self._run, name="topo-figures", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Push the last figures, and end the thread."""
        self._ending.set()
        self._thread.join()
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._ending.wait(self._secs):
            self._push()
        self._push()

    def _push(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        try:
            now = int(self._clock() * _NANOS)
            data = metrics_data(self._families(), self._resource, self._start, now)
            has_failed = self._exporter.export(data) is not MetricExportResult.SUCCESS
        except Exception:
            _log.exception("figures cannot be pushed to %s", self._endpoint)
            has_failed = True
        if has_failed and not self._has_failed:
            _log.warning("figures do not reach %s; the next push has them", self._endpoint)
        self._has_failed = has_failed


def metrics_data(families: Iterable[Any], resource: Any, start: int, now: int) -> Any:
    """Return families of Prometheus' client as OpenTelemetry's data, of this time in ns."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = [_metric(family, start, now) for family in families if family.samples]
    scope = ScopeMetrics(InstrumentationScope("topo"), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(family: Any, start: int, now: int) -> Any:
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        Metric,
        Sum,
    )

    data: Any
    if family.type == "histogram":
        data = Histogram(_histograms(family, start, now), AggregationTemporality.CUMULATIVE)
    elif family.type == "counter":
        totals = _points((s for s in family.samples if s.name.endswith("_total")), start, now)
        data = Sum(totals, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    else:
        data = Gauge(_points(family.samples, start, now))
    return Metric(family.name, family.documentation, family.unit or "", data)


def _points(samples: Iterable[Any], start: int, now: int) -> list[Any]:
    from opentelemetry.sdk.metrics.export import NumberDataPoint

    return [NumberDataPoint(dict(s.labels), start, now, s.value) for s in samples]


def _histograms(family: Any, start: int, now: int) -> list[Any]:
    """Return a point for each series; its buckets count alone, where Prometheus' add up."""
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    series: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for sample in family.samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        parts = series.setdefault(tuple(sorted(labels.items())), {"buckets": [], "sum": 0.0})
        if sample.name.endswith("_bucket"):
            parts["buckets"].append((sample.labels["le"], sample.value))
        elif sample.name.endswith("_sum"):
            parts["sum"] = sample.value
    points = []
    for attributes, parts in series.items():
        counts = [int(count) for _, count in parts["buckets"]]
        bounds = [float(le) for le, _ in parts["buckets"] if le != "+Inf"]
        single = [count - before for before, count in zip([0, *counts], counts, strict=False)]
        points.append(
            HistogramDataPoint(
                dict(attributes),
                start,
                now,
                counts[-1] if counts else 0,
                parts["sum"],
                single,
                bounds,
                min=None,  # which nobody has counted
                max=None,
            )
        )
    return points
