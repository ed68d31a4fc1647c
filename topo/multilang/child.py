"""The other side of the protocol: a spout or bolt of topo as a child of Storm.

    FluxShellBolt(["python3", "-m", "topo.multilang", "words:Count"], ["word", "count"])

So a topology moves bolt by bolt. What a component prints goes to stderr, since stdout belongs to
the protocol; its log records go to Storm. A batch ends at each heartbeat, for `pre_commit`. Storm
keeps nothing for a child: keyed state lives as long as the process.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from topo.collectors import BasicOutputCollector, OutputCollector, SpoutOutputCollector
from topo.columns import TakesColumns
from topo.components import (
    BasicBolt,
    Bolt,
    Component,
    OutputFieldsDeclarer,
    Spout,
    StatefulBasicBolt,
    StatefulBolt,
    StatefulSpout,
    Stream,
)
from topo.config import ConfigView
from topo.errors import (
    EmitError,
    FailTuple,
    RunError,
    TargetError,
    TopoError,
    did_you_mean,
    sentence_of,
)
from topo.multilang.wire import HEARTBEAT, TICK, JsonWire, Message
from topo.state import KeyValueState
from topo.timed import TimedBolt
from topo.tuples import Fields, Source, Tuple, new_tuple, tick_source
from topo.ways import BY_TUPLE, hook_of

_READ_BYTES = 1 << 16


class Parent:
    """The messages from and to Storm."""

    def __init__(self, reader: IO[bytes], writer: IO[bytes]) -> None:
        self._reader, self._writer = reader, writer
        self._wire = JsonWire()
        self._messages: deque[Any] = deque()

    def read(self) -> Any:
        """Return the next message, or None at the end."""
        while not self._messages:
            data = os.read(self._reader.fileno(), _READ_BYTES)
            if not data:
                return None
            self._messages += self._wire.decode(data)
        return self._messages.popleft()

    def read_task_ids(self) -> list[int]:
        """Return the next list of task ids; what comes before it stays to be read."""
        before = []
        while isinstance(message := self.read(), dict):
            before.append(message)
        self._messages.extendleft(reversed(before))
        return list(message or ())

    def send(self, command: str, **parts: Any) -> None:
        self.send_message({"command": command, **parts})

    def send_message(self, message: Message) -> None:
        self._writer.write(self._wire.encode(message))
        self._writer.flush()


class ChildContext:
    """A component's view of a topology of Storm, as far as the handshake tells of it."""

    def __init__(self, handshake: Message, parent: Parent) -> None:
        about = handshake["context"]
        self._parent = parent
        self._tasks: dict[int, str] = {
            int(task): name for task, name in about["task->component"].items()
        }
        self._fields = about.get("source->stream->fields") or {}
        self._own_fields = about.get("stream->outputfields") or {}
        self.conf = ConfigView(handshake["conf"])
        self.this_task_id: int = about["taskid"]
        self.this_component_id = self._tasks[about["taskid"]]
        self.this_task_index = self.component_tasks(self.this_component_id).index(about["taskid"])
        self.topology_name: str = handshake["conf"].get("topology.name") or ""
        self.checkpoint_id = ""
        self.batch_id = 0
        self.now = time.perf_counter

    @property
    def component_ids(self) -> list[str]:
        return list(dict.fromkeys(self._tasks.values()))

    def component_tasks(self, component: str) -> list[int]:
        return sorted(task for task, name in self._tasks.items() if name == component)

    def component_of(self, task: int) -> str:
        return self._tasks[task]

    def output_fields(self, component: str, stream: str = "default") -> Fields:
        own = component == self.this_component_id
        streams = self._own_fields if own else self._fields.get(component, {})
        return Fields(*streams[stream])

    def counter(self, name: str, by: int = 1, **labels: Any) -> None:
        """Send a metric; Storm counts those that the topology has registered."""
        self._parent.send("metrics", name=name, params=by)

    def wake(self) -> None:
        """Do nothing: Storm asks its spouts all the time."""

    def call_soon(self, call: Callable[[], None]) -> None:
        call()


