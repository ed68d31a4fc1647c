"""Durations in files: "90s", "10m", "1h30m", where Python has a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from topo.errors import ConfigError, shown
from topo.event_time import Duration

_MICROSECONDS = {
    "us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000,
    "d": 86_400_000_000,
}  # fmt: skip
_WHOLE = re.compile(r"(?:[0-9]+(?:us|ms|[smhd]))+")
_STEP = re.compile(r"([0-9]+)(us|ms|[smhd])")


def duration_of(value: Any, what: str, error: type[ConfigError], code: str) -> Duration:
    """Return the duration of a file's value: an int as it is, or a text such as "10m"."""
    if not isinstance(value, str):
        duration: Duration = value  # looked at where it is used
        return duration
    if not _WHOLE.fullmatch(value):
        raise error(
            f"{what} is {shown(value, 40)}, which is no duration",
            hint='write "90s", "10m" or "1h30m"',
            code=code,
        )
    steps = _STEP.findall(value)
    return timedelta(microseconds=sum(int(n) * _MICROSECONDS[unit] for n, unit in steps))


def duration_text(duration: Duration) -> int | str:
    """Return what `duration_of` reads: the least number of units that says it exactly."""
    if isinstance(duration, int):
        return duration
    micros = duration // timedelta(microseconds=1)
    unit = max((u for u, each in _MICROSECONDS.items() if micros % each == 0),
               key=_MICROSECONDS.__getitem__)  # fmt: skip
    return f"{micros // _MICROSECONDS[unit]}{unit}"
