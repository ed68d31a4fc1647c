"""What a spout and a bolt in another language have in common: the command, the start, the end.

A process keeps nothing: when a task is built anew, after a roll-back or in another slot, its
process is started anew as well, so that it has never seen a batch that was rolled back.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from threading import Lock
from time import perf_counter
from typing import Any

from topo.components import Component, OutputFieldsDeclarer, Outputs
from topo.config.secrets import Secret, revealed
from topo.context import TopologyContext
from topo.errors import ComponentError, ShellError, shown
from topo.multilang.files import ShellFiles, directory_of
from topo.multilang.process import ShellProcess
from topo.multilang.wire import WIRES, check_serializer, log_of

_LEVELS = (5, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
"""Storm's levels: trace, debug, info, warn, error."""
_FIRST_PAUSE_SECS, _LONGEST_PAUSE_SECS = 0.1, 10.0
_LEAST_TIMEOUT_SECS = 60.0
_NO_NAME = re.compile(r"\W")

_log = logging.getLogger("topo.multilang")


class Shell(Component):
    """The base of ShellSpout and ShellBolt.

    The task's thread and the one that watches the process take turns by `_lock`.
    """

    _RUNTIME = ("_conf", "_lock", "_pause_secs", "_pid_directory", "_process", "_starts_at")
    transient: Iterable[str] = (*_RUNTIME, "_files")
    _process: ShellProcess | None = None
    _pid_directory = ""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherited = [name for base in cls.__mro__[1:] for name in getattr(base, "transient", ())]
        own = [cls.transient] if isinstance(cls.transient, str) else list(cls.transient)
        cls.transient = tuple(dict.fromkeys([*own, *inherited]))

    def __init__(
        self,
        command: Sequence[str],
        outputs: Outputs = (),
        *,
        env: Mapping[str, str | Secret] | None = None,
        cwd: str | os.PathLike[str] | None = "resources",
        serializer: str = "json",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        name = type(self).__name__
        is_list = isinstance(command, Sequence) and not isinstance(command, str | bytes)
        if not is_list or not command or not all(isinstance(part, str) for part in command):
            raise ComponentError(
                f"{name}: command={command!r}; it is a list of texts",
                hint='the program comes first: ["node", "split.js"]',
            )
        check_serializer(name, serializer)
        if outputs or not type(self).outputs:
            self.outputs = outputs
        self.command = list(command)
        self.env = dict(env or {})
        self.serializer = serializer
        self.config = dict(config or {})
        self._files = ShellFiles(directory_of(type(self), cwd))
        if serializer == "msgpack":
            self.requires = ("msgpack>=1.0",)

    def get_component_configuration(self) -> Mapping[str, Any] | None:
        return self.config

    # -- life ---------------------------------------------------------------------------------

    def _begin_process(self, conf: Mapping[str, Any]) -> None:
        """Start the process of a task that begins."""
        self._conf = conf
        self._lock = Lock()
        self._pause_secs, self._starts_at = _FIRST_PAUSE_SECS, 0.0
        self._process = self._start_process()

    def _start_process(self) -> ShellProcess:
        """Return a process that has been sent the handshake."""
        context = self.context
        env = {name: str(revealed(value)) for name, value in self.env.items()}
        process = ShellProcess(
            self.command,
            WIRES[self.serializer](),
            self._files.open(),
            env,
            (context.this_component_id, context.this_task_id),
        )
        self._pid_directory = tempfile.mkdtemp(prefix="topo-shell-pid-")
        process.send(handshake(self, self._conf, context, self._pid_directory))
        process.flush()
        return process

    def _end_process(self, *, has_turn: bool = False) -> None:
        """End the process at the orderly end of the task, after a look of the watching thread."""
        process = self._process
        if process is not None:
            process.set_watched(False)
            with nullcontext() if has_turn else self._lock:
                self._process = None
                process.close()
        self._forget_pid()

    def _forget_pid(self) -> None:
        if self._pid_directory:
            shutil.rmtree(self._pid_directory, ignore_errors=True)
            self._pid_directory = ""

    @property
    def _timeout_secs(self) -> float:
        """The longest silence of a process that has something to answer."""
        secs: float | None = self._conf.get("topology.subprocess.timeout.secs")
        if secs is None:
            timeout = self._conf.get("topology.message.timeout.secs") or 0.0
            return max(_LEAST_TIMEOUT_SECS, 2 * timeout)
        return secs

    @property
    def _stops(self) -> bool:
        """True iff the end of the process stops the topology."""
        return self._conf.get("topology.uncaught.error") != "fail"

    def _check_silence(self, process: ShellProcess) -> None:
        """Raise ShellError if the process has been silent for too long."""
        silent = perf_counter() - process.heard_at
        if silent > self._timeout_secs:
            raise process.error(
                f"has said nothing for {silent:.0f} s and has tuples or commands to answer "
                f"(topology.subprocess.timeout.secs){process.within_a_message}",
                "shell-silent",
            )

    def _lose(self, error: ShellError) -> None:
        """Raise the error that ended the process, or report it and start another one later."""
        process, self._process = self._process, None
        if process is not None:
            process.set_watched(False)
            process.kill()
        self._forget_pid()
        if self._stops or error.code == "shell-start":
            raise error
        self.context.counter("processes_lost")
        self.report_error(error)  # type: ignore[attr-defined]
        self._starts_at = perf_counter() + self._pause_secs
        self._pause_secs = min(2 * self._pause_secs, _LONGEST_PAUSE_SECS)

    def _may_start(self) -> bool:
        """Return True if a process that was lost may be started again."""
        return self._process is None and perf_counter() >= self._starts_at

    @property
    def _pause_left(self) -> float:
        """The seconds until another process may be started."""
        return max(0.0, self._starts_at - perf_counter())

    def _note_answer(self) -> None:
        """Take an answer as a sign that the process works: the next pause is a short one."""
        self._pause_secs = _FIRST_PAUSE_SECS

    # -- what every component may send ----------------------------------------------------------

    def _hear_other(self, command: str, message: dict[str, Any], process: ShellProcess) -> bool:
        """Take a log line, an error or a metric; return False for another command."""
        if command == "log":
            level, text = log_of(message)
            _log.log(_LEVELS[min(max(level, 0), 4)], "%s", text)
        elif command == "error":
            text = str(message.get("msg", ""))
            process.note_error(text)
            self.report_error(text)  # type: ignore[attr-defined]
        elif command == "metrics":
            self._count(str(message.get("name", "")), message.get("params"))
        else:
            return False
        return True

    def _count(self, name: str, value: Any) -> None:
        figure = _NO_NAME.sub("_", name)
        if not figure.isidentifier():
            figure = f"metric_{figure}"
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            self.report_error(  # type: ignore[attr-defined]
                f"the metric {name!r} is {shown(value)}; a number is counted"
            )
        elif isinstance(value, float) and not value.is_integer():
            self.context.gauge(figure, value)
        else:
            self.context.counter(figure, 1 if value is None else int(value))


def handshake(
    component: Component, conf: Mapping[str, Any], context: TopologyContext, pids: str
) -> dict[str, Any]:
    """Return the first message: the settings, where the process says its pid, and the context."""
    declarer = OutputFieldsDeclarer()
    component.declare_output_fields(declarer)
    tasks = {
        str(task): name for name in context.component_ids for task in context.component_tasks(name)
    }
    sources: dict[str, dict[str, Any]] = {}
    fields: dict[str, dict[str, list[str]]] = {}
    for (name, stream), grouping in context.this_sources.items():
        sources.setdefault(name, {})[stream] = _grouping(grouping.kind, grouping.fields)
        fields.setdefault(name, {})[stream] = list(context.output_fields(name, stream))
    about = {
        "task->component": tasks,
        "taskid": context.this_task_id,
        "componentid": context.this_component_id,
        "streams": list(declarer.streams),
        "stream->outputfields": {
            name: list(stream.fields) for name, stream in declarer.streams.items()
        },
        "stream->target->grouping": {
            stream: {
                name: _grouping(grouping.kind, grouping.fields)
                for name, grouping in readers.items()
            }
            for stream, readers in context.this_targets.items()
        },
        "source->stream->grouping": sources,
        "source->stream->fields": fields,
    }
    return {"conf": _plain(dict(conf)), "pidDir": pids, "context": about}


def _grouping(kind: str, fields: Sequence[str]) -> dict[str, Any]:
    """Return a grouping as Storm names it."""
    if kind == "global":  # Storm's is one by no fields
        return {"type": "FIELDS", "fields": []}
    return {"type": kind.upper(), **({"fields": list(fields)} if fields else {})}


def _plain(value: Any) -> Any:
    """Return a setting as JSON has it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    with suppress(TypeError, ValueError):
        json.dumps(value)
        return value
    return str(value)
