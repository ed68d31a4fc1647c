"""Running suites, describing the machine, and holding the result against a baseline.

A run is compared with the baseline's run of the same suite and parameters: by its ratio to the
plain loop where both have one, since that outlasts a busy minute of the machine, else by its rate.
"""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.model import BenchOptions, Measurement, Param
from topo.cli.output import short_number
from topo.errors import TopoError, did_you_mean

SUITES = (
    "word-count",
    "latency",
    "start",
    "idle",
    "inline",
    "acker",
    "scale",
    "workers",
    "state",
    "memory",
    "windows",
    "connect",
    "streams",
    "columns",
    "columns-on-spark",
    "word-peers",
    "patterns",
    "rules",
    "keyed",
    "pages",
)
DEFAULT_SUITE = SUITES[0]


class BenchError(TopoError):
    """No such suite, a measurement too short to mean anything, or a baseline that does not fit."""

    code = "bench"


@dataclass(frozen=True)
class Machine:
    """The facts of a machine on which a figure depends besides the code."""

    cores: int
    cpu: str
    memory_gb: float | None
    system: str
    python: str
    topo: str
    pyspark: str
    numpy: str

    @classmethod
    def this(cls) -> Machine:
        return cls(
            cores=len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1,
            cpu=_cpu_model(),
            memory_gb=_memory_gb(),
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            python=platform.python_version(),
            topo=_version("topo"),
            pyspark=_version("pyspark"),
            numpy=_version("numpy"),
        )


@dataclass(frozen=True)
class Comparison:
    """A run beside the baseline's."""

    suite: str
    params: Mapping[str, Param]
    figure: str
    """What was compared: "vs_loop" or "per_sec"."""
    before: float
    now: float
    allowed: bool

    @property
    def change(self) -> float:
        return self.now / self.before - 1

    def __str__(self) -> str:
        verdict = "ok" if self.allowed else "slower than allowed"
        return (
            f"{self.suite} {show_params(self.params)}: {self.figure} {self.before:.3g} -> "
            f"{self.now:.3g} ({self.change:+.1%}) {verdict}"
        )


def check_suites(names: Sequence[str], options: BenchOptions) -> None:
    """Raise BenchError if a suite is unknown or would be measured for too short a time."""
    for name in names:
        if name not in SUITES:
            hint = did_you_mean(name, SUITES)
            there_are = f"there are: {', '.join(SUITES)}"
            raise BenchError(
                f"no suite {name!r}", hint=f"{hint} {there_are}" if hint else there_are
            )
        suite = _suite(name)
        least = getattr(suite, "LEAST_SECONDS", 0)
        if options.seconds < least:
            raise BenchError(
                f"--seconds {options.seconds:g}: {suite.LEAST_REASON}; {least:g} is the least",
                hint=f"--seconds {least:g}",
            )


def run_suites(names: Sequence[str], options: BenchOptions) -> list[Measurement]:
    runs: list[Measurement] = []
    for name in names:
        runs += _suite(name).run(options)
    return runs


def to_document(runs: Sequence[Measurement], machine: Machine) -> dict[str, Any]:
    return {"machine": asdict(machine), "runs": [asdict(run) for run in runs]}


def compare(
    runs: Sequence[Measurement],
    baseline: Mapping[str, Any],
    machine: Machine,
    tolerance: float,
    *,
    force: bool = False,
) -> list[Comparison]:
    """Each run beside its baseline; runs that the baseline does not have are left out."""
    try:
        then: Mapping[str, Any] = baseline["machine"]
        before = {_key(run["suite"], run["params"]): run for run in baseline["runs"]}
        other = (then["cores"], then["cpu"])
    except (KeyError, TypeError) as error:
        raise BenchError(
            f"the baseline is no result of topo bench: {error} is missing",
            hint="write one with --out",
        ) from None
    if other != (machine.cores, machine.cpu) and not force:
        if then["cores"] != machine.cores:
            what = f"{then['cores']} cores; this has {machine.cores}"
        else:
            what = f"{then['cpu']}; this is {machine.cpu}"
        raise BenchError(f"baseline is of another machine ({what})", hint="--force")
    found = []
    for run in runs:
        old = before.get(_key(run.suite, run.params))
        if old is None:
            continue
        by_ratio = run.vs_loop is not None and old.get("vs_loop") is not None
        figure = "vs_loop" if by_ratio else "per_sec"
        was, now = float(old[figure]), float(getattr(run, figure))
        found.append(
            Comparison(run.suite, run.params, figure, was, now, now >= was * (1 - tolerance))
        )
    return found


COLUMNS = ("SUITE", "PARAMS", "PER SEC", "(spread)", "vs loop", "CPU-s", "CHECK")


def table_rows(runs: Sequence[Measurement]) -> list[list[str]]:
    return [
        [
            run.suite,
            show_params(run.params),
            short_number(run.per_sec),
            f"+-{run.spread:.0%}",
            "-" if run.vs_loop is None else f"{run.vs_loop:.2f}",
            "-" if run.cpu_secs is None else f"{run.cpu_secs:.0f}",
            "ok" if run.verified else "WRONG",
        ]
        for run in runs
    ]


def show_params(params: Mapping[str, Param]) -> str:
    return " ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in params.items()
    )


def _suite(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{name.replace('-', '_')}")


def _key(suite: str, params: Mapping[str, Param]) -> tuple[object, ...]:
    return (suite, *sorted(params.items()))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None
