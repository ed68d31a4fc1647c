"""Replays failed messages: a spout that keeps each order until it is acked.

    topo local examples/reliable_spout.py

An order that fails is sent again after a pause, three times at most; after that it goes to the
`rejected` stream. What is pending or waits for its replay are plain attributes, so they are saved
and restored with everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topo import (
    BasicBolt,
    FailTuple,
    Spout,
    Topology,
    TopologyBuilder,
    Tuple,
)

ORDERS = [f"order-{number}" for number in range(1, 21)]


@dataclass
class Attempt:
    """An order on its way: how often it was sent, and when it may be sent again."""

    order: str
    number: int = 1
    not_before: float = 0.0


class Orders(Spout):
    outputs = {"default": ("order", "attempt"), "rejected": ("order", "reason")}

    def __init__(self, orders: list[str], attempts: int = 3, pause_secs: float = 1.0) -> None:
        self.orders = orders
        self.attempts = attempts
        self.pause_secs = pause_secs
        self.position = 0
        self.pending: dict[str, Attempt] = {}
        self.waiting: list[Attempt] = []

    def get_component_configuration(self) -> Mapping[str, Any]:
        return {"topology.max.spout.pending": 1000}  # which bounds `pending`, too

    def next_tuple(self) -> None:
        now = self.context.now()
        if self.waiting and self.waiting[0].not_before <= now:
            self.send(self.waiting.pop(0))
        elif self.position < len(self.orders):
            self.send(Attempt(self.orders[self.position]))
            self.position += 1

    def send(self, attempt: Attempt) -> None:
        self.pending[attempt.order] = attempt
        self.emit([attempt.order, attempt.number], msg_id=attempt.order)

    def ack(self, msg_id: Any) -> None:
        # A verdict may come twice after a crash, so the order may be gone already.
        self.pending.pop(msg_id, None)

    def fail(self, msg_id: Any, reason: str = "") -> None:
        attempt = self.pending.pop(msg_id, None)
        if attempt is None:
            return
        if attempt.number == self.attempts:
            self.emit([attempt.order, reason], stream="rejected")
            return
        attempt.number += 1
        attempt.not_before = self.context.now() + self.pause_secs
        self.waiting.append(attempt)

    def is_exhausted(self) -> bool:
        return self.position == len(self.orders) and not self.waiting and not self.pending


class Ship(BasicBolt):
    """Ships orders; fails some of them at first, and one of them every time."""

    outputs = ("order", "attempt")
    stateless = True

    def execute(self, tup: Tuple) -> None:
        number = int(tup.order.removeprefix("order-"))
        if number == 13:
            raise FailTuple("no such address")
        if number % 5 == 0 and tup.attempt == 1:
            raise FailTuple("out of stock", report=True)  # report: also in `topo errors`
        self.emit([tup.order, tup.attempt])


class Complain(BasicBolt):
    def execute(self, tup: Tuple) -> None:
        print(f"{tup.order} was given up: {tup.reason}")


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("orders", Orders(ORDERS))
    builder.set_bolt("ship", Ship(), parallelism=2).shuffle_grouping("orders")
    builder.set_bolt("complain", Complain()).global_grouping("orders", stream="rejected")
    return builder.create_topology()
