"""Orders come in until a file appears; what they are worth is added up by fruit."""

from __future__ import annotations

import importlib
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from topo import BasicBolt, Spout, StatefulBasicBolt, TopologyBuilder, Tuple

from .orders import Order, order

log = logging.getLogger("shop")


class Orders(Spout):
    outputs = ("order",)

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.said = 0
        self.acked: list[int] = []
        self.enough = False

    def next_tuple(self) -> None:
        self.enough = self.enough or Path(self.directory, "enough").exists()
        if not self.enough:
            time.sleep(0.01)
            self.said += 1
            self.emit([order(self.said)], msg_id=self.said)

    def ack(self, msg_id: int) -> None:
        self.acked.append(msg_id)

    def is_exhausted(self) -> bool:
        return self.enough

    def close(self) -> None:
        write(self.directory, "orders", {"said": self.said, "acked": sorted(self.acked)})


class Price(BasicBolt):
    """Needs a module that was sent, an archive that was sent, and one of its own, late."""

    outputs = ("fruit", "price")

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.prices = json.loads(Path("prices/prices.json").read_text(encoding="utf-8"))

    def execute(self, tup: Tuple) -> None:
        from .late import taxed

        assert isinstance(tup.order, Order)
        rounded = importlib.import_module("rounding").rounded
        self.emit([tup.order.fruit, rounded(taxed(self.prices[tup.order.fruit]))])


class Totals(StatefulBasicBolt):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Tuple) -> None:
        count, total = self.state.get(tup.fruit, (0, 0))
        if not count:
            log.info("first %s", tup.fruit)
            print("sold", tup.fruit)
        self.state[tup.fruit] = (count + 1, total + tup.price)

    def cleanup(self) -> None:
        known = {"totals": dict(self.state), "topo": sys.modules["topo"].__file__}
        write(self.directory, f"totals-{self.context.this_task_id}", known)


def write(directory: str, name: str, known: dict[str, Any]) -> None:
    Path(directory, f"{name}.json").write_text(json.dumps(known), encoding="utf-8")


def topology(directory: str) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.set_spout("orders", Orders(directory))
    builder.set_bolt("price", Price(), parallelism=2).shuffle_grouping("orders")
    totals = builder.set_bolt("totals", Totals(directory), parallelism=2)
    totals.fields_grouping("price", "fruit")
    return builder
