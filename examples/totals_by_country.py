"""Adds up what customers have spent, by country; a customer who moves takes the total along.

    topo local examples/totals_by_country.py

Customers and totals by customer are tables with the same key, so they share a bolt; the totals by
country are another one. In each batch a total is printed once, after all that has changed.
"""

from __future__ import annotations

from topo import Sum, Topology
from topo.streams import StreamBuilder

CUSTOMERS = (("ann", "France"), ("bob", "France"), ("cleo", "Italy"), ("ann", "Italy"))
ORDERS = (("ann", 30), ("bob", 12), ("cleo", 7), ("ann", 5))


def topology() -> Topology:
    s = StreamBuilder()
    customers = s.stream(CUSTOMERS, fields=("id", "country"), name="customers")
    orders = s.stream(ORDERS, fields=("customer", "amount"), name="orders")
    spent = orders.key_by("customer").aggregate(Sum("amount")).to_table()
    totals = (
        customers.to_table(key="id")
        .join(spent, lambda customer, total: (customer.country, total))
        .group_by(lambda key, value: value[0])
        .aggregate(Sum(lambda value: value[1]))
        .named("totals")
    )
    totals.to_stream().print("total")
    return s.build()
