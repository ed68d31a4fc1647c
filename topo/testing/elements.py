"""The elements that an operator of a program of streams gave, out of the tuples of its component.

Elements travel as tuples of a key, a value and, with event time, a time that no operator sees. A
test wants what the next operator gets.
"""

from __future__ import annotations

from typing import Any

from topo.streams.graph import KEY, TIME, VALUE
from topo.streams.records import make_record
from topo.streams.window_results import BOUNDS, PANE, Window, WindowResult, reported
from topo.testing.cluster import SteppedRun
from topo.testing.complete import CompletedTopology
from topo.topology.model import ComponentDef

_HIDES_TIMES = {"BatchTotalBolt", "ChainBolt", "ProcessBolt", "RunningBolt", "StateBolt"}
"""The bolts of operators whose elements are plain values."""


def elements(run: SteppedRun | CompletedTopology, name: str) -> list[Any]:
    """Return the elements that the operator of this name gave, in order.

    `run` is that of a program of streams: of `TestCluster.submit_topology`, or completed.
    """
    component = run.topology.component(name)
    fields = component.declared("default").fields
    return [_element(component, fields, row) for row in run.tuples(name)]


def _element(component: ComponentDef, fields: tuple[str, ...], row: list[Any]) -> Any:
    if component.class_name == "WindowAggregate" and fields[:3] == (KEY, *BOUNDS):
        if fields[3] != VALUE:
            return make_record(fields, tuple(row))
        pane = {field: value for field, value in zip(fields, row, strict=True) if field in PANE}
        window = reported(row[1], row[2], **pane)
        return WindowResult(((row[0], window), row[3]))
    if fields in ((KEY, VALUE), (KEY, VALUE, TIME)):
        key, value = row[:2]
        by_window = isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], Window)
        return WindowResult((key, value)) if by_window else (key, value)
    hides_time = fields == (VALUE, TIME) and component.class_name in _HIDES_TIMES
    return row[0] if len(fields) == 1 or hides_time else make_record(fields, tuple(row))
