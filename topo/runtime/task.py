"""The base of spout tasks and bolt tasks: an instance, its emitter, its saved state."""

from __future__ import annotations

import contextlib
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from topo.components import Component, StatefulBasicBolt, StatefulBolt, StatefulSpout
from topo.config import ConfigView, effective, for_component
from topo.config.layers import Layer
from topo.config.slot_range import with_first_slots, with_range_apart
from topo.context import SharedObjects, TopologyContext
from topo.errors import (
    CheckpointError,
    EmitError,
    TopoError,
    Unavailable,
    UncaughtError,
    sentence_of,
    shown,
)
from topo.logs.capture import LogSource
from topo.metrics.counters import TaskMetrics
from topo.metrics.observed import in_ranges
from topo.routing.groupers import Grouper
from topo.routing.hashing import stable_hash
from topo.running import Listener
from topo.runtime import user_errors as failures
from topo.runtime.births import Birth, births
from topo.runtime.emitter import Emitter, TreeMaker
from topo.runtime.input_times import Input
from topo.runtime.laps import Laps, has_laps
from topo.runtime.out_streams import OutStreams
from topo.runtime.threads import CallsFromThreads
from topo.runtime.time_reading import TimeObserver
from topo.shipping.pickling import load_component
from topo.state import KeyValueState
from topo.storage.attributes import SavedAttributes
from topo.storage.classes import load_saved
from topo.storage.keyed import KeyedState
from topo.storage.saving import Changes
from topo.timed import TimedBolt
from topo.topology.layout import TaskLayout
from topo.topology.model import ComponentDef, Topology
from topo.traces import users_place
from topo.tracing.spans import TaskTracer, Tracer
from topo.tracking.ids import EdgeIds
from topo.tracking.trees import UpdateLog

CORE = "core"
_FIRST_VERSION = 1  # of keyed state; it is not written down
NOTE_BYTES = 256
"""Of the memory in which a process says which task it is executing."""


@dataclass
class TaskEnvironment:
    """Everything the tasks of one slot share: topology, layout, settings, clock."""

    topology: Topology
    layout: TaskLayout
    conf: Mapping[str, Any]
    name: str
    now: Callable[[], float]
    local_tasks: frozenset[int]
    strict: bool = False  # check that emitted values stay as they were
    listener: Listener | None = None
    warned: set[str] = field(default_factory=set)
    wake: Callable[[], None] | None = None
    """Ends the wait of an idle engine; for any thread."""
    checkpoint_id: str = ""
    shared: SharedObjects = field(default_factory=SharedObjects)
    """What components share in this process."""
    _timed: dict[str, TimedBolt] = field(default_factory=dict)
    _births: dict[str, list[Birth]] = field(default_factory=dict)

    def timed(self, component: str) -> TimedBolt:
        """Return the declaration of a bolt that works in event time."""
        found = self._timed.get(component)
        if found is None:
            made = load_component(self.topology.component(component))
            assert isinstance(made, TimedBolt), "the topology says that it is"
            conf = self.topology.component(component).conf
            made.configure(for_component(self.conf, component, conf))
            found = self._timed[component] = made
        return found

    def births(self, consumer: ComponentDef) -> list[Birth]:
        """Return where the times of a timed bolt's inputs are born."""
        if consumer.id not in self._births:
            self._births[consumer.id] = births(self.topology, consumer, self.timed)
        return self._births[consumer.id]

    def births_at(self, component: str) -> Iterator[tuple[ComponentDef, Birth]]:
        """Yield each timed bolt that hears of times born at a component, with the birth."""
        for consumer in self.topology.components.values():
            if consumer.timed:
                for birth in self.births(consumer):
                    if birth.component == component:
                        yield consumer, birth

    @property
    def tracking(self) -> bool:
        return bool(self.conf["topology.acker.executors"])


def note_of(text: str) -> bytes:
    """Return the text as `note_in` takes it."""
    return text.encode("utf-8", "replace")[:NOTE_BYTES].ljust(NOTE_BYTES, b"\0")


def names_tasks(saved: Mapping[str, bytes]) -> bool:
    """Return True if what a task has saved has ids of tasks in it: of tuples, or of times."""
    core = load_saved(saved[CORE]) if CORE in saved else {}
    return bool(core.get("held")) or core.get("times") is not None or has_laps(saved)


