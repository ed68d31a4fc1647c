"""Counts clicks by user, from one Kafka topic to another, each exactly once.

    pip install 'topo-spark[kafka]'
    topo local examples/clicks_kafka.py

reads `{"user": "ann"}` from the topic `clicks` of the broker at `localhost:9092`, or at
`CLICKS_SERVERS`, and writes `{"user":"ann","count":1}` to `counts`.
"""

from __future__ import annotations

import os

from topo import StatefulBasicBolt, Topology, TopologyBuilder, Tuple
from topo.connectors.kafka import KafkaBolt, KafkaSpout


class Count(StatefulBasicBolt):
    """Counts the clicks of each user."""

    outputs = ("user", "count")

    def execute(self, tup: Tuple) -> None:
        self.state[tup.user] = self.state.get(tup.user, 0) + 1
        self.emit([tup.user, self.state[tup.user]])


def clicks(servers: str, source: str = "clicks", target: str = "counts") -> Topology:
    """Return the topology between two topics."""
    spout = KafkaSpout(
        servers, source, value="json", fields="user", guarantee="exactly_once", on_bad="skip"
    )
    sink = KafkaBolt(servers, target, key="user", guarantee="exactly_once")
    builder = TopologyBuilder()
    builder.set_spout("clicks", spout, parallelism=2)
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("clicks", ["user"])
    builder.set_bolt("counts", sink).shuffle_grouping("count")
    return builder.create_topology()


topology = clicks(os.environ.get("CLICKS_SERVERS", "localhost:9092"))
