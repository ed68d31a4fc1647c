"""The figures and errors of a run over all of its drivers.

A driver counts from its own start. What the drivers before it had counted lies in the documents
that the last of them wrote, and is added to everything that this one shows and writes: a restart
does not begin the totals anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

from topo.metrics.figure import Figure, is_told, total_of, totals_of
from topo.metrics.figures import ACKER, BATCH, COMPONENT

MOST_ERRORS = 1000
_TIMES_OF_BATCHES = ("worked_secs", "wait_secs")


def continued(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures `now` with what was counted `before`; levels are those of now."""
    if before is None:
        return dict(now)
    secs = _busy_secs(before), _busy_secs(now)
    return {
        **now,
        "batch": _batches(before.get("batch"), now["batch"]),
        "components": {
            name: _component(before["components"].get(name), of, secs)
            for name, of in now["components"].items()
        },
        "acker": _sum(ACKER, before.get("acker"), now.get("acker")),
    }


def all_errors(
    before: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the errors of both, the latest first; equal ones are one with their count."""
    errors: dict[tuple[str, ...], dict[str, Any]] = {}
    for error in [*before, *now]:
        key = tuple(str(error[name]) for name in ("component", "kind", "type", "message"))
        earlier = errors.get(key)
        errors[key] = dict(error)
        if earlier is not None:
            errors[key]["count"] += earlier["count"]
            errors[key]["first"] = earlier["first"]
    latest = sorted(errors.values(), key=lambda error: float(error["last"]), reverse=True)
    return latest[:MOST_ERRORS]


def _component(
    before: Mapping[str, Any] | None, now: Mapping[str, Any], secs: tuple[float, float]
) -> dict[str, Any]:
    whole = _sum(COMPONENT, before, now, secs) or {}
    earlier = (before or {}).get("by_task") or {}
    whole["by_task"] = {
        task: _component(earlier.get(task), of, secs)
        for task, of in (now.get("by_task") or {}).items()
    }
    return whole


def _batches(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> dict[str, Any]:
    whole = _sum(BATCH, before, now) or {}
    if before is not None:
        for name in _TIMES_OF_BATCHES:
            whole[name] = before[name] + now[name]
        both = before["by_seconds"], now["by_seconds"]
        whole["by_seconds"] = [sum(counts) for counts in zip_longest(*both, fillvalue=0)]
        if not now["count"]:  # the last batch was the earlier driver's
            whole |= {name: before[name] for name in ("id", "ms", "rows", "waited_ms")}
    return whole


def _sum(
    figures: Iterable[Figure],
    before: Mapping[str, Any] | None,
    now: Mapping[str, Any] | None,
    secs: tuple[float, float] = (0.0, 0.0),
) -> dict[str, Any] | None:
    if before is None or now is None:
        return None if now is None else dict(now)
    whole = dict(now)
    for figure in figures:
        name = figure.name
        if name not in before or name not in now or not is_told(figure, before):
            continue  # a document of an earlier topo
        if figure.kind == "counter":
            whole[name] = before[name] + now[name]
        elif figure.kind in ("counters", "histogram"):
            whole[name] = {
                key: before[name].get(key, 0) + now[name].get(key, 0)
                for key in {**before[name], **now[name]}
            }
        elif figure.kind == "mean":
            count = before[figure.per] + now[figure.per]
            total = total_of(figure, before) + total_of(figure, now)
            is_known = count and (before[name] is not None or now[name] is not None)
            whole[name] = total / count if is_known else None
        elif figure.kind == "means":
            whole[name] = _means(figure, before, now)
        elif figure.kind == "share" and any(secs):
            busy = (before[name] or 0.0) * secs[0] + (now[name] or 0.0) * secs[1]
            whole[name] = None if before[name] is now[name] is None else busy / (secs[0] + secs[1])
        elif figure.merge == "sticky" and not now[name]:
            whole[name] = before[name]
    return whole


def _means(figure: Figure, before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, float]:
    sums = totals_of(figure, before), totals_of(figure, now)
    counts = before[figure.per], now[figure.per]
    means = {}
    for key in {**sums[0], **sums[1]}:
        if count := sum(each.get(key, 0) for each in counts):
            means[key] = sum(each.get(key, 0.0) for each in sums) / count
    return means


def _busy_secs(figures: Mapping[str, Any]) -> float:
    """Return the time of all batches, of which shares are parts."""
    batch = figures.get("batch") or {}
    return float(sum(batch.get(name, 0.0) for name in _TIMES_OF_BATCHES))
