"""Spark's Python daemon with every worker's imports already loaded (`preload` says why).

If that is not possible without threads, Spark's own daemon takes over.
"""

from __future__ import annotations

import gc
import os
import sys

from pyspark.daemon import manager

from topo.engine.spark.worker.preload import preload

_SPARKS_OWN = "pyspark.daemon"


def main() -> None:
    if not preload():
        os.execv(sys.executable, [sys.executable, "-m", _SPARKS_OWN, *sys.argv[1:]])
    # A worker collects garbage after every task; frozen objects are not searched.
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
