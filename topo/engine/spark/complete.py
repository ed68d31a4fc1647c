"""`complete_topology(engine="spark")`: a finite topology on Spark, from its start to its end."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from topo.engine.spark.driver.run import SparkRun
from topo.topology.model import Topology

if TYPE_CHECKING:
    from topo.testing.complete import CompletedTopology

_LONGEST_SECS = 300.0


def complete_on_spark(topology: Topology, conf: Mapping[str, Any] | None) -> CompletedTopology:
    """Run until every spout is exhausted and nothing is in flight."""
    from topo.testing.complete import CompletedTopology

    run = SparkRun("complete", topology, conf, capture=tuple(topology.components), conclusions=True)
    for text in run.warnings:
        warnings.warn(text, stacklevel=3)
    run.start()
    try:
        run.await_completion(_LONGEST_SECS)
    finally:
        run.kill()
    return CompletedTopology(topology, run.rows, run.acked, run.failed)
