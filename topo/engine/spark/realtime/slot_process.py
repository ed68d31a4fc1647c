"""The process of a slot in real-time mode: started by the driver, or in a cluster by an executor.

It learns over its standard input where the driver is and how to be found by Spark's tasks; what to
run the driver says. When whoever started it ends, in any way, standard input ends with it, and so
does this process. On one machine it also waits, after a failure, to be ended.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
from pathlib import Path
from typing import IO

from topo.engine.spark.realtime.loop import SlotLoop
from topo.engine.spark.realtime.messages import Place
from topo.engine.spark.worker.doing import open_note
from topo.engine.spark.worker.slot_process import GARBAGE_THRESHOLDS, take_standard_input
from topo.errors import words_of
from topo.logs.capture import keep_logs
from topo.runtime.slot import note_in


def main() -> None:
    """Run what the driver says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to answer
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # as it was started with
    source = take_standard_input()
    try:
        place = Place.read(source)
    except EOFError:
        sys.exit(0)
    threading.Thread(target=_end_with, args=(source,), daemon=True).start()
    keep_logs(os.path.basename(place.path))
    note_in(open_note(place.path))
    try:
        loop = SlotLoop(place)
    except OSError as error:
        # Spark's task, which waits for the socket, tells of it in the place of this process.
        words = f"it cannot reach the driver at {place.coordinator}: {words_of(error)}"
        Path(f"{place.path}.words").write_text(words, encoding="utf-8")
        sys.exit(words)
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    loop.run()
    threading.Event().wait()  # whoever started it decides when it ends


def _end_with(source: IO[bytes]) -> None:
    with contextlib.suppress(OSError):
        while source.read(1):
            pass
    if os.getpgrp() == os.getpid():  # with the children that user code has forked
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
