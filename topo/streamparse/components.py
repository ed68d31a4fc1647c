"""Spouts and bolts with streamparse's hooks and signatures, as topo components.

Each class translates: `initialize` is called from `open` or `prepare`, `process` from `execute`,
and `emit` takes streamparse's parameters. `auto_anchor` and `auto_ack` keep their meaning: what is
emitted is anchored to the tuple in hand, which is acked when `process` returns. An exception ends
the topology or fails the tuple, as the setting `topology.uncaught.error` says for every component.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from topo.components import Bolt as RichBolt
from topo.components import Component, OutputFieldsDeclarer
from topo.components import Spout as PlainSpout
from topo.context import TopologyContext
from topo.errors import ComponentError
from topo.streamparse.specs import ComponentSpec, Inputs
from topo.streamparse.tuples import Tuple, topos
from topo.tuples import Tuple as TopoTuple

DEFAULT = "default"
_LEVELS = {"warn": logging.WARNING, "trace": logging.DEBUG}


class Stream:
    """An output stream: its fields, its name, and whether producers name the receiving task."""

    def __init__(self, fields: Sequence[str] = (), name: str = DEFAULT, direct: bool = False):
        if isinstance(fields, str):
            raise ComponentError(
                f"Stream(fields={fields!r}): fields is a list of names",
                hint=f"write Stream(fields=[{fields!r}])",
            )
        self.fields = tuple(fields)
        self.name = name
        self.direct = direct


class _Shared(Component):
    """The parts of streamparse's API that spouts and bolts have in common."""

    outputs: Any = ()
    """Field names of the default stream, or a list of `Stream`."""

    config: Mapping[str, Any] | None = None
    """Settings of this component, as Storm's keys."""

    storm_conf: Mapping[str, Any]
    """The settings with which the task runs."""

    transient = ("storm_conf", "current_tups")

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        inputs: Inputs = None,
        par: int = 1,
        config: Mapping[str, Any] | None = None,
    ) -> ComponentSpec:
        """Return the place of this component in a `Topology` class."""
        return ComponentSpec(cls, name, inputs, par, config)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the streams of `outputs`, which may list `Stream` objects."""
        listed = self.outputs
        if isinstance(listed, Stream):
            listed = [listed]
        if not isinstance(listed, str | Mapping) and any(isinstance(s, Stream) for s in listed):
            for stream in listed:
                if not isinstance(stream, Stream):
                    raise ComponentError(
                        f"{type(self).__name__}.outputs mixes Stream objects with {stream!r}",
                        hint='write Stream(fields=["name"]) for the default stream too',
                    )
                declarer.declare_stream(stream.name, stream.fields, direct=stream.direct)
            return
        super().declare_output_fields(declarer)

    def get_component_configuration(self) -> Mapping[str, Any] | None:
        """Return the settings of the class attribute `config`."""
        return self.config

    @property
    def logger(self) -> logging.Logger:
        """The logger of this class; `topo logs` shows what it logs."""
        return logging.getLogger(f"{type(self).__module__}.{type(self).__qualname__}")

    def log(self, message: object, level: str | int | None = None) -> None:
        """Log a message; the level is a name such as "warn" or a number of `logging`."""
        if level is None:
            level = logging.INFO
        if isinstance(level, str):
            name = level.lower()
            named = logging.getLevelNamesMapping().get(name.upper())
            level = _LEVELS.get(name, named if named is not None else logging.INFO)
        self.logger.log(level, message)

    def raise_exception(self, exception: BaseException, tup: Tuple | None = None) -> None:
        """Show an exception in `topo errors`, with the tuple, and continue."""
        if tup is not None:
            self.logger.error("%s, with %r", exception, tup)
        vars(self)["collector"].report_error(exception)

    def report_metric(self, name: str, value: float) -> None:
        """Show a number among the figures of the component."""
        self.context.gauge(name, value)

    @staticmethod
    def is_tick(tup: Tuple) -> bool:
        """Return True if the tuple is a tick."""
        return bool(tup.is_tick)

    @staticmethod
    def is_heartbeat(tup: Tuple) -> bool:
        """Return False: topo watches processes by other means than tuples."""
        return False

    @property
    def pid(self) -> int:
        """The process that the task runs in."""
        return os.getpid()

    @property
    def topology_name(self) -> str:
        """The name under which the topology was submitted."""
        return self.context.topology_name

    @property
    def component_name(self) -> str:
        """The id of this component in its topology."""
        return self.context.this_component_id

    @property
    def task_id(self) -> int:
        """The id of this task."""
        return self.context.this_task_id


class Spout(_Shared, PlainSpout):
    """A source of tuples, with streamparse's `initialize` and `emit`."""

    def initialize(self, stormconf: Mapping[str, Any], context: TopologyContext) -> None:
        """Start the task; may be called again elsewhere after a failure."""

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        """Call `initialize`."""
        self.storm_conf = conf
        self.initialize(conf, context)

    def ack(self, tup_id: Any) -> None:
        """Hear that the tuple and all that came of it were processed."""

    def fail(self, tup_id: Any, reason: str = "") -> None:
        """Hear that the tuple failed or timed out."""

    def emit(  # type: ignore[override]  # streamparse's parameters
        self,
        tup: Sequence[Any],
        tup_id: Any = None,
        stream: str | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Emit a tuple; with a `tup_id` it is tracked until `ack` or `fail` is called with it."""
        values, name = _values(tup), stream or DEFAULT
        if direct_task is not None:
            self.collector.emit_direct(direct_task, values, stream=name, msg_id=tup_id)
            return [direct_task] if need_task_ids else None
        return self.collector.emit(values, stream=name, msg_id=tup_id, task_ids=need_task_ids)

    def emit_many(  # type: ignore[override]  # streamparse's parameters
        self,
        tuples: Iterable[Sequence[Any]],
        stream: str | None = None,
        tup_ids: Iterable[Any] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[list[int] | None]:
        """Emit each of the tuples, the ones with an id in `tup_ids` tracked."""
        listed = list(tuples)
        ids = [None] * len(listed) if tup_ids is None else list(tup_ids)
        return [
            self.emit(tup, tup_id, stream, direct_task, need_task_ids)
            for tup, tup_id in zip(listed, ids, strict=True)
        ]


class ReliableSpout(Spout):
    """A spout that emits a failed tuple again, at most `max_fails` times.

    Tuples that are neither acked nor given up are part of the saved state, so that they are emitted
    again after a restart too.
    """

    max_fails = 3

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        """Prepare the record of unacked tuples, then call `initialize`."""
        self.unacked_tuples: dict[Any, tuple[list[Any], str | None, int | None]] = {}
        self.failed_tuples: dict[Any, int] = {}
        super().open(conf, context, collector)

    def emit(  # type: ignore[override]  # streamparse's parameters
        self,
        tup: Sequence[Any],
        tup_id: Any = None,
        stream: str | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Emit a tuple and remember it until it is acked."""
        if tup_id is None:
            raise ComponentError(
                f"{type(self).__name__}.emit needs a tup_id: a ReliableSpout tracks every tuple",
                hint="self.emit([...], tup_id=...), or subclass Spout",
            )
        values = _values(tup)
        self.unacked_tuples[tup_id] = (values, stream, direct_task)
        return super().emit(values, tup_id, stream, direct_task, need_task_ids)

    def ack(self, tup_id: Any) -> None:
        """Forget the tuple."""
        self.unacked_tuples.pop(tup_id, None)
        self.failed_tuples.pop(tup_id, None)

    def fail(self, tup_id: Any, reason: str = "") -> None:
        """Emit the tuple again, or give it up with a log line after `max_fails` failures."""
        if tup_id not in self.unacked_tuples:  # heard again after a restart
            return
        values, stream, direct_task = self.unacked_tuples[tup_id]
        fails = self.failed_tuples.get(tup_id, 0)
        if fails >= self.max_fails:
            self.logger.error("gave up tuple %r after %d failures: %s", tup_id, fails + 1, reason)
            self.ack(tup_id)
            return
        self.failed_tuples[tup_id] = fails + 1
        self.emit(values, tup_id, stream, direct_task)


class Bolt(_Shared, RichBolt):
    """A bolt with streamparse's `initialize`, `process`, `process_tick` and `emit`."""

    auto_anchor = True
    """True: what is emitted without anchors is anchored to the tuple in hand."""
    auto_ack = True
    """True: the tuple is acked when `process` returns."""
    auto_fail = True
    """Always True: an exception that leaves `process` never leaves its tuple pending."""

    current_tups: Sequence[Tuple] = ()

    def __init_subclass__(cls) -> None:
        if not cls.auto_fail:
            raise ComponentError(
                f"{cls.__name__}.auto_fail is False, which topo does not offer",
                hint="catch the exception in process and keep, ack or fail the tuple there",
            )

    def initialize(self, storm_conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Start the task; may be called again elsewhere after a failure."""

    def process(self, tup: Tuple) -> None:
        """Process one tuple."""
        raise NotImplementedError

    def process_tick(self, tup: Tuple) -> None:
        """Process a tick; ticks come if `topology.tick.tuple.freq.secs` is set."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        """Call `initialize`."""
        self.storm_conf = conf
        self.initialize(conf, context)

    def execute(self, tup: TopoTuple) -> None:
        """Call `process` with the tuple in hand, then ack it if `auto_ack` says so."""
        in_hand = Tuple(tup)
        self.current_tups = (in_hand,)
        self.process(in_hand)
        if self.auto_ack:
            self.collector.ack(tup)

    def on_tick(self, tup: TopoTuple) -> None:
        """Call `process_tick`."""
        self.current_tups = ()
        self.process_tick(Tuple(tup))

    def ack(self, tup: Tuple | TopoTuple) -> None:
        """Ack a processed tuple, where `auto_ack` is off."""
        self.collector.ack(_in_hand(tup, "ack"))

    def fail(self, tup: Tuple | TopoTuple, reason: str | None = None) -> None:
        """Fail a tuple: the messages it came from fail with this reason."""
        self.collector.fail(_in_hand(tup, "fail"), reason)

    def reset_timeout(self, tup: Tuple | TopoTuple) -> None:
        """Restart the timeout of the messages that this tuple came from."""
        self.collector.reset_timeout(_in_hand(tup, "reset_timeout"))

    def emit(  # type: ignore[override]  # streamparse's own parameters
        self,
        tup: Sequence[Any],
        stream: str | None = None,
        anchors: Iterable[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Emit a tuple, anchored to the tuple in hand unless `anchors` says otherwise."""
        values, name = _values(tup), stream or DEFAULT
        if anchors is None:
            anchors = self.current_tups if self.auto_anchor else ()
        roots = topos(anchors) if isinstance(anchors, Tuple | TopoTuple) else map(topos, anchors)
        if direct_task is not None:
            self.collector.emit_direct(direct_task, values, stream=name, anchors=roots)
            return [direct_task] if need_task_ids else None
        return self.collector.emit(values, stream=name, anchors=roots, task_ids=need_task_ids)

    def emit_many(
        self,
        tuples: Iterable[Sequence[Any]],
        stream: str | None = None,
        anchors: Iterable[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[list[int] | None]:
        """Emit each of the tuples, all with the same anchors."""
        shared = list(anchors) if anchors is not None else None
        return [self.emit(tup, stream, shared, direct_task, need_task_ids) for tup in tuples]


def _in_hand(tup: Any, call: str) -> TopoTuple:
    if isinstance(tup, Tuple | TopoTuple):
        itself: TopoTuple = topos(tup)
        return itself
    raise ComponentError(
        f"{call} takes a tuple; got {type(tup).__name__} {tup!r:.60}",
        hint="keep the tuple itself, not its id",
    )


def _values(tup: Any) -> list[Any]:
    if isinstance(tup, list | tuple):
        return tup if type(tup) is list else list(tup)
    raise ComponentError(
        f"emit takes a list or tuple of values; got {type(tup).__name__} {tup!r:.60}",
        hint="write self.emit([value])",
    )
