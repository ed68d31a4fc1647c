"""A crawl of a small web: what a page links to goes back to the bolt that fetches.

    topo local examples/crawl.py --show fetch

The links go over a loop, by the host that they lead to: so one task has seen all pages of a host,
and fetches each once. A seed's message is acked when everything that was found from it is done.
"""

from __future__ import annotations

from collections.abc import Mapping

from topo import BasicBolt, Spout, StatefulBasicBolt, Topology, TopologyBuilder, Tuple

WEB: Mapping[str, tuple[str, ...]] = {
    "a/": ("a/news", "b/"),
    "a/news": ("a/", "c/"),
    "b/": ("b/about", "a/"),
    "b/about": (),
    "c/": ("a/news", "b/"),
}


class Seeds(Spout):
    """Emits where the crawl begins."""

    outputs = ("host", "page")

    def __init__(self) -> None:
        self.left = ["b/", "a/"]
        self.acked: list[str] = []

    def next_tuple(self) -> None:
        if self.left:
            page = self.left.pop()
            self.emit([page.partition("/")[0], page], msg_id=page)

    def ack(self, msg_id: str) -> None:
        self.acked.append(msg_id)

    def is_exhausted(self) -> bool:
        return not self.left


class Fetch(StatefulBasicBolt):
    """Fetches each page of its hosts once."""

    outputs = ("page", "links")

    def execute(self, tup: Tuple) -> None:
        if tup.page not in self.state:
            self.state[tup.page] = True
            self.emit([tup.page, WEB[tup.page]])


class Parse(BasicBolt):
    """Sends every link to the task of its host."""

    outputs = {"links": ("host", "page")}
    stateless = True

    def execute(self, tup: Tuple) -> None:
        for page in tup.links:
            self.emit([page.partition("/")[0], page], stream="links")


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("seeds", Seeds())
    fetch = builder.set_bolt("fetch", Fetch(), 2).fields_grouping("seeds", "host")
    fetch.fields_grouping("parse", "host", stream="links", loop=True)
    builder.set_bolt("parse", Parse(), 2).shuffle_grouping("fetch")
    return builder.create_topology()
