"""The process of one slot in real-time mode: started by the driver, ended with it.

It learns over its standard input what to run. When the driver ends, however it ends, standard input
ends with it, and so does this process.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading

from topo.engine.spark.realtime.loop import SlotLoop
from topo.engine.spark.realtime.messages import SlotSetup
from topo.engine.spark.worker.doing import open_note
from topo.engine.spark.worker.slot_process import (
    GARBAGE_THRESHOLDS,
    read_setup,
    take_standard_input,
)
from topo.logs.capture import keep_logs
from topo.runtime.slot import note_in


def main() -> None:
    """Run the slot that standard input tells of."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to answer
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # as it was started with
    source = take_standard_input()
    name, import_path, packed = read_setup(source)
    ended = threading.Event()

    def follow_driver() -> None:
        while source.read(1):
            pass
        os._exit(0)

    threading.Thread(target=follow_driver, daemon=True).start()
    sys.path[:] = import_path
    keep_logs(name)
    setup: SlotSetup = pickle.loads(packed)
    note_in(open_note(os.path.join(setup.sockets, name)))
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    SlotLoop(setup).run()
    ended.wait()  # the driver decides what becomes of the run


if __name__ == "__main__":
    main()
