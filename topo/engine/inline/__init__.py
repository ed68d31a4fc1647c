"""The single-threaded engine: the test kit's, and the oracle for the Spark engine."""

from topo.engine.inline.run import InlineRun

__all__ = ["InlineRun"]
