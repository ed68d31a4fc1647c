"""Thread dumps and samples of a slot, of a topology whose slots are processes of this machine.

`py-spy` samples without a stop where it is installed and the kernel lets it; otherwise the process
of the slot writes its stacks at each signal (`topo/logs/stacks.py`). The signal goes through a
handle of the process, after a look whether it handles the signal: one that does not would die.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from topo.errors import RunError
from topo.logs.stacks import SIGNAL, listening
from topo.manage.files import locked
from topo.manage.processes import processes_of
from topo.manage.records import RunRecord
from topo.manage.views import StacksView, StackView, ThreadView
from topo.systems import open_process

MOST_SECS = 10.0
_EVERY_SECS = 0.04
_WAIT_SECS = 5.0
"""For one dump: a stopped process writes none."""
_MOST_STACKS = 2000
_THREAD = re.compile(
    r"(Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):"
)
_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')
_one_at_a_time = threading.Lock()
_PROC = Path("/proc")


@dataclass(frozen=True)
class _Frame:
    function: str
    file: str
    line: str

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"

    @property
    def place(self) -> str:
        """The function, in which all lines are one for a flame graph."""
        return f"{self.function} ({self.file})"


@dataclass(frozen=True)
class _Thread:
    ident: str
    is_current: bool
    frames: tuple[_Frame, ...]
    """The outermost first."""


def stacks_of(run: RunRecord, slot: int, secs: float) -> StacksView:
    """Return the stacks of a slot's threads, and how often each was met in so many seconds."""
    pid, path = _process_of(run, slot)
    by, samples, counted = "py-spy", 0, _by_py_spy(pid, secs) if secs > 0 else None
    with _exclusive(run), _handle_of(run, pid, slot) as handle:
        last = _dump(pid, path, handle, slot)
        if counted is None:
            by, samples, counted = "faulthandler", 1, Counter(_folded(last))
            ends = time.perf_counter() + min(secs, MOST_SECS)
            while time.perf_counter() < ends:
                time.sleep(_EVERY_SECS)
                counted.update(_folded(_dump(pid, path, handle, slot)))
                samples += 1
    return StacksView(
        name=run.name,
        slot=slot,
        pid=pid,
        by=by,
        samples=samples or sum(counted.values()),
        threads=[
            ThreadView(each.ident, each.is_current, [str(frame) for frame in each.frames])
            for each in sorted(last, key=lambda each: not each.is_current)
        ],
        stacks=[StackView(list(s), count) for s, count in counted.most_common(_MOST_STACKS)],
    )


def slot_processes(run: RunRecord) -> dict[int, int]:
    """Return the process of each slot that can be asked for its stacks."""
    children = _children(run)
    processes = {}
    for path in _log(run).glob("slot-*.stacks"):
        number, _, pid = path.name.removeprefix("slot-").removesuffix(".stacks").partition(".")
        if number.isdigit() and pid.isdigit() and int(pid) in children:
            processes[int(number)] = int(pid)
    return processes


def _log(run: RunRecord) -> Path:
    return run.directory / "log"


def _children(run: RunRecord) -> set[int]:
    return {process.pid for process in processes_of(run.driver_pid, None)} - {run.driver_pid}


def _process_of(run: RunRecord, slot: int) -> tuple[int, Path]:
    """Return the process of a slot, and the file that it writes its stacks to."""
    children = _children(run)
    for path, pid in listening(_log(run), f"slot-{slot}").items():
        if pid in children:
            return pid, path
    raise RunError(
        f"no process of this machine answers for slot {slot} of {run.name}",
        hint=f"the slots of {run.submission.master} may run elsewhere: py-spy dump shows them",
    )


@contextmanager
def _exclusive(run: RunRecord) -> Iterator[None]:
    """Keep others from asking at the same time, of this process and of others."""
    with _one_at_a_time, locked(_log(run) / "stacks.lock"):
        yield


