"""The context: a task's view of its topology."""

from __future__ import annotations

import logging
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from math import isfinite
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet, finalize

from topo.errors import TopoError
from topo.tuples import Fields

if TYPE_CHECKING:
    from topo.topology.layout import TaskLayout
    from topo.topology.model import GroupingDef, Topology


T = TypeVar("T")

_log = logging.getLogger(__name__)
LIMIT = "le"
"""The label by which the counts of a histogram are told apart, as Prometheus has it."""
_MOST_FIGURES = 1000
"""Of one task: labels whose values never repeat would grow without end."""


class ComponentFigures:
    """The figures of one task: counts since they were last taken, and the latest levels."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._levels: dict[str, float | None] = {}
        self._values: dict[str, array[float]] = {}
        self._names: dict[str, str] = {}  # of a figure with its labels, its kind
        self._kinds: dict[str, str] = {}

    def gauge(self, name: str, value: float | None, labels: Mapping[str, Any]) -> None:
        """Note the level; None says that there is none any more."""
        self._levels[self._key("gauge", name, labels)] = None if value is None else float(value)

    def count(self, name: str, by: int, labels: Mapping[str, Any]) -> None:
        """Add to the count."""
        self._counts[self._key("counter", name, labels)] += by

    def observe(self, name: str, value: float, labels: Mapping[str, Any]) -> None:
        """Keep a value of a histogram until it is counted, with all of the batch."""
        key = self._key("histogram", name, labels)
        if key not in self._values:
            if LIMIT in labels:
                raise TopoError(f"a histogram's label cannot be {LIMIT!r}: limits have that name")
            self._values[key] = array("d")
        number = float(value)
        if not isfinite(number):
            raise TopoError(f"the histogram {name} takes finite numbers; got {value!r}")
        self._values[key].append(number)

    def take(self) -> tuple[Counter[str], dict[str, float | None], dict[str, array[float]]]:
        """Return what was counted, noted and observed since the last call."""
        taken = self._counts, self._levels, self._values
        self._counts, self._levels, self._values = Counter(), {}, {}
        return taken

    def _key(self, kind: str, name: str, labels: Mapping[str, Any]) -> str:
        key = figure_key(name, labels)
        if self._names.get(key) != kind:
            earlier = self._kinds.setdefault(name, kind)
            if earlier != kind:
                raise TopoError(
                    f"{name} is a {earlier} already, and cannot be a {kind}",
                    hint="a figure has one name",
                )
            if len(self._names) >= _MOST_FIGURES:
                raise TopoError(
                    f"a task has more than {_MOST_FIGURES} figures of its own; the next is {key}",
                    hint="label by what is few: a partition, not a message",
                )
            self._names[key] = kind
        return key


def figure_key(name: str, labels: Mapping[str, Any]) -> str:
    """Return the text of a name with its labels, sorted."""
    if not name.isidentifier():
        raise TopoError(f"a gauge, counter or histogram is named by an identifier; got {name!r}")
    if not labels:
        return name
    shown = ",".join(f'{label}="{_escaped(value)}"' for label, value in sorted(labels.items()))
    return f"{name}{{{shown}}}"


def _escaped(value: Any) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class SharedObjects:
    """The objects that the tasks of one process share, by name. Any thread may ask for one."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._objects: dict[str, Any] = {}
        self._users: WeakSet[object] = WeakSet()
        finalize(self, _close_all, self._objects)  # of a process that ends with tasks open

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the object of a name, which is made if it is the first time."""
        with self._lock:
            if name not in self._objects:
                self._objects[name] = make()
            return self._objects[name]

    def add_user(self, user: object) -> None:
        """Note a group of tasks, which may ask until `remove_user`."""
        with self._lock:
            self._users.add(user)

    def remove_user(self, user: object) -> None:
        """Close the objects if no group of tasks is left."""
        with self._lock:
            self._users.discard(user)
            if not self._users:
                _close_all(self._objects)

    def close(self) -> None:
        """Close the objects, as the end of the process would; the next `get` makes new ones."""
        with self._lock:
            self._users.clear()
            _close_all(self._objects)


def _close_all(objects: dict[str, Any]) -> None:
    """Close the objects that can be closed, the last one first; one that raises is logged."""
    while objects:
        name, shared = objects.popitem()
        close = getattr(shared, "close", None)
        if callable(close):
            try:
                close()
            except Exception:
                _log.exception("closing the shared object %r", name)


class TopologyContext:
    """The context passed to `open` and `prepare`, also in `self.context`; it is never saved."""

    def __init__(
        self,
        topology: Topology,
        layout: TaskLayout,
        task: int,
        conf: Mapping[str, Any],
        topology_name: str,
        now: Callable[[], float],
        wake: Callable[[], None] | None = None,
        checkpoint_id: Callable[[], str] = lambda: "",
        stable_hash: Callable[[Any], int] = hash,
        leave: Callable[[Callable[[], None]], bool] | None = None,
        shared: SharedObjects | None = None,
        hand_out: Callable[[str, Any], None] | None = None,
    ) -> None:
        self._topology = topology
        self._layout = layout
        self.this_task_id = task
        self.this_component_id = layout.component_of(task)
        self.this_task_index = layout.index_of(task)
        self.topology_name = topology_name
        self.conf = conf
        self.now = now
        """The clock user code should use, in seconds; simulated in tests."""
        self.batch_id = -1
        """The batch in work; -1 before the task's first batch in this process."""
        self.stable_hash = stable_hash
        """The hash of fields grouping: 64 bits that depend on the value alone, in every process."""
        self.figures = ComponentFigures()
        self.handed_out: list[bytes] = []
        """What `hand_out` was given and the engine has not taken."""
        self.ends_batch = False
        """True if `end_batch` was called; the engine takes it back."""
        self._wake = wake
        self._checkpoint_id = checkpoint_id
        self._leave = leave
        self._shared = shared or SharedObjects()
        self._hand_out = hand_out

    @property
    def checkpoint_id(self) -> str:
        """The id of the checkpoint: batch numbers count within it, and never begin anew."""
        return self._checkpoint_id()

    def gauge(self, name: str, value: float | None, **labels: Any) -> None:
        """Show the level of something, such as a lag, in the topology's figures; None removes it.

        Different labels are different gauges: `gauge("lag", 12, topic="clicks", partition=3)`.
        """
        self.figures.gauge(name, value, labels)

    def counter(self, name: str, by: int = 1, **labels: Any) -> None:
        """Add to a count that is shown in the topology's figures."""
        self.figures.count(name, by, labels)

    def histogram(self, name: str, value: float, **labels: Any) -> None:
        """Note one value of something, such as a size, whose spread the topology's figures show.

        The end of the name says the unit: `histogram("body_bytes", len(body), kind="json")`.
        """
        self.figures.observe(name, value, labels)

    def end_batch(self) -> None:
        """End the batch in work soon, although nothing was emitted: what changed is to be durable.

        For spouts: a batch of an idle topology otherwise lasts until one of them emits.
        """
        self.ends_batch = True

    def hand_out(self, rows: bytes) -> None:
        """Give rows to the engine, which writes them as the component's `external` says.

        They are written before the batch commits; call it in `execute` or `pre_commit`.
        """
        self.handed_out.append(rows)

    def wake(self) -> None:
        """End the wait of an idle topology, so that its spouts are asked now; for any thread."""
        if self._wake is not None:
            self._wake()

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """Return an object that all tasks of this process share: a client, a pool, a cache.

        The first task that asks has it made; its `close`, if it has one, is called at the end of
        the process's tasks. It is never saved, also as an attribute. A topology has several
        processes: one for each slot, or more.
        """
        value: T = self._shared.get(name, make)
        if self._hand_out is not None:
            self._hand_out(f"shared.{name}", value)
        return value

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have the task's own thread make this call in its next batch, which begins soon.

        For any thread. In the task's own, and in a test of one component, it is made at once.
        """
        if self._leave is None or not self._leave(call):
            call()

    @property
    def component_ids(self) -> list[str]:
        return list(self._topology.components)

    def component_tasks(self, component: str) -> list[int]:
        self._topology.component(component)
        return list(self._layout.tasks_of(component))

    def component_of(self, task: int) -> str:
        return self._layout.component_of(task)

    @property
    def this_sources(self) -> dict[tuple[str, str], GroupingDef]:
        """The inputs of this component: {(component, stream): grouping}."""
        reads = self._topology.component(self.this_component_id).inputs
        return {(read.component, read.stream): read.grouping for read in reads}

    @property
    def this_targets(self) -> dict[str, dict[str, GroupingDef]]:
        """The readers of this component: {stream: {component: grouping}}."""
        targets: dict[str, dict[str, GroupingDef]] = {}
        for consumer, read in self._topology.consumers(self.this_component_id):
            targets.setdefault(read.stream, {})[consumer.id] = read.grouping
        return targets

    def output_fields(self, component: str, stream: str = "default") -> Fields:
        return Fields(*self._topology.component(component).declared(stream).fields)

    def __repr__(self) -> str:
        return f"<TopologyContext of {self.this_component_id!r} task {self.this_task_id}>"
