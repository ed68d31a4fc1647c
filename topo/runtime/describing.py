"""How the bolts of a topology run, in words, without running them: for `topo explain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topo.components import BasicBolt, Bolt
from topo.functions import FunctionBolt
from topo.runtime.emitter import Emitter
from topo.runtime.out_streams import OutStream
from topo.runtime.text_change import Reading
from topo.runtime.users_loops import CALLS_BY_HAND, CALLS_OF_BASIC, UsersLoops
from topo.shipping.pickling import load_component
from topo.timed import TimedBolt
from topo.topology.model import ComponentDef, Topology
from topo.ways import BY_BATCH, BY_TUPLE, BY_VALUES, hook_of


def ways_of(topology: Topology, conf: Mapping[str, Any]) -> dict[str, str]:
    """Return for each bolt of the user's how it gets its input, and whether it is rewritten."""
    tracking = bool(conf["topology.acker.executors"])
    ways = {}
    for definition in topology.bolts:
        component = load_component(definition)
        if isinstance(component, Bolt | BasicBolt) and _is_users(component):
            ways[definition.id] = _way_of(topology, definition, component, tracking)
    return ways


def _is_users(component: Bolt | BasicBolt) -> bool:
    is_topos = type(component).__module__.partition(".")[0] == "topo"
    return isinstance(component, FunctionBolt) or not (is_topos or isinstance(component, TimedBolt))


def _way_of(
    topology: Topology, definition: ComponentDef, component: Bolt | BasicBolt, tracking: bool
) -> str:
    hook = hook_of(component) if isinstance(component, BasicBolt) else BY_TUPLE
    if hook == BY_BATCH:
        return "by batch"
    streams = [
        OutStream(output.name, output.fields, output.direct, [], index)
        for index, output in enumerate(definition.outputs)
    ]
    outlet = Emitter(definition.id, 1, streams, strict=False, debug=False, orders_all=True)
    readings = [
        Reading(read.component, read.stream, declared.fields)
        for read in definition.inputs
        if (declared := topology.component(read.component).output(read.stream)) is not None
    ]
    calls = CALLS_OF_BASIC if isinstance(component, BasicBolt) else CALLS_BY_HAND
    loops = UsersLoops(component, outlet, readings, calls, hook=hook, tracking=tracking)
    way = "by values" if hook == BY_VALUES else "by tuple"
    if loops.refusal:
        return f"{way}, as it is written: {loops.refusal}"
    return f"{way}, rewritten to work on columns"
