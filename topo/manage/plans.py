"""A run's plan, from its topology and from what its driver wrote beside the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topo.config import Config
from topo.config.layers import for_component
from topo.engine.base import Launch, engine_named
from topo.engine.shapes import PlacedView
from topo.manage.records import RunRecord
from topo.manage.submit import SPARK
from topo.manage.views import InputView, PlacedComponent, SlotView, StreamView, TopologyPlan
from topo.storage.checkpoints import slots_at
from topo.topology.layout import TASK_IDS, TaskLayout, with_other_counts
from topo.topology.model import Topology


def plan_of(
    run: RunRecord, workers: int | None = None, tasks: Mapping[str, int] | None = None
) -> TopologyPlan:
    """Return what runs where, or would in so many slots, and with other numbers of tasks.

    The slots are guessed until the driver has decided on them.
    """
    topology = Topology.from_bytes((run.directory / "topology.pb").read_bytes())
    conf = dict(run.submission.conf)
    if tasks:
        for name in tasks:
            topology.component(name)  # or an error that names those that there are
        conf[TASK_IDS] = with_other_counts(TaskLayout(topology, conf).components, tasks)
    slots = workers or slots_at(run.submission.checkpoint)
    if slots is not None:
        conf[Config.workers.key] = slots
    # A name that a file gives must not have this process import whatever it likes; and an engine
    # without a plan of its own is shown as Spark would run the topology.
    launch = Launch(run.name, topology, conf, master=run.submission.master)
    plan = engine_named(SPARK).plan(launch)
    return TopologyPlan(
        name=run.name,
        slots=plan.slots,
        levels=[[placed.id for placed in level] for level in plan.levels],
        components=[_placed(topology, placed, conf) for placed in plan.components],
        is_final=slots is not None,
        warnings=list(topology.warnings),
    )


def slots_of(plan: TopologyPlan) -> list[SlotView]:
    """Return the tasks of each slot of a plan."""
    slots: list[dict[str, list[int]]] = [{} for _ in range(plan.slots)]
    for component in plan.components:
        for index, slot in enumerate(component.slots):
            slots[slot].setdefault(component.id, []).append(component.first_task + index)
    return [SlotView(number, tasks) for number, tasks in enumerate(slots)]


def _placed(topology: Topology, placed: PlacedView, conf: Any) -> PlacedComponent:
    definition = topology.component(placed.id)
    limit: Any = for_component(conf, placed.id, definition.conf).get("topology.max.spout.pending")
    return PlacedComponent(
        id=placed.id,
        kind=placed.kind,
        class_name=definition.class_name,
        tasks=len(placed.tasks),
        first_task=placed.tasks.start,
        slots=list(placed.slots),
        level=placed.level,
        fused_into=placed.fused_into,
        keeps_state=placed.keeps_state,
        role=definition.role,
        pending_limit=int(limit) * len(placed.tasks) if limit and definition.is_spout else None,
        inputs=[
            InputView(
                read.component,
                read.stream,
                read.grouping.kind,
                list(read.grouping.fields),
                read.loop,
            )
            for read in definition.inputs
        ],
        outputs=[StreamView(out.name, list(out.fields), out.direct) for out in definition.outputs],
    )
