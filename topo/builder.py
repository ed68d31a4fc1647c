"""The builder that wires spouts and bolts to a topology."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from topo.components import BasicBolt, Bolt, Component, FieldNames, Spout
from topo.config import Config
from topo.errors import ComponentError, InvalidTopologyError, Problem
from topo.event_time import EventTime
from topo.groupings import CustomStreamGrouping
from topo.topology.draft import Draft
from topo.topology.model import GroupingDef, InputDef, Topology
from topo.topology.shedding import ATTRIBUTE, SHEDS, Shedding
from topo.traces import callers_place
from topo.tuples import DEFAULT_STREAM, Fields

D = TypeVar("D", bound="_Declarer")


class _Declarer:
    """The settings of one component; every call returns the declarer, for chaining."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def set_num_tasks(self: D, n: int) -> D:
        return self.add_configuration("topology.tasks", n)

    def set_max_task_parallelism(self: D, n: int) -> D:
        return self.add_configuration("topology.max.task.parallelism", n)

    def set_max_spout_pending(self: D, n: int) -> D:
        return self.add_configuration("topology.max.spout.pending", n)

    def set_debug(self: D, flag: bool = True) -> D:
        return self.add_configuration("topology.debug", flag)

    def set_memory_load(self: D, on_heap_mb: float, off_heap_mb: float = 0.0) -> D:
        """Set Storm's hint of the memory of a task, which a warning says is not used."""
        return self.add_configurations(
            {
                "topology.component.resources.onheap.memory.mb": on_heap_mb,
                "topology.component.resources.offheap.memory.mb": off_heap_mb,
            }
        )

    def set_cpu_load(self: D, percent: float) -> D:
        """Set Storm's hint of the share of a core, which a warning says is not used."""
        return self.add_configuration("topology.component.cpu.pcore.percent", percent)

    def add_configuration(self: D, key: str, value: Any) -> D:
        return self.add_configurations({key: value})

    def add_configurations(self: D, settings: Mapping[str, Any]) -> D:
        Config.validate(settings, at=callers_place(), component=self._draft.id)
        self._draft.conf.update(settings)
        return self


