"""Names and ages of people, joined by their number: Storm's JoinBolt.

    topo local examples/people_joined.py --show joined

Both sources come in another order. What is in the same window of ten seconds is joined; the windows
are of arrival, and what a source that ends has sent is joined at its end at the latest.
"""

from __future__ import annotations

from datetime import timedelta

from topo import FromList, JoinBolt, Topology, TopologyBuilder

NAMES = [(number, name) for number, name in enumerate(("ann", "bob", "cleo", "dan", "eve"))]
AGES = [(number, 20 + number) for number in range(6, 0, -1)]


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("names", FromList(NAMES, fields=("id", "name")))
    builder.set_spout("ages", FromList(AGES, fields=("id", "age")))
    join = (
        JoinBolt("names", "id")
        .join("ages", "id", "names")
        .select("names:id,name,age")
        .with_tumbling_window(timedelta(seconds=10))
    )
    joined = builder.set_bolt("joined", join, parallelism=2)
    joined.fields_grouping("names", ["id"]).fields_grouping("ages", ["id"])
    return builder.create_topology()
