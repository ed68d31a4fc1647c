"""The figures of topologies as Prometheus reads them, by its own client library.

Everything is labelled by component; figures by task are given only when they are asked for, since
they are many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from topo.context import LIMIT
from topo.metrics.encoding import encoded
from topo.metrics.figure import BUCKETS, Figure, is_told, totals_of
from topo.metrics.figures import COMPONENT
from topo.metrics.keys import INPUT, name_and_labels
from topo.metrics.observed import observed_of
from topo.metrics.totals import BATCH_SECONDS

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
STATUSES = (
    "STARTING", "ACTIVE", "INACTIVE", "STALLED", "REBALANCING", "KILLED", "COMPLETED", "FAILED",
)  # fmt: skip
_OF_TOPOLOGY, _OF_COMPONENT = ("topology",), ("topology", "component")
_OF_INPUT = ("source", "stream")


@dataclass(frozen=True)
class Exposed:
    """The exposed part of one topology: its status and documents."""

    name: str
    status: str
    figures: Mapping[str, Any]
    errors: Iterable[Mapping[str, Any]] = field(default=())
    restarts: int = 0


class FiguresCollector(Collector):
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
            restarts.add_metric((one.name,), one.restarts)
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
            if batch.get("by_seconds"):
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
        for figure in COMPONENT:
            metric = self._metric(figure)
            if metric is None:
                continue
            for labels, of in rows:
                is_known = of.get(figure.name) is not None and is_told(figure, of)
                if is_known and figure.of in ("", of["kind"]):
                    _add(metric, figure, labels, of)
            yield metric
        yield from self._chosen(rows, "gauges")
        yield from self._chosen(rows, "counters")
        yield from self._observed(rows)

    def _chosen(
        self, rows: Iterable[tuple[tuple[str, ...], Mapping[str, Any]]], kind: str
    ) -> Iterator[Metric]:
        """Yield the gauges or counters that components name and label themselves."""
        families: dict[str, Metric] = {}
        for own, of in rows:
            for key, value in (of.get(kind) or {}).items():
                name, labels = name_and_labels(key)
                if not _NAME.fullmatch(name):
                    continue  # a damaged document; a context takes identifiers only
                exposed = "topo_source_lag" if name == "lag" else f"topo_component_{name}"
                family = families.setdefault(
                    name, Metric(exposed, f"{name}, as components tell it.", kind.rstrip("s"))
                )
                suffix = "_total" if kind == "counters" else ""
                family.add_sample(f"{exposed}{suffix}", self._with_own(own, labels), value)
        yield from families.values()

    def _observed(
        self, rows: Iterable[tuple[tuple[str, ...], Mapping[str, Any]]]
    ) -> Iterator[Metric]:
        """Yield the histograms of components."""
        families: dict[str, Metric] = {}
        for own, of in rows:
            for observed in observed_of(of.get("histograms") or {}):
                if not _NAME.fullmatch(observed.name):
                    continue
                exposed = f"topo_component_{observed.name}"
                family = families.setdefault(
                    observed.name,
                    Metric(exposed, f"{observed.name}, as components see it.", "histogram"),
                )
                labels = self._with_own(own, observed.labels)
                for limit, below in observed.cumulated():
                    family.add_sample(f"{exposed}_bucket", {**labels, LIMIT: limit}, below)
                family.add_sample(f"{exposed}_count", labels, observed.count)
                family.add_sample(f"{exposed}_sum", labels, observed.sum)
        yield from families.values()

    def _with_own(self, own: tuple[str, ...], chosen: Mapping[str, str]) -> dict[str, str]:
        """Return all labels of a sample; a component's that has the name of ours is renamed."""
        mine = dict(zip(self._labels, own, strict=True))
        return mine | {f"{label}_" if label in mine else label: text
                       for label, text in chosen.items()}  # fmt: skip

    def _metric(self, figure: Figure) -> Metric | None:
        """Return the empty family of a figure; None if another one has its samples."""
        name = name_of(figure)
        if name is None:
            return None
        if figure.by == INPUT:
            return CounterMetricFamily(name, figure.meaning, labels=(*self._labels, *_OF_INPUT))
        if figure.kind == "counter":
            label = next((f.by for f in COMPONENT if f.name == f"{figure.name}_by"), "stream")
            return CounterMetricFamily(name, figure.meaning, labels=(*self._labels, label))
        if figure.kind == "mean":
            return CounterMetricFamily(name, figure.meaning, labels=self._labels)
        if figure.kind == "histogram":
            return HistogramMetricFamily(name, figure.meaning, labels=self._labels)
        return GaugeMetricFamily(name, figure.meaning, labels=self._labels)

    def _rows(
        self, topology: str, name: str, component: Mapping[str, Any]
    ) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
        if not self._by_task:
            yield (topology, name), component
            return
        for task, of in component.get("by_task", {}).items():
            yield (topology, name, str(task)), of


