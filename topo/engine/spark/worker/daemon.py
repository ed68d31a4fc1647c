"""Spark's Python daemon with every worker's imports already loaded.

Spark forks its Python workers from a daemon that has imported next to nothing, so that each worker
spends half a second on importing pandas, pyarrow and others, and holds a copy of them all: six
workers for the three levels of a word count. Spark's reason is that imports may start threads,
which do not survive a fork. The imports of this module start none once linear algebra and the
allocator are configured so; if a thread exists all the same, Spark's own daemon takes over.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading

from pyspark.daemon import manager

_SPARKS_OWN = "pyspark.daemon"
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_NEEDED = (
    "pandas",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "topo.tracking.client",
    "topo.engine.spark.worker.stages",
)


def main() -> None:
    os.environ.update(_NO_THREADS)
    if not _load() or threads() > 1:
        os.execv(sys.executable, [sys.executable, "-m", _SPARKS_OWN, *sys.argv[1:]])
    # A worker collects garbage after every task; frozen objects are not searched.
    gc.collect()
    gc.freeze()
    manager()


def _load() -> bool:
    """Return False if an import fails; the worker reports that error more clearly."""
    try:
        for module in _NEEDED:
            importlib.import_module(module)
    except Exception:
        return False
    return True


def threads() -> int:
    """Return the number of threads, including those unknown to Python if there is a /proc."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


if __name__ == "__main__":
    main()
