"""`LinearDrpcBuilder`: a function as a chain of bolts, as in Storm.

The builder puts a bolt behind the spout that makes (id, args) of a request. The id names its server
as well, so that no bolt has to join results with where they go: the last one emits (id, result).
"""

from __future__ import annotations

from typing import Any

from topo.builder import BoltDeclarer, TopologyBuilder
from topo.components import BasicBolt, Bolt, Component, FieldNames
from topo.drpc.request import RequestBolt
from topo.drpc.results import COMMITTED, LinearResults
from topo.drpc.spout import ID, REQUESTS, DrpcSpout
from topo.errors import InvalidTopologyError, Problem
from topo.groupings import CustomStreamGrouping
from topo.topology.draft import Draft
from topo.topology.model import Topology
from topo.topology.validation import declared_streams
from topo.tuples import DEFAULT_STREAM, Fields, Tuple

SPOUT, ARGS, RESULTS = "drpc", "args", "results"


class IdAndArgs(BasicBolt):
    """Turns a request around: (id, args), as bolts that pass an id on write it."""

    outputs = (ID, "args")
    stateless = True

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.return_info, tup.args])


class LinearBoltDeclarer:
    """The declarer that `add_bolt` returns: groupings of what the bolt before emits."""

    def __init__(self, declarer: BoltDeclarer, before: str) -> None:
        self._declarer, self._before = declarer, before
        self.groupings: list[tuple[str, tuple[str, ...]]] = []
        """The groupings that were declared, with their fields."""

    def _group(self, kind: str, *arguments: Any, stream: str) -> LinearBoltDeclarer:
        names = tuple(Fields(arguments[0])) if kind in ("fields", "partial_key") else ()
        self.groupings.append((kind, names))
        getattr(self._declarer, f"{kind}_grouping")(self._before, *arguments, stream=stream)
        return self

    def shuffle_grouping(self, stream: str = DEFAULT_STREAM) -> LinearBoltDeclarer:
        """Deal tuples evenly over the tasks, in turn."""
        return self._group("shuffle", stream=stream)

    def fields_grouping(
        self, fields: FieldNames, stream: str = DEFAULT_STREAM
    ) -> LinearBoltDeclarer:
        """Send tuples with equal values of these fields to the same task."""
        return self._group("fields", fields, stream=stream)

    def partial_key_grouping(
        self, fields: FieldNames, stream: str = DEFAULT_STREAM
    ) -> LinearBoltDeclarer:
        """Send each tuple to the less used of the two tasks of its key."""
        return self._group("partial_key", fields, stream=stream)

    def all_grouping(self, stream: str = DEFAULT_STREAM) -> LinearBoltDeclarer:
        """Send every tuple to every task."""
        return self._group("all", stream=stream)

    def global_grouping(self, stream: str = DEFAULT_STREAM) -> LinearBoltDeclarer:
        """Send every tuple to the task with the lowest id."""
        return self._group("global", stream=stream)

    def none_grouping(self, stream: str = DEFAULT_STREAM) -> LinearBoltDeclarer:
        """Send each tuple to any task: the engine chooses the cheapest."""
        return self._group("none", stream=stream)

    def local_or_shuffle_grouping(self, stream: str = DEFAULT_STREAM) -> LinearBoltDeclarer:
        """Deal tuples over the tasks in the producer's slot if there are any, else as shuffle."""
        return self._group("local_or_shuffle", stream=stream)

    def direct_grouping(self, stream: str = DEFAULT_STREAM) -> LinearBoltDeclarer:
        """Send each tuple to the task that the producer names with `emit_direct`."""
        return self._group("direct", stream=stream)

    def custom_grouping(
        self, grouping: CustomStreamGrouping, stream: str = DEFAULT_STREAM
    ) -> LinearBoltDeclarer:
        """Send each tuple to the tasks that `grouping.choose_tasks` returns."""
        return self._group("custom", grouping, stream=stream)

    def set_num_tasks(self, n: int) -> LinearBoltDeclarer:
        self._declarer.set_num_tasks(n)
        return self

    def add_configuration(self, key: str, value: Any) -> LinearBoltDeclarer:
        self._declarer.add_configuration(key, value)
        return self


