"""`RequestBolt`: a bolt with one instance for each request, which hears when its tuples are over.

Storm counts the tuples of a request over direct streams. Here a request goes through all levels in
the batch that emitted it, and when the tuples of a batch are in, those of its requests are: so an
instance lives within a batch, nothing of it is saved, and `finish` comes at the end of the level.
That a request has no tuple is known by its announcement, which each task gets that must finish.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from topo.drpc.spout import ID, REQUESTS
from topo.errors import ComponentError, Problem, UnsavableAttributeError
from topo.keyed.instances import Instances
from topo.timed import Clock, InputFields, Operator, OperatorTask, Rows, TimedBolt
from topo.tuples import DEFAULT_STREAM, Tuple

_WHOLE = ("all", "global")


class RequestBolt(TimedBolt):
    """A bolt with one instance for each request and task, for as long as the request's batch.

    The first field of every input is the request's id. What `begin` and `execute` set belongs to
    the request; what `__init__` and `prepare` set is shared by all requests and must not change.
    """

    acks = "expiry"
    needs_whole_requests = True

    request: Any = None
    """On an instance: the id of its request."""

    def begin(self) -> None:
        """Set up the instance of a request."""

    def execute(self, tup: Tuple) -> None:
        """Process one tuple of this request; emits are anchored to it."""
        raise NotImplementedError

    def finish(self) -> None:
        """Act when all tuples of this request have come to this task, perhaps none."""

    def emit(  # type: ignore[override]
        self,
        values: list[Any] | tuple[Any, ...],
        *,
        stream: str = "default",
        task_ids: bool = False,
    ) -> list[int] | None:
        """Emit a tuple of this request."""
        return self.collector.emit(values, stream=stream, anchors=[], task_ids=task_ids)

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterable[Problem]:
        announced = [read for read in inputs if _announces(read)]
        if not announced:
            text = (
                f"{where} hears of no requests: a task that gets no tuple of one would not finish"
            )
            hint = f'write .all_grouping("drpc", stream={REQUESTS!r}), or in the last such bolt '
            hint += (
                f'.fields_grouping("drpc", {ID!r}, stream={REQUESTS!r}), with the DrpcSpout\'s name'
            )
            yield Problem("drpc-requests", where, text, hint)
        for read in inputs:
            if tasks > 1 and read.grouping not in _WHOLE and not _by_request(read):
                if _announces(read):
                    text = f"{where} reads the announcements of {read.component!r} by "
                    text += f"{read.grouping}, so that tasks miss some"
                    hint = f".all_grouping({read.component!r}, stream={REQUESTS!r})"
                    yield Problem("drpc-requests", where, text, hint)
                elif announced and all(_by_request(other) for other in announced):
                    text = f"{where} hears of each request in one task, and gets the tuples of "
                    text += f"{read.component!r} by {read.grouping} in others"
                    hint = f".fields_grouping({read.component!r}, {read.fields[0]!r}), or read "
                    hint += f"{REQUESTS!r} by all_grouping and gather behind it once more"
                    yield Problem("drpc-last", where, text, hint)

    def describe_time(self) -> str:
        return "an instance for each request, finished with its batch"

    def operator(self, task: OperatorTask) -> Operator:
        return RequestOperator(self, task)


class RequestOperator(Operator):
    """The requests of one task in a batch."""

    def __init__(self, component: RequestBolt, task: OperatorTask) -> None:
        conf = task.conf
        if conf["topology.mode"] == "real-time" and not conf["topology.epoch.ms"]:
            raise ComponentError(
                f"{task.owner} gathers the tuples of a request, and with topology.epoch.ms=0 "
                "nothing says when they are over",
                hint="set topology.epoch.ms to 10, or answer in one bolt",
                code="drpc-epoch",
            )
        self._task = task
        collector: Any = component.collector
        self._collector = collector
        calls: dict[str, Any] = {"emit": self.emit, "emit_direct": self.emit_direct}
        self._instances = Instances(component, task.owner, calls, "request")
        self._open: dict[Any, Any] = {}
        self._announced: dict[Any, Tuple] = {}
        self._failed: dict[Any, str | None] = {}
        self._sources: dict[Any, str] = {}
        self._anchors: Any = ()

    def emit(
        self, values: Any, stream: str = DEFAULT_STREAM, task_ids: bool = False
    ) -> list[int] | None:
        if not task_ids:
            self._collector.emit(values, stream=stream, anchors=self._anchors)
            return None
        tasks: list[int] | None = self._collector.emit(
            values, stream=stream, anchors=self._anchors, task_ids=task_ids
        )
        return tasks

    def emit_direct(self, task: int, values: Any, *, stream: str = "default") -> None:
        self._collector.emit_direct(task, values, stream=stream, anchors=self._anchors)

    def rows(self, rows: Rows) -> None:
        ids = rows.columns[0] if rows.columns else [None] * rows.count
        if rows.stream == REQUESTS and rows.fields == (ID,):
            for place, id in enumerate(ids):
                self._announced[id] = rows.tuple(place)
            return
        for place, id in enumerate(ids):
            self._sources.setdefault(id, rows.component)
            self._execute(id, rows.tuple(place))

    def _execute(self, id: Any, tup: Tuple) -> None:
        self._anchors = tup
        try:
            instance = self._instance(id)
            instance.execute(tup)
        except (Exception, SystemExit) as error:
            reason = self._failed[id] = self._task.reason_to_fail(error, tup)
            self._task.fails([tup], reason)
        else:
            self._task.acks((tup,))
        self._anchors = ()

    def _instance(self, id: Any) -> Any:
        instance = self._open.get(id)
        if instance is None:
            instance = self._instances.create(id)
            instance.begin()
            self._open[id] = instance
        return instance

    def advance(self, clock: Clock) -> int:
        """Finish the requests of the batch, in the order of their announcements."""
        for id in self._open:
            if id not in self._announced:
                raise ComponentError(
                    f"{self._task.owner}: a tuple of request {id} comes from "
                    f"{self._sources[id]!r} without the request's announcement: a bolt before has "
                    "kept it beyond its batch, or its first field is no request's id",
                    hint="emit in execute, or in the finish of a RequestBolt; the first field is "
                    "the id",
                )
        count = len(self._announced)
        for id, announcement in self._announced.items():
            self._finish(id, announcement)
        self._announced.clear()
        self._open.clear()
        self._failed.clear()
        self._sources.clear()
        return count

    def _finish(self, id: Any, announcement: Tuple) -> None:
        if id in self._failed:
            self._task.fails([announcement], self._failed[id])
            return
        self._anchors = announcement
        try:
            self._instance(id).finish()
        except (Exception, SystemExit) as error:
            reason = self._task.reason_to_fail(error, announcement)
            self._task.fails([announcement], reason)
        else:
            self._task.acks((announcement,))
        self._anchors = ()

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        """Begin with nothing: no request outlives its batch."""

    def save(self, changes: Any) -> None:
        names = self._task.changed_attributes()
        if names:
            raise UnsavableAttributeError(
                f"{self._task.owner}: attribute {names[0]!r} is shared by all requests and has "
                "changed",
                hint=f"what belongs to a request is made in begin: self.{names[0]} = ...",
            )


def _announces(read: InputFields) -> bool:
    return read.stream == REQUESTS and read.fields == (ID,)


def _by_request(read: InputFields) -> bool:
    return read.grouping == "fields" and read.grouping_fields == read.fields[:1]
