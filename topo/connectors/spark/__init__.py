"""Spark's own sources as spouts, and its sinks as bolts: `SparkSource` and `SparkSink`.

A component says as data what is to be read or written; the Spark engine does it. Other engines have
no Spark and refuse such a topology, unless a test gives `mock_sources` for its spouts.
"""

from topo.connectors.spark.sink import SparkSink
from topo.connectors.spark.source import SparkSource

__all__ = ["SparkSink", "SparkSource"]
