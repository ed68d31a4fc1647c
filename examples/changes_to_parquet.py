"""Follows two tables of PostgreSQL, joins each order with its customer, and writes Parquet files.

    pip install 'topo-spark[postgres]'
    topo local examples/changes_to_parquet.py

reads the changes of `public.customers` (id, name) and `public.orders` (id, customer, amount) of the
database at `CHANGES_URL`, or at `postgresql://localhost/shop`, whose server needs
`wal_level=logical`. It writes to `CHANGES_OUT`, or `orders/`: a row for each change of an order,
with its customer's name as it was then, exactly once.
"""

from __future__ import annotations

import os
from typing import Any

from topo import BasicBolt, StatefulBasicBolt, Topology, TopologyBuilder, Tuple
from topo.connectors.files import FileBolt
from topo.connectors.sql import PostgresChanges

CUSTOMERS, ORDERS = "public.customers", "public.orders"


class ByCustomer(BasicBolt):
    """Says of each change whose it is, so that a customer and its orders meet in one task."""

    outputs = {"customers": ("customer", "name"), "orders": ("customer", "op", "order", "lsn")}

    def execute(self, tup: Tuple) -> None:
        row: dict[str, Any] = tup.after or tup.before or {}
        if tup.op == "truncate":
            return
        if tup.table == CUSTOMERS:
            name = None if tup.op == "delete" else row["name"]
            self.emit([row["id"], name], stream="customers")
        else:
            self.emit([row.get("customer"), tup.op, row, tup.lsn], stream="orders")


class Join(StatefulBasicBolt):
    """Keeps the names of customers, and adds them to orders."""

    outputs = ("op", "order", "customer", "name", "amount", "lsn")

    def execute(self, tup: Tuple) -> None:
        if tup.source_stream == "orders":
            name, order = self.state.get(tup.customer), tup.order
            amount = order.get("amount")
            self.emit([tup.op, order["id"], tup.customer, name, amount, tup.lsn])
        elif tup.name is None:
            self.state.pop(tup.customer, None)
        else:
            self.state[tup.customer] = tup.name


def changes(url: str, directory: str, roll_secs: float = 60) -> Topology:
    """Return the topology between a database and a directory."""
    builder = TopologyBuilder()
    builder.set_spout("changes", PostgresChanges(url, (CUSTOMERS, ORDERS)))
    builder.set_bolt("split", ByCustomer()).local_or_shuffle_grouping("changes")
    join = builder.set_bolt("join", Join(), parallelism=2)
    join.fields_grouping("split", "customer", stream="customers")
    join.fields_grouping("split", "customer", stream="orders")
    sink = FileBolt(directory, "parquet", guarantee="exactly_once", roll_secs=roll_secs)
    builder.set_bolt("out", sink, parallelism=2).local_or_shuffle_grouping("join")
    return builder.create_topology()


topology = changes(
    os.environ.get("CHANGES_URL", "postgresql://localhost/shop"),
    os.environ.get("CHANGES_OUT", "orders"),
)
