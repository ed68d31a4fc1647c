"""From operators to bolts: which operators share a bolt, and how bolts read each other.

A *hub* is an operator whose results leave a component: a spout, an operator with state, a bolt of
the user's, or a point where streams are merged or dealt anew. The stateless operators behind a hub
become one bolt (`ChainBolt`), which reads the hub by local_or_shuffle, so that the engine runs it
in the hub's own stage. Operators with state read the chain by fields grouping on the key, unless
the elements of a key are together already: then by same_task grouping, which needs no exchange.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from topo.components import OutputFieldsDeclarer
from topo.errors import StreamError
from topo.event_time import EventTime
from topo.streams.chain_code import KEY, STATELESS, ChainExit, ChainPlan, ChainSource, path_to
from topo.streams.chains import ChainBolt
from topo.streams.elements import GROUPINGS
from topo.streams.graph import Node
from topo.streams.joins import cogroup_bolt, common_time, duration, join_bolt, later_time
from topo.streams.keyed import Dedupe, ProcessBolt
from topo.streams.program import (
    Outlet,
    PlannedComponent,
    Program,
    Read,
    pairs_source,
    plain_source,
    time_behind,
    time_position,
    topology_of,
)
from topo.streams.running import BatchTotalBolt, RunningBolt
from topo.streams.table_plans import LAZY, TablePlans
from topo.streams.trident import UPDATES, StateBolt
from topo.streams.windowed import Adding, Merging, partial_of_window, reads_nothing
from topo.timed import TimedBolt
from topo.windows.aggregate import WindowAggregate
from topo.windows.assigners import Global

RUNNING = {
    "aggregate", "count", "reduce", "fold", "min", "max", "top", "collect", "update_state_by_key",
}  # fmt: skip
ACTIONS = {"for_each", "for_each_batch"}
_VALUES = "value"
_BY_KEY = RUNNING | {"persistent_aggregate"}
_KEEPS_KEY = {"filter", "with_value", "peek", "map_values", "flat_map_values"}


def compile_program(nodes: list[Node]) -> Program:
    """Compile the operators of a builder."""
    if not nodes:
        raise StreamError("the program has no stream", hint="begin with builder.stream(MySpout())")
    return _Compiler(nodes).compile()


class _Compiler:
    """One compilation."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._components: dict[str, PlannedComponent] = {}
        self._hubs: dict[int, Outlet] = {}
        self._exits: dict[tuple[int, int], Outlet] = {}  # by node, of those that leave a chain
        self._counts: dict[str, int] = {}
        self._tables = TablePlans(nodes, self._add_reading, self._exit_of)

    def compile(self) -> Program:
        for node in self._nodes:
            if node.kind not in STATELESS | ACTIONS | LAZY:
                self._make(node)
        components = list(self._components.values())
        return Program(topology_of(components), components)

    # -- hubs ---------------------------------------------------------------------------------

    def _make(self, node: Node) -> None:
        """Make the component of an operator, then the chain behind it."""
        place = self._component_of(node)
        if place is not None:
            self._hubs[id(node)] = place
            self._make_chain(node, place)

    def _component_of(self, node: Node) -> Outlet | None:
        kind = node.kind
        if kind == "stream":
            return self._spout(node)
        if kind in ("to", "through"):
            return self._user_bolt(node)
        if kind in ("merge", "repartition"):
            return self._junction(node)
        if kind == "aggregate" and not node.keyed:
            return self._batch_total(node)
        if kind in RUNNING:
            return self._running(node)
        if kind in ("process", "dedupe"):
            return self._process(node)
        if kind == "persistent_aggregate":
            return self._state(node)
        if kind == "state_updates":
            state = self._components[self._hubs[id(node.inputs[0])].component]
            return self._place(state, UPDATES, pairs_source(None), None)
        if kind == "state_query":
            return self._query(node)
        if kind == "window":
            return self._window(node)
        if kind in ("join", "cogroup"):
            return self._join(node)
        if kind in ("table_stream", "table_lookup"):
            return self._table(node)
        raise StreamError(f"internal error: no component for {kind!r}; please report this")

    def _spout(self, node: Node) -> Outlet:
        spout, time = node.options["spout"], node.options["time"]
        declarer = OutputFieldsDeclarer()
        spout.declare_output_fields(declarer)
        if "default" not in declarer.streams:
            raise StreamError(
                f"{type(spout).__name__} declares no default stream",
                hint='give it outputs = ("value",)',
                at=node.place,
            )
        fields = tuple(declarer.streams["default"].fields)
        position = time_position(time, fields, node)
        made = self._add(node, spout, node.options["parallelism"])
        return self._place(made, "default", ChainSource(fields, False, time=position), time)

    def _user_bolt(self, node: Node) -> Outlet | None:
        bolt = node.options["bolt"]
        made = self._add(node, bolt, node.options["parallelism"])
        hub = self._hubs.get(id(node.inputs[0]))
        place = hub if hub is not None and not hub.source.window else self._exit_of(node)
        made.reads.append(Read(place.component, place.stream, "shuffle"))
        if node.kind == "to":
            return None
        declarer = OutputFieldsDeclarer()
        bolt.declare_output_fields(declarer)
        if "default" not in declarer.streams:
            raise StreamError(
                f"{type(bolt).__name__} declares no default stream to continue with",
                hint='give it outputs = ("value",), or write .to(...)',
                at=node.place,
            )
        fields = tuple(declarer.streams["default"].fields)
        return self._place(made, "default", ChainSource(fields, False), None)

    def _junction(self, node: Node) -> Outlet:
        """Make a chain that reads several streams, or one that is dealt anew."""
        places = [self._exit_of(node, number) for number in range(len(node.inputs))]
        times = {place.time for place in places}
        if len(times) > 1:
            raise StreamError(
                "merged streams have different event times",
                hint="give all of them the same EventTime, or none",
                at=node.place,
            )
        source = pairs_source(places[0].time) if node.keyed else plain_source(places[0].time)
        plan = ChainPlan(source, timed=places[0].time is not None)
        leaving = ChainExit(node, stream="default")
        plan.exits.append(leaving)
        parallelism = node.options.get("parallelism") or max(p.parallelism for p in places)
        made = self._add(node, ChainBolt(plan), parallelism)
        grouping = GROUPINGS[node.options["by"]] if "by" in node.options else "local_or_shuffle"
        made.reads += [Read(place.component, place.stream, grouping) for place in places]
        return self._place(made, "default", source, places[0].time)

    def _batch_total(self, node: Node) -> Outlet:
        part = self._exit_of(node)
        made = self._add(node, BatchTotalBolt(node.function), 1)
        made.reads.append(Read(part.component, part.stream, "global"))
        return self._place(made, "default", plain_source(None), None)

    def _running(self, node: Node) -> Outlet:
        before = self._exit_of(node)
        bolt = RunningBolt(
            node.function, timed=before.time is not None, drops=node.options.get("drops", False)
        )
        made = self._keyed(node, bolt, before)
        place = self._place(made, "default", pairs_source(before.time), before.time)
        return replace(place, is_by_key=True)

    def _process(self, node: Node) -> Outlet:
        before = self._exit_of(node)
        if node.kind == "dedupe":
            within = node.function
            if within is not None and before.time is not None:
                within = duration(before.time.ticks(within, "within"), before.time)
                if before.time.unit == "s" and isinstance(within, timedelta):
                    within = within.total_seconds()
            elif within is not None:
                within = within.total_seconds()
            process: Any = Dedupe(within, before.time is not None)
        else:
            process = node.function
        made = self._keyed(node, ProcessBolt(process, time_behind(before.time), node.keyed), before)
        source = pairs_source(before.time) if node.keyed else plain_source(before.time)
        return self._place(made, "default", source, before.time)

    def _state(self, node: Node) -> Outlet:
        part = self._exit_of(node)
        bolt = StateBolt(node.function, node.options["outside"])
        made = self._keyed(node, bolt, part)
        return self._place(made, UPDATES, pairs_source(None), None)

    def _query(self, node: Node) -> Outlet:
        question = self._exit_of(node)
        state = self._components[self._hubs[id(node.inputs[1])].component]
        answers = f"answers_{len(state.made.queries) + 1}"
        state.made.queries[f"{question.component} {question.stream}"] = (answers, node.function)
        state.reads.append(Read(question.component, question.stream, "fields", (KEY,)))
        state.operators.append(node)
        return self._place(state, answers, pairs_source(None), None)

    def _window(self, node: Node) -> Outlet:
        before = self._exit_of(node)
        options = {k: v for k, v in node.options.items() if k != "parallelism"}
        if options.get("mode") == "retract":
            raise StreamError(
                "windows of streams do not take results back",
                hint="use WindowAggregate(mode='retract') by .through(...)",
                at=node.place,
            )
        time = time_behind(before.time)
        in_parts = _has_panes(node, before.time)
        combiner = Merging(node.function.combiner) if in_parts else node.function
        bolt = WindowAggregate(key=KEY, time=time, aggregates={_VALUES: combiner}, **options)
        made = self._keyed(node, bolt, before)
        declarer = OutputFieldsDeclarer()
        bolt.declare_output_fields(declarer)
        fields = tuple(declarer.streams["default"].fields)
        if time is None or isinstance(node.options["window"], Global):
            # The window of all time has no end, so its results have no time.
            return self._place(made, "default", ChainSource(fields, True, True), None)
        source = ChainSource(fields, True, True, fields.index("end"), unit=time.unit)
        return self._place(made, "default", source, replace(time, lag=0))

    def _join(self, node: Node) -> Outlet:
        places = [self._exit_of(node, number) for number in range(len(node.inputs))]
        components = [place.component for place in places]
        time = common_time(node, components, [place.time for place in places])
        streams = [(place.component, place.stream) for place in places]
        make = join_bolt if node.kind == "join" else cogroup_bolt
        bolt = make(node, streams, time)
        parallelism = max(place.parallelism for place in places)
        made = self._add(node, bolt, node.options["parallelism"] or parallelism)
        made.reads += [Read(p.component, p.stream, "fields", (KEY,)) for p in places]
        later = None if time is None else later_time(time, bolt.result_delay())
        return self._place(made, "default", pairs_source(later), later)

    def _table(self, node: Node) -> Outlet:
        if node.kind == "table_lookup":
            kept, stream = self._tables.lookup(node), "default"
        else:
            kept, stream = self._tables.stream(node)
        return Outlet(kept.component, stream, pairs_source(kept.time), kept.parallelism, kept.time)

    def _add_reading(
        self,
        node: Node,
        bolt: Any,
        parallelism: int,
        reads: list[tuple[str, str, str]],
        operators: list[Node],
    ) -> str:
        made = self._add(node, bolt, parallelism)
        made.operators = list(dict.fromkeys([*operators, node]))
        made.reads += [Read(component, stream, "fields", (by,)) for component, stream, by in reads]
        return made.name

    def _keyed(self, node: Node, bolt: Any, before: Outlet) -> PlannedComponent:
        parallelism = node.options.get("parallelism") or before.parallelism
        made = self._add(node, bolt, parallelism)
        stays = before.is_by_key and parallelism == before.parallelism
        by = ("same_task", ()) if stays and not isinstance(bolt, TimedBolt) else ("fields", (KEY,))
        made.reads.append(Read(before.component, before.stream, *by))
        return made

    # -- chains -------------------------------------------------------------------------------

    def _make_chain(self, hub: Node, place: Outlet) -> None:
        """Make the bolt of the stateless operators behind a hub, if something needs it."""
        plan = ChainPlan(place.source, timed=place.time is not None)
        operators: list[Node] = []
        wanted: list[tuple[ChainExit, Node, int]] = []
        for consumer in self._nodes:
            for number, node in enumerate(consumer.inputs):
                if consumer.kind in STATELESS or self._hub_of(node) is not hub:
                    continue
                if consumer.kind == "state_query" and number == 1:
                    continue
                if consumer.kind == "state_updates":
                    continue
                direct = consumer.kind in ("to", "through") and not place.source.window
                direct = direct or self._reads_pairs(consumer, place)
                if direct and node is hub:
                    continue  # it reads the hub itself
                wanted.append((self._exit(consumer, node, len(wanted), place), consumer, number))
        if not wanted:
            return
        for leaving, consumer, _ in wanted:
            plan.exits.append(leaving)
            shown = [n.options.get("branch", n) for n in path_to(leaving.node)]
            operators += [n for n in dict.fromkeys(shown) if n not in operators]
            if leaving.action in ACTIONS:
                operators.append(consumer)
        named = next((node.name for node in operators if node.name), "")
        name = self._unique(named or f"after_{place.component}", numbered=False)
        made = PlannedComponent(name, ChainBolt(plan), place.parallelism, operators=operators)
        stays = [
            place.is_by_key and all(n.kind in _KEEPS_KEY for n in path_to(leaving.node))
            for leaving, _, _ in wanted
        ]
        by_key = any(
            stay and consumer.kind in _BY_KEY
            for stay, (_, consumer, _) in zip(stays, wanted, strict=True)
        )
        grouping = "same_task" if by_key else "local_or_shuffle"
        made.reads.append(Read(place.component, place.stream, grouping))
        self._components[name] = made
        for (leaving, consumer, number), stay in zip(wanted, stays, strict=True):
            if leaving.stream is None:
                continue
            keyed = leaving.node.keyed
            source = pairs_source(place.time) if keyed else plain_source(place.time)
            self._exits[id(consumer), number] = Outlet(
                name,
                leaving.stream,
                source,
                place.parallelism,
                time_behind(place.time),
                by_key and stay,
            )

    def _exit(self, consumer: Node, node: Node, number: int, place: Outlet) -> ChainExit:
        if consumer.kind in ACTIONS:
            return ChainExit(node, action=consumer.kind, function=consumer.function)
        stream = "default" if number == 0 else f"out_{number + 1}"
        partial = consumer.kind == "persistent_aggregate" or (
            consumer.kind == "aggregate" and not consumer.keyed
        )
        if consumer.kind == "window" and _has_panes(consumer, place.time):
            assert place.time is not None, "panes are in event time"
            windows = consumer.options["window"].in_ticks(place.time)
            combiner = Adding(consumer.function.combiner)
            return ChainExit(node, stream=stream, action="panes", option=(combiner, windows))
        if partial:
            return ChainExit(node, stream=stream, action="partial", option=consumer.function)
        counts = consumer.kind in ("aggregate", "count") and node.keyed
        return ChainExit(
            node, stream=stream, needs_no_value=counts and reads_nothing(consumer.function)
        )

    def _exit_of(self, consumer: Node, number: int = 0) -> Outlet:
        """Return the place where the elements for an operator come out."""
        found = self._exits.get((id(consumer), number))
        return self._hubs[id(consumer.inputs[number])] if found is None else found

    def _reads_pairs(self, consumer: Node, place: Outlet) -> bool:
        """Return True if an operator on tables can read a hub without a chain in between."""
        pairs = place.source.keyed and not place.source.window
        return pairs and consumer.kind in ("to_table", "table_lookup")

    def _hub_of(self, node: Node) -> Node:
        while node.kind in STATELESS:
            node = node.inputs[0]
        return node

    # -- components ---------------------------------------------------------------------------

    def _add(self, node: Node, made: Any, parallelism: int) -> PlannedComponent:
        name = self._unique(node.name or node.kind, numbered=not node.name)
        component = PlannedComponent(name, made, parallelism, operators=[node])
        self._components[name] = component
        return component

    def _unique(self, name: str, *, numbered: bool) -> str:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if not numbered and count == 1:
            return name
        return f"{name}_{count}"

    def _place(
        self, made: PlannedComponent, stream: str, source: ChainSource, time: EventTime | None
    ) -> Outlet:
        return Outlet(made.name, stream, source, made.parallelism, time)


def _has_panes(window: Node, time: EventTime | None) -> bool:
    """True iff the values of a window are added up by pane before they are exchanged."""
    return (
        time is not None
        and time.unit in ("ms", "us")
        and partial_of_window(window.function, window.options)
    )
