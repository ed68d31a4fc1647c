"""`topo logs --set` and `--sample`: what is asked of the logs of a topology while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from topo.cli.failures import usage_error
from topo.cli.output import Output
from topo.logs.reader import LEVELS
from topo.logs.requests import (
    LEVEL_SECS,
    MOST_LEVEL_SECS,
    MOST_PER_SEC,
    MOST_SAMPLE_SECS,
    SAMPLE_SECS,
)
from topo.manage.api import Management
from topo.manage.documents import plain
from topo.manage.views import LogRequestsView

ROOT = "root"
"""The name on the command line of the logger whose name is empty."""


@dataclass(frozen=True)
class Level:
    """A level for a logger, for a time."""

    logger: str
    level: str
    secs: float


@dataclass(frozen=True)
class Rate:
    """How many tuples of each task are logged in a second, for a time."""

    per_sec: float
    secs: float


def parse_level(text: str) -> Level:
    """Return the level that `LOGGER=LEVEL[:SECS]` asks for."""
    logger, _, wish = text.partition("=")
    level, colon, secs = wish.partition(":")
    if not logger or level.upper() not in LEVELS:
        raise usage_error(
            f"--set takes LOGGER=LEVEL[:SECS]; got {text!r}",
            at="--set",
            hint=f"the levels are {', '.join(LEVELS)}; the root logger is {ROOT}",
        )
    limit = _number(secs, "--set", MOST_LEVEL_SECS) if colon else LEVEL_SECS
    return Level("" if logger == ROOT else logger, level.upper(), limit)


def parse_rate(text: str) -> Rate:
    """Return the rate that `PER_SEC[:SECS]` asks for."""
    per_sec, colon, secs = text.partition(":")
    return Rate(
        _number(per_sec, "--sample", MOST_PER_SEC),
        _number(secs, "--sample", MOST_SAMPLE_SECS) if colon else SAMPLE_SECS,
    )


def _number(text: str, option: str, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        raise usage_error(f"{option}: {text!r} is no number from 0 to {most:,.0f}", at=option)
    return number


def ask(
    out: Output,
    management: Management,
    name: str,
    levels: Sequence[Level],
    component: str | None,
    rate: Rate | None,
) -> None:
    """Ask for levels and a sample, and print everything that is asked for then."""
    if rate is not None and component is None:
        raise usage_error(
            "--sample logs the tuples of one component",
            at="--sample",
            hint=f"topo logs {name} COMPONENT",
        )
    for level in levels:
        management.set_log_level(name, level.logger, level.level, level.secs)
    if rate is not None and component is not None:
        management.sample(name, component, rate.per_sec, rate.secs)
    _show(out, management.log_requests(name))


def _show(out: Output, requests: LogRequestsView) -> None:
    if out.json:
        out.answer_json(plain(requests))
        return
    for level in requests.levels:
        out.answer(f"logger {level.logger or ROOT}: {level.level} until {_clock(level.until)}")
    for sample in requests.samples:
        rate = f"{sample.per_sec:g} tuples a second of each task"
        out.answer(f"{sample.component}: {rate} until {_clock(sample.until)}")
    if not (requests.levels or requests.samples):
        out.answer("Nothing is asked of the logs.")


def _clock(until: float) -> str:
    return f"{datetime.fromtimestamp(until):%H:%M:%S}"
