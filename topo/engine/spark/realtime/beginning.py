"""A savepoint as the beginning of a topology's state: whether it fits, and for which tasks it is.

A savepoint is filed by component and index; here the records get the tasks that a plan has for
them. What names tasks by their ids, such as held tuples, fits only if these are the same. In
real-time mode the records are then the first epoch of a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from topo.engine.spark.plan import Placement, Plan
from topo.engine.spark.realtime.epochs import Committed, EpochRecord
from topo.engine.spark.realtime.rescaling import last_tick_keys
from topo.engine.spark.realtime.store import EpochStore
from topo.errors import CheckpointError
from topo.runtime.task import names_tasks, without_acker
from topo.storage.savepoints import Component, Savepoint, read_savepoint, tasks_of
from topo.tracking.ids import Updates
from topo.tracking.plan import TrackingPlan

_REAL_TIME = "real-time"
Start = tuple[Savepoint, Mapping[str, str], frozenset[str]]
"""A savepoint, the new names of its components, and those that are dropped."""


def start_of(begin: Mapping[str, Any]) -> Start:
    """Return the savepoint that a run is to begin with, as it was asked for."""
    saved = read_savepoint(Path(begin["from"]))
    return saved, dict(begin.get("rename") or {}), frozenset(begin.get("drop") or ())


def differences(start: Start, plan: Plan) -> list[str]:
    """Return what keeps a topology of this plan from beginning with a savepoint, in words."""
    saved, renamed, dropped = start
    problems = [
        f"there is no {name!r} in it"
        for name in (*renamed, *dropped)
        if name not in saved.components
    ]
    now = {placed.id: placed for placed in plan.components}
    for name, component in saved.components.items():
        target = renamed.get(name, name)
        if target in now:
            problems += _component_differences(name, component, now[target], renamed)
        elif name not in dropped and component.keeps_state:
            problems.append(
                f"{component.kind} {name!r} is gone: --drop {name}, or --rename {name}=NEW"
            )
    return problems


def _component_differences(
    name: str, before: Component, now: Placement, renamed: Mapping[str, str]
) -> list[str]:
    what = f"{now.kind} {now.id!r}"
    if before.kind != now.kind:
        return [f"{what} was a {before.kind}"]
    if before.tasks != now.tasks.stop - now.tasks.start:
        return [f"{what} had {before.tasks} tasks, now {len(now.tasks)}"]
    if before.keeps_state and not now.keeps_state:
        return [f"{what} kept state, and keeps none now: --drop {name}"]
    reads = tuple(sorted(_renamed_reads(before.reads, renamed)))
    if now.keeps_state and before.keeps_state and reads != tuple(sorted(now.reads)):
        listed = (", ".join(each) or "nothing by value" for each in (now.reads, before.reads))
        return [f"{what} keeps state and now reads {', before '.join(listed)}"]
    return []


def _renamed_reads(reads: Iterable[str], renamed: Mapping[str, str]) -> Iterator[str]:
    for read in reads:
        source, _, rest = read.partition(" stream ")
        yield f"{renamed.get(source, source)} stream {rest}"


def records_for(start: Start, plan: Plan, mode: str) -> dict[int, dict[str, bytes]]:
    """Return the records of a savepoint by the tasks of a plan; raise if they do not fit it."""
    saved, renamed, dropped = start
    if problems := differences(start, plan):
        raise CheckpointError(
            f"the savepoint does not fit the topology: {'; '.join(problems)}",
            at=str(saved.directory),
            hint="topo savepoint show DIR tells what is in it",
        )
    now = {placed.id: placed for placed in plan.components}
    tasks: dict[int, dict[str, bytes]] = {}
    are_others = bool(renamed)
    for name, index in tasks_of(saved):
        target = now.get(renamed.get(name, name))
        if target is None or name in dropped:
            continue
        are_others |= target.tasks.start != saved.components[name].first_task
        if records := saved.records(name, index):
            tasks[target.tasks[index]] = records
    if saved.pending and (are_others or _REAL_TIME in (saved.mode, mode)):
        raise CheckpointError(
            f"the savepoint has {saved.pending} pending messages, which only a topology of the "
            "same components resumes, in micro-batches",
            at=str(saved.directory),
            hint="topo kill lets them finish; make the savepoint after it",
        )
    if are_others and any(map(names_tasks, tasks.values())):
        raise CheckpointError(
            "the savepoint has watermarks, held tuples or tuples on loops, which name tasks that "
            "have other ids now",
            at=str(saved.directory),
            hint="keep the names of components: ids are dealt in their order",
        )
    # A spout names the acker that it last spoke to, in each mode in another way. What a bolt holds
    # is left packed: its classes may have moved, as its component says where it is loaded.
    spouts = [placed.tasks for placed in plan.components if placed.kind == "spout"]
    if not saved.pending:
        for task in (task for ids in spouts for task in ids if task in tasks):
            tasks[task] = without_acker(tasks[task])
    return tasks


def begin_epochs(directory: Path, start: Start, plan: Plan) -> None:
    """Write the first epoch of a log into a directory, which is not there."""
    saved = start[0]
    puts = {
        (task, name): record
        for task, records in records_for(start, plan, _REAL_TIME).items()
        for name, record in records.items()
    }
    if saved.last_ticked:
        puts.update(dict.fromkeys(last_tick_keys(plan), b"\1"))
    store = EpochStore(directory, sync=True)
    with closing(store):
        committed = store.recover(Committed(plain_tracking(components_in(plan.as_dict()))))
        store.append(EpochRecord(1, saved.made_at, puts, (), Updates(), {}), committed)


def components_in(plan: Mapping[str, Any]) -> dict[str, Component]:
    """Return the components of a plan, as its document has them."""
    return {
        name: Component(
            each["kind"],
            each["first_task"],
            each["tasks"],
            each["keeps_state"],
            tuple(each.get("reads", ())),
        )
        for name, each in plan["components"].items()
    }


def plain_tracking(components: Mapping[str, Component]) -> TrackingPlan:
    """Return what a log needs to be read without a topology."""
    spouts = [task for each in components.values() if each.kind == "spout" for task in each.ids]
    dealt = {name: (each.first_task, each.tasks) for name, each in components.items()}
    return TrackingPlan(1, 1, tuple(spouts), dealt, None)
