"""Orders joined with the payments that come within an hour; what is not paid goes elsewhere.

    topo local examples/orders_payments.py

An order without a payment is known as such when the watermark has passed its hour, and comes out
once. Here the input is a list that ends, and then the hour of every order is over.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from topo import BasicBolt, EventTime, Topology, Tuple
from topo.streams import StreamBuilder

MINUTE = 60_000
ORDERS = [("o1", 0, 30), ("o2", 5 * MINUTE, 12), ("o3", 20 * MINUTE, 99)]
PAYMENTS = [("o1", 10 * MINUTE, 30), ("o3", 85 * MINUTE, 99), ("o9", 90 * MINUTE, 1)]


class Reminders(BasicBolt):
    """Reminds of orders that are not paid."""

    outputs = ("order", "amount")

    def execute(self, tup: Tuple) -> None:
        order, _ = tup.value
        print(f"order {order.id} of {order.amount} is not paid")
        self.emit([order.id, order.amount])


def booking(element: tuple[str, tuple[Any, Any]]) -> tuple[str, int]:
    """Return what is booked of an order and its payment."""
    key, (_, payment) = element
    return key, payment.amount


def topology() -> Topology:
    s = StreamBuilder()
    time = EventTime("ts")
    orders = s.stream(ORDERS, fields=("id", "ts", "amount"), time=time, name="orders")
    payments = s.stream(PAYMENTS, fields=("order", "ts", "amount"), time=time, name="payments")
    both = orders.key_by("id").left_join(
        payments.key_by("order"), within=(timedelta(0), timedelta(hours=1))
    )
    routes = both.branch(paid=lambda element: element[1][1] is not None, default="unpaid")
    routes["paid"].map(booking).print("booked")
    routes["unpaid"].to(Reminders(), name="reminders")
    return s.build()
