"""One figure: what it counts, in which unit, how it is added up, and what it is called where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

FIGURE = "figure"
"""The key of a dataclass field's metadata that holds its Figure."""


@dataclass(frozen=True)
class Figure:
    """A line of the table. `kind` decides how it is added up and what it becomes elsewhere:

    counter     a number that only grows
    counters    a number that only grows for each value of a label (`by`)
    histogram   how many observations lay below each upper bound (`by` is "le")
    gauge       a level; a component's is the sum of its tasks', or their maximum (`merge`);
                "sticky": tasks report it only when it changes
    gauges      a level for each name the component chose
    mean        the count `source` divided by the counter `per`, times `scale`
    means       the same for each value of a label (`by`)
    share       the seconds counted in `source`, as a part of the time the tasks had
    """

    kind: str
    unit: str
    meaning: str
    label: str = ""  # the column of `topo stats`; figures of one label share it
    name: str = ""
    source: str = ""  # the name of the count; the figure's own if empty
    per: str = ""
    scale: float = 1.0
    by: str = ""
    merge: str = "sum"
    of: str = ""  # the kind of component that has it, if not both
    exposed: str = ""  # its name for Prometheus, if not its own

    @property
    def count(self) -> str:
        return self.source or self.name


def counter(unit: str, meaning: str, **more: Any) -> Any:
    return _line(0, Figure("counter", unit, meaning, **more))


def counters(by: str, unit: str, meaning: str, **more: Any) -> Any:
    return _line(dict, Figure("counters", unit, meaning, by=by, **more))


def histogram(unit: str, meaning: str, **more: Any) -> Any:
    return _line(dict, Figure("histogram", unit, meaning, by="le", **more))


def gauge(unit: str, meaning: str, *, default: Any = 0, **more: Any) -> Any:
    return _line(default, Figure("gauge", unit, meaning, **more))


def gauges(unit: str, meaning: str, **more: Any) -> Any:
    return _line(dict, Figure("gauges", unit, meaning, **more))


def mean(source: str, per: str, scale: float, unit: str, meaning: str, **more: Any) -> Any:
    line = Figure("mean", unit, meaning, source=source, per=per, scale=scale, **more)
    return _line(None, line)


def means(source: str, per: str, scale: float, unit: str, meaning: str, **more: Any) -> Any:
    return _line(dict, Figure("means", unit, meaning, source=source, per=per, scale=scale, **more))


def share(source: str, unit: str, meaning: str, **more: Any) -> Any:
    return _line(None, Figure("share", unit, meaning, source=source, **more))


def _line(default: Any, figure: Figure) -> Any:
    if default is dict:
        return field(default_factory=dict, metadata={FIGURE: figure})
    return field(default=default, metadata={FIGURE: figure})


@cache
def figures_of(shape: type[Any]) -> tuple[Figure, ...]:
    """Return the lines of a table: the fields of a dataclass that have a Figure."""
    return tuple(
        replace(line.metadata[FIGURE], name=line.name)
        for line in fields(shape)
        if FIGURE in line.metadata
    )


BOUNDS = tuple(scale * step for scale in (0.001, 0.01, 0.1, 1.0, 10.0, 100.0) for step in (1, 2, 5))
"""The upper bounds of histograms, in seconds; a last bucket, "+Inf", is for what is longer."""
BUCKETS = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")


def in_buckets(numbers: Iterable[int]) -> dict[str, int]:
    """Name the numbers of observations by their buckets, given in the order of BUCKETS."""
    return {bound: number for bound, number in zip(BUCKETS, numbers, strict=False) if number}


def fresh_counts(figures: Iterable[Figure]) -> dict[str, Callable[[], Any]]:
    """Return what makes an empty count for each count that the figures are computed from."""
    made: dict[str, Callable[[], Any]] = {}
    for figure in figures:
        if figure.kind in ("counters", "histogram", "means"):
            made[figure.count] = Counter
        elif figure.kind == "gauges":
            made[figure.count] = dict
        elif figure.kind in ("mean", "share"):
            made.setdefault(figure.count, float)
        else:
            made.setdefault(figure.count, int)
    return made


