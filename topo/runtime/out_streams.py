"""The output streams of a task: who reads each of them, by which grouping, and what waits on it.

A user's grouping is loaded and prepared here, with the errors of the task it belongs to.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from topo.context import TopologyContext
from topo.groupings import CustomStreamGrouping
from topo.routing.groupers import Direct, Grouper
from topo.routing.registry import Wiring, grouping_named
from topo.runtime.shedding import Shedder
from topo.runtime.time_reading import TimeObserver, time_reader
from topo.shipping.pickling import LocalPickle
from topo.topology.model import ComponentDef, GroupingDef
from topo.tracking.trees import Anchor
from topo.wire.frame import I64, Column

if TYPE_CHECKING:
    from topo.runtime.pending_times import StreamHold
    from topo.runtime.task import TaskEnvironment


@dataclass
class Subscription:
    """One bolt's subscription to one stream."""

    consumer: str
    grouper: Grouper
    loop: bool = False
    """It goes back: what is dealt to it waits for the next batch."""


@dataclass
class OutStream:
    """One declared stream of a task, and the rows that wait on it."""

    name: str
    fields: tuple[str, ...]
    direct: bool
    subscriptions: list[Subscription]
    index: int
    rows: list[Any] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    parents_of_columns: I64 | None = None
    """Those of rows that came as columns, all at once; the list is empty then."""
    several: dict[int, list[Anchor]] = field(default_factory=dict)
    targets: list[int] = field(default_factory=list)
    copies: list[bytes] = field(default_factory=list)
    columns: list[list[Any]] = field(default_factory=list)
    """The columns of the rows that a loop over columns has emitted; it appends to these lists."""
    blank: frozenset[int] = frozenset()
    """Those of the columns that hold nothing but None, and are left empty until the flush."""
    is_by_columns: bool = False
    """What is emitted row by row goes to the columns too: it is of the same bolt, and in order."""
    holds_columns: bool = False
    """A loop is appending to these very lists: a flush has to leave them where they are."""
    lasts: bool = False
    """The task's emit appends to these very lists: they are emptied, and never replaced."""
    # The number of emits that were only counted, since no bolt reads them.
    take_unread: Callable[[], int] | None = None
    width: int = 0
    takes_direct: bool = False
    observers: list[TimeObserver] = field(default_factory=list)
    """Of the time, for bolts that read the stream in event time."""
    holds: list[StreamHold] = field(default_factory=list)
    """Those that note the times of a spout's messages, for bolts whose watermark these hold."""

    shedder: Shedder | None = None
    """Of a spout's stream, if it may drop tuples."""

    def __post_init__(self) -> None:
        self.width = len(self.fields)
        readers = (subscription.grouper for subscription in self.subscriptions)
        self.takes_direct = self.direct or any(isinstance(r, Direct) for r in readers)

    def shed_by(self, shedder: Shedder) -> None:
        """Let this one choose from now on which rows are emitted."""
        self.shedder = shedder

    @property
    def waiting(self) -> int:
        """The number of rows that wait, as rows or as columns."""
        return len(self.rows) + (len(self.columns[0]) if self.columns else 0)

    def take_columns(self) -> list[Column]:
        """Return the columns that wait, and begin new ones."""
        if self.holds_columns or self.lasts:
            taken = [list(column) for column in self.columns]
            for column in self.columns:
                column.clear()
        else:
            taken, self.columns = self.columns, [[] for _ in self.columns]
        count = len(taken[0])
        return [[None] * count if n in self.blank else c for n, c in enumerate(taken)]

    def appends(self) -> list[Callable[[Any], None]]:
        """Return what appends to each column, from now on for as long as the task lives."""
        if not self.lasts:
            self.lasts = self.is_by_columns = True
            self.columns = [[] for _ in range(self.width)]
        return [column.append for column in self.columns]

    def add(self, values: Sequence[Any]) -> None:
        """Append a row, to the columns if all that is emitted goes there."""
        if not (self.is_by_columns and self.columns):
            self.rows.append(values)
            return
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)

    def add_many(self, rows: Sequence[Sequence[Any]]) -> None:
        """Append rows, which have a value for each field."""
        if not (self.is_by_columns and self.columns):
            self.rows.extend(rows)
            return
        for column, values in zip(self.columns, zip(*rows, strict=True), strict=True):
            column.extend(values)

    def take_parents(self, parents: Sequence[int] | I64) -> None:
        """Take the parents of rows that come as columns, after all that waited has been dealt."""
        self.parents_of_columns = np.asarray(parents, np.int64)

    @property
    def waiting_parents(self) -> Sequence[int] | I64:
        """The parents of the rows that wait; none if what is executed says them."""
        return self.parents if self.parents_of_columns is None else self.parents_of_columns

    def even_columns(self, most: int | None = None) -> None:
        """Drop what an interrupted emit has put into some columns only; keep `most` rows."""
        full = [column for n, column in enumerate(self.columns) if n not in self.blank]
        least = min(map(len, full), default=0)
        for column in full:
            del column[least if most is None else min(least, most) :]

    def clear(self) -> None:
        self.parents_of_columns = None
        for collected in (self.rows, self.parents, self.several, self.targets, self.copies):
            collected.clear()


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
                Subscription(
                    consumer.id, self._grouper(consumer, read.grouping, output.name), read.loop
                )
                for consumer, read in self._setting.topology.consumers(self._component_id)
                if read.stream == output.name
            ]
            made = OutStream(output.name, output.fields, output.direct, subscriptions, index)
            if not self._definition.timed:  # the readers of such a bolt hear its watermark
                made.observers += self._time_observers(output.name)
            yield made

    def _time_observers(self, stream: str) -> Iterator[TimeObserver]:
        for consumer, birth in self._setting.births_at(self._component_id):
            if birth.stream == stream:
                bolt = self._setting.timed(consumer.id)
                reader = time_reader(
                    self._setting, consumer, bolt, self._component_id, stream, field=birth.field
                )
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
