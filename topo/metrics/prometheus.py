"""The figures of topologies as Prometheus reads them, by its own client library.

Everything is labelled by component; figures by task are given only when they are asked for, since
they are many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from topo.metrics.totals import BATCH_SECONDS

STATUSES = ("STARTING", "ACTIVE", "INACTIVE", "STALLED", "KILLED", "COMPLETED", "FAILED")
_OF_TOPOLOGY, _OF_COMPONENT = ("topology",), ("topology", "component")


@dataclass(frozen=True)
class Exposed:
    """What of one topology is shown: its status and documents."""

    name: str
    status: str
    figures: Mapping[str, Any]
    errors: Iterable[Mapping[str, Any]] = field(default=())
    restarts: int = 0


class Figures(Collector):
    """Collects the figures of topologies that were asked for them once."""

    def __init__(self, topologies: Iterable[Exposed], *, by_task: bool = False) -> None:
        self._topologies = list(topologies)
        self._labels = (*_OF_COMPONENT, "task") if by_task else _OF_COMPONENT
        self._by_task = by_task

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        yield from self._of_topologies()
        yield from self._of_batches()
        yield from self._of_components()

    def _of_topologies(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "topo_up", "1 for the status a topology has.", labels=(*_OF_TOPOLOGY, "status")
        )
        restarts = CounterMetricFamily(
            "topo_restarts", "Starts of a topology's driver after the first.", labels=_OF_TOPOLOGY
        )
        errors = CounterMetricFamily(
            "topo_errors", "Errors of user code, by kind.", labels=(*_OF_COMPONENT, "kind")
        )
        for one in self._topologies:
            for status in STATUSES:
                up.add_metric((one.name, status), float(status == one.status))
            restarts.add_metric((one.name,), max(0, one.restarts))
            counts: dict[tuple[str, str], int] = {}
            for error in one.errors:
                key = (str(error["component"]), str(error["kind"]))
                counts[key] = counts.get(key, 0) + int(error["count"])
            for (component, kind), count in sorted(counts.items()):
                errors.add_metric((one.name, component, kind), count)
        yield from (up, restarts, errors)

    def _of_batches(self) -> Iterator[Metric]:
        seconds = HistogramMetricFamily(
            "topo_batch_seconds",
            "How long batches took, without what they waited for spouts.",
            labels=_OF_TOPOLOGY,
        )
        waited = CounterMetricFamily(
            "topo_batch_wait_seconds", "How long batches waited for spouts.", labels=_OF_TOPOLOGY
        )
        oldest = GaugeMetricFamily(
            "topo_oldest_pending_seconds",
            "The age of the oldest message that is neither acked nor failed.",
            labels=_OF_TOPOLOGY,
        )
        for one in self._topologies:
            batch, acker = one.figures.get("batch") or {}, one.figures.get("acker")
            if "by_seconds" in batch:
                counts = [*batch["by_seconds"], batch["count"]]
                limits = [*(str(limit) for limit in BATCH_SECONDS), "+Inf"]
                buckets = list(zip(limits, counts, strict=True))
                seconds.add_metric((one.name,), buckets, batch["worked_secs"])
                waited.add_metric((one.name,), batch["wait_secs"])
            if acker:
                oldest.add_metric((one.name,), acker["lag_secs"])
        yield from (seconds, waited, oldest)

    def _of_components(self) -> Iterator[Metric]:
        rows = [
            (labels, of)
            for one in self._topologies
            for name, component in one.figures.get("components", {}).items()
            for labels, of in self._rows(one.name, name, component)
        ]
        for name, meaning in _COUNTED.items():
            streams = CounterMetricFamily(
                f"topo_tuples_{name}", meaning, labels=(*self._labels, "stream")
            )
            for labels, of in rows:
                for stream, count in _by_stream(of, name).items():
                    streams.add_metric((*labels, stream), count)
            yield streams
        failed = CounterMetricFamily(
            "topo_tuples_failed", "Messages or tuples failed.", labels=(*self._labels, "reason")
        )
        executing = CounterMetricFamily(
            "topo_execute_seconds", "Time spent in execute.", labels=self._labels
        )
        for labels, of in rows:
            by_reason = dict(of.get("failed_by") or {})
            rest = of["failed"] - sum(by_reason.values())
            for reason, count in (by_reason | ({"": rest} if rest > 0 else {})).items():
                failed.add_metric((*labels, reason), count)
            if of["execute_ms"] is not None:
                executing.add_metric(labels, of["executed"] * of["execute_ms"] / 1000)
        yield from (failed, executing)
        for name, (key, meaning) in _LEVELS.items():
            level = GaugeMetricFamily(f"topo_{name}", meaning, labels=self._labels)
            for labels, of in rows:
                if of.get(key) is not None:
                    level.add_metric(labels, of[key])
            yield level

    def _rows(
        self, topology: str, name: str, component: Mapping[str, Any]
    ) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
        if not self._by_task:
            yield (topology, name), component
            return
        for task, of in component.get("by_task", {}).items():
            yield (topology, name, str(task)), of


_COUNTED = {
    "emitted": "Tuples emitted.",
    "transferred": "Tuples sent to tasks: one for each task that got one.",
    "executed": "Tuples executed by bolts.",
    "acked": "Messages acked, of a spout; tuples acked, of a bolt.",
}
_LEVELS = {
    "capacity": ("capacity", "The share of the time in which the tasks of a bolt were busy."),
    "pending": ("pending", "Messages neither acked nor failed."),
    "held": ("held", "Tuples that bolts keep without an ack."),
    "oldest_held_seconds": ("oldest_held_secs", "The age of the oldest held tuple."),
    "state_bytes": ("saved_bytes", "The size of the saved state."),
}


def _by_stream(of: Mapping[str, Any], name: str) -> Mapping[str, int]:
    """Return counts by stream where they are known, else the sum under the stream ""."""
    by_stream: Mapping[str, int] = of.get(f"{name}_by") or {"": of[name]}
    return by_stream


def exposition(
    topologies: Iterable[Exposed], accept: str = "", *, by_task: bool = False
) -> tuple[bytes, str]:
    """Return the body and the content type of an answer to Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures(topologies, by_task=by_task))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind
