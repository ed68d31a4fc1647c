"""The plan of a topology over some slots: levels, slots, fused chains and state.

The module is pure and deterministic and knows no Spark. A component's level is its longest path
from a spout: each level is one stage, between two levels is one exchange. The tasks of a component
are dealt over the slots evenly, each component starting after the last one, except a bolt that
reads only by local_or_shuffle, none or same_task, and over no loop: it starts at its first
producer's slot, so that tuples need not leave their slot. Such a bolt is fused into its producers'
level if every slot with a producer has a task of it. An input that goes back over a loop decides
neither level nor place: what comes over it is of an earlier batch, and is sent down from level 0.

The plan is part of a checkpoint: `to_json` is written beside it, and `check_same` refuses to resume
under another plan, since Spark would accept one and lose state silently.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from topo.engine.spark.slotkeys import slot_keys
from topo.errors import CheckpointError
from topo.storage.format import FORMAT
from topo.topology.layout import TASK_IDS, TaskLayout
from topo.topology.model import ComponentDef, Topology
from topo.topology.order import producers_first


@dataclass(frozen=True)
class Placement:
    """The place of one component: its tasks, the slot of each, its level, and its statefulness."""

    id: str
    kind: str
    tasks: range
    slots: tuple[int, ...]
    level: int
    fused_into: str | None
    keeps_state: bool
    reads: tuple[str, ...] = ()
    """The groupings by value that decide which of its tasks has a key."""

    source: str = ""
    """What Spark reads for it: the source's format, and its path if it has one."""
    sink: bool = False
    """True if Spark writes for it."""
    loops: tuple[str, ...] = ()
    """The bolts that it sends tuples back to, which it keeps until the next batch."""

    def task_slots(self) -> dict[int, int]:
        return dict(zip(self.tasks, self.slots, strict=True))


