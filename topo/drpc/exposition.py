"""A server's figures over HTTP: `/metrics` for Prometheus, `/` for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from topo.drpc.calls import SECONDS, Figures
from topo.metrics.encoding import encoded
from topo.serving.figures import FigureServer


class DrpcExposition(FigureServer):
    """A server of the figures that `figures` returns at the time of the request."""

    def __init__(self, bind: str, figures: Callable[[], Figures]) -> None:
        pages = {
            "/metrics": lambda accept, query: for_prometheus(figures(), accept),
            "/": lambda accept, query: (for_people(figures()).encode(), "text/plain"),
        }
        super().__init__(bind, pages)


def for_people(figures: Figures) -> str:
    """Return the figures as text."""
    lines = [
        f"{figures.requests:,} calls",
        f"{figures.answered:,} answered",
        *(f"{count:,} {code}" for code, count in sorted(figures.failed.items())),
        f"{figures.late:,} answers too late",
        f"{figures.waiting:,} wait, {figures.open:,} are in work",
    ]
    return "\n".join(lines) + "\n"


def for_prometheus(figures: Figures, accept: str = "") -> tuple[bytes, str]:
    """Return the figures in the text format that Prometheus asks for, and its content type."""
    return encoded(_Exposed(figures), accept)


class _Exposed(Collector):
    """The families of a server's figures."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        figures = self._figures
        yield CounterMetricFamily("topo_drpc_requests", "Calls.", value=figures.requests)
        yield CounterMetricFamily("topo_drpc_answered", "Calls answered.", value=figures.answered)
        failed = CounterMetricFamily("topo_drpc_failed", "Calls failed.", labels=("code",))
        for code, count in sorted(figures.failed.items()):
            failed.add_metric((code,), count)
        yield failed
        yield CounterMetricFamily(
            "topo_drpc_late", "Answers that came after their call's end.", value=figures.late
        )
        yield GaugeMetricFamily("topo_drpc_waiting", "Calls that wait.", value=figures.waiting)
        yield GaugeMetricFamily("topo_drpc_open", "Calls in work.", value=figures.open)
        yield self._seconds()

    def _seconds(self) -> HistogramMetricFamily:
        counts, total, buckets = self._figures.seconds, 0, []
        for limit, count in zip((*SECONDS, float("inf")), counts, strict=True):
            total += count
            buckets.append((f"{limit:g}" if limit != float("inf") else "+Inf", float(total)))
        family = HistogramMetricFamily("topo_drpc_seconds", "Seconds of answered calls.")
        family.add_metric((), buckets, sum_value=None)
        return family
