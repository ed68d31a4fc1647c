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

from topo.bolts.window_aggregate import WindowAggregate
from topo.components import OutputFieldsDeclarer
from topo.drpc.spout import ID, REQUESTS
from topo.errors import ConfigError, StreamError
from topo.event_time import EventTime
from topo.streams.combiners import (
    added_in_parts,
    merged_parts,
    of_values,
    partial_of_window,
    reads_nothing,
)
from topo.streams.compile.chain_code import STATELESS, ChainExit, ChainPlan, ChainSource, path_to
from topo.streams.compile.chains import ChainBolt
from topo.streams.compile.joins import (
    cogroup_bolt,
    common_time,
    duration,
    join_bolt,
    with_highest_lag,
)
from topo.streams.compile.pattern_bolt import TIMED_OUT, StreamPatternBolt
from topo.streams.compile.program import (
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
from topo.streams.compile.table_plans import LAZY, TablePlans
from topo.streams.graph import GROUPINGS, KEY, Node
from topo.streams.process import Dedupe, ProcessBolt
from topo.streams.totals import BatchTotalBolt, RunningBolt
from topo.streams.trident import UPDATES, Query, StateBolt
from topo.timed import TimedBolt
from topo.windows.assigners import Global

RUNNING = {
    "aggregate", "count", "reduce", "fold", "min", "max", "top", "collect", "update_state_by_key",
}  # fmt: skip
ACTIONS = {"for_each", "for_each_batch"}
_SHARES_A_BOLT = {"late", "timed_out", "state_updates", "state_query", "table_stream"}
"""The kinds whose elements are a stream of another operator's bolt: their name is of a chain."""
LATE = "late"
"""The stream of what comes too late for an operator."""
_BY_KEY = RUNNING | {"persistent_aggregate"}
_KEEPS_KEY = {"filter", "with_value", "peek", "map_values", "flat_map_values"}


def compile_program(nodes: list[Node]) -> Program:
    """Compile the operators of a builder."""
    if not nodes:
        raise StreamError("the program has no stream", hint="begin with builder.stream(MySpout())")
    return _Compiler(_one_name_a_chain(nodes)).compile()


def _one_name_a_chain(nodes: list[Node]) -> list[Node]:
    """Return the operators with a bolt of its own behind each further name within a chain."""
    first: dict[int, Node] = {}
    further = []
    for node in nodes:
        is_of_chain = node.name and node.kind in STATELESS | _SHARES_A_BOLT
        if is_of_chain and first.setdefault(id(_hub_of(node)), node) is not node:
            further.append(node)
    if not further:
        return nodes
    stands_for: dict[int, Node] = {}
    copies: dict[int, Node] = {}
    program: list[Node] = []
    for node in nodes:
        inputs = tuple(stands_for[id(before)] for before in node.inputs)
        copy = stands_for[id(node)] = copies[id(node)] = replace(node, inputs=inputs)
        copy.options = {
            name: copies[id(value)] if isinstance(value, Node) else value
            for name, value in node.options.items()
        }
        program.append(copy)
        if node in further:
            copy.name = ""
            relay = Node("relay", (copy,), node.keyed, place=node.place, name=node.name)
            stands_for[id(node)] = relay
            program.append(relay)
    return program


def _hub_of(node: Node) -> Node:
    """Return the operator behind which the chain of a stateless one begins."""
    while node.kind in STATELESS:
        node = node.inputs[0]
    return node


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
            if node.kind not in STATELESS | ACTIONS | LAZY and not self._is_unread(node):
                self._make(node)
        for node in self._nodes:
            self._check_end(node)
        components = list(self._components.values())
        return Program(topology_of(components), components)

    def _check_end(self, node: Node) -> None:
        """Raise an error if nothing is done with what an operator without a bolt of its own gives.

        A branch that nobody reads is where the rest goes, unless nobody reads any of them.
        """
        if node.kind not in STATELESS | LAZY or node.name:
            return
        first = node.options.get("branch")
        same = [other for other in self._nodes if first and other.options.get("branch") is first]
        if any(other.name or self._is_read(other) for other in same or [node]):
            return
        raise StreamError(
            f"nothing is done with what {node.kind} gives",
            hint="end it with .print(), .for_each(f) or .to(bolt), or name it: .named('x')"
            if node.kind in STATELESS
            else "join it, or end it with .to_stream().print()",
            at=node.place,
        )

    def _is_read(self, node: Node) -> bool:
        return any(node in other.inputs for other in self._nodes)

    def _is_unread(self, node: Node) -> bool:
        """Return True for an operator that is only made if something reads it, and nothing does."""
        return node.needs_reader and not self._is_read(node)

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
        if kind in ("merge", "repartition", "relay"):
            return self._junction(node)
        if kind == "times":
            return self._times(node)
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
        if kind == "late":
            return self._late(node)
        if kind == "detect":
            return self._detect(node)
        if kind == "timed_out":
            matches = self._hubs[id(node.inputs[0])]
            return replace(matches, stream=TIMED_OUT)
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
        fields = _fields_of(spout, node)
        position = time_position(time, fields, node)
        made = self._add(node, spout, node.options["parallelism"])
        return self._place(made, "default", ChainSource(fields, False, time=position), time)

    def _user_bolt(self, node: Node) -> Outlet | None:
        bolt = node.options["bolt"]
        made = self._add(node, bolt, node.options["parallelism"])
        hub = self._hubs.get(id(node.inputs[0]))
        place = hub if hub is not None and not hub.source.window else self._exit_of(node)
        made.reads.append(self._read_of_user_bolt(node, made, place))
        if "requests" in node.options:  # it gathers the elements of each, and hears of those
            spout = self._hubs[id(node.options["requests"])].component
            by_id = ("fields", (ID,)) if made.parallelism > 1 else ("all", ())
            made.reads.append(Read(spout, REQUESTS, *by_id))
        if node.kind == "to":
            return None
        fields = _fields_of(bolt, node, " to continue with", ", or write .to(...)")
        return self._place(made, "default", ChainSource(fields, False), None)

    def _read_of_user_bolt(self, node: Node, bolt: PlannedComponent, place: Outlet) -> Read:
        """Return how a bolt of the user's reads a stream: by its key, or as it was told."""
        grouping = node.options["grouping"]
        if grouping is not None:
            return Read(place.component, place.stream, GROUPINGS[grouping])
        if node.inputs[0].keyed and bolt.parallelism > 1:
            return Read(place.component, place.stream, "fields", (KEY,))
        return Read(place.component, place.stream, "shuffle")

    def _junction(self, node: Node) -> Outlet:
        """Make a chain that reads several streams, or one that is dealt anew."""
        places = [self._exit_of(node, number) for number in range(len(node.inputs))]
        time = common_time(node, [place.component for place in places], [p.time for p in places])
        if time is not None:
            time = with_highest_lag(time)
        source = pairs_source(time, node) if node.keyed else plain_source(time)
        plan = ChainPlan(source, timed=time is not None)
        leaving = ChainExit(node, stream="default")
        plan.exits.append(leaving)
        parallelism = node.options.get("parallelism") or max(p.parallelism for p in places)
        made = self._add(node, ChainBolt(plan), parallelism)
        grouping = GROUPINGS[node.options["by"]] if "by" in node.options else "local_or_shuffle"
        made.reads += [Read(place.component, place.stream, grouping) for place in places]
        return self._place(made, "default", source, time)

    def _times(self, node: Node) -> Outlet:
        """Make a chain in which elements get their times."""
        place, time = self._exit_of(node), node.options["time"]
        plan = ChainPlan(place.source, timed=True, times=node.function)
        plan.exits.append(ChainExit(node, stream="default"))
        chain = self._add(node, ChainBolt(plan), place.parallelism)
        chain.reads.append(Read(place.component, place.stream, "local_or_shuffle"))
        source = pairs_source(time, node) if node.keyed else plain_source(time)
        return self._place(chain, "default", source, time)

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
        place = self._place(made, "default", pairs_source(before.time, node), before.time)
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
        bolt = ProcessBolt(process, time_behind(before.time), node.keyed)
        if self._late_stream(node, before.time) is not None:
            bolt.late_stream, bolt.leaves_late_out = LATE, node.kind == "process"
        made = self._keyed(node, bolt, before)
        source = pairs_source(before.time) if node.keyed else plain_source(before.time)
        return self._place(made, "default", source, _by_watermark(before.time))

    def _state(self, node: Node) -> Outlet:
        part = self._exit_of(node)
        bolt = StateBolt(node.function, node.options["outside"])
        made = self._keyed(node, bolt, part)
        return self._place(made, UPDATES, pairs_source(None), None)

    def _query(self, node: Node) -> Outlet:
        question = self._exit_of(node)
        state = self._components[self._hubs[id(node.inputs[1])].component]
        answers = f"answers_{len(state.made.queries) + 1}"
        state.made.queries[f"{question.component} {question.stream}"] = Query(
            answers, node.function, node.options.get("for_requests", False)
        )
        state.reads.append(Read(question.component, question.stream, "fields", (KEY,)))
        state.operators.append(node)
        return self._place(state, answers, pairs_source(None), None)

    def _window(self, node: Node) -> Outlet:
        before = self._exit_of(node)
        options = {k: v for k, v in node.options.items() if k != "parallelism"}
        options["window"] = of_values(options["window"])
        time = time_behind(before.time)
        aggregates = node.function
        if self._has_panes(node, before.time):
            aggregates = merged_parts(aggregates)
        bolt = WindowAggregate(
            key=KEY,
            time=time,
            aggregates=aggregates,
            late_stream=self._late_stream(node, time),
            **options,
        )
        made = self._keyed(node, bolt, before)
        fields = _fields_of(bolt, node)
        source = ChainSource(fields, node.keyed, window=node.keyed)
        if time is None or isinstance(node.options["window"], Global):
            # The window of all time has no end, so its results have no time.
            return self._place(made, "default", source, None)
        _, from_end = bolt.result_time("default") or ("end", 0)
        end, is_end = fields.index("end"), from_end != 0
        source = replace(source, time=end, time_is_end=is_end, unit=time.unit)
        return self._place(made, "default", source, _by_watermark(time))

    def _detect(self, node: Node) -> Outlet:
        before = self._exit_of(node)
        time = time_behind(before.time)
        follow = [n for n in self._nodes if n.kind == "timed_out" and n.inputs[0] is node]
        try:
            bolt = StreamPatternBolt(
                node.function,
                time,
                node.options["select"],
                limit=node.options["limit"],
                late_stream=self._late_stream(node, time),
                with_timed_out=any(map(self._is_read, follow)),
            )
        except ConfigError as error:
            raise StreamError(error.message, hint=error.hint, at=node.place) from None
        component = self._keyed(node, bolt, before)
        return self._place(component, "default", plain_source(time), _by_watermark(time))

    def _late_stream(self, node: Node, time: EventTime | None) -> str | None:
        """Return the stream of what comes too late for an operator; None if nobody wants it."""
        for late in self._nodes:
            if late.kind != "late" or late.inputs[0] is not node:
                continue
            if time is None:
                raise StreamError(
                    f"late() of {node}, which has no event time: by arrival, nothing is late",
                    hint='write builder.stream(spout, time=EventTime("ts"))',
                    at=late.place,
                )
            return LATE
        return None

    def _late(self, node: Node) -> Outlet:
        late = self._hubs[id(node.inputs[0])]
        source = ChainSource(("late_tuple",), True, late=True)
        return Outlet(late.component, LATE, source, late.parallelism, None)

    def _has_panes(self, window: Node, time: EventTime | None) -> bool:
        """True iff the values of a window are added up by pane before they are exchanged.

        Who wants what is late wants the values themselves.
        """
        return (
            time is not None
            and time.unit in ("ms", "us")
            and partial_of_window(window.function, window.options)
            and self._late_stream(window, time) is None
        )

    def _join(self, node: Node) -> Outlet:
        places = [self._exit_of(node, number) for number in range(len(node.inputs))]
        components = [place.component for place in places]
        time = common_time(node, components, [place.time for place in places])
        streams = [(place.component, place.stream) for place in places]
        make = join_bolt if node.kind == "join" else cogroup_bolt
        bolt = make(node, streams, time, self._late_stream(node, time))
        parallelism = max(place.parallelism for place in places)
        made = self._add(node, bolt, node.options["parallelism"] or parallelism)
        made.reads += [Read(p.component, p.stream, "fields", (KEY,)) for p in places]
        return self._place(made, "default", pairs_source(time, node), _by_watermark(time))

    def _table(self, node: Node) -> Outlet:
        if node.kind == "table_lookup":
            late = self._late_stream(node, self._exit_of(node).time)
            kept, stream = self._tables.lookup(node, late), "default"
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
        stays = parallelism == before.parallelism and (before.is_by_key or parallelism == 1)
        by = ("same_task", ()) if stays and not isinstance(bolt, TimedBolt) else ("fields", (KEY,))
        made.reads.append(Read(before.component, before.stream, *by))
        return made

    # -- chains -------------------------------------------------------------------------------

    def _make_chain(self, hub: Node, place: Outlet) -> None:
        """Make the bolt of the stateless operators behind a hub, if something needs it."""
        plan = ChainPlan(place.source, timed=place.time is not None)
        operators: list[Node] = []
        wanted: list[tuple[ChainExit, Node, int]] = []
        shown, has_default = self._node_to_show(hub), False
        for consumer in self._nodes:
            for number, node in enumerate(consumer.inputs):
                if consumer.kind in STATELESS or _hub_of(node) is not hub:
                    continue
                if consumer.kind == "state_query" and number == 1:
                    continue
                if consumer.kind in ("state_updates", "late", "timed_out"):
                    continue  # they have streams of their own
                direct = consumer.kind in ("to", "through") and not place.source.window
                direct = direct or consumer.kind == "times"
                direct = direct or self._reads_pairs(consumer, place)
                if direct and node is hub:
                    continue  # it reads the hub itself
                leaving = self._exit(consumer, node, f"out_{len(wanted) + 1}", place)
                shows = leaving.action is None and node is shown
                if leaving.stream and not has_default and (shows if shown else not wanted):
                    leaving, has_default = replace(leaving, stream="default"), True
                wanted.append((leaving, consumer, number))
        if shown is not None and not has_default:
            plan.exits.append(ChainExit(shown, stream="default"))
            operators += [n.options.get("branch", n) for n in path_to(shown)]
        elif not wanted:
            return
        for leaving, consumer, _ in wanted:
            plan.exits.append(leaving)
            path = [n.options.get("branch", n) for n in path_to(leaving.node)]
            operators += [n for n in dict.fromkeys(path) if n not in operators]
            if leaving.action in ACTIONS:
                operators.append(consumer)
        if hub.kind in _SHARES_A_BOLT and hub.name:
            operators.insert(0, hub)
        name = self._name_of_chain(shown, operators, f"after_{place.component}")
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
            time = place.time
            source = pairs_source(time, leaving.node) if keyed else plain_source(time)
            self._exits[id(consumer), number] = Outlet(
                name,
                leaving.stream,
                source,
                place.parallelism,
                time_behind(place.time),
                by_key and stay,
            )

    def _node_to_show(self, hub: Node) -> Node | None:
        """Return the first operator of a chain that has a name: its elements are the component's.

        They are there for whoever looks at them, though nobody may read them, or an action only.
        """
        if hub.name and hub.kind in _SHARES_A_BOLT:
            return hub
        chain = (n for n in self._nodes if n.kind in STATELESS and _hub_of(n) is hub)
        return next((node for node in chain if node.name), None)

    def _exit(self, consumer: Node, node: Node, stream: str, place: Outlet) -> ChainExit:
        if consumer.kind in ACTIONS:
            return ChainExit(node, action=consumer.kind, function=consumer.function)
        partial = consumer.kind == "persistent_aggregate" or (
            consumer.kind == "aggregate" and not consumer.keyed
        )
        if consumer.kind == "window" and self._has_panes(consumer, place.time):
            assert place.time is not None, "panes are in event time"
            windows = consumer.options["window"].in_ticks(place.time)
            combiner = added_in_parts(consumer.function)
            option: Any = combiner, windows
            return ChainExit(node, stream=stream, action="panes", option=option, reader=consumer)
        if partial:
            option = consumer.function
            return ChainExit(node, stream=stream, action="partial", option=option, reader=consumer)
        counts = consumer.kind in ("aggregate", "count") and node.keyed
        return ChainExit(
            node,
            stream=stream,
            for_lookup=consumer.kind == "table_lookup" and node is consumer.inputs[0],
            needs_no_value=counts and reads_nothing(consumer.function),
        )

    def _exit_of(self, consumer: Node, number: int = 0) -> Outlet:
        """Return the place where the elements for an operator come out."""
        found = self._exits.get((id(consumer), number))
        return self._hubs[id(consumer.inputs[number])] if found is None else found

    def _reads_pairs(self, consumer: Node, place: Outlet) -> bool:
        """Return True if an operator on tables can read a hub without a chain in between."""
        pairs = place.source.keyed and not place.source.window
        return pairs and consumer.kind in ("to_table", "table_lookup")

    # -- components ---------------------------------------------------------------------------

    def _name_of_chain(self, first: Node | None, operators: list[Node], otherwise: str) -> str:
        """Return the name of the bolt of a chain: that of its first operator that has one.

        One branch stands for all of them among the operators, and another one may have the name.
        """
        named = [node for node in (first, *operators) if node is not None and node.name]
        if not named:
            return self._unique(otherwise, numbered=False)
        self._check_name(named[0])
        return self._unique(named[0].name, numbered=False)

    def _check_name(self, node: Node) -> None:
        if node.name in self._components:
            raise StreamError(
                f"two operators are named {node.name!r}",
                hint="a name stands for one component; give the other one another name",
                at=node.place,
            )

    def _add(self, node: Node, made: Any, parallelism: int) -> PlannedComponent:
        if node.name:
            self._check_name(node)
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


def _fields_of(
    component: Any, node: Node, purpose: str = "", otherwise: str = ""
) -> tuple[str, ...]:
    """Return the fields of a component's default stream; raise a StreamError if it has none."""
    declarer = OutputFieldsDeclarer()
    component.declare_output_fields(declarer)
    if "default" not in declarer.streams:
        raise StreamError(
            f"{type(component).__name__} declares no default stream{purpose}",
            hint=f'give it outputs = ("value",){otherwise}',
            at=node.place,
        )
    return tuple(declarer.streams["default"].fields)


def _by_watermark(time: EventTime | None) -> EventTime | None:
    """Return the event time behind an operator whose own watermark says what is complete."""
    return None if time is None else replace(time, lag=0)
