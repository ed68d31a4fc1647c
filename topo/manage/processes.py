"""The processes of a run on this machine, as /proc tells; none where there is no /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from topo.manage.views import ProcessView

_COMMAND_CHARS = 200
_ROLE_CHARS = 30


def processes_of(driver_pid: int | None, supervisor_pid: int | None) -> list[ProcessView]:
    """Return the supervisor, and the driver with all that descends from it."""
    proc = Path("/proc")
    if not proc.is_dir():
        return []
    parents = {pid: parent for pid in _pids(proc) if (parent := _parent(proc, pid)) is not None}
    wanted = [pid for pid in (supervisor_pid, driver_pid) if pid is not None]
    if driver_pid is not None:
        wanted += [pid for pid in parents if _descends(pid, driver_pid, parents)]
    found = [_process(proc, pid, driver_pid, supervisor_pid) for pid in wanted]
    return [process for process in found if process is not None]


def memory_of_machine() -> tuple[int | None, int | None]:
    """Return the bytes of memory this machine has, and those that are free for processes."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None, None
    rows = (line.partition(":") for line in lines)
    sizes = {name: int(size.split()[0]) << 10 for name, _, size in rows}
    return sizes.get("MemTotal"), sizes.get("MemAvailable")


def _pids(proc: Path) -> Iterator[int]:
    return (int(name) for name in os.listdir(proc) if name.isdigit())


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    seen = {pid}
    while (parent := parents.get(pid)) is not None and parent not in seen:
        if parent == ancestor:
            return True
        seen.add(parent)
        pid = parent
    return False


def _stat(proc: Path, pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the command's name, which may hold anything."""
    try:
        return (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None  # it has ended meanwhile


def _parent(proc: Path, pid: int) -> int | None:
    fields = _stat(proc, pid)
    return int(fields[1]) if fields else None


def _process(
    proc: Path, pid: int, driver: int | None, supervisor: int | None
) -> ProcessView | None:
    fields = _stat(proc, pid)
    try:
        command = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    if not fields or not command:
        return None
    words = command.decode(errors="replace").split("\0")
    ticks = os.sysconf("SC_CLK_TCK")
    return ProcessView(
        pid=pid,
        role=_role(pid, words, driver, supervisor),
        command=" ".join(words).strip()[:_COMMAND_CHARS],
        memory_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        cpu_secs=(int(fields[11]) + int(fields[12])) / ticks,
    )


def _role(pid: int, words: list[str], driver: int | None, supervisor: int | None) -> str:
    if pid in (driver, supervisor):
        return "driver" if pid == driver else "supervisor"
    # A process may write a title over its command line, such as "postgres: writer".
    name = Path((words[0].split() or [""])[0]).name.rstrip(":")[:_ROLE_CHARS]
    if name == "java":
        return "Spark (JVM)"
    return "Python worker" if name.startswith("python") else name