@dataclass(frozen=True)
class Plan:
    """The places of all components. `keys` are the slots' keys in Spark's rows."""

    slots: int
    components: tuple[Placement, ...]
    keys: tuple[int, ...] = field(default=())
    keeps_ids: bool = False
    """True if the ids of its tasks were given, and do not follow from the topology."""

    @cached_property
    def levels(self) -> tuple[tuple[Placement, ...], ...]:
        count = 1 + max(placed.level for placed in self.components)
        return tuple(
            tuple(placed for placed in self.components if placed.level == level)
            for level in range(count)
        )

    @cached_property
    def _places(self) -> dict[int, tuple[int, int]]:
        return {
            task: (placed.level, slot)
            for placed in self.components
            for task, slot in placed.task_slots().items()
        }

    def place_of(self, task: int) -> tuple[int, int]:
        """Return a task's level and slot."""
        return self._places[task]

    def tasks_at(self, level: int, slot: int) -> list[int]:
        return [task for task, place in self._places.items() if place == (level, slot)]

    def tasks_in(self, slot: int) -> frozenset[int]:
        """Return all tasks of a slot, at all levels."""
        return frozenset(task for task, place in self._places.items() if place[1] == slot)

    @property
    def spout_slots(self) -> int:
        """The number of slots that have a task of a spout."""
        spouts = (placed for placed in self.components if placed.kind == "spout")
        return len({slot for placed in spouts for slot in placed.slots})

    @property
    def has_loops(self) -> bool:
        """True iff something is sent back over a loop."""
        return any(placed.loops for placed in self.components)

    @property
    def sources(self) -> list[Placement]:
        """The spouts that Spark reads for, in the order of Spark's offset log."""
        return sorted((one for one in self.components if one.source), key=lambda one: one.id)

    @cached_property
    def sinks(self) -> list[Placement]:
        """The bolts that Spark writes for; their rows are of a level each, below all others."""
        return [placed for placed in self.components if placed.sink]

    def sink_level(self, task: int) -> int:
        """Return the level of the rows of a task that Spark writes for."""
        of = next(at for at, placed in enumerate(self.sinks) if task in placed.tasks)
        return len(self.levels) + of

    def keeps_state(self, level: int) -> bool:
        return any(placed.keeps_state for placed in self.levels[level])

    def component(self, name: str) -> Placement:
        return next(placed for placed in self.components if placed.id == name)

    def task_ids(self) -> dict[str, list[int]]:
        """Return the ids of all tasks, as the setting `topology.task.ids` has them."""
        return {placed.id: [placed.tasks.start, len(placed.tasks)] for placed in self.components}

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), indent=1) + "\n"

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "slots": self.slots,
            "keys": list(self.keys),
            "components": {
                placed.id: {
                    "kind": placed.kind,
                    "first_task": placed.tasks.start,
                    "tasks": len(placed.tasks),
                    "slots": list(placed.slots),
                    "level": placed.level,
                    "keeps_state": placed.keeps_state,
                    "reads": list(placed.reads),
                    **({"source": placed.source} if placed.source else {}),
                    **({"loops": list(placed.loops)} if placed.loops else {}),
                }
                for placed in self.components
            },
        }

    def is_rescaled(self, written: str, *, deals: bool = False) -> bool:
        """Return True if `written`, found beside a checkpoint, differs in its slots alone.

        Where the tasks are follows from that number. With `deals`, components may have other
        numbers of tasks too, under ids that none had before.
        """
        try:
            before = json.loads(written)
            resized = self.resized(before) if deals else {}
            if before["format"] != FORMAT or (before["slots"] == self.slots and not resized):
                return False
            if deals and not self._keeps_ids(before, resized):
                return False
            then = {name: {"tasks": len(after)} for name, (_, after) in resized.items()}
            alike = {name: each | then.get(name, {}) for name, each in before["components"].items()}
            alike_plan = {**before, "slots": -1, "components": alike}
            return len(_differences(alike_plan, self.as_dict())) == 1
        except (ValueError, TypeError, KeyError, AttributeError):
            return False

    def resized(self, before: Mapping[str, Any]) -> dict[str, tuple[range, range]]:
        """Return the tasks before and now of the components with another number of them."""
        spans = {}
        for placed in self.components:
            each = before["components"].get(placed.id)
            if each is not None and each["tasks"] != len(placed.tasks):
                first = each["first_task"]
                spans[placed.id] = range(first, first + each["tasks"]), placed.tasks
        return spans

    def _keeps_ids(self, before: Mapping[str, Any], resized: Mapping[str, Any]) -> bool:
        """Return True if no id of a task has come to mean another one."""
        firsts = {name: each["first_task"] for name, each in before["components"].items()}
        ids = {
            task
            for each in before["components"].values()
            for task in range(each["first_task"], each["first_task"] + each["tasks"])
        }
        return all(
            ids.isdisjoint(placed.tasks)
            if placed.id in resized
            else firsts.get(placed.id) == placed.tasks.start
            for placed in self.components
        )

    def check_same(self, written: str, where: str) -> None:
        """Raise a CheckpointError if `written`, found beside a checkpoint, is another plan."""
        try:
            found = json.loads(written)
            differences = _differences(found, self.as_dict())
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(
                f"the plan beside the checkpoint cannot be read: {error}",
                at=where,
                hint="start with a fresh checkpoint",
            ) from error
        if differences:
            raise CheckpointError(
                "the checkpoint was made by another plan: " + "; ".join(differences),
                at=where,
                hint=_remedy(found, self.slots),
            )


def make_plan(topology: Topology, slots: int, conf: Mapping[str, Any] | None = None) -> Plan:
    """Make the plan of a topology over this many slots."""
    layout = TaskLayout(topology, conf)
    placed: dict[str, Placement] = {}
    start = 0
    for definition in producers_first(topology):
        tasks = layout.tasks_of(definition.id)
        at = _start_beside_producer(definition, placed)
        first = start if at is None else at
        where = tuple((first + index) % slots for index in range(len(tasks)))
        if at is None:
            start = (start + len(tasks)) % slots
        level, fused_into = _level(definition, where, placed)
        loops = topology.loops_from(definition.id)
        placed[definition.id] = Placement(
            definition.id,
            definition.kind,
            tasks,
            where,
            level,
            fused_into,
            keeps_state=definition.is_spout or not definition.stateless or bool(loops),
            reads=_reads_by_value(definition),
            source=_source_of(definition.external.get("source")),
            sink="sink" in definition.external,
            loops=loops,
        )
    ordered = tuple(placed[name] for name in topology.components)
    return Plan(slots, ordered, slot_keys(slots), keeps_ids=bool(conf and conf.get(TASK_IDS)))


def _reads_locally(definition: ComponentDef) -> bool:
    """Return True if it may be fused; what comes over a loop comes from above, like a row."""
    reads = definition.inputs
    return bool(reads) and all(read.grouping.is_local and not read.loop for read in reads)


