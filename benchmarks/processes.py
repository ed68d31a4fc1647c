"""The cost of a run's processes: CPU seconds and resident memory, if there is a /proc.

A run on Spark is a tree of processes: the driver, its JVM, the JVM's Python workers, and the slot
processes. Figures are by kind of process; both functions answer None where there is no /proc.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
DRIVER, JVM, SLOT, WORKER, OTHER = "driver", "jvm", "slot", "worker", "other"


def cpu_seconds(*, with_ended: bool = True) -> dict[str, float] | None:
    """CPU seconds by kind of process, of this process and all below it that are alive.

    Those of processes that have ended count with whoever waited for them, from then on: of a short
    time, leave them out.
    """
    if not _PROC.exists():
        return None
    tick = os.sysconf("SC_CLK_TCK")
    found: dict[str, float] = {}
    for pid, kind in tree():
        fields = _stat(pid)
        if fields:
            # utime, stime, and those of children that were waited for
            own = fields[11 : 15 if with_ended else 13]
            found[kind] = found.get(kind, 0.0) + sum(map(int, own)) / tick
    return found


def cpu_seconds_of(pid: int, thread: int | None = None) -> float:
    """CPU seconds of a process, or of one of its threads."""
    fields = _stat(f"{pid}/task/{thread}" if thread else pid)
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def busiest_thread(pid: int) -> int:
    """The thread of a process that has used the most processor time."""
    threads = [int(entry.name) for entry in (_PROC / str(pid) / "task").iterdir()]
    return max(threads, key=lambda thread: cpu_seconds_of(pid, thread))


def resident_bytes() -> dict[str, int] | None:
    """Resident memory by kind of process; pages that several share are dealt among them."""
    if not _PROC.exists():
        return None
    found: Counter[str] = Counter()
    for pid, kind in tree():
        found[kind] += _proportional_bytes(pid)
    return dict(found)


def slot_pids() -> list[int]:
    """The slot processes of this process's runs."""
    return [pid for pid, kind in tree() if kind == SLOT]


def tree() -> Iterator[tuple[int, str]]:
    """This process and all below it: process id and kind."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    yield os.getpid(), DRIVER
    waiting = list(children.get(os.getpid(), []))
    while waiting:
        pid = waiting.pop()
        yield pid, _kind(pid)
        waiting += children.get(pid, [])


def _kind(pid: int) -> str:
    try:
        command = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return OTHER
    if os.path.basename(command[0]) == b"java":
        return JVM
    if any(b".slot_process import main" in part for part in command):
        return SLOT
    if b"topo.engine.spark.worker.nursery" in command:
        return WORKER
    return WORKER if any(part.startswith(b"pyspark.") for part in command) else OTHER


def _stat(pid: int | str) -> list[str]:
    """The fields of a process's stat file behind its name: state, parent, ...; [] if it is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _proportional_bytes(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
