"""What the tasks of a bolt have saved, dealt to another number of tasks.

Between two batches no tuple is on its way, so what a component knows is the records of its tasks.
Those that are mappings by the key of the input can be dealt: each key goes to the task to which the
fields grouping will send its tuples, since the grouping itself is asked. Everything else belongs to
a task and to nobody else, and only the component can say what becomes of it (`redistribute`).

A user's `self.state` may have any keys. Whether they are those of the input is therefore proved on
the data: each key has to lie in the task where the grouping has sent its tuples. Few keys prove
little, since one lies in the right one of two tasks by chance every other time; so the proof counts
only from 20 bits on, if the class does not say by `input_key` what its keys are.

Whatever cannot be dealt is refused before anything is written. A kind of record that has no rule
here is refused, too: nothing is left behind silently.
"""

from __future__ import annotations

import math
import pickle
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topo.components import Component, StatefulBasicBolt, StatefulBolt, _AnyBolt
from topo.config.layers import for_component
from topo.errors import Problem, RunError, TopoError, sentence_of, shown
from topo.routing.groupers import Rows
from topo.routing.registry import Wiring, grouping_named
from topo.runtime.task import CORE
from topo.shipping.pickling import install_user_classes, load_component
from topo.storage.attributes import SavedAttributes
from topo.storage.classes import load_saved, saved_by
from topo.storage.pickled import Pickled, restoring
from topo.storage.pickled import _task_part as task_part
from topo.storage.saving import Changes, SavedMapping
from topo.timed import InputFields, TimedBolt
from topo.topology.layout import TaskLayout, with_other_counts
from topo.topology.model import ComponentDef, Topology
from topo.tuples import Fields

FIELDS = "fields"
_STATEFUL = (StatefulBolt, StatefulBasicBolt)
BITS = 20
"""How sure the keys have to be: by chance they lie so once in a million."""
_STATE, _FORGOTTEN, _ARRIVED = "state", "forgotten", "arrived"
Saved = Mapping[str, bytes]


class CannotDeal(RunError):
    """A component cannot have another number of tasks: why, and what to do about it."""

    code = "dealing"


@dataclass(frozen=True)
class Resize:
    """Another number of tasks of a component, under new ids."""

    component: str
    before: range
    after: range

    def __str__(self) -> str:
        return f"{self.component}: {len(self.before)} -> {len(self.after)} tasks"


