"""Adds up what customers have spent, by country; a customer who moves takes the total along.

    topo local examples/totals_by_country.py

Customers and totals by customer are tables with the same key, so they share a bolt; the totals by
country are another one. In each batch a total is printed once, after all that has changed.
"""

from __future__ import annotations

from typing import Any

from topo import Spout, Sum, Topology
from topo.streams import StreamBuilder

CUSTOMERS = (("ann", "France"), ("bob", "France"), ("cleo", "Italy"), ("ann", "Italy"))
ORDERS = (("ann", 30), ("bob", 12), ("cleo", 7), ("ann", 5))


class Rows(Spout):
    """Emits each row of a list once."""

    def __init__(self, fields: tuple[str, ...], rows: tuple[tuple[Any, ...], ...]) -> None:
        self.outputs = fields
        self.left = list(rows)

    def next_tuple(self) -> None:
        if self.left:
            self.emit(list(self.left.pop(0)), msg_id=len(self.left))

    def is_exhausted(self) -> bool:
        return not self.left


def topology() -> Topology:
    s = StreamBuilder()
    customers = s.stream(Rows(("id", "country"), CUSTOMERS), name="customers").to_table(key="id")
    orders = s.stream(Rows(("customer", "amount"), ORDERS), name="orders")
    spent = orders.key_by("customer").aggregate(Sum("amount")).to_table()
    totals = (
        customers.join(spent, lambda customer, total: (customer.country, total))
        .group_by(lambda key, value: value[0])
        .aggregate(Sum(lambda value: value[1]))
        .named("totals")
    )
    totals.to_stream().print("total")
    return s.build()
