"""Histograms that components keep themselves: how values of any size are spread.

Nobody says in advance how large the values will be, so the limits are 1, 2 and 5 times every power
of ten, and a limit is counted once something lay at it or below. A histogram is stored as counts of
its own, which are added up over tasks, batches and drivers as all counts are: one for each limit,
named by the label `le`, and the sum of the values by `le="sum"`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

import numpy as np

from topo.context import LIMIT
from topo.metrics.keys import name_and_labels

_SUM = "sum"
_BOUNDS = (0.0, *(float(f"{step}e{power}") for power in range(-9, 13) for step in (1, 2, 5)))
_LIMITS = (*(f"{bound:.15g}" for bound in _BOUNDS), "+Inf")


def in_ranges(values: Mapping[str, Sequence[float]]) -> Counter[str]:
    """Return the counts of histograms, given with the values that each one got."""
    counts: Counter[str] = Counter()
    for key, observed in values.items():
        if not observed:
            continue
        stem, brace, labels = key.partition("{")
        before = f"{stem}{{{labels[:-1]}," if brace else f"{stem}{{"
        numbers = np.asarray(observed)
        places = np.bincount(np.searchsorted(_BOUNDS, numbers), minlength=len(_LIMITS))
        for place in np.flatnonzero(places).tolist():
            counts[f'{before}{LIMIT}="{_LIMITS[place]}"}}'] = int(places[place])
        counts[f'{before}{LIMIT}="{_SUM}"}}'] = float(numbers.sum())  # type: ignore[assignment]
    return counts


@dataclass
class Observed:
    """One histogram."""

    name: str
    labels: Mapping[str, str]
    sum: float = 0.0
    buckets: dict[float, int] = field(default_factory=dict)
    """By limit, how many values lay at it or below, and above the limit before."""

    @property
    def count(self) -> int:
        return sum(self.buckets.values())

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.buckets else 0.0

    def quantile(self, part: float) -> float:
        """Return the limit at or below which this part of the values lay."""
        limits = sorted(self.buckets)
        least = part * self.count
        counts = accumulate(self.buckets[limit] for limit in limits)
        return next(
            (limit for limit, below in zip(limits, counts, strict=True) if below >= least), inf
        )

    def cumulated(self) -> Iterator[tuple[str, int]]:
        """Yield, by each limit between the smallest and the largest, how many lay at it or below.

        The last one is infinite. Those that nothing lay at are given too: what reads the histogram
        again later finds the limits of before.
        """
        finite = [bound for bound in _BOUNDS if bound in self.buckets]
        first, last = (finite[0], finite[-1]) if finite else (inf, -inf)
        below = 0
        for bound, limit in zip(_BOUNDS, _LIMITS, strict=False):  # the last limit has no bound
            if first <= bound <= last:
                below += self.buckets.get(bound, 0)
                yield limit, below
        yield _LIMITS[-1], self.count


def observed_of(counts: Mapping[str, float]) -> list[Observed]:
    """Return the histograms of a component, of their counts."""
    histograms: dict[tuple[str, tuple[tuple[str, str], ...]], Observed] = {}
    for key, number in counts.items():
        name, labels = name_and_labels(key)
        limit = labels.pop(LIMIT, "")
        if limit not in (*_LIMITS, _SUM):
            continue  # a damaged document
        observed = histograms.setdefault((name, tuple(labels.items())), Observed(name, labels))
        if limit == _SUM:
            observed.sum = number
        else:
            observed.buckets[float(limit)] = int(number)
    return [histograms[key] for key in sorted(histograms)]