@contextmanager
def _handle_of(run: RunRecord, pid: int, slot: int) -> Iterator[int]:
    """Open a handle of a process, which stands for no other one even after its end."""
    handle = open_process(pid)
    if handle is None:
        raise RunError(f"slot {slot} of {run.name} has ended, or cannot be asked on this system")
    try:
        if pid not in _children(run) or not _bit(_PROC / str(pid) / "status", "SigCgt"):
            raise RunError(f"the process of slot {slot} of {run.name} does not answer to signals")
        yield handle
    finally:
        os.close(handle)


def _dump(pid: int, path: Path, handle: int, slot: int) -> list[_Thread]:
    """Return the stacks of a process's threads at this moment."""
    deaf = _blocking(pid)  # for other reasons than that its handler runs
    os.truncate(path, 0)
    try:
        signal.pidfd_send_signal(handle, SIGNAL)
    except OSError:
        raise RunError(f"slot {slot} has ended meanwhile") from None
    deadline = time.perf_counter() + _WAIT_SECS
    while True:
        is_delivered = not _bit(_PROC / str(pid) / "status", "ShdPnd")
        if is_delivered and path.stat().st_size and _blocking(pid) <= deaf:
            return list(_threads(path.read_text(errors="replace").splitlines()))
        if time.perf_counter() > deadline:
            raise RunError(
                f"slot {slot} (process {pid}) wrote no stacks in {_WAIT_SECS:g} s",
                hint="it may be stopped, or wait for a disk: ps shows its state",
            )
        time.sleep(0.002)


def _bit(status: Path, field: str) -> bool:
    """Return True if the signal is in a mask of a process or thread."""
    with suppress(OSError, ValueError):
        for line in status.read_text().splitlines():
            name, _, mask = line.partition(":")
            if name == field:
                return bool(int(mask, 16) >> (SIGNAL - 1) & 1)
    return False


def _blocking(pid: int) -> set[str]:
    """Return the threads that block the signal: a handler does so while it runs."""
    with suppress(OSError):
        threads = list((_PROC / str(pid) / "task").iterdir())
        return {thread.name for thread in threads if _bit(thread / "status", "SigBlk")}
    return set()


def _threads(lines: Iterable[str]) -> Iterator[_Thread]:
    """Yield the threads of a dump of faulthandler."""
    head: re.Match[str] | None = None
    frames: list[_Frame] = []
    for line in [*lines, ""]:
        start = _THREAD.fullmatch(line)
        if head and (start or not line):
            name = head[3] or head[2]
            yield _Thread(name, head[1] == "Current thread", tuple(reversed(frames)))
            head = None
        if start:
            head, frames = start, []
        elif frame := _FRAME.fullmatch(line):
            frames.append(_Frame(frame[3], _short(frame[1]), frame[2]))


def _short(path: str) -> str:
    """Return the part of a path that tells modules apart: below the packages, or its end."""
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in path:
            return path.rpartition(mark)[2]
    return "/".join(path.split("/")[-2:])


def _folded(threads: Iterable[_Thread]) -> Iterator[tuple[str, ...]]:
    for each in threads:
        if each.frames:
            yield tuple(frame.place for frame in each.frames)


def _by_py_spy(pid: int, secs: float) -> Counter[tuple[str, ...]] | None:
    """Return the stacks that py-spy samples; None if it is not there or may not look."""
    program = shutil.which("py-spy")
    if program is None:
        return None
    command = [program, "record", "--pid", str(pid), "--rate", "100", "--nonblocking"]
    command += ["--duration", str(max(1, round(min(secs, MOST_SECS)))), "--format", "raw"]
    try:
        done = subprocess.run(
            [*command, "--output", "/dev/stdout"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=MOST_SECS + 20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _folded_lines(done.stdout.decode(errors="replace")) if done.returncode == 0 else None


def _folded_lines(text: str) -> Counter[tuple[str, ...]] | None:
    """Return the stacks of py-spy's raw format: frames with semicolons, and a number."""
    counted: Counter[tuple[str, ...]] = Counter()
    for line in text.splitlines():
        stack, _, number = line.rpartition(" ")
        if stack and number.isdigit():
            counted[tuple(_without_line(frame) for frame in stack.split(";"))] += int(number)
    return counted or None


def _without_line(frame: str) -> str:
    return re.sub(r":\d+\)$", ")", frame)
