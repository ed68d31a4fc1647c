"""The figures of a run over time, as series for charts.

A sample holds what is counted since the start and what is a level at its time. Samples are kept
finely for ten minutes, more coarsely for three hours and a day, a few hundred in all; times are
those of the wall clock, so that a series goes on over a restart of the driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

_KEPT = ((2.5, 620.0), (60.0, 11_000.0), (600.0, 88_000.0))
"""(least seconds between samples, seconds they are kept) of each series."""
_SPAN_SECS = 9.0
"""Rates are taken over at least so long: batches end at uneven times."""

COUNTERS = ("emitted", "executed", "acked", "failed", "errors")
LEVELS = (
    "batch",
    "batch_ms",
    "waited_ms",
    "p50_ms",
    "p99_ms",
    "pending",
    "held",
    "lag_secs",
    "saved_bytes",
)

_ROW = (*(name for name in COUNTERS if name != "errors"), *LEVELS, "errors")
"""The figures of a written sample in their order; what came later stands behind the others."""
_LEAST_FIGURES = len(_ROW) - 1

Sample = dict[str, float | None]


def sample_of(figures: Mapping[str, Any], errors: int) -> Sample:
    """Return what a series keeps of the figures of a run, and of how many errors it has had."""
    components = list(figures["components"].values())
    spouts = [of for of in components if of["kind"] == "spout"]
    bolts = [of for of in components if of["kind"] != "spout"]
    batch, acker = figures["batch"], figures.get("acker") or {}
    return {
        "emitted": sum(of["emitted"] for of in spouts),
        "executed": sum(of["executed"] for of in bolts),
        "acked": sum(of["acked"] for of in spouts),
        "failed": sum(of["failed"] for of in spouts),
        "batch": batch["id"],
        "batch_ms": batch["ms"],
        "waited_ms": batch["waited_ms"],
        "p50_ms": batch["p50_ms"],
        "p99_ms": batch["p99_ms"],
        "pending": sum(of["pending"] for of in spouts),
        "held": sum(of["held"] for of in bolts),
        "lag_secs": acker.get("lag_secs"),
        "saved_bytes": sum(of["saved_bytes"] for of in components),
        "errors": errors,
    }


class Series:
    """The samples of one run; not safe for use by several threads at once."""

    def __init__(self) -> None:
        self._series: list[deque[tuple[float, Sample]]] = [deque() for _ in _KEPT]

    def add(self, now: float, sample: Sample) -> None:
        """Keep a sample in each series that is due."""
        for series, (apart, kept) in zip(self._series, _KEPT, strict=True):
            if not series or now - series[-1][0] >= apart:
                series.append((now, sample))
            while series and now - series[0][0] > kept:
                series.popleft()

    def last(self, secs: float, now: float) -> dict[str, list[float | None]]:
        """Return `times` and a list for each figure, of the last `secs`; counts as rates."""
        series = next(
            (series for series, (_, kept) in zip(self._series, _KEPT, strict=True) if secs <= kept),
            self._series[-1],
        )
        return _columns([(at, sample) for at, sample in series if at >= now - secs - _SPAN_SECS])

    def dump(self) -> list[list[list[Any]]]:
        """Return all samples in a form that JSON takes."""
        return [
            [[round(at, 1), *(sample.get(name) for name in _ROW)] for at, sample in series]
            for series in self._series
        ]

    @classmethod
    def load(cls, dumped: object) -> Series:
        """Return the series that was dumped; an empty one if `dumped` is not such a document."""
        made = cls()
        try:
            made._series = [deque(_samples(rows)) for rows in dumped]  # type: ignore[attr-defined]
        except (TypeError, ValueError):
            return cls()
        return made if len(made._series) == len(_KEPT) else cls()


def _samples(rows: Iterable[list[Any]]) -> Iterable[tuple[float, Sample]]:
    for at, *values in rows:
        if not _LEAST_FIGURES <= len(values) <= len(_ROW):
            raise ValueError(f"{len(values)} figures in a sample")
        numbers = [None if value is None else float(value) for value in values]
        missing = [None] * (len(_ROW) - len(numbers))
        yield float(at), dict(zip(_ROW, [*numbers, *missing], strict=True))


def _columns(samples: list[tuple[float, Sample]]) -> dict[str, list[float | None]]:
    columns: dict[str, list[float | None]] = {
        name: [] for name in ("times", *(f"{name}_per_sec" for name in COUNTERS), *LEVELS)
    }
    before = 0
    for index, (at, sample) in enumerate(samples):
        while before + 1 < index and at - samples[before + 1][0] >= _SPAN_SECS:
            before += 1
        if index == 0:
            continue  # there is nothing that its rates could be taken from
        then, old = samples[before]
        columns["times"].append(at)
        for name in COUNTERS:
            columns[f"{name}_per_sec"].append(_rate(sample[name], old[name], at - then))
        for name in LEVELS:
            columns[name].append(sample[name])
    return columns


def _rate(now: float | None, before: float | None, secs: float) -> float | None:
    if now is None or before is None or secs <= 0:
        return None
    more = now - before if now >= before else now  # a driver that starts counts anew
    return more / secs
