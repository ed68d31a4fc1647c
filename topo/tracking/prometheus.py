"""The acker's figures in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from topo.metrics.encoding import encoded
from topo.tracking.exchange import TrackingFigures


def for_prometheus(figures: Mapping[str, TrackingFigures], accept: str = "") -> tuple[bytes, str]:
    """Return the figures in the text format that Prometheus asks for, and its content type."""
    return encoded(_Exposed(figures), accept)


class _Exposed(Collector):
    """The families of an acker's figures."""

    def __init__(self, figures: Mapping[str, TrackingFigures]) -> None:
        self._figures = dict(sorted(figures.items()))

    def collect(self) -> Iterator[Metric]:
        for name, (meaning, value) in _GAUGES.items():
            gauge = GaugeMetricFamily(f"topo_acker_{name}", meaning, labels=("topology",))
            for topology, tracked in self._figures.items():
                gauge.add_metric((topology,), value(tracked))
            yield gauge
        for name, (meaning, value) in _COUNTERS.items():
            counter = CounterMetricFamily(f"topo_acker_{name}", meaning, labels=("topology",))
            for topology, tracked in self._figures.items():
                counter.add_metric((topology,), value(tracked))
            yield counter
        failed = CounterMetricFamily(
            "topo_acker_roots_failed", "Messages failed, by reason.", labels=("topology", "reason")
        )
        for topology, tracked in self._figures.items():
            for reason, count in sorted(tracked.failed_by.items()):
                failed.add_metric((topology, reason), count)
        yield failed


_GAUGES: dict[str, tuple[str, Callable[[TrackingFigures], float]]] = {
    "roots_pending": ("Messages neither acked nor failed.", lambda of: of.pending),
    "oldest_pending_seconds": (
        "Age of the oldest of them.",
        lambda of: of.oldest_secs,
    ),
    "verdicts_unheard": (
        "Verdicts no spout has committed.",
        lambda of: of.unheard,
    ),
    "held_bytes": ("Memory held.", lambda of: of.held_bytes),
    "batch": ("The batch in work.", lambda of: of.next_batch),
}
_COUNTERS: dict[str, tuple[str, Callable[[TrackingFigures], float]]] = {
    "roots_acked": ("Messages acked.", lambda of: of.acked),
    "updates": ("Updates applied.", lambda of: of.updates),
    "updates_dropped": ("Updates of settled roots.", lambda of: of.dropped),
}
