"""`topo bench start`: the seconds from the command `topo local` to the first counts, by phase.

The word count of the examples is started as a user starts it, in a process of its own, and watched
through its output: the topology is read, Spark is there, the first counts are shown. `cold` has no
archive of Spark's classes, `warm` has one (`topo/engine/spark/jvm/class_archive.py`); files are in
the system's cache for both. What is shown is checked against a plain loop. The processor time is
that of all processes until the first counts; it travels better than seconds from a machine that has
other things to do.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.model import BenchOptions, Measurement
from benchmarks.processes import cpu_seconds
from examples.word_count import TEXT
from topo.engine.spark.jvm.class_archive import CACHE
from topo.errors import RunError

LEAST_SECONDS = 0
MODES = ("micro-batch", "real-time")
_EXAMPLE = Path(__file__).parents[1] / "examples" / "word_count.py"
_PHASES = (
    ("topology", re.compile(r"word_count: \d+ comp")),
    ("spark", re.compile(r"Spark \d.* on ")),
)
_PATIENCE_SECS = 300.0


@dataclass(frozen=True)
class Start:
    """One start: when each phase ended, in seconds since the command."""

    phases: dict[str, float]
    counts: float
    cpu_secs: float
    is_right: bool


def run(options: BenchOptions) -> list[Measurement]:
    """Measure cold and warm starts in both modes, taking turns."""
    modes = [mode for mode in options.modes or MODES if mode in MODES]
    with tempfile.TemporaryDirectory(prefix="topo-bench-") as cache:
        train(options, cache)
        variants = [(mode, kind) for mode in modes for kind in ("cold", "warm")]
        starts: dict[tuple[str, str], list[Start]] = {variant: [] for variant in variants}
        for repeat in range(options.repeat):
            for mode, kind in variants:
                start = _start(mode, cache if kind == "warm" else "")
                starts[mode, kind].append(start)
                options.progress(
                    f"start {mode} {kind}: {repeat + 1} of {options.repeat}: "
                    f"{start.counts:.1f} s, {start.cpu_secs:.1f} s of processor time"
                )
    return [_measurement(mode, kind, starts[mode, kind]) for mode, kind in variants]


def train(options: BenchOptions, cache: str) -> None:
    """Make the archive of Spark's classes."""
    options.progress("start: making the archive of Spark's classes")
    began = time.monotonic()
    environment = {**os.environ, CACHE: cache}
    command = [sys.executable, "-m", "topo.cli", "doctor", "--warm"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    if not [*Path(cache).glob("*.jsa")]:
        raise RunError(
            "there is no archive of Spark's classes", hint="has this Java one of its own?"
        )
    options.progress(f"start: the archive took {time.monotonic() - began:.0f} s")


def _start(mode: str, cache: str) -> Start:
    command = [sys.executable, "-m", "topo.cli", "local", str(_EXAMPLE), "--show", "count"]
    command += ["-c", f"topology.mode={mode}"]
    environment = {**os.environ, CACHE: cache, "PYTHONUNBUFFERED": "1"}
    phases: dict[str, float] = {}
    counted: Counter[str] = Counter()
    first = cpu = 0.0
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    before = sum((cpu_seconds() or {}).values())
    assert process.stdout is not None
    for line in process.stdout:
        now = time.monotonic() - began
        for name, pattern in _PHASES:
            if pattern.search(line):
                phases.setdefault(name, now)
        if line.startswith('{"component"'):
            if not first:
                first, cpu = now, sum((cpu_seconds() or {}).values()) - before
            word, count = json.loads(line)["values"]
            counted[word] = max(counted[word], count)
    if process.wait(_PATIENCE_SECS) or not first:
        raise RunError(f"topo local ended with {process.returncode}", hint=" ".join(command))
    expected = Counter(re.findall(r"\w+", TEXT.decode().lower()))
    return Start(phases, first, cpu, counted == expected)


def _measurement(mode: str, kind: str, starts: list[Start]) -> Measurement:
    middle = sorted(starts, key=lambda start: start.counts)[len(starts) // 2]
    ends = [0.0, *(middle.phases.get(name, 0.0) for name, _ in _PHASES), middle.counts]
    names = [*(name for name, _ in _PHASES), "first_batch"]
    took = {
        f"{name}_secs": round(end - begin, 2)
        for name, begin, end in zip(names, ends, ends[1:], strict=False)
    }
    return Measurement.of(
        "start",
        {"mode": mode, "kind": kind},
        "starts",
        [1 / start.counts for start in starts],
        verified=all(start.is_right for start in starts),
        cpu_secs=sum(start.cpu_secs for start in starts) / len(starts),
        detail={"first_counts_secs": round(middle.counts, 2), **took},
    )
