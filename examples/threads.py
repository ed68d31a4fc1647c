"""Looks addresses up in six threads, which emit and ack what they have found.

    topo local examples/threads.py --show looked_up

`execute` returns at once. An address whose look-up takes long holds up no other one, and its
message is acked when its own answer is there; what cannot be found fails with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from topo import (
    Bolt,
    FromList,
    OutputCollector,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)

COUNTRIES = {"192.0.2": "Iceland", "198.51.100": "Peru", "203.0.113": "Kenya"}
ADDRESSES = [f"{network}.{host}" for host in range(20) for network in (*COUNTRIES, "233.252.0")]


def country_of(address: str) -> str | None:
    """Ask a service that takes its time; here it is a dictionary."""
    return COUNTRIES.get(address.rpartition(".")[0])


class LookUp(Bolt):
    outputs = ("address", "country")

    def prepare(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: OutputCollector
    ) -> None:
        self.pool = ThreadPoolExecutor(6)

    def execute(self, tup: Tuple) -> None:
        self.pool.submit(self.look_up, tup)

    def look_up(self, tup: Tuple) -> None:
        country = country_of(tup.address)
        if country is None:
            self.fail(tup, reason=f"nobody knows {tup.address}")
            return
        self.emit([tup.address, country], anchors=tup)
        self.ack(tup)

    def cleanup(self) -> None:
        self.pool.shutdown()


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("addresses", FromList(ADDRESSES, fields="address", attempts=1))
    builder.set_bolt("looked_up", LookUp()).shuffle_grouping("addresses")
    return builder.create_topology()
