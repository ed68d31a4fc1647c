"""Replays a day's trades, a minute of them in a second, and takes the mean price of each minute.

    topo local examples/replayed_trades.py --show means

`ReplaySpout` takes a pandas frame or the path of a CSV file in the place of the list: then this is
yesterday's file, tried with tomorrow's code. Windows are the same at any speed.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from topo import EventTime, Mean, Topology, TopologyBuilder, Tumbling, WindowAggregate
from topo.connectors.replay import ReplaySpout

OPENING = datetime(2026, 1, 2, 9, tzinfo=UTC)
SPEED = 60.0


def trades(count: int) -> list[dict[str, Any]]:
    """Return a trade every five seconds, of two symbols in turn."""
    return [
        {
            "at": OPENING + timedelta(seconds=5 * number),
            "symbol": "AB"[number % 2],
            "price": round(100 + 10 * math.sin(number / 20), 2),
        }
        for number in range(count)
    ]


def means() -> WindowAggregate:
    return WindowAggregate(
        window=Tumbling(timedelta(minutes=1)),
        time=EventTime("at", unit="datetime"),
        key="symbol",
        aggregates={"mean": Mean("price")},
    )


def topology(count: str = "240") -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("trades", ReplaySpout(trades(int(count)), time="at", speed=SPEED))
    builder.set_bolt("means", means()).fields_grouping("trades", ["symbol"])
    return builder.create_topology()
