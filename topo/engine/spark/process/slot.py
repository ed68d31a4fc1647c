"""A slot's process from within: what it begins with, and how it ends with whoever started it."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from typing import IO

from topo.engine.spark.process.doing import open_note
from topo.engine.spark.process.framing import read_block
from topo.errors import sentence_of
from topo.logs.capture import keep_logs
from topo.logs.stacks import write_stacks_on_signal
from topo.runtime.slot import note_in
from topo.wire.column import dump

# Thousands of rows wait between two flushes: a collection after every 700th allocation costs a
# tenth of the time of a word count, after every 50,000th next to nothing.
GARBAGE_THRESHOLDS = (50_000, 20, 20)


class Lifeline:
    """Standard input, which the driver, or Spark's executor, keeps open for as long as it lives."""

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to answer
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # as it was started with
        self._source = _take_standard_input()

    def read_setup(self) -> bytes:
        """Return what this process is told first; exit if there is nothing more to be told."""
        try:
            return read_block(self._source.read)
        except EOFError:
            sys.exit(0)

    def end_with(self, clean: Callable[[], None]) -> None:
        """End this process, and what it has forked, when standard input ends; `clean` before."""

        def wait() -> None:
            with contextlib.suppress(OSError):
                while self._source.read(1):
                    pass
            clean()
            if os.getpgrp() == os.getpid():  # with the children that user code has forked
                os.killpg(0, signal.SIGKILL)
            os._exit(0)

        threading.Thread(target=wait, daemon=True).start()


def _take_standard_input() -> IO[bytes]:
    """Return what comes over standard input, which is empty for everybody else from now on.

    A thread waits for its end for as long as the process lives. What user code reads, or a program
    that it starts, would wait with it; a forked child closes it first of all, and would wait for
    that thread's lock.
    """
    source = os.fdopen(os.dup(0), "rb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    return source


def speak_as(path: str) -> None:
    """Log, and note what is executed, as the slot whose socket is at `path`."""
    keep_logs(os.path.basename(path))
    write_stacks_on_signal(os.path.basename(path))
    note_in(open_note(path))


def freeze() -> None:
    """Keep what is loaded out of every collection of garbage, and collect seldom."""
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def portable(error: BaseException) -> bytes:
    """Return an error as bytes that can be unpickled elsewhere, or its text as a RuntimeError's."""
    try:
        data = dump(error)
        pickle.loads(data)
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {sentence_of(error)}"))
    return data