def name_of(figure: Figure) -> str | None:
    """Return what Prometheus calls a component's figure; None: it is part of another's samples."""
    name = figure.exposed or figure.name
    if figure.by == INPUT:
        return name
    if figure.kind in ("counters", "gauges"):
        return None
    if figure.kind == "counter":
        return f"topo_tuples_{name}"
    if figure.kind == "histogram":
        return f"topo_{name.removesuffix('_by')}_seconds"
    if figure.kind == "mean":
        same = [f for f in COMPONENT if f.kind == "mean" and f.source == figure.source]
        stem = f"topo_{name.removesuffix('_ms')}_seconds"
        is_taken = any(f.kind == "histogram" and name_of(f) == stem for f in COMPONENT)
        return None if is_taken or same[0].name != figure.name else stem
    return (
        f"topo_{name.removesuffix('_secs')}_seconds" if figure.unit == "seconds" else f"topo_{name}"
    )


def _add(metric: Metric, figure: Figure, labels: tuple[str, ...], of: Mapping[str, Any]) -> None:
    """Add one component's samples to the family of a figure."""
    value = of[figure.name]
    if isinstance(metric, HistogramMetricFamily):
        total = 0.0
        for mean in COMPONENT:
            if mean.kind == "mean" and mean.name == figure.name.replace("_by", "_ms"):
                total = (of[mean.name] or 0.0) * of[mean.per] / mean.scale
        metric.add_metric(labels, _cumulated(value), total)
    elif figure.by == INPUT:
        sums = totals_of(figure, of) if figure.kind == "means" else value
        for key, total in sums.items():
            source = name_and_labels(key)[1]
            ends = (source.get("component", ""), source.get("stream", ""))
            metric.add_metric((*labels, *ends), total / figure.scale)  # type: ignore[attr-defined]
    elif figure.kind == "mean":
        metric.add_metric(labels, value * of[figure.per] / figure.scale)  # type: ignore[attr-defined]
    elif figure.kind == "counter":
        for key, count in _in_parts(of, figure.name).items():
            metric.add_metric((*labels, key), count)  # type: ignore[attr-defined]
    else:
        metric.add_metric(labels, value)  # type: ignore[attr-defined]


def _in_parts(of: Mapping[str, Any], name: str) -> Mapping[str, int]:
    """Return a count by stream or reason where it is known, and the rest under ""."""
    parts: dict[str, int] = dict(of.get(f"{name}_by") or {})
    rest = of[name] - sum(parts.values())
    return parts | ({"": rest} if rest > 0 or not parts else {})


def _cumulated(counts: Mapping[str, int]) -> list[tuple[str, float]]:
    return list(zip(BUCKETS, accumulate(counts.get(bound, 0) for bound in BUCKETS), strict=True))


def exposition(
    topologies: Iterable[Exposed], accept: str = "", *, by_task: bool = False
) -> tuple[bytes, str]:
    """Return the body and the content type of an answer to Prometheus."""
    return encoded(FiguresCollector(topologies, by_task=by_task), accept)
