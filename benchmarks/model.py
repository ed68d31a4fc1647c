"""The options and results of a benchmark suite.

A suite is a module `benchmarks/<suite>.py` with one function, `run(options) -> list[Measurement]`.
Every run checks its result against an oracle and measures a plain Python loop doing the same work
in the same process, so that its figure is a ratio that travels between machines.

`Measurement.of` turns repeated measurements into a record: the median is the figure, and the spread
says how far the repeats lay from it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Param = bool | int | float | str


@dataclass(frozen=True)
class BenchOptions:
    """The options of `topo bench`."""

    seconds: float = 20.0
    """How long one measurement lasts, about."""
    repeat: int = 3
    """How many measurements make one figure."""
    workers: int | None = None
    """Slots; None: the cores there are."""
    ackers: int = 1
    rates: tuple[int, ...] = ()
    """Messages a second; of the suite that emits by the clock."""
    modes: tuple[str, ...] = ()
    """The modes of that suite to measure; all by default."""
    progress: Callable[[str], None] = lambda line: None
    """Called with a line for people whenever a measurement starts or ends."""


@dataclass(frozen=True)
class BatchTimes:
    """Micro-batch times in milliseconds, beside those of a plan that does nothing."""

    p50: float
    floor_p50: float | None = None
    p99: float | None = None


@dataclass(frozen=True)
class Measurement:
    """One line of the result: a suite with one set of parameters, measured `repeat` times."""

    suite: str
    params: Mapping[str, Param]
    unit: str
    """What is counted: "words", "updates"."""
    per_sec: float
    spread: float
    """(largest - smallest) / 2 over the median: 0.04 reads as +-4 %."""
    verified: bool
    """The result agreed with the oracle, in every repeat."""
    vs_loop: float | None = None
    """`per_sec` over that of the plain loop measured beside it."""
    cpu_secs: float | None = None
    batch_ms: BatchTimes | None = None
    detail: Mapping[str, Param] = field(default_factory=dict)
    """Further figures of this suite; never compared with a baseline."""

    @classmethod
    def of(
        cls,
        suite: str,
        params: Mapping[str, Param],
        unit: str,
        rates: Sequence[float],
        *,
        verified: bool,
        loop_rates: Sequence[float] = (),
        cpu_secs: float | None = None,
        batch_ms: BatchTimes | None = None,
        detail: Mapping[str, Param] | None = None,
    ) -> Measurement:
        """A record of repeated measurements, each `rates` item one repeat's units per second.

        `loop_rates` are the plain loop's, measured right before or after the repeat of the same
        index; the ratio is the median of the pairs' ratios, so that a machine that slows down for
        a while does not show in it.
        """
        if not rates:
            raise ValueError(f"suite {suite!r}: no measurement")
        if loop_rates and len(loop_rates) != len(rates):
            raise ValueError(f"suite {suite!r}: {len(rates)} rates, {len(loop_rates)} of the loop")
        median = statistics.median(rates)
        ratios = [rate / loop for rate, loop in zip(rates, loop_rates, strict=False)]
        return cls(
            suite=suite,
            params=dict(params),
            unit=unit,
            per_sec=median,
            spread=(max(rates) - min(rates)) / 2 / median,
            verified=verified,
            vs_loop=statistics.median(ratios) if ratios else None,
            cpu_secs=cpu_secs,
            batch_ms=batch_ms,
            detail=dict(detail or {}),
        )