class Port:
    """The calls of a component, as messages."""

    def __init__(self, parent: Parent, component: Component, streams: Mapping[str, Stream]) -> None:
        self._parent = parent
        self._component = component
        self._streams = streams
        self._ids: dict[Tuple, str] = {}
        self._messages: dict[str, Any] = {}
        self._count = 0
        self.current: Tuple | None = None

    # -- of bolts -----------------------------------------------------------------------------

    def take(self, tup: Tuple, number: str) -> None:
        """Take an input tuple, which the bolt is about to execute."""
        self._ids[tup] = number
        self.current = tup

    def is_open(self, tup: Tuple) -> bool:
        """Return True if the tuple is neither acked nor failed."""
        return tup in self._ids

    def ack(self, tup: Tuple) -> None:
        self._parent.send("ack", id=self._ids.pop(tup))

    def fail(self, tup: Tuple, reason: str | None = None) -> None:
        if reason:
            self.report_error(reason)
        self._parent.send("fail", id=self._ids.pop(tup))

    def reset_timeout(self, tup: Tuple) -> None:
        """Do nothing: a child cannot reset a time-out of Storm."""

    # -- of all -------------------------------------------------------------------------------

    def emit(
        self,
        values: Any,
        *,
        stream: str = "default",
        anchors: Any = None,
        msg_id: Any = None,
        task_ids: bool = False,
    ) -> list[int] | None:
        self._send_emit(values, stream, anchors, msg_id, None, task_ids)
        return self._parent.read_task_ids() if task_ids else None

    def emit_values(self, *values: Any, stream: str = "default") -> None:
        self.emit(list(values), stream=stream)

    def emit_batch(self, columns: Any, **options: Any) -> int:
        """Refuse columns: the protocol has single tuples."""
        raise EmitError(
            "emit_batch emits columns, which Storm's protocol has not", hint="emit rows"
        )

    def emit_direct(
        self,
        task: int,
        values: Any,
        *,
        stream: str = "default",
        anchors: Any = None,
        msg_id: Any = None,
    ) -> None:
        self._send_emit(values, stream, anchors, msg_id, task, False)

    def emit_many(
        self, rows: Iterable[Any], *, stream: str = "default", msg_ids: Any = None
    ) -> int:
        listed = list(rows)
        ids = [None] * len(listed) if msg_ids is None else list(msg_ids)
        for values, msg_id in zip(listed, ids, strict=True):
            self.emit(values, stream=stream, msg_id=msg_id)
        return len(listed)

    def _send_emit(
        self, values: Any, stream: str, anchors: Any, msg_id: Any, task: int | None, ids: bool
    ) -> None:
        self._check(values, stream)
        message: Message = {"command": "emit", "tuple": list(values), "stream": stream}
        if isinstance(self._component, Spout):
            if msg_id is not None:
                message["id"] = self._number_of(msg_id)
        else:
            message["anchors"] = [self._ids[tup] for tup in self._anchors(anchors)]
        if task is not None:
            message["task"] = task
        self._parent.send_message({**message, "need_task_ids": ids})

    def _check(self, values: Any, stream: str) -> None:
        declared = self._streams.get(stream)
        if declared is None:
            raise EmitError(
                f"there is no stream {stream!r}", hint=did_you_mean(stream, self._streams)
            )
        if not isinstance(values, list | tuple) or len(values) != len(declared.fields):
            raise EmitError(f"{values!r} does not fit the fields {tuple(declared.fields)}")

    def _anchors(self, anchors: Any) -> list[Tuple]:
        if isinstance(self._component, BasicBolt):
            anchors = self.current
        listed = [anchors] if isinstance(anchors, Tuple) else list(anchors or ())
        return [tup for tup in listed if tup in self._ids]

    # -- of spouts ----------------------------------------------------------------------------

    def _number_of(self, msg_id: Any) -> str:
        self._count += 1
        self._messages[str(self._count)] = msg_id
        return str(self._count)

    def take_message(self, number: str) -> Any:
        """Return the id of a message that is acked or failed."""
        return self._messages.pop(number)

    def pending_count(self) -> int:
        return len(self._messages)

    def report_error(self, error: BaseException | str) -> None:
        self._parent.send("error", msg=sentence_of(error) if not isinstance(error, str) else error)

    def observe_time(self, value: Any, stream: str = "default") -> None:
        """Do nothing: Storm's windows read times from tuples."""