def value_of(figure: Figure, counts: Any, kind: str, busy_secs: float) -> Any:
    """Compute a figure of a component of this kind from its counts."""
    count = getattr(counts, figure.count)
    if figure.kind in ("counters", "histogram"):
        return dict(count)
    if figure.kind == "gauges":
        return {name: level for name, level in count.items() if level is not None}
    if figure.kind == "counter" and isinstance(count, Counter):
        return count.total()
    if figure.kind in ("counter", "gauge"):
        return count
    if figure.kind == "means":
        per = getattr(counts, figure.per)
        return {key: total * figure.scale / per[key] for key, total in count.items() if per[key]}
    if figure.of and figure.of != kind:
        return None
    if figure.kind == "share":
        return count / busy_secs if busy_secs else None
    per = getattr(counts, figure.per)
    return count * figure.scale / per if per else None


def difference(
    figures: Iterable[Figure], now: Mapping[str, Any], before: Mapping[str, Any], secs: float
) -> dict[str, Any]:
    """Return the figures counted between two samples; levels are the later ones."""
    found = dict(now)
    for figure in figures:
        if figure.name not in before or not is_told(figure, before):
            continue  # a level, or a document of an earlier topo
        name, value = figure.name, now[figure.name]
        if figure.kind == "counter":
            found[name] = value - before[name]
        elif figure.kind in ("counters", "histogram"):
            more = {key: number - before[name].get(key, 0) for key, number in value.items()}
            found[name] = {key: number for key, number in more.items() if number}
        elif figure.kind == "mean":
            found[name] = _mean_between(figure, now, before)
        elif figure.kind == "means":
            found[name] = _means_between(figure, now, before)
        elif figure.kind == "share" and value is not None:
            found[name] = _busy_between(figure, figures, now, before) / (
                secs * max(1, now["tasks"])
            )
    return found


def _mean_between(
    figure: Figure, now: Mapping[str, Any], before: Mapping[str, Any]
) -> float | None:
    more = now[figure.per] - before[figure.per]
    if now[figure.name] is None or not more:
        return None
    return max(0.0, (total_of(figure, now) - total_of(figure, before)) / float(more))


def _means_between(
    figure: Figure, now: Mapping[str, Any], before: Mapping[str, Any]
) -> dict[str, float]:
    totals, earlier = totals_of(figure, now), totals_of(figure, before)
    more = {key: count - before[figure.per].get(key, 0) for key, count in now[figure.per].items()}
    return {
        key: max(0.0, total - earlier.get(key, 0.0)) / more[key]
        for key, total in totals.items()
        if more.get(key)
    }


def _busy_between(
    share: Figure, figures: Iterable[Figure], now: Mapping[str, Any], before: Mapping[str, Any]
) -> float:
    """Return the seconds counted in a share's source, which the mean of the same source tells."""
    same = next(f for f in figures if f.kind == "mean" and f.source == share.source)
    return max(0.0, total_of(same, now) - total_of(same, before)) / same.scale


def is_told(figure: Figure, sample: Mapping[str, Any]) -> bool:
    """True unless a mean is of an earlier topo, which divided by another count."""
    return not figure.per or figure.per in sample


def total_of(figure: Figure, sample: Mapping[str, Any]) -> float:
    """Return the sum that a mean was computed from."""
    return float(sample[figure.name] or 0.0) * float(sample[figure.per])


def totals_of(figure: Figure, sample: Mapping[str, Any]) -> dict[str, float]:
    """Return the sums that means were computed from, by label."""
    counts = sample[figure.per]
    return {key: mean * counts.get(key, 0) for key, mean in sample[figure.name].items()}
