"""The output streams of a task: who reads each of them, by which grouping, and at which times.

A user's grouping is loaded and prepared here, with the errors of the task it belongs to.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from topo.context import TopologyContext
from topo.groupings import CustomStreamGrouping
from topo.routing.groupers import Grouper
from topo.routing.registry import Wiring, grouping_named
from topo.runtime.emitter import OutStream, Subscription
from topo.runtime.time_reading import TimeObserver, time_reader
from topo.shipping.pickling import LocalPickle
from topo.topology.model import ComponentDef, GroupingDef

if TYPE_CHECKING:
    from topo.runtime.task import TaskEnvironment


class OutStreams:
    """The output streams of one task, made as they are iterated over."""

    def __init__(
        self,
        setting: TaskEnvironment,
        task: int,
        context: TopologyContext,
        users_code: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._setting = setting
        self._task = task
        self._context = context
        self._users_code = users_code
        self._component_id = setting.layout.component_of(task)
        self._definition = setting.topology.component(self._component_id)

    def __iter__(self) -> Iterator[OutStream]:
        for index, output in enumerate(self._definition.outputs):
            subscriptions = [
                Subscription(consumer.id, self._grouper(consumer, read.grouping, output.name))
                for consumer, read in self._setting.topology.consumers(self._component_id)
                if read.stream == output.name
            ]
            made = OutStream(output.name, output.fields, output.direct, subscriptions, index)
            if not self._definition.timed:  # the readers of such a bolt hear its watermark
                made.observers += self._time_observers(output.name)
            yield made

    def _time_observers(self, stream: str) -> Iterator[TimeObserver]:
        for consumer, read in self._setting.topology.consumers(self._component_id):
            if consumer.timed and read.stream == stream:
                bolt = self._setting.timed(consumer.id)
                reader = time_reader(self._setting, consumer, bolt, self._component_id, stream)
                time = bolt.timing()
                if reader is not None and time is not None:
                    yield TimeObserver(consumer.id, time, reader)

    def _grouper(self, consumer: ComponentDef, grouping: GroupingDef, stream: str) -> Grouper:
        tasks = list(self._setting.layout.tasks_of(consumer.id))
        if grouping.is_local and not grouping.is_aligned:
            tasks = [task for task in tasks if task in self._setting.local_tasks] or tasks
        declared = self._definition.declared(stream)
        wiring = Wiring(
            tasks,
            [declared.fields.index(name) for name in grouping.fields],
            self._setting.layout.index_of(self._task),
        )
        if grouping.kind == "custom":
            wiring = self._with_choice(wiring, grouping, stream)
        return grouping_named(grouping.kind).grouper(wiring)

    def _with_choice(self, wiring: Wiring, grouping: GroupingDef, stream: str) -> Wiring:
        """Prepare the user's grouping, whose choice is the wiring's."""
        local: LocalPickle | None = grouping.local_custom
        made: CustomStreamGrouping = local.load() if local else pickle.loads(grouping.custom)
        with self._users_code():
            made.prepare(self._context, (self._component_id, stream), list(wiring.tasks))
        return replace(
            wiring,
            choose=lambda values: made.choose_tasks(self._task, values),
            name=type(made).__name__,
        )
