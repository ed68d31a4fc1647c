"""Spouts of given items, in place of a topology's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from topo.errors import TopoError
from topo.lists import FromList
from topo.runtime.emitter import check_values
from topo.shipping.pickling import pickle_locally, pickle_to_travel
from topo.topology.model import ComponentDef, Topology

Items = Iterable[list[Any] | tuple[Any, ...]]
MockSources = Mapping[str, Items | Mapping[str, Items]]


class MockSpout(FromList):
    """A spout of items on several streams, each of which is emitted once."""

    def __init__(self, items: list[tuple[str, list[Any]]]) -> None:
        super().__init__(items, attempts=1)

    def send(self, item: tuple[str, list[Any]], position: int) -> None:
        stream, values = item
        self.emit(values, stream=stream, msg_id=position)


def with_mock_sources(topology: Topology, mock_sources: MockSources) -> Topology:
    """Return the topology with these spouts replaced by ones that emit the items."""
    components = dict(topology.components)
    for name, items in mock_sources.items():
        spout = topology.component(name)
        if not spout.is_spout:
            raise TopoError(f"mock_sources: {name!r} is a bolt; only spouts are mocked")
        components[name] = _mocked(spout, items)
    return Topology(components.values(), topology.warnings, topology.user_classes)


def _mocked(spout: ComponentDef, items: Any) -> ComponentDef:
    streams = items if isinstance(items, Mapping) else {"default": items}
    flat = []
    for stream, rows in streams.items():
        for values in rows:
            check_values(values, f"mock_sources: spout {spout.id!r} was given")
            flat.append((stream, list(values)))
    mock = MockSpout(flat)
    return replace(
        spout,
        class_name="MockSpout",
        pickled=pickle_to_travel(mock),
        local=pickle_locally(mock),
        finite=True,
        external={},
    )