def without_acker(saved: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return what a spout's task has saved as if it had never met an acker: nothing is pending."""
    core = load_saved(saved[CORE]) if CORE in saved else {}
    if "incarnation" not in core:
        return dict(saved)
    return {**saved, CORE: pickle.dumps({**core, "cursor": 0, "incarnation": ""}, protocol=5)}


def full_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return a topology's settings merged over the defaults."""
    layer = Layer("conf", with_range_apart(conf))
    return with_first_slots({key: each.value for key, each in effective(layer).items()})


class Task(LogSource):
    """One task: a component instance, its emitter and its saved state."""

    orders_all_emits = False
    """Whether the common order of emits on several streams matters, whoever reads them."""

    def __init__(self, setting: TaskEnvironment, task: int, tracer: Tracer | None = None) -> None:
        self.setting = setting
        self.id = task
        self.component_id = setting.layout.component_of(task)
        self.definition: ComponentDef = setting.topology.component(self.component_id)
        self.owner = f"{self.definition.kind} {self.component_id!r}"
        self.note = note_of(f"{self.owner} task {task}")
        self.conf: dict[str, Any] = {
            **for_component(setting.conf, self.component_id, self.definition.conf),
            "topology.name": setting.name,
        }
        self.metrics = TaskMetrics()
        self.updates = UpdateLog()
        self.tracer = TaskTracer(tracer, self.component_id, task) if tracer else None
        self.threads = CallsFromThreads(self.owner, setting.wake)
        self.batch_now = 0.0
        self.worked = False
        self.context = TopologyContext(
            setting.topology,
            setting.layout,
            task,
            ConfigView(self.conf),
            setting.name,
            setting.now,
            setting.wake,
            lambda: setting.checkpoint_id,
            stable_hash,
            self.threads.leave,
            setting.shared,
            lambda name, part: self.attributes.hand_out(name, part),
        )
        self._trees = self.make_trees()
        listener = setting.listener
        self.outlet = Emitter(
            self.owner,
            task,
            list(OutStreams(self.setting, task, self.context, self.users_code)),
            strict=setting.strict,
            debug=bool(self.conf["topology.debug"]),
            trees=self._trees if setting.tracking else None,
            orders_all=self.orders_all_emits,
            most_tasks=setting.layout.highest,
            uncaught=self.uncaught,
            refuse=self._refuse,
            hear=partial(listener.emitted, self.component_id) if listener else None,
        )
        self.laps = Laps() if self.outlet.looped is not None else None
        """What it has sent over loops, and no batch has taken yet."""
        self._stops_on_error = self.conf["topology.uncaught.error"] == "stop"
        self._core: bytes | None = None
        self._state_version: int | None = None  # of what was saved; None: nothing was
        self._batch_id = -1
        self._last_worked: int | None = None
        """The last batch the task worked in, if the component hears of commits."""
        self._untold: list[int] = []
        """The batches it worked in of which the component has not heard that they are committed."""
        self.component: Component = load_component(self.definition)
        self._hears_commits = type(self.component).committed is not Component.committed
        self.attributes: SavedAttributes
        keyed = isinstance(self.component, StatefulBolt | StatefulBasicBolt | StatefulSpout)
        name = f"{self.owner} task {task}"
        self.keyed = KeyedState(name, setting.strict) if keyed else None

    # -- what subclasses say ------------------------------------------------------------------

    def make_trees(self) -> TreeMaker:
        """Return what places the emits of this task in the tuple trees."""
        raise NotImplementedError

    def open(self, saved: Mapping[str, bytes]) -> None:
        """Start the component from its saved state."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def core(self) -> dict[str, Any]:
        """Return the framework's own part of the saved state."""
        raise NotImplementedError

    def settle(self) -> None:
        """Flush emits, and add acks and failures to the updates."""
        raise NotImplementedError

    # -- a batch ------------------------------------------------------------------------------

    def make_calls(self) -> None:
        """Make the calls that other threads have left for this one."""
        self.worked = True
        with self.users_code():
            self.threads.make()

    def begin(self, batch_id: int, now: float, ids: EdgeIds) -> None:
        self.threads.here()
        self.batch_now = now
        self._batch_id = self.context.batch_id = batch_id
        self.worked = False
        self._trees.start_batch(ids)
        self.outlet.start_batch()
        for observer in self._observers():
            observer.start_batch(now)
        if self.definition.stateless and not self.definition.is_spout:
            for grouper in self._groupers().values():
                grouper.start_batch(batch_id)

    def turn(self, now: float) -> None:
        """Move the clock on within the batch."""
        self.batch_now = now

    def pre_commit(self, batch_id: int) -> None:
        if self.worked and type(self.component).pre_commit is not Component.pre_commit:
            with self.users_code(), self.failing_the_batch("pre_commit"):
                self.component.pre_commit(batch_id)
            self.settle()

    def tell_committed(self, upto: int | None = None) -> None:
        """Tell the component which batches it worked in are committed, unless it knows.

        Those up to `upto` are committed; if it is None, all are.
        """
        while self._untold and (upto is None or self._untold[0] <= upto):
            before = self._done_so_far()
            with self.users_code(), self.failing_the_batch("committed"):
                self.component.committed(self._untold[0])
            if self._done_so_far() != before:
                raise TopoError(
                    f"{self.owner} task {self.id}: committed emitted, acked or failed something, "
                    "which would be lost: no batch is in work",
                    hint="keep it in self.state, and emit it from execute, pre_commit or "
                    "next_tuple",
                )
            del self._untold[0]

    def load_laps(self, saved: Mapping[str, bytes]) -> None:
        """Take over the saved tuples that go round."""
        if self.laps is not None and self.outlet.looped is not None:
            self.outlet.looped.number_from(self.laps.load(saved))

    def keep_laps(self) -> None:
        """Let what was sent over loops wait for the next batch."""
        if self.laps is not None:
            for frame in self.outlet.looped_frames():
                self.laps.add(frame)

    def tell_restored(self) -> None:
        """Tell the component of its last batch again: the process may have died before it heard."""
        self._untold = [] if self._last_worked is None else [self._last_worked]
        self.tell_committed()

    def _done_so_far(self) -> int:
        """Count what was emitted, acked and failed and is not settled."""
        return self.outlet.emitted_in_all

    @contextlib.contextmanager
    def failing_the_batch(self, hook: str) -> Iterator[None]:
        """Make an error of a hook that nothing can make up for one that the batch is retried for.

        That is the policy `topology.uncaught.error=fail`: there is no tuple to fail, and what the
        hook was about to write is not to be lost.
        """
        try:
            yield
        except Exception as error:
            if self._stops_on_error or isinstance(error, Unavailable):
                raise
            raise Unavailable(
                f"{hook} raised {type(error).__name__}: {sentence_of(error)}"
            ) from error

    def save(self) -> Changes:
        """Return the changes of this batch to the saved state."""
        changes = Changes()
        if self.keyed is not None:
            self.keyed.save(changes, self.attributes)
        if self.definition.stateless:
            self.attributes.check_stateless()
        if self.definition.stateless and not self.definition.is_spout:
            return changes
        if not self.definition.stateless and self.worked:
            self.attributes.save(changes)
        if self._hears_commits and self.worked:
            self._last_worked = self._batch_id
            self._untold.append(self._batch_id)
        core = pickle.dumps(self._whole_core(), protocol=5)
        if core != self._core:
            self._core = core
            changes.puts[CORE] = core
        return changes

    def _whole_core(self) -> dict[str, Any]:
        core = self.core()
        if self._last_worked is not None:
            core["worked"] = self._last_worked
        version = getattr(self.component, "state_version", _FIRST_VERSION)
        if self.keyed is not None and version != _FIRST_VERSION:
            core["state_version"] = version
        return core

    def take_metrics(self) -> TaskMetrics:
        metrics, self.metrics = self.metrics, TaskMetrics()
        metrics.counters, metrics.gauges, values = self.context.figures.take()
        metrics.histograms = in_ranges(values)
        metrics.emitted.update(self.outlet.take_emitted())
        metrics.transferred += self.outlet.transferred
        if self.laps is not None:
            metrics.looping = self.laps.count
        return metrics

    # -- errors -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def users_code(self, tup: Any = None) -> Iterator[None]:
        """Run a hook; convert its exception to the run's error, with component and traceback."""
        try:
            yield
        except UncaughtError:
            raise
        except BaseException as error:
            raise self.uncaught(error, tup) from error

    def uncaught(self, error: BaseException, tup: Any) -> UncaughtError:
        return failures.uncaught(error, self.owner, self.component_id, self.id, tup)

    def _refuse(self, stream: str, values: list[Any], roots: list[int], error: EmitError) -> None:
        """Stop for a row that cannot travel, or drop it and fail the messages it came of."""
        caught = self.uncaught(error, f"emitted {shown(values)} on stream {stream!r}")
        if self._stops_on_error:
            raise caught from error
        self.metrics.errors.append(failures.report(caught, self.component_id, self.id, "uncaught"))
        reason = f"failed by {self.component_id!r} task {self.id}: {sentence_of(error)}"
        self.updates.fail(roots, reason)

    def report_error(self, error: BaseException | str) -> None:
        report = failures.report(error, self.component_id, self.id, "reported")
        self.metrics.errors.append(report if report.at else replace(report, at=users_place()))

    def warn_once(self, text: str) -> None:
        if text not in self.setting.warned:
            self.setting.warned.add(text)
            warnings.warn(text, stacklevel=2)

    # -- saved state --------------------------------------------------------------------------

    def introduce(self, collector: Any, port: object) -> None:
        """Give the component its collector and context, which it may keep under any name."""
        self.give("collector", collector)
        self.give("context", self.context)
        calls = {f"port.{name}": call for name, call in vars(port).items() if callable(call)}
        parts = {
            "collector": collector,
            "context": self.context,
            "conf": self.context.conf,
            "now": self.context.now,
            "port": port,
            **calls,
        }
        if self.keyed is not None:
            parts["state"] = self.keyed.state
        self.attributes = SavedAttributes(
            self.component, f"{self.owner} task {self.id}", parts, self.setting.strict
        )

    def restore(self, saved: Mapping[str, bytes]) -> None:
        """Lay the saved state over a component that was opened or prepared."""
        if self.keyed is not None:
            assert isinstance(self.component, StatefulBolt | StatefulBasicBolt | StatefulSpout)
            self.keyed.load(saved)
            self.give("state", self.keyed.state)
            self._upgrade(self.component, self.keyed.state)
            with self.users_code():
                self.component.init_state(self.keyed.state)
        self.attributes.remember()
        self.attributes.load(saved)
        with self.users_code():
            self.component.restored()
        self.tell_restored()
        self.give_own_dict()

    def _upgrade(self, component: Any, state: KeyValueState[Any, Any]) -> None:
        """Bring the entries of keyed state to the form that the code has; they are saved anew."""
        present, saved = component.state_version, self._state_version
        if saved is None or saved == present:
            return
        if saved > present:
            raise CheckpointError(
                f"{self.owner} task {self.id} has state of version {saved}, and its class has "
                f"state_version {present}",
                hint="submit the code that saved it, or newer code",
            )
        for key in list(state):
            with self.users_code(f"the state's entry {shown([key])} of version {saved}"):
                state[key] = component.upgrade(key, state[key], saved)

    def give(self, name: str, value: Any) -> None:
        """Set an attribute of the component, which may be a frozen dataclass."""
        object.__setattr__(self.component, name, value)

    def give_own_dict(self) -> None:
        """Give a new instance a dict of its own.

        In CPython 3.11, attributes of an instance whose `__dict__` was accessed are slower to read,
        by a tenth of a small `execute`, unless the dict does not share its keys with the class.
        """
        self.give("__dict__", dict(vars(self.component)))

    def load_core(self, saved: Mapping[str, bytes]) -> dict[str, Any]:
        blob = saved.get(CORE)
        if blob is None:
            return {}
        self._core = blob
        core: dict[str, Any] = load_saved(blob)
        self._state_version = core.get("state_version", _FIRST_VERSION)
        if self._hears_commits:
            self._last_worked = core.get("worked")
        for key, state in core.get("groupers", {}).items():
            grouper = self._groupers().get(key)
            if grouper is not None:
                grouper.restore(state)
        return core

    def groupers_core(self) -> dict[tuple[str, str], Any]:
        states = {key: grouper.state() for key, grouper in self._groupers().items()}
        return {key: state for key, state in states.items() if state is not None}

    def _groupers(self) -> dict[tuple[str, str], Grouper]:
        return {
            (stream.name, subscription.consumer): subscription.grouper
            for stream in self.outlet.streams.values()
            for subscription in stream.subscriptions
        }

    def bind(self, **calls: Any) -> None:
        """Bind calls of the instance directly to the port, unless its class overrides them."""
        for name, call in calls.items():
            defined = next(cls for cls in type(self.component).__mro__ if name in vars(cls))
            if defined.__module__ == "topo.components":
                vars(self.component)[name] = call

    # -- times of what is emitted ---------------------------------------------------------------

    def _observers(self) -> Iterator[TimeObserver]:
        for out in self.outlet.streams.values():
            yield from out.observers

    def marks(self) -> Iterator[tuple[str, Input, int]]:
        """Yield (reading component, input, highest time) of what was emitted in this batch."""
        for out in self.outlet.streams.values():
            for observer in out.observers:
                for split, highest in observer.highest.items():
                    yield (
                        observer.consumer,
                        Input(self.component_id, out.name, self.id, split),
                        highest,
                    )
