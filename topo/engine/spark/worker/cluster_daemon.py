"""Spark's Python daemon on a cluster: topo's own, or Spark's if topo's cannot be loaded.

The module is at the top of topo's archive, under a name of its own: importing it must not import
topo. A worker whose Python lacks a package, or is too old for topo's code, can then still report
that (`worker_check`), instead of ending before Spark can ask it anything.
"""

import os
import sys


def main() -> None:
    # The archive is found by a relative name; tracebacks recognise topo's files by absolute paths.
    sys.path[:] = [os.path.abspath(entry) for entry in sys.path]
    try:
        from topo.engine.spark.worker import daemon
    except Exception:
        from pyspark.daemon import manager

        manager()
    else:
        daemon.main()


if __name__ == "__main__":
    main()