class LinearDrpcBuilder:
    """A function that a chain of bolts computes.

    The first bolt reads ("id", "args"), the last one emits two fields: the id, and the result.
    `answer` is that of `ReturnResults`.
    """

    def __init__(self, function: str, *, answer: str = COMMITTED) -> None:
        self._builder = TopologyBuilder()
        self._builder.set_spout(SPOUT, DrpcSpout(function))
        self._builder.set_bolt(ARGS, IdAndArgs()).none_grouping(SPOUT)
        self._function, self._answer = function, answer
        self._chain: list[tuple[str, Component, LinearBoltDeclarer, BoltDeclarer, int]] = []

    def add_bolt(
        self, bolt: Bolt | BasicBolt, parallelism: int = 1, *, name: str = ""
    ) -> LinearBoltDeclarer:
        """Add the next bolt; it reads the one before, by shuffle if nothing else is declared."""
        before = self._chain[-1][0] if self._chain else ARGS
        name = name or f"bolt-{len(self._chain) + 1}"
        declarer = self._builder.set_bolt(name, bolt, parallelism)
        linear = LinearBoltDeclarer(declarer, before)
        self._chain.append((name, bolt, linear, declarer, parallelism))
        return linear

    def create_topology(self) -> Topology:
        """Return the topology; raise InvalidTopologyError with all problems."""
        problems: list[Problem] = []
        if not self._chain:
            text = f"the function {self._function!r} has no bolt"
            problems.append(Problem("drpc-result", "topology", text, "add_bolt(...)"))
            raise InvalidTopologyError(problems)
        for _, _, linear, _, _ in self._chain:
            if not linear.groupings:
                linear.shuffle_grouping()
        gathering = [link for link in self._chain if isinstance(link[1], RequestBolt)]
        for link in gathering:
            problems += self._announce(link, is_last=link is gathering[-1])
        problems += self._result_problems()
        if problems:
            raise InvalidTopologyError(problems)
        last = self._chain[-1][0]
        results = self._builder.set_bolt(RESULTS, LinearResults(self._answer))
        results.none_grouping(last)
        return self._builder.create_topology()

    def _announce(
        self,
        link: tuple[str, Component, LinearBoltDeclarer, BoltDeclarer, int],
        *,
        is_last: bool,
    ) -> list[Problem]:
        """Let a bolt that gathers hear of requests."""
        name, bolt, linear, declarer, parallelism = link
        if not is_last or parallelism == 1:
            declarer.all_grouping(SPOUT, REQUESTS)
            return []
        kinds = {kind for kind, _ in linear.groupings}
        if kinds == {"global"}:
            declarer.global_grouping(SPOUT, REQUESTS)
            return []
        if kinds == {"fields"} and all(len(names) == 1 for _, names in linear.groupings):
            declarer.fields_grouping(SPOUT, ID, REQUESTS)
            return []
        text = f"bolt {name!r}, the last one that gathers a request, gathers it in several tasks"
        hint = f'write .fields_grouping("id") for it, or .global_grouping(): {type(bolt).__name__} '
        hint += "makes one result of a request only if all of its tuples come to one task"
        return [Problem("drpc-last", f"bolt {name!r}", text, hint)]

    def _result_problems(self) -> list[Problem]:
        name, bolt, *_ = self._chain[-1]
        streams = declared_streams(Draft(name, "bolt", bolt, 1, ""))
        output = streams.get(DEFAULT_STREAM)
        if list(streams) == [DEFAULT_STREAM] and output is not None and len(output.fields) == 2:
            return []
        emits = "; ".join(
            f"{stream.name}: {', '.join(stream.fields)}" for stream in streams.values()
        )
        text = f"bolt {name!r} is the last one, and emits {emits or 'nothing'}"
        hint = 'it emits two fields on one stream: outputs = ("id", "result")'
        return [Problem("drpc-result", f"bolt {name!r}", text, hint)]