class Dealer:
    """Deals what one component has saved; made before anything is stopped."""

    def __init__(
        self,
        topology: Topology,
        conf: Mapping[str, Any],
        component: str,
        before: int,
        after: int,
        *,
        is_proved: bool = False,
    ) -> None:
        """Raise a CannotDeal if the declaration of the component already forbids it.

        `is_proved`: few keys suffice, since all of this has been dealt by key before.
        """
        self._is_proved = is_proved
        self._definition = definition = topology.component(component)
        self.where = f"{definition.kind} {component!r}"
        self._before, self._after = before, after
        self._refuse_by_kind(topology)
        self._bolt = self._loaded(topology, conf)
        self._refuse_by_class(topology)

    # -- what the declaration forbids ---------------------------------------------------------

    def _refuse_by_kind(self, topology: Topology) -> None:
        definition = self._definition
        if self._before == self._after:
            raise CannotDeal(f"{self.where} has {self._before} tasks already")
        if definition.is_spout:
            raise CannotDeal(
                f"{self.where} cannot have another number of tasks: its positions and pending "
                "messages belong to its tasks",
                hint="end it by topo kill, and submit it --fresh with another parallelism",
            )
        if definition.external:
            raise CannotDeal(f"{self.where} is written by Spark, and has no tasks of its own")
        for read in definition.inputs:
            if read.loop or topology.loops_from(definition.id):
                raise CannotDeal(
                    f"{self.where} is part of a loop, whose tuples wait for tasks by their ids"
                )
            if read.grouping.kind == "direct":
                raise CannotDeal(
                    f"{self.where} reads {read.component!r} by direct grouping, which may have "
                    "kept the ids of its tasks",
                    hint="send by a field's value instead: fields_grouping",
                )

    def _loaded(self, topology: Topology, conf: Mapping[str, Any]) -> Component:
        try:
            install_user_classes(topology.user_classes)
            bolt = load_component(self._definition)
        except Exception as error:
            raise CannotDeal(
                f"{self.where} cannot be loaded where its state would be dealt: "
                f"{type(error).__name__}: {sentence_of(error)}",
                hint="the driver needs what the bolt imports",
            ) from error
        if isinstance(bolt, TimedBolt):
            bolt.configure(for_component(conf, self._definition.id, self._definition.conf))
        return bolt

    def _refuse_by_class(self, topology: Topology) -> None:
        bolt = self._bolt
        if type(bolt).committed is not Component.committed:
            raise CannotDeal(
                f"{self.where} publishes in `committed` what a task has prepared in a batch, and "
                "that task would be gone before it hears of the commit",
                hint="keep its number of tasks; -n changes the slots that they share",
            )
        self._reads = [_fields_of(topology, self._definition, at) for at in range(self._inputs)]
        self._names: tuple[str, ...] = ()
        if isinstance(bolt, TimedBolt):
            bolt.read_inputs(self._reads)
            present = {problem.message for problem in self._problems(bolt, self._before)}
            for problem in self._problems(bolt, self._after):
                if problem.message not in present:
                    raise CannotDeal(problem.message, hint=problem.hint)
            self._names = tuple(bolt.records_by_key(self._reads))
        if not self._redistributes and (self._names or self._keyed or isinstance(bolt, _STATEFUL)):
            self._width()  # also where nothing is saved yet: what comes would be by no key

    @property
    def _inputs(self) -> int:
        return len(self._definition.inputs)

    def _problems(self, bolt: TimedBolt, tasks: int) -> list[Problem]:
        outputs = [out.name for out in self._definition.outputs]
        return list(bolt.problems(self.where, self._reads, tasks, outputs))

    # -- what is saved ------------------------------------------------------------------------

    def deal(self, tasks: Sequence[Saved]) -> list[dict[str, bytes]]:
        """Return the records of the new tasks; raise a CannotDeal if there is one without a rule.

        `tasks` are the records of the tasks before, each by its name.
        """
        with saved_by(self.where, type(self._bolt).moved):
            return self._deal(tasks)

    def _deal(self, tasks: Sequence[Saved]) -> list[dict[str, bytes]]:
        self._refuse_unruled(tasks)
        cores = [load_saved(saved[CORE]) for saved in tasks if CORE in saved]
        attributes = [self._attributes(saved) for saved in tasks]
        states = [self._mapping(_STATE).load(saved) for saved in tasks]
        dealt: list[dict[str, bytes]] = [{} for _ in range(self._after)]
        self._deal_cores(cores, dealt)
        if self._redistributes and (any(attributes) or any(states)):
            self._redistribute(attributes, states, dealt)
        else:
            self._deal_attributes(attributes, dealt)
            by_task = self._by_key(states, "the state's key")
            self._check_sure(states, "keys")
            for records, state in zip(dealt, by_task, strict=True):
                self._write(_STATE, state, records)
        for name in self._names:
            self._deal_namespaces(name, tasks, dealt)
        if any(_ARRIVED in saved for saved in tasks):
            # Windows up to the lowest were reported by all of them; none is there any more.
            lowest = min(int(saved[_ARRIVED]) for saved in tasks if _ARRIVED in saved)
            for records in dealt:
                records[_ARRIVED] = b"%d" % lowest
        return dealt

    def _refuse_unruled(self, tasks: Sequence[Saved]) -> None:
        ruled = {CORE, SavedAttributes.KEY, _STATE, _FORGOTTEN, *self._names}
        if self._names:
            ruled.add(_ARRIVED)
        for index, saved in enumerate(tasks):
            core = load_saved(saved[CORE]) if CORE in saved else {}
            held = len(core.get("held", ()))
            if held or self._mapping(_FORGOTTEN).load(saved):
                raise CannotDeal(
                    f"{self.where} task {index} holds {held or 'failed'} tuples that it has "
                    "neither acked nor failed; they belong to their task",
                    hint="deactivate the topology, wait until nothing is pending, and try again",
                )
            kinds = {name.partition("/")[0].partition(":")[0] for name in saved}
            if strange := sorted(kinds - ruled):
                raise CannotDeal(
                    f"{self.where} keeps {', '.join(map(repr, strange))}, which cannot be dealt to "
                    "other tasks",
                    hint="keep its number of tasks; -n changes the slots that they share",
                )

    def _mapping(self, name: str) -> SavedMapping:
        return SavedMapping(name, self.where)

    def _write(self, name: str, data: Mapping[Any, Any], records: dict[str, bytes]) -> None:
        if data:
            changes = Changes()
            self._mapping(name).save(data, data, changes)
            records.update(changes.puts)

    def _deal_cores(
        self, cores: Sequence[Mapping[str, Any]], dealt: Sequence[dict[str, bytes]]
    ) -> None:
        """Give each task what the runtime has kept for the component as a whole."""
        if not cores:
            return
        versions = {core.get("state_version") for core in cores}
        if len(versions) > 1:
            raise CannotDeal(f"{self.where} is being upgraded to another state_version: try again")
        core: dict[str, Any] = {"groupers": {}}
        if (version := versions.pop()) is not None:
            core["state_version"] = version
        times = [each["times"] for each in cores if each.get("times") is not None]
        if times:  # every task hears of all times, so they have come equally far
            core["times"] = min(times, key=lambda state: state[1])
        for records in dealt:
            records[CORE] = pickle.dumps(core, protocol=5)

    # -- by key -------------------------------------------------------------------------------

    def _deal_namespaces(
        self, name: str, tasks: Sequence[Saved], dealt: Sequence[dict[str, bytes]]
    ) -> None:
        spaces = {
            key.rpartition("/")[0] for saved in tasks for key in saved if key.startswith(f"{name}:")
        }
        for space in sorted(spaces):
            parts = [self._mapping(space).load(saved) for saved in tasks]
            by_task = self._by_key(parts, "the key", plain=True)
            for records, data in zip(dealt, by_task, strict=True):
                self._write(space, data, records)

    def _by_key(
        self, parts: Sequence[Mapping[Any, Any]], what: str, *, plain: bool = False
    ) -> list[dict[Any, Any]]:
        """Deal mappings by the input's key, and prove on the way that it is what they are by.

        `plain`: the keys are those of the input; the class need not say how to get at them.
        """
        dealt: list[dict[Any, Any]] = [{} for _ in range(self._after)]
        if not any(parts):
            return dealt
        width = self._width()
        for index, part in enumerate(parts):
            keys = list(part)
            columns = self._columns(keys, width, what, plain=plain)
            for key, place in zip(keys, places_of(columns, self._before), strict=True):
                if place != index:
                    raise self._misplaced(key, what, index)
            for key, place in zip(keys, places_of(columns, self._after), strict=True):
                dealt[place][key] = part[key]
        return dealt

    def _width(self) -> int:
        """Return by how many fields the input is dealt."""
        for read in self._reads:
            if read.grouping not in (FIELDS, "all") or (
                read.grouping == FIELDS and not read.grouping_fields
            ):
                raise CannotDeal(
                    f"{self.where} keeps state and reads {read.component!r} by {read.grouping} "
                    "grouping: no key says which of its tasks has what",
                    hint=f"group by fields, or write redistribute in {self._class}",
                )
        widths = {len(read.grouping_fields) for read in self._reads if read.grouping == FIELDS}
        if len(widths) != 1:
            raise CannotDeal(
                f"{self.where} keeps state and has "
                + ("inputs by different numbers of fields" if widths else "no input by fields"),
                hint=f"write redistribute in {self._class}",
            )
        return widths.pop()

    def _columns(
        self, keys: Sequence[Any], width: int, what: str, *, plain: bool
    ) -> list[list[Any]]:
        """Return the values of the input's fields, a column each."""
        values: list[Any] = list(keys)
        if not plain and self._says_keys:
            bolt: Any = self._bolt
            try:
                values = [bolt.input_key(key) for key in keys]
            except Exception as error:
                raise CannotDeal(
                    f"{self.where}: input_key raised {type(error).__name__}: {sentence_of(error)}",
                    at=self._class,
                ) from error
        if width == 1:
            return [values]
        for key, value in zip(keys, values, strict=True):
            if not isinstance(value, tuple | list) or len(value) != width:
                raise CannotDeal(
                    f"{self.where}: {what} {shown(key)} is not made of the {width} fields that its "
                    "input is grouped by",
                    hint=self._remedies,
                )
        return [list(column) for column in zip(*values, strict=True)] or [[] for _ in range(width)]

    def _check_sure(self, parts: Sequence[Mapping[Any, Any]], what: str) -> None:
        """Refuse keys of which the places say too little, if the class says nothing."""
        count = sum(map(len, parts))
        if not count or self._says_keys or self._is_proved:
            return
        if count * math.log2(self._before) < BITS:
            raise CannotDeal(
                f"{self.where} has {count} {what} in {self._before} tasks, which proves nothing "
                "about what its keys are",
                hint=f"write in {self._class}: def input_key(self, key): return key",
            )

    def _misplaced(self, key: Any, what: str, index: int) -> CannotDeal:
        return CannotDeal(
            f"{self.where} task {index}: {what} {shown(key)} is not what the input is grouped by; "
            "its tuples go to another task",
            hint=self._remedies,
        )

    @property
    def _class(self) -> str:
        return self._definition.class_name

    @property
    def _says_keys(self) -> bool:
        return getattr(type(self._bolt), "input_key", None) is not _AnyBolt.input_key

    @property
    def _remedies(self) -> str:
        return (
            f"say in {self._class} by input_key(key) what of it is in the grouping's fields, or "
            "write redistribute; or keep its number of tasks"
        )

    # -- attributes ---------------------------------------------------------------------------

    def _attributes(self, saved: Saved) -> dict[str, Any]:
        blob = saved.get(SavedAttributes.KEY)
        if blob is None:
            return {}
        with restoring(_Parts()):
            values, deleted = load_saved(blob)
        if deleted:
            raise CannotDeal(f"{self.where} has deleted its attribute {sorted(deleted)[0]!r}")
        return dict(values)

    def _deal_attributes(
        self, attributes: Sequence[Mapping[str, Any]], dealt: Sequence[dict[str, bytes]]
    ) -> None:
        names = sorted({name for values in attributes for name in values})
        by_task: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        for name in names:
            parts = [values.get(name, {}) for values in attributes]
            if name not in self._keyed:
                raise CannotDeal(
                    f"{self.where} has changed its attribute {name!r}, which belongs to a task",
                    hint=f"if it is a mapping by the input's key, say keyed = ({name!r},) in "
                    f"{self._class}; if it need not be kept, transient = ({name!r},); else write "
                    "redistribute",
                )
            if not all(isinstance(part, dict) for part in parts):
                raise CannotDeal(
                    f"{self.where} names {name!r} in keyed, which is no dict",
                    hint=f"write redistribute in {self._class}",
                )
            self._refuse_shared(name, attributes)
            parted = self._by_key(parts, f"the key of {name!r}")
            self._check_sure(parts, f"keys of {name!r}")
            saved = next(values[name] for values in attributes if name in values)
            for task, part in enumerate(parted):
                # Also an empty one: what `prepare` fills in may have been deleted since.
                by_task[task][name] = _of_kind(saved, part)
        for task, values in by_task.items():
            dealt[task][SavedAttributes.KEY] = _pickled(values)

    def _refuse_shared(self, name: str, attributes: Sequence[Mapping[str, Any]]) -> None:
        """Refuse an attribute that is another one as well: they would come apart."""
        for values in attributes:
            for other, value in values.items():
                if other != name and name in values and value is values[name]:
                    first, second = sorted((name, other))
                    raise CannotDeal(
                        f"{self.where}: its attributes {first!r} and {second!r} are one object",
                        hint=f"keep it under one name, or write redistribute in {self._class}",
                    )

    @property
    def _keyed(self) -> frozenset[str]:
        return frozenset(Fields(getattr(type(self._bolt), "keyed", ())))

    @property
    def _redistributes(self) -> bool:
        own: Any = getattr(type(self._bolt), "redistribute", None)
        return getattr(own, "__func__", None) is not _AnyBolt.redistribute.__func__  # type: ignore[attr-defined]

    def _redistribute(
        self,
        attributes: Sequence[Mapping[str, Any]],
        states: Sequence[Mapping[Any, Any]],
        dealt: Sequence[dict[str, bytes]],
    ) -> None:
        bolt: Any = type(self._bolt)
        before = [
            {**values, _STATE: dict(state)}
            for values, state in zip(attributes, states, strict=True)
        ]
        try:
            after = bolt.redistribute(before, self._after)
        except Exception as error:
            raise CannotDeal(
                f"{self.where}: redistribute raised {type(error).__name__}: {sentence_of(error)}",
                at=self._class,
            ) from error
        is_whole = isinstance(after, list) and len(after) == self._after
        if not is_whole or not all(isinstance(each, dict) for each in after):
            raise CannotDeal(
                f"{self.where}: redistribute returned {shown(after)}",
                at=self._class,
                hint=f"return a list of {self._after} dicts, one for each task",
            )
        for each, records in zip(after, dealt, strict=True):
            values = dict(each)
            self._write(_STATE, values.pop(_STATE, {}), records)
            if values:
                records[SavedAttributes.KEY] = _pickled(values)


