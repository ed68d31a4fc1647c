"""The counters, gauges and histograms that components choose, in words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from math import isfinite
from typing import Any

from topo.cli.runs import count, duration, size
from topo.metrics.keys import name_and_labels
from topo.metrics.observed import Observed, observed_of

_ELSEWHERE = {"watermark_secs", "watermark_lag_secs", "watermark_held_secs"}
"""Those that the line of a bolt in event time has."""
_MOMENTS = {"oldest_window_secs"}


def chosen_of(document: Mapping[str, Any], *, in_full: bool) -> list[str]:
    """Return a line for each component that has figures of its own.

    Those of one name with many labels are one, with their sum and the largest, unless `in_full`.
    """
    lines = []
    for component, of in document["components"].items():
        parts = []
        for kind in ("counters", "gauges"):
            for name, by_labels in _by_name(of.get(kind) or {}).items():
                if name not in _ELSEWHERE:
                    parts += _parts(name, by_labels, in_full)
        parts += [_spread(observed) for observed in observed_of(of.get("histograms") or {})]
        if parts:
            lines.append(f"{component}: {', '.join(parts)}")
    return lines


def _by_name(chosen: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the levels by name, then by labels in words."""
    levels: dict[str, dict[str, float]] = {}
    for key in sorted(chosen):
        name, labels = name_and_labels(key)
        words = ", ".join(f"{label} {text}" for label, text in labels.items())
        levels.setdefault(name, {})[words] = chosen[key]
    return levels


def _parts(name: str, by_labels: Mapping[str, float], in_full: bool) -> list[str]:
    in_words = partial(_in_words, name)
    if in_full or len(by_labels) == 1:
        return [
            f"{name} {in_words(level)}" + (f" ({labels})" if labels else "")
            for labels, level in by_labels.items()
        ]
    labels, most = max(by_labels.items(), key=lambda item: item[1])
    total = in_words(sum(by_labels.values()))
    return [f"{name} {total} in all of {len(by_labels)}, most {in_words(most)} ({labels})"]


def _spread(observed: Observed) -> str:
    in_words = partial(_in_words, observed.name)
    labels = ", ".join(f"{label} {text}" for label, text in observed.labels.items())
    return (
        f"{observed.name} {count(observed.count)} times, mean {in_words(observed.mean)}, "
        f"half up to {in_words(observed.quantile(0.5))}, "
        f"99 % up to {in_words(observed.quantile(0.99))}" + (f" ({labels})" if labels else "")
    )


def _in_words(name: str, level: float) -> str:
    """Return a level with the unit that the end of its name says."""
    if not isfinite(level):
        return f"{level:g}"
    if name in _MOMENTS:
        return moment(level)
    if name.endswith(("_secs", "_seconds")):
        return duration(level)
    if name.endswith("_bytes"):
        return size(level)
    number = count(level) if level == int(level) else f"{level:.3g}"
    return f"{number} ms" if name.endswith("_ms") else number


def moment(seconds: float) -> str:
    """Return a time since 1970 as a date and a time in UTC."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s"
