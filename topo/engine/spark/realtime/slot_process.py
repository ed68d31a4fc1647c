"""The process of a slot in real-time mode: started by the driver, or in a cluster by an executor.

It learns over its standard input where the driver is and how to be found by Spark's tasks; what to
run the driver says. When whoever started it ends, in any way, standard input ends with it, and so
does this process. On one machine it also waits, after a failure, to be ended.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from topo.engine.spark.process.slot import Lifeline, freeze, speak_as
from topo.engine.spark.realtime.loop import SlotLoop
from topo.engine.spark.realtime.messages import Place
from topo.errors import words_of


def main() -> None:
    """Run what the driver says."""
    lifeline = Lifeline()
    place = Place.unpack(lifeline.read_setup())
    lifeline.end_with(lambda: None)
    speak_as(place.path)
    try:
        loop = SlotLoop(place)
    except OSError as error:
        # Spark's task, which waits for the socket, tells of it in the place of this process.
        words = f"it cannot reach the driver at {place.coordinator}: {words_of(error)}"
        Path(f"{place.path}.words").write_text(words, encoding="utf-8")
        sys.exit(words)
    freeze()
    loop.run()
    threading.Event().wait()  # whoever started it decides when it ends


if __name__ == "__main__":
    main()