class _Part:
    """A stand-in for what a task hands out, which is pickled by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return task_part, (self.name,)


class _Parts(Mapping[str, Any]):
    """The parts of a task that is not there."""

    def __getitem__(self, name: str) -> _Part:
        return _Part(name)

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


def _pickled(values: Mapping[str, Any]) -> bytes:
    return Pickled((dict(values), []), {}).data


def _of_kind(saved: Any, part: dict[Any, Any]) -> Any:
    """Return the entries as a mapping of the class that the attribute has."""
    if type(saved) is dict:
        return part
    mapping = saved.copy()
    mapping.clear()
    mapping.update(part)
    return mapping


def places_of(columns: list[list[Any]], tasks: int) -> list[int]:
    """Return for each row the index of the task to which a fields grouping sends it."""
    count = len(columns[0])
    places = [0] * count
    if not count:
        return places
    wiring = Wiring(range(tasks), range(len(columns)))
    rows = Rows(range(count), [*columns], [])
    for deal in grouping_named(FIELDS).grouper(wiring).deal(rows):
        for task, chosen in deal.parts:
            which: Iterable[int] = range(count)
            if isinstance(chosen, slice):
                which = range(count)[chosen]
            elif chosen is not None:
                which = chosen.tolist()
            for row in which:
                places[row] = task
    return places


def _fields_of(topology: Topology, definition: ComponentDef, at: int) -> InputFields:
    read = definition.inputs[at]
    fields = topology.component(read.component).declared(read.stream).fields
    return InputFields(
        read.component, read.stream, fields, read.grouping.kind, tuple(read.grouping.fields)
    )


def resizes_to(
    topology: Topology, present: TaskLayout, tasks: Mapping[str, int]
) -> tuple[dict[str, list[int]], list[Resize]]:
    """Return the ids of all tasks, and the components that change, if these get so many tasks."""
    for name in tasks:
        topology.component(name)  # or an error that names those that there are
    ids = with_other_counts(present.components, tasks)
    return ids, [
        Resize(name, present.tasks_of(name), range(ids[name][0], sum(ids[name]))) for name in tasks
    ]


def dealers(
    topology: Topology,
    conf: Mapping[str, Any],
    resized: Iterable[Resize],
    *,
    is_proved: bool = False,
) -> dict[str, Dealer]:
    """Return who deals what these components have saved; raise a CannotDeal if one cannot be."""
    return {
        of.component: Dealer(
            topology, conf, of.component, len(of.before), len(of.after), is_proved=is_proved
        )
        for of in resized
    }


def deal_all(
    dealing: Mapping[str, Dealer], resized: Iterable[Resize], saved: Mapping[int, Saved]
) -> dict[int, dict[str, bytes]]:
    """Return the records of all new tasks, by id, from those of all tasks before."""
    dealt: dict[int, dict[str, bytes]] = {}
    for each in resized:
        try:
            records = dealing[each.component].deal([saved.get(task, {}) for task in each.before])
        except (TopoError, MemoryError):
            raise
        except Exception as error:  # classes that the state needs, of the user's
            raise CannotDeal(
                f"the state of {each.component!r} cannot be read where it would be dealt: "
                f"{type(error).__name__}: {sentence_of(error)}",
                hint="the driver needs what the bolt imports",
            ) from error
        dealt.update((task, of) for task, of in zip(each.after, records, strict=True) if of)
    return dealt