class _Logs(logging.Handler):
    """A handler that sends log records to Storm."""

    def __init__(self, parent: Parent) -> None:
        super().__init__()
        self._parent = parent

    def emit(self, record: logging.LogRecord) -> None:
        level = min(max((record.levelno - 1) // 10, 0), 3) + 1
        self._parent.send("log", msg=self.format(record), level=level)


def run(component: Component, reader: IO[bytes], writer: IO[bytes]) -> None:
    """Serve a component until Storm closes its standard input."""
    if isinstance(component, TimedBolt):
        raise RunError(
            f"{type(component).__name__} works in event time, which Storm has no protocol for",
            hint="move the windows last",
        )
    if isinstance(component, BasicBolt) and not _takes_tuples(component):
        raise RunError(
            f"{type(component).__name__} gets values, and Storm's protocol has tuples",
            hint="write it with execute(self, tup)",
        )
    parent = Parent(reader, writer)
    handshake = parent.read()
    if handshake is None:
        return
    parent.send_message({"pid": os.getpid()})
    Path(handshake["pidDir"], str(os.getpid())).touch()
    logging.getLogger().addHandler(_Logs(parent))
    declarer = OutputFieldsDeclarer()
    component.declare_output_fields(declarer)
    port, context = Port(parent, component, declarer.streams), ChildContext(handshake, parent)
    try:
        if isinstance(component, Spout):
            _run_spout(component, port, context, parent)
        else:
            _run_bolt(component, port, context, parent)
    except Exception:
        parent.send("error", msg=traceback.format_exc())
        raise


def _takes_tuples(bolt: BasicBolt) -> bool:
    """True iff a bolt has an `execute`; those of topo's own that take columns do, by themselves."""
    by_itself = isinstance(bolt, TakesColumns) and not bolt.external
    return by_itself or hook_of(bolt) == BY_TUPLE


def _begin(component: Any, context: Any, collector: Any) -> None:
    vars(component).update(collector=collector, context=context)
    start = component.open if isinstance(component, Spout) else component.prepare
    start(context.conf, context, collector)
    if isinstance(component, StatefulBolt | StatefulBasicBolt | StatefulSpout):
        logging.getLogger("topo.multilang").warning(
            "the keyed state of %s is in memory only: Storm keeps nothing for a child",
            context.this_component_id,
        )
        state: KeyValueState[Any, Any] = KeyValueState()
        vars(component).update(state=state)
        component.init_state(state)
    component.restored()


def _run_bolt(component: Any, port: Port, context: ChildContext, parent: Parent) -> None:
    basic = isinstance(component, BasicBolt)
    _begin(component, context, (BasicOutputCollector if basic else OutputCollector)(port))
    base = BasicBolt if basic else Bolt
    on_tick = component.on_tick if type(component).on_tick is not base.on_tick else None
    while (message := parent.read()) is not None:
        if isinstance(message, list):
            continue
        if message["task"] == -1 and message["stream"] == HEARTBEAT:
            component.pre_commit(context.batch_id)
            component.committed(context.batch_id)
            context.batch_id += 1
            parent.send("sync")
            continue
        is_tick = message["task"] == -1 and message["stream"] == TICK
        tup = _tick_of(message) if is_tick else _tuple_of(message, context)
        port.take(tup, message["id"])
        try:
            (on_tick if is_tick and on_tick is not None else component.execute)(tup)
        except FailTuple as failure:
            port.fail(tup, str(failure) if failure.report else None)
        else:
            if (basic or is_tick) and port.is_open(tup):
                port.ack(tup)
        port.current = None
    component.cleanup()


def _run_spout(component: Spout, port: Port, context: ChildContext, parent: Parent) -> None:
    _begin(component, context, SpoutOutputCollector(port))
    hooks: dict[str, Callable[[], None]] = {
        "next": component.next_tuple,
        "activate": component.activate,
        "deactivate": component.deactivate,
    }
    while (message := parent.read()) is not None:
        if isinstance(message, list):
            continue
        command = message["command"]
        if command in hooks:
            hooks[command]()
        elif command in ("ack", "fail"):
            getattr(component, command)(port.take_message(message["id"]))
        parent.send("sync")
    component.close()


def _tuple_of(message: Message, context: ChildContext) -> Tuple:
    values = message["tuple"]
    try:
        fields = tuple(context.output_fields(message["comp"], message["stream"]))
    except KeyError:  # of a Storm before 0.10, whose handshake does not tell
        fields = tuple(f"field{number}" for number in range(1, len(values) + 1))
    source = Source(message["comp"], message["stream"], message["task"], fields)
    return new_tuple(source, values)


def _tick_of(message: Message) -> Tuple:
    return new_tuple(tick_source(), message["tuple"])


def component_named(spec: str, args: str = "[]") -> Component:
    """Return the component of `MODULE:CLASS`, made with arguments in JSON: a list, or by name."""
    module_name, _, name = spec.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    module = importlib.import_module(module_name)
    cls = getattr(module, name, None)
    if not name or cls is None:
        raise TargetError(
            f"{module_name} has no {name!r}" if name else f"{spec!r} names no class",
            hint=did_you_mean(name, vars(module)) or "write MODULE:CLASS",
        )
    values = json.loads(args)
    component = cls(**values) if isinstance(values, dict) else cls(*values)
    if not isinstance(component, Spout | Bolt | BasicBolt):
        raise TargetError(f"{spec} is a {type(component).__name__}, and neither spout nor bolt")
    return component


def main(argv: list[str]) -> int:
    """Run as `python3 -m topo.multilang MODULE:CLASS [ARGS as JSON]`; return the exit code."""
    if not 1 <= len(argv) <= 2:
        print("usage: python3 -m topo.multilang MODULE:CLASS [ARGS as JSON]", file=sys.stderr)
        return 2
    writer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed must not be read as a message
    sys.stdout = sys.stderr
    try:
        component = component_named(*argv)
        run(component, sys.stdin.buffer, writer)
    except TopoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