class SpoutDeclarer(_Declarer):
    """The declarer that `set_spout` returns."""

    def shed(
        self,
        *,
        after: timedelta,
        age: str | EventTime | None = None,
        keep: Callable[[Sequence[Any]], float] | str | None = None,
        sample_by: FieldNames = (),
        least: float = 0.05,
        weight: str | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> SpoutDeclarer:
        """Drop tuples while the topology cannot keep up with what comes.

        `after` is the age at which that begins: of the tuples, whose time is in the field `age` (in
        milliseconds, or as an `EventTime` says), otherwise of the oldest pending message. Dropped
        are the lowest by `keep`, a field or a function of the values; or whole keys, by the fields
        of `sample_by`; or a sample. Never less than the share `least` is kept. `weight` names a
        declared field that gets 1 / share, for sums that estimate the whole. Dropped messages are
        acked; what is emitted again after a failure is never dropped.
        """
        rules = Shedding(stream, after, age, keep, tuple(Fields(sample_by)), least, weight)
        object.__setattr__(self._draft.component, ATTRIBUTE, rules)
        return self.add_configuration(SHEDS, True)


class BoltDeclarer(_Declarer):
    """The declarer that `set_bolt` returns, on which the bolt's inputs are declared.

    `loop=True` marks an input that goes back: what comes over it is executed in the next batch.
    """

    def _read(
        self, component: str, stream: str, grouping: GroupingDef, loop: bool = False
    ) -> BoltDeclarer:
        for what, name in (("component", component), ("stream", stream)):
            if not isinstance(name, str):
                text = f"{self._draft.where} reads {what} {name!r}; a {what}'s name is a str"
                hint = "the component comes first, then fields or a grouping, then stream=..."
                self._draft.problems.append(
                    Problem(f"unknown-{what}", self._draft.where, text, hint)
                )
                return self
        self._draft.inputs.append(InputDef(component, stream, grouping, bool(loop)))
        return self

    def shuffle_grouping(
        self, component: str, stream: str = DEFAULT_STREAM, *, loop: bool = False
    ) -> BoltDeclarer:
        """Deal tuples evenly over the tasks, in turn."""
        return self._read(component, stream, GroupingDef("shuffle"), loop)

    def fields_grouping(
        self,
        component: str,
        fields: FieldNames,
        stream: str = DEFAULT_STREAM,
        *,
        loop: bool = False,
    ) -> BoltDeclarer:
        """Send tuples with equal values of these fields to the same task."""
        return self._by_fields("fields", component, fields, stream, loop)

    def partial_key_grouping(
        self,
        component: str,
        fields: FieldNames,
        stream: str = DEFAULT_STREAM,
        *,
        loop: bool = False,
    ) -> BoltDeclarer:
        """Send each tuple to the less used of the two tasks of its key."""
        return self._by_fields("partial_key", component, fields, stream, loop)

    def _by_fields(
        self, kind: str, component: str, fields: FieldNames, stream: str, loop: bool
    ) -> BoltDeclarer:
        try:
            names = tuple(Fields(fields))
        except ValueError as error:
            self._draft.problems.append(Problem("fields", self._draft.where, str(error)))
            names = ()
        return self._read(component, stream, GroupingDef(kind, names), loop)

    def all_grouping(
        self, component: str, stream: str = DEFAULT_STREAM, *, loop: bool = False
    ) -> BoltDeclarer:
        """Send every tuple to every task."""
        return self._read(component, stream, GroupingDef("all"), loop)

    def global_grouping(
        self, component: str, stream: str = DEFAULT_STREAM, *, loop: bool = False
    ) -> BoltDeclarer:
        """Send every tuple to the task with the lowest id."""
        return self._read(component, stream, GroupingDef("global"), loop)

    def direct_grouping(
        self, component: str, stream: str = DEFAULT_STREAM, *, loop: bool = False
    ) -> BoltDeclarer:
        """Send each tuple to the task that the producer names with `emit_direct`."""
        return self._read(component, stream, GroupingDef("direct"), loop)

    def same_task_grouping(
        self, component: str, stream: str = DEFAULT_STREAM, *, loop: bool = False
    ) -> BoltDeclarer:
        """Send what a task emits to the task of the same number; both have equally many."""
        return self._read(component, stream, GroupingDef("same_task"), loop)

    def local_or_shuffle_grouping(
        self, component: str, stream: str = DEFAULT_STREAM, *, loop: bool = False
    ) -> BoltDeclarer:
        """Deal tuples over the tasks in the producer's slot if there are any, else as shuffle."""
        return self._read(component, stream, GroupingDef("local_or_shuffle"), loop)

    def none_grouping(
        self, component: str, stream: str = DEFAULT_STREAM, *, loop: bool = False
    ) -> BoltDeclarer:
        """Send each tuple to any task: the engine chooses the cheapest."""
        return self._read(component, stream, GroupingDef("none"), loop)

    def custom_grouping(
        self,
        component: str,
        grouping: CustomStreamGrouping,
        stream: str = DEFAULT_STREAM,
        *,
        loop: bool = False,
    ) -> BoltDeclarer:
        """Send each tuple to the tasks that `grouping.choose_tasks` returns."""
        from topo.shipping.pickling import pickle_locally, pickle_to_travel

        if not isinstance(grouping, CustomStreamGrouping):
            raise ComponentError(
                f"custom_grouping takes a CustomStreamGrouping; got {grouping!r}",
                hint="subclass topo.CustomStreamGrouping and give an instance",
            )
        try:
            travelling, local = pickle_to_travel(grouping), pickle_locally(grouping)
        except Exception as error:
            text = f"the custom grouping {type(grouping).__name__} does not pickle: {error}"
            self._draft.problems.append(
                Problem("unpicklable-grouping", self._draft.where, text, "make it in prepare")
            )
            return self
        by = GroupingDef("custom", custom=travelling, local_custom=local)
        return self._read(component, stream, by, loop)


class TopologyBuilder:
    """A collection of spouts and bolts, which `create_topology` checks all at once."""

    def __init__(self) -> None:
        self._drafts: dict[str, Draft] = {}
        self._problems: list[Problem] = []

    def set_spout(
        self, name: str, spout: Spout | type[Spout], parallelism: int = 1
    ) -> SpoutDeclarer:
        """Add a spout: an instance, which is copied for every task, or a class."""
        return SpoutDeclarer(self._add(name, "spout", spout, Spout, parallelism))

    def set_bolt(
        self, name: str, bolt: Bolt | BasicBolt | type[Bolt | BasicBolt], parallelism: int = 1
    ) -> BoltDeclarer:
        """Add a bolt: an instance, which is copied for every task, or a class."""
        return BoltDeclarer(self._add(name, "bolt", bolt, (Bolt, BasicBolt), parallelism))

    def _add(
        self, name: str, kind: str, given: Any, wanted: type | tuple[type, ...], parallelism: int
    ) -> Draft:
        place = callers_place()
        if not isinstance(name, str) or not name:
            raise ComponentError(f"a component's name is a str; got {name!r}", at=place)
        component = _instance(name, kind, given, wanted, place)
        where = f"{kind} {name!r}"
        if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
            text = (
                f"{where}: parallelism is {parallelism!r}; it must be a whole number of 1 or more"
            )
            raise InvalidTopologyError([Problem("parallelism", place, text)])
        draft = Draft(name, kind, component, parallelism, place)
        if name.startswith("__"):
            text = f"{where}: names that begin with '__' are reserved"
            self._problems.append(Problem("reserved-name", place, text, "choose another name"))
        if name in self._drafts:
            text = f"{where} is set twice, at {self._drafts[name].place} and {place}"
            self._problems.append(
                Problem("duplicate-name", place, text, "every component needs a name of its own")
            )
            return draft
        self._drafts[name] = draft
        return draft

    def create_topology(self) -> Topology:
        """Return the topology, or raise InvalidTopologyError with all of its problems."""
        from topo.topology.validation import build_topology

        return build_topology(self._drafts, self._problems)


def _instance(
    name: str, kind: str, given: Any, wanted: type | tuple[type, ...], place: str
) -> Component:
    article = "a Spout" if kind == "spout" else "a Bolt or BasicBolt"
    if isinstance(given, type) and issubclass(given, wanted):
        try:
            given = given()
        except TypeError as error:
            raise ComponentError(
                f"{kind} {name!r}: {given.__name__} cannot be made without arguments: {error}",
                at=place,
                hint=f"give an instance: set_{kind}({name!r}, {given.__name__}(...))",
            ) from error
    if not isinstance(given, wanted):
        hint = ""
        if isinstance(given, Component) or (
            isinstance(given, type) and issubclass(given, Component)
        ):
            hint = f"use set_{'bolt' if kind == 'spout' else 'spout'}"
        elif callable(given):
            hint = 'a function becomes a bolt with @bolt(outputs=("field",))'
        raise ComponentError(
            f"{kind} {name!r} must be {article}; got {given!r}", at=place, hint=hint
        )
    assert isinstance(given, Component)
    return given