def _start_beside_producer(definition: ComponentDef, placed: Mapping[str, Placement]) -> int | None:
    if not _reads_locally(definition):
        return None
    return placed[definition.inputs[0].component].slots[0]


def _level(
    definition: ComponentDef, slots: tuple[int, ...], placed: Mapping[str, Placement]
) -> tuple[int, str | None]:
    """Return the component's level, and the producer with which it is fused, or None."""
    if definition.is_spout:
        return 0, None
    producers = [placed[read.component] for read in definition.forward]
    levels = {producer.level for producer in producers}
    covered = set(slots) >= {slot for producer in producers for slot in producer.slots}
    aligned = all(
        slots == placed[read.component].slots
        for read in definition.forward
        if read.grouping.is_aligned
    )
    # A bolt in event time hears of the tasks of all slots, which only an exchange brings.
    local = _reads_locally(definition) and covered and aligned
    if local and len(levels) == 1 and not definition.timed:
        return producers[0].level, producers[0].id
    return 1 + max(levels, default=0), None


def _source_of(source: Mapping[str, Any] | None) -> str:
    if source is None:
        return ""
    path = source["options"].get("path")
    return f"{source['format']} of {path}" if path else str(source["format"])


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    if found["format"] != wanted["format"]:
        return [f"its state is of format {found['format']}, this topo's is {wanted['format']}"]
    said = []
    if found["slots"] != wanted["slots"]:
        said.append(f"it has {found['slots']} slots, now there are {wanted['slots']}")
    before, now = found["components"], wanted["components"]
    said += [f"{before[name]['kind']} {name!r} is gone" for name in before if name not in now]
    said += [f"{now[name]['kind']} {name!r} is new" for name in now if name not in before]
    for name in (name for name in now if name in before):
        said += _component_differences(name, before[name], now[name], bool(said))
    if not said and found["keys"] != wanted["keys"]:
        said.append("its slots have other keys")
    return said


def _component_differences(
    name: str, before: Mapping[str, Any], now: Mapping[str, Any], explained: bool
) -> list[str]:
    what = f"{now['kind']} {name!r}"
    if before["kind"] != now["kind"]:
        return [f"{what} was a {before['kind']}"]
    if before["tasks"] != now["tasks"]:
        return [f"{what} had {before['tasks']} tasks, now {now['tasks']}"]
    if before["keeps_state"] != now["keeps_state"]:
        return [f"{what} {'kept' if before['keeps_state'] else 'did not keep'} state before"]
    if before.get("loops") != now.get("loops"):
        was, has = (_listed(each.get("loops", []), "no bolt") for each in (before, now))
        return [f"{what} sent tuples back to {was}, and now sends them to {has}"]
    if before.get("source") != now.get("source"):  # whose offsets Spark would take for its own
        was, reads = (each.get("source", "no source of Spark's") for each in (before, now))
        return [f"{what} read {was}, and now reads {reads}"]
    if now["keeps_state"] and (changed := _changed_reads(before, now)):
        return [f"{what} keeps state and now reads {changed}"]
    if explained:  # what follows comes of a difference already named
        return []
    if before["level"] != now["level"]:
        return [f"{what} was in level {before['level']}, now {now['level']}"]
    if before["first_task"] != now["first_task"] or before["slots"] != now["slots"]:
        return [f"{what} has its tasks in other slots"]
    return []


def _reads_by_value(definition: ComponentDef) -> tuple[str, ...]:
    return tuple(
        f"{read.component} stream {read.stream} by {read.grouping}"
        for read in sorted(definition.inputs, key=lambda read: (read.component, read.stream))
        if read.grouping.is_by_value
    )


def _changed_reads(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Name the grouping that would send keys to other tasks than those that have their state."""
    was = before.get("reads", now["reads"])  # of a plan that did not say so
    return "" if was == now["reads"] else f"{_listed(now['reads'])}, before {_listed(was)}"


def _listed(names: list[str], nothing: str = "nothing by value") -> str:
    return ", ".join(names) or nothing


def _remedy(found: Mapping[str, Any], slots: int) -> str:
    if found.get("slots") != slots:
        return (
            f"set topology.workers={found.get('slots')}, or to another number, to which its tasks "
            "then move"
        )
    return "go back to the topology that made it, or start with a fresh checkpoint"
