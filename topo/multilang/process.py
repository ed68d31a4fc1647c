"""The process of a component in another language: its pipes, its threads, its end.

stdin and stdout are non-blocking, and one thread at a time moves bytes in both directions: a
component that waits for task ids at each emit is answered without a change of threads, and neither
side can wait for the other with full pipes. Two threads stand by. One starts the process, logs its
stderr and hears its end; the other watches stdout while the task's own thread is elsewhere.

A process must not outlive its slot, however that ends. A component reads the end of its stdin and
ends; one that does not is killed by Linux (`ends_with_thread`). Linux does so when
the *thread* that started it ends: the first of the two threads stays until the process has ended.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import shutil
import socket
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Protocol

from topo.errors import ShellError, ending_of, printable, words_of
from topo.multilang.wire import Wire
from topo.systems import ends_with_thread

_READ_BYTES = 1 << 18
_WRITE_BYTES = 1 << 16
_TERM_SECS, _KILL_SECS = 2.0, 5.0
"""After its stdin was closed."""
_LOGGED_CHARS = 8192
"""Of a line on stderr."""
_LAST_LINES = 20
_LOOK_SECS = 1.0

_log = logging.getLogger("topo.multilang")
_live: weakref.WeakSet[ShellProcess] = weakref.WeakSet()
_live_lock = threading.Lock()


class Owner(Protocol):
    """A component whose process is watched while its task is elsewhere."""

    def look_at_process(self) -> None:
        """Read what the process has written; called in the watching thread."""
        ...


class ShellProcess:
    """One process. `exchange`, `send` and `close` are for one thread at a time."""

    def __init__(
        self,
        command: Sequence[str],
        wire: Wire,
        directory: Path | None,
        env: Mapping[str, str],
        label: tuple[str, int],
    ) -> None:
        self.command = list(command)
        self.heard_at = perf_counter()
        """When it last said something."""
        self._wire = wire
        self._label = label
        self._out = bytearray()
        """What is being written, up to the end of a message."""
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._stderr: deque[str] = deque(maxlen=_LAST_LINES)
        self._last_error = ""
        self._is_closed = False
        self._watched = threading.Event()
        self._owner: weakref.ref[Owner] | None = None
        _end_orphans(label)
        self._child = self._start(directory, {**os.environ, **env})
        self._stdin, self._stdout = self._child.stdin.fileno(), self._child.stdout.fileno()
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe, False)
        with _live_lock:
            _live.add(self)

    # -- start --------------------------------------------------------------------------------

    def _start(self, directory: Path | None, env: Mapping[str, str]) -> Any:
        self._check_program(directory, env)
        command = ends_with_thread(self.command)
        result: SimpleQueue[Any] = SimpleQueue()

        def keep() -> None:
            try:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd=directory,
                    env=dict(env),
                )
            except OSError as error:
                result.put(error)
                return
            result.put(child)
            self._log_stderr(child.stderr)
            child.wait()

        self._keeper = threading.Thread(target=keep, name="topo-shell", daemon=True)
        self._keeper.start()
        child = result.get()
        if isinstance(child, OSError):
            raise self._no_start(words_of(child)) from child
        return child

    def _check_program(self, directory: Path | None, env: Mapping[str, str]) -> None:
        program = self.command[0]
        if os.sep in program:
            is_there = os.access((directory or Path.cwd()) / program, os.X_OK)
        else:
            is_there = shutil.which(program, path=env.get("PATH")) is not None
        if not is_there:
            raise self._no_start("there is no such program")

    def _no_start(self, why: str) -> ShellError:
        return ShellError(
            f"{self._words} cannot be started on {socket.gethostname()}: {why}",
            hint=f"install {self.command[0]!r} where the tasks run, or give its whole path",
            code="shell-start",
        )

    @property
    def _words(self) -> str:
        return f"`{' '.join(self.command)}`"

    def _log_stderr(self, pipe: Any) -> None:
        with pipe:
            self._log_lines(pipe)

    def _log_lines(self, pipe: Any) -> None:
        for line in iter(lambda: pipe.readline(_LOGGED_CHARS), b""):
            text = printable(line.decode("utf-8", "backslashreplace").rstrip("\r\n"))
            self._stderr.append(text)
            _log.warning("stderr: %s", text, extra={"topo_task": self._label})

    # -- messages -----------------------------------------------------------------------------

    def send(self, message: object) -> None:
        """Queue a message, which the next exchange writes."""
        data = self._wire.encode(message)
        self._queue.append(data)
        self._queued_bytes += len(data)

    def answer(self, message: object) -> None:
        """Write a message before those that are queued: the process waits for task ids."""
        self._out += self._wire.encode(message)

    @property
    def waiting_bytes(self) -> int:
        """The bytes that are not written yet."""
        return len(self._out) + self._queued_bytes

    def exchange(self, secs: float = 0.0) -> list[Any]:
        """Write and read what is possible now, or within `secs`; return the messages.

        Raise ShellError if the process has ended, or written what is no message.
        """
        self.flush()
        data = self._read()
        if data is None and secs > 0:
            self.wait(secs)
            self.flush()
            data = self._read()
        if data is None:
            return []
        if not data:
            raise self._end()
        self.heard_at = perf_counter()
        return self._wire.decode(data)

    def wait(self, secs: float) -> None:
        """Wait until something can be read, or written if something is queued."""
        poll = select.poll()
        try:
            poll.register(self._stdout, select.POLLIN)
            if self.waiting_bytes:
                poll.register(self._stdin, select.POLLOUT)
            poll.poll(secs * 1000)
        except (OSError, ValueError):  # closed meanwhile
            return

    def flush(self) -> None:
        """Write as much as is possible now."""
        while self._out or self._queue:
            while self._queue and len(self._out) < _WRITE_BYTES:
                data = self._queue.popleft()
                self._queued_bytes -= len(data)
                self._out += data
            try:
                size = os.write(self._stdin, self._out)
            except BlockingIOError:
                return
            except OSError:  # it has closed its stdin; its stdout says why
                self._drop_output()
                return
            del self._out[:size]

    def _drop_output(self) -> None:
        self._out.clear()
        self._queue.clear()
        self._queued_bytes = 0

    def _read(self) -> bytes | None:
        try:
            return os.read(self._stdout, _READ_BYTES)
        except BlockingIOError:
            return None

    # -- end ----------------------------------------------------------------------------------

    def note_error(self, text: str) -> None:
        """Remember an `error` that the process sent: it may be its last words."""
        self._last_error = text

    def error(self, what: str, code: str) -> ShellError:
        """Return an error about this process, with the last that it said."""
        parts = [f"{self._words} {what}"]
        if self._last_error:
            parts.append(f"the last error that it sent:\n{self._last_error.rstrip()}")
        if self._stderr:
            parts.append("the end of its stderr:\n" + "\n".join(self._stderr))
        return ShellError("\n".join(parts), code=code)

    def _end(self) -> ShellError:
        try:
            code = self._child.wait(1.0)
        except subprocess.TimeoutExpired:
            return self.error("has closed its stdout, and runs on", "shell-ended")
        self._keeper.join(1.0)  # which reads stderr to its end
        return self.error(f"{ending_of(code)}{self.within_a_message}", "shell-ended")

    @property
    def within_a_message(self) -> str:
        """The words about a message that it has not written to its end; "" if there is none."""
        unread = self._wire.unread()
        return f" within a message that begins with {unread[:80]!r}" if unread else ""

    def kill(self) -> None:
        """End the process at once."""
        if not self._is_closed:
            self._is_closed = True
            self._watched.set()
            with suppress(OSError):
                self._child.kill()
            self._child.wait()
            self._close_pipes()

    def close(self) -> None:
        """End the process: close its stdin, and kill it if it does not end by itself."""
        if self._is_closed:
            return
        self._is_closed = True
        self._watched.set()
        self._drop_output()
        with suppress(OSError):
            self._child.stdin.close()
        self._drain_for(_TERM_SECS)
        if self._child.poll() is None:
            self._child.terminate()
            self._drain_for(_KILL_SECS - _TERM_SECS)
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        self._close_pipes()

    def _drain_for(self, secs: float) -> None:
        """Wait for the end, and read what it writes meanwhile, for which it might wait."""
        until = perf_counter() + secs
        while self._child.poll() is None and perf_counter() < until:
            with suppress(OSError):
                if self._read() is None:
                    self.wait(0.05)
                    continue
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(0.02)

    def _close_pipes(self) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            with suppress(OSError):
                pipe.close()

    # -- watching -----------------------------------------------------------------------------

    def watch(self, owner: Owner) -> None:
        """Begin a thread that has the owner look when something was written, and each second."""
        self._owner = weakref.ref(owner)
        threading.Thread(target=_watch, args=(self,), name="topo-shell-watch", daemon=True).start()

    @property
    def owner(self) -> Owner | None:
        """The component; None if it is no more."""
        return self._owner() if self._owner is not None else None

    @property
    def is_orphan(self) -> bool:
        """True iff the component is no more: its task was built anew."""
        return self._owner is not None and self._owner() is None

    def is_of(self, label: tuple[str, int]) -> bool:
        """Return True if this is a running process of a task of that name."""
        return self._label == label and not self._is_closed

    def set_watched(self, is_watched: bool) -> None:
        """Let the watching thread look from now on, or not."""
        if is_watched:
            self._watched.set()
        else:
            self._watched.clear()

    @property
    def is_watched(self) -> bool:
        """True iff the watching thread may look."""
        return self._watched.is_set() and not self._is_closed

    def await_watch(self) -> bool:
        """Wait until something may have happened; return False if the process is closed."""
        if self._watched.wait(_LOOK_SECS) and not self._is_closed:
            self.wait(_LOOK_SECS)
        return not self._is_closed


def _watch(process: ShellProcess) -> None:
    """Watch until the process is closed, or until its task is no more."""
    while process.await_watch():
        component = process.owner
        if component is None:
            process.kill()
        elif process.is_watched:
            component.look_at_process()
        del component


def _end_orphans(label: tuple[str, int]) -> None:
    """End the process of the same task before it was built anew in this process of ours.

    A task and its component refer to each other, so they are gone when they have been collected.
    """
    with _live_lock:
        others = [process for process in _live if process.is_of(label)]
    if others:
        gc.collect()
        for process in others:
            if process.is_orphan:
                process.kill()
