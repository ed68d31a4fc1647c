"""A spout whose code runs in a process of another language.

It is asked ahead: while `next` brings tuples, up to 64 are under way; otherwise one is. So
`next_tuple` never waits for the process, and one that sleeps in its `next` holds up nobody.

A message's id is the process's own with the number of that process. A verdict on a message of an
earlier process, which does not know it, is dropped and counted.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

from topo.collectors import SpoutOutputCollector
from topo.components import Outputs, Spout
from topo.config.secrets import Secret
from topo.context import TopologyContext
from topo.errors import ShellError, did_you_mean
from topo.multilang.process import ShellProcess
from topo.multilang.shell import Shell
from topo.multilang.wire import Message, command_of, emit_of

_MOST_AHEAD = 64
_MOST_UNHEARD = 10_000
"""Messages that are read ahead of the task; then the process has to wait."""
_STATUS_SECS = 1.0
"""Within which `activate` is answered, if it is."""
_COMMANDS = ("emit", "log", "error", "metrics", "sync")


class ShellSpout(Shell, Spout):
    """A spout in any language: `ShellSpout(["node", "lines.js"], outputs=("line",))`.

    The arguments are those of ShellBolt. It is endless: the protocol has no word for an end.
    """

    _SPOUT = ("_asked", "_brings", "_fault", "_has_emitted", "_has_pid", "_unheard")
    transient: Iterable[str] = (*Shell.transient, *_SPOUT)

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
        super().__init__(command, outputs, env=env, cwd=cwd, serializer=serializer, config=config)
        self._life = 0
        """The number of the process; saved, so that no two have the same."""

    # -- life ---------------------------------------------------------------------------------

    def open(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutOutputCollector
    ) -> None:
        self._fault: ShellError | None = None
        self._meet_process()
        self._begin_process(conf)

    def restored(self) -> None:
        self._life += 1
        assert self._process is not None, "open has started it"
        self._process.watch(self)
        self._process.set_watched(True)

    def close(self) -> None:
        self._end_process()

    def activate(self) -> None:
        self._command("activate")

    def deactivate(self) -> None:
        self._command("deactivate")

    def ack(self, msg_id: Any) -> None:
        self._conclude("ack", msg_id)

    def fail(self, msg_id: Any, reason: str = "") -> None:
        self._conclude("fail", msg_id)

    def _meet_process(self) -> None:
        self._asked: deque[str] = deque()
        """The commands that the process has not answered."""
        self._brings = False
        """True if the last `next` that was answered brought tuples."""
        self._has_emitted = False
        """True if the command that is being answered has brought some."""
        self._has_pid = False
        self._unheard: deque[Message] = deque()

    def _conclude(self, command: str, msg_id: Any) -> None:
        number, life = msg_id
        if life != self._life or self._process is None:
            self.context.counter("verdicts_of_lost_processes")
        else:
            self._command(command, number)

    def _command(self, command: str, number: Any = "") -> None:
        with self._lock:
            if self._process is not None:
                self._send(self._process, command, number)
                self._read(self._process)

    def _send(self, process: ShellProcess, command: str, number: Any = "") -> None:
        process.send({"command": command, "id": number})
        self._asked.append(command)

    def _read(self, process: ShellProcess) -> None:
        """Move bytes in both directions; a fault is raised by `next_tuple`."""
        try:
            if len(self._unheard) < _MOST_UNHEARD and self._fault is None:
                self._unheard += process.exchange()
        except ShellError as error:
            self._fault = error

    # -- a batch ------------------------------------------------------------------------------

    def next_tuple(self) -> None:
        with self._lock:
            try:
                if self._may_start():
                    self._restart()
                if self._process is not None:
                    self._work(self._process)
            except ShellError as error:
                self._fault = None
                self._lose(error)

    def _work(self, process: ShellProcess) -> None:
        self._read(process)
        self._hear_all(process)
        if self._fault is not None:
            raise self._fault
        if self._asked:
            self._check_silence(process)
        if self._has_changed_status(process):
            ahead = self.room(_MOST_AHEAD if self._brings else 1)
            for _ in range(ahead - self._asked.count("next")):
                self._send(process, "next")
        self._read(process)
        process.set_watched(True)

    def _has_changed_status(self, process: ShellProcess) -> bool:
        """Return True if the process has answered `activate`, or will not.

        storm.js has it unanswered unless the spout's own code calls back.
        """
        if not self._status_commands():
            return True
        if not self._has_pid or perf_counter() - process.heard_at < _STATUS_SECS:
            return False
        for command in self._status_commands():
            self._asked.remove(command)
        return True

    def _status_commands(self) -> list[str]:
        return [command for command in self._asked if command in ("activate", "deactivate")]

    def _restart(self) -> None:
        self._meet_process()
        self._life += 1
        self._process = process = self._start_process()
        self._send(process, "activate")
        process.watch(self)

    def look_at_process(self) -> None:
        """Read what the process has written; the watching thread calls this."""
        with self._lock:
            process = self._process
            if process is None or not process.is_watched:
                return
            self._read(process)
            is_full = len(self._unheard) >= _MOST_UNHEARD
            if is_full or self._fault is not None:
                process.set_watched(False)  # until next_tuple has heard
            is_news = self._fault is not None or any(map(_is_news, self._unheard))
        if is_news:
            self.wake()

    # -- what the process says ----------------------------------------------------------------

    def _hear_all(self, process: ShellProcess) -> None:
        while self._unheard:
            message = self._unheard.popleft()
            if not self._has_pid and isinstance(message, dict) and "pid" in message:
                self._has_pid = True
            else:
                self._hear(process, command_of(message), message)

    def _hear(self, process: ShellProcess, command: str, message: Message) -> None:
        if command == "emit":
            self._has_emitted = True
            self._emit(process, message)
        elif command == "sync":
            self._answer()
        elif not self._hear_other(command, message, process):
            raise ShellError(
                f"its process sent the command {command!r}, which a spout does not have",
                hint=did_you_mean(command, _COMMANDS) or f"it has {', '.join(_COMMANDS)}",
                code="unreadable",
            )

    def _answer(self) -> None:
        """Take a sync as the answer to the oldest command."""
        if self._asked and self._asked.popleft() == "next":
            self._brings = self._has_emitted
        self._has_emitted = False
        self._note_answer()

    def _emit(self, process: ShellProcess, message: Message) -> None:
        emit = emit_of(message)
        msg_id = None if emit.message is None else (emit.message, self._life)
        if emit.task is not None:
            self.emit_direct(emit.task, emit.values, stream=emit.stream, msg_id=msg_id)
        elif emit.need_task_ids:
            ids = self.emit(emit.values, stream=emit.stream, msg_id=msg_id, task_ids=True)
            process.answer(ids)
            process.flush()
        elif emit.stream == "default":
            self.emit(emit.values, msg_id=msg_id)
        else:
            self.emit(emit.values, stream=emit.stream, msg_id=msg_id)


def _is_news(message: Message) -> bool:
    """True iff the task has something to do for a message: an empty `next` is none."""
    return isinstance(message, dict) and message.get("command", "pid") not in ("sync", "pid")
