"""The modules that Spark's Python processes need, imported before processes are forked.

Spark forks its Python workers from a daemon that has imported next to nothing, so that each worker
spends half a second on importing pandas, pyarrow and others, and holds a copy of them all: six
workers for the three levels of a word count. Spark's reason is that imports may start threads,
which do not survive a fork. The imports of this module start none once linear algebra and the
allocator are configured so; whoever forks looks whether that is so.
"""

from __future__ import annotations

import importlib
import os
import threading

_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_NEEDED = (
    "pandas",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.streaming.stateful_processor_util",
    "topo.tracking.client",
    "topo.engine.spark.worker.stages",
)


def preload() -> bool:
    """Import everything; return False if that failed, or if threads forbid forks.

    Whoever needs a module that cannot be imported reports that error more clearly.
    """
    os.environ.update(_NO_THREADS)
    try:
        for module in _NEEDED:
            importlib.import_module(module)
    except Exception:
        return False
    return threads() == 1


def threads() -> int:
    """Return the number of threads, including those unknown to Python if there is a /proc."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()
