"""`topo explain`: a topology's structure, problems and plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from topo.cli.failures import INVALID, usage_error
from topo.cli.options import (
    ConfOptions,
    Prepared,
    TargetCommand,
    conf_options,
    prepare,
    target_argument,
)
from topo.cli.output import Output, common_options
from topo.components import StatefulBasicBolt, StatefulBolt, StatefulSpout
from topo.config import Effective
from topo.config.secrets import masked
from topo.config.slot_range import slot_range
from topo.engine.base import Launch, engine_named
from topo.engine.shapes import PlacedView
from topo.errors import InvalidTopologyError
from topo.shipping.pickling import load_component
from topo.shipping.requirements import remedy, unmet
from topo.timed import TimedBolt
from topo.topology import drawing
from topo.topology.model import ComponentDef, InputDef
from topo.topology.shedding import SHEDS, shedding_of
from topo.topology.statelessness import seems_stateless


@click.command(cls=TargetCommand)
@target_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid", "dot", "json"]),
    default="text",
    show_default=True,
    help="Choose how to show it.",
)
@click.option(
    "--conf", "show_conf", is_flag=True, help="Show every setting, and where it comes from."
)
@click.option(
    "--spark", is_flag=True, help="Show Spark's plan as well; this starts Spark, and runs nothing."
)
@click.option(
    "--master", metavar="URL", help="Plan for the slots of this master; default: the environment's."
)
@conf_options
@common_options()
@click.pass_obj
def explain(
    out: Output,
    target: str,
    form: str,
    show_conf: bool,
    spark: bool,
    master: str | None,
    conf: ConfOptions,
) -> int:
    """Show a topology's structure and plan, without running it.

    The command builds, validates and plans; it needs no Java, except for --spark. Exit 3: the
    topology is invalid, and every problem is listed.

    \b
    Examples:
      topo explain wordcount.py
      topo explain --format mermaid wordcount.py
      topo explain --conf wordcount.py
    """
    out.json = out.json or form == "json"
    if spark and (show_conf or form in ("mermaid", "dot")):
        other = "--conf" if show_conf else f"--format {form}"
        raise usage_error(f"--spark does not go with {other}", at="--spark", hint="--json has all")
    try:
        prepared = prepare(out, target, conf, command="topo explain")
    except InvalidTopologyError as error:
        _show_problems(out, error)
        return INVALID
    explained = Explanation(prepared, master)
    if out.json:
        out.answer_json(explained.document(with_spark=spark))
    elif show_conf:
        _show_conf(out, prepared.effective)
    elif form == "mermaid":
        out.answer(drawing.mermaid(prepared.topology, explained.tasks))
    elif form == "dot":
        out.answer(drawing.dot(prepared.topology, prepared.name, explained.tasks))
    else:
        for line in explained.lines():
            out.answer(line)
        if spark:
            out.say(f"starting Spark on {explained.master} ...")
            out.answer(f"\nSpark's plan, level 0 at the bottom:\n\n{explained.spark()}")
    return 0


class Explanation:
    """The description of a valid topology with its plan."""

    def __init__(self, prepared: Prepared, master: str | None) -> None:
        self._prepared = prepared
        self._topology = prepared.topology
        self.master = master or prepared.project.environment.master
        self._engine = engine_named("spark")
        self._launch = Launch(prepared.name, prepared.topology, prepared.conf, self.master)
        self._plan = self._engine.plan(self._launch)
        self._ways = self._engine.ways(self._launch)
        self.tasks = {placed.id: len(placed.tasks) for placed in self._plan.components}

    @property
    def _mode(self) -> str:
        return str(self._prepared.effective["topology.mode"].value)

    @property
    def _places(self) -> str:
        return _number(self._plan.slots * len(self._plan.levels), "task place")

    def lines(self) -> list[str]:
        levels = self._plan.levels
        head = (
            f"{self._prepared.name}: valid; {_number(len(self.tasks), 'component')}, "
            f"{_number(sum(self.tasks.values()), 'task')}; {_number(self._plan.slots, 'slot')}, "
            f"{_number(len(levels), 'level')}, {_number(len(levels) - 1, 'exchange')}"
        )
        rows = []
        for number, level in enumerate(levels):
            for placed in level:
                component = self._topology.components[placed.id]
                reads = ", ".join(map(str, component.inputs))
                rows.append(
                    [
                        str(number),
                        f"{placed.id} x{len(placed.tasks)}",
                        placed.kind,
                        self._words(placed, component),
                        f"<- {reads}" if reads else "",
                    ]
                )
        order = [placed.id for level in levels for placed in level]
        ways = [f"{bolt} runs {self._ways[bolt]}" for bolt in order if bolt in self._ways]
        works = [
            line
            for name in self.tasks
            for line in (f"{name}:", *(f"    {step}" for step in self._work(name)))
            if self._work(name)
        ]
        return [head, *_aligned(rows), *ways, *works, *self._remarks()]

    def _work(self, name: str) -> list[str]:
        """Return what a bolt says of its work."""
        component = self._topology.components[name]
        bolt = load_component(component) if component.timed else None
        return list(bolt.describe_work()) if isinstance(bolt, TimedBolt) else []

    def spark(self) -> str:
        """Return Spark's plan; this starts Spark."""
        return self._engine.explain(self._launch)

    def document(self, *, with_spark: bool = False) -> dict[str, Any]:
        return {
            "valid": True,
            "problems": [],
            "warnings": [*self._prepared.warnings, *self._too_few_tasks()],
            "mode": self._mode,
            "levels": [
                [
                    {
                        "id": placed.id,
                        "kind": placed.kind,
                        "tasks": len(placed.tasks),
                        "slots": list(placed.slots),
                        "fused_into": placed.fused_into,
                        "state": self._state(placed),
                        "work": self._work(placed.id),
                    }
                    for placed in level
                ]
                for level in self._plan.levels
            ],
            "edges": [
                {
                    "from": read.component,
                    "stream": read.stream,
                    "to": consumer.id,
                    "grouping": read.grouping.kind,
                    "fields": list(read.grouping.fields),
                    "exchange": self._is_exchange(read, consumer),
                    "loop": read.loop,
                }
                for consumer in self._topology.bolts
                for read in consumer.inputs
            ],
            "ways": dict(self._ways),
            "conf": _shown(self._prepared.effective),
            **({"spark": self.spark()} if with_spark else {}),
        }

    def _is_exchange(self, read: InputDef, consumer: ComponentDef) -> bool:
        levels = {placed.id: placed.level for placed in self._plan.components}
        return levels[read.component] != levels[consumer.id]

    def _state(self, placed: PlacedView) -> str | None:
        if not placed.keeps_state:
            return None
        component = self._topology.components[placed.id]
        keyed = component.timed or isinstance(
            load_component(component), StatefulBolt | StatefulBasicBolt | StatefulSpout
        )
        return "keyed" if keyed else "attributes"

    def _words(self, placed: PlacedView, component: ComponentDef) -> str:
        words = {
            None: "no state",
            "keyed": "state: keyed, saved incrementally",
            "attributes": "state: attributes, saved whole when they change",
        }[self._state(placed)]
        if component.conf.get(SHEDS):
            rules = shedding_of(load_component(component))
            return f"{words}; {rules.describe()}" if rules is not None else words
        if component.timed:
            bolt = load_component(component)
            assert isinstance(bolt, TimedBolt)
            return f"{words}; {bolt.describe_time()}"
        back = [read.component for read in component.inputs if read.loop]
        if back:
            return (
                f"{words}; a loop brings tuples of {', '.join(map(repr, back))} in the next batch"
            )
        if placed.fused_into:
            return f"{words}; fused into {placed.fused_into}"
        local = [read for read in component.inputs if read.grouping.is_local]
        if local:
            return f"{words}; not fused ({self._why_not_fused(placed, component)})"
        return words

    def _why_not_fused(self, placed: PlacedView, component: ComponentDef) -> str:
        others = [read for read in component.inputs if not read.grouping.is_local]
        if others:
            return f"it also reads {others[0]}"
        producers = [self._plan.component(read.component) for read in component.inputs]
        if len({producer.level for producer in producers}) > 1:
            return "its producers are of several levels"
        feeding = sum(len(producer.tasks) for producer in producers)
        return f"{feeding} tasks feed {len(placed.tasks)} over {self._plan.slots} slots"

    def _remarks(self) -> list[str]:
        found = []
        if self._mode == "real-time":
            found.append(f"real-time mode: {self._places} of Spark, all the time")
        found += [f"warning: {words}" for words in self._too_few_tasks()]
        for component in self._topology.bolts:
            if component.timed:
                continue
            if not component.stateless and seems_stateless(load_component(component)):
                found.append(
                    f"note: bolt {component.id!r} seems to keep nothing: "
                    "`stateless = True` spares it saving and, with its level, a state stage"
                )
        for component in self._topology.components.values():
            found += [
                f"note: {component.kind} {component.id!r}: {told} here; where it runs: "
                f"{remedy(component.requires)}"
                for told in unmet(component.requires)
            ]
        return found

    def _too_few_tasks(self) -> list[str]:
        """Return in words which components more slots do not help, of those it may scale to."""
        limits = slot_range(self._prepared.conf)
        if limits is None:
            return []
        most = limits[1]
        return [
            f"{self._topology.components[name].kind} {name!r} has {_number(tasks, 'task')}: of the "
            f"{most} slots that the topology may scale to it uses no more"
            for name, tasks in self.tasks.items()
            if tasks < most
        ]


def _show_problems(out: Output, error: InvalidTopologyError) -> None:
    if out.json:
        problems = [
            {"code": p.code, "where": p.where, "message": p.message, "hint": p.hint}
            for p in error.problems
        ]
        out.answer_json({"valid": False, "problems": problems})
        return
    for row in _aligned([[p.code, p.where, str(p)] for p in error.problems]):
        out.answer(row)


def _show_conf(out: Output, effective: dict[str, Effective]) -> None:
    from topo.cli.output import to_json

    shown = sorted(_shown(effective).items())
    rows = [[key, to_json(found.value), found.origin] for key, found in shown]
    out.table(["KEY", "VALUE", "FROM"], rows)


def _shown(effective: dict[str, Effective]) -> dict[str, Effective]:
    """Return the settings without their secrets."""
    return {key: replace(one, value=masked(key, one.value)) for key, one in effective.items()}


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
