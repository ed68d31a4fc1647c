"""A bolt whose code runs in a process of another language.

**A heartbeat ends a batch.** The tuples of a batch are written without waiting; behind them goes a
heartbeat, and the `sync` that answers it says that all before it was worked on. So it is with
storm.py, pystorm and the synchronous code of node. What a process does later comes behind the sync:
its tuples are held over the batch, as in any bolt, and what comes for them belongs to the next one.

A `sync` right behind an `error` is pystorm's own and answers nothing. If it was an answer after
all, the next heartbeat, a second later, gets another; should one sync too many arrive, a batch ends
early and its tuples are held. Neither is wrong, and both are rare.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from threading import Timer
from typing import Any

from topo.collectors import OutputCollector
from topo.components import Bolt, Outputs
from topo.config.secrets import Secret
from topo.context import TopologyContext
from topo.errors import ComponentError, EmitError, ShellError, shown
from topo.multilang.process import ShellProcess
from topo.multilang.shell import Shell
from topo.multilang.wire import (
    HEARTBEAT,
    TICK,
    Emit,
    Message,
    command_of,
    emit_of,
    system_message,
    tuple_message,
)
from topo.tuples import Tuple

_WRITE_AT_BYTES = 1 << 16
_HEARTBEAT_SECS = 1.0
_MOST_TICKS = 100
"""Of those that the process may still ack."""


class ShellBolt(Shell, Bolt):
    """A bolt in any language: `ShellBolt(["node", "split.js"], outputs=("word",))`.

    `cwd` is a directory beside the code that makes it, or that code's own if there is none; it
    travels with the topology. The process gets `env` beside the environment of the task.
    """

    _BOLT = (
        "_after_error", "_beats", "_behind", "_fault", "_has_pid", "_is_working", "_late",
        "_most_behind", "_number", "_reason", "_skipped_sync", "_ticks", "_timer",
    )  # fmt: skip
    transient: Iterable[str] = (*Shell.transient, *_BOLT)

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
        self._held: dict[str, Tuple] = {}
        """The tuples that the process has neither acked nor failed, by the ids it knows."""

    # -- life ---------------------------------------------------------------------------------

    def prepare(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: OutputCollector
    ) -> None:
        self._number = 0
        self._is_working = False
        self._most_behind: int = conf.get("topology.shellbolt.max.pending") or 1
        self._late: list[Message] = []
        self._fault: ShellError | None = None
        self._timer: Timer | None = None
        self._meet_process()
        self._begin_process(conf)

    def restored(self) -> None:
        """Send what was held to the process, which is a new one."""
        self._number = max(map(int, self._held), default=0)
        process = self._process
        assert process is not None, "prepare has started it"
        self._send_held(process)
        process.watch(self)

    def cleanup(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._end_process(has_turn=self._is_working)  # it ends within a batch after an error

    def _meet_process(self) -> None:
        """Forget what the process before has left unanswered."""
        self._ticks: dict[str, None] = {}
        self._has_pid = self._after_error = self._skipped_sync = False
        self._beats = self._behind = 0
        self._reason = ""

    def _send_held(self, process: ShellProcess) -> None:
        for number, tup in self._held.items():
            self._send(process, number, tup)

    # -- a batch ------------------------------------------------------------------------------

    def execute(self, tup: Tuple) -> None:
        self._enter()
        self._number += 1
        number = str(self._number)
        process = self._process
        try:
            if tup.is_tick:
                self._send_tick(process, f"tick {number}", tup)
            else:
                self._held[number] = tup
                if process is not None:
                    self._send(process, number, tup)
                    self._move(process)
        except ShellError as error:
            self._lose_tuples(error)
        if self.context.batch_id < 0:  # a test of this bolt alone, which may have no batches
            self._finish()

    def pre_commit(self, batch_id: int) -> None:
        """Wait until the process has worked on the batch."""
        self._finish()

    def _send(self, process: ShellProcess, number: str, tup: Tuple) -> None:
        message = tuple_message(
            number, tup.source_component, tup.source_stream, tup.source_task, tup.values
        )
        try:
            process.send(message)
        except (TypeError, ValueError, OverflowError) as error:
            self._held.pop(number, None)
            raise ComponentError(
                f"{tup.source_component!r} emitted {shown(tup.values)}, which cannot be sent to "
                f"`{' '.join(self.command)}` as {self.serializer}: {error}",
                hint="emit texts, numbers, true, false, None, lists and dicts of them",
            ) from error
        self._behind += 1

    def _send_tick(self, process: ShellProcess | None, number: str, tup: Tuple) -> None:
        if process is not None:
            process.send(system_message(number, TICK, tup.values))
            self._ticks[number] = None
            if len(self._ticks) > _MOST_TICKS:
                del self._ticks[next(iter(self._ticks))]
        self.ack(tup)

    def _move(self, process: ShellProcess) -> None:
        if self._behind >= self._most_behind:
            self._sync(process)
        elif process.waiting_bytes >= _WRITE_AT_BYTES:
            self._hear_all(process, process.exchange())

    def _enter(self) -> None:
        """Begin to work: take over from the watching thread, and hear what came meanwhile."""
        if self._is_working:
            return
        process = self._process
        if process is not None:
            process.set_watched(False)
        self._lock.acquire()
        self._is_working = True
        try:
            if process is not None:
                late, self._late = self._late, []
                for message in late:
                    self._hear(process, message)
            fault, self._fault = self._fault, None
            if fault is not None:
                raise fault
            if self._may_start():
                self._restart()
        except ShellError as error:
            self._lose_tuples(error)

    def _finish(self) -> None:
        """End the work of a batch: the process has answered, or is lost."""
        self._enter()
        process = self._process
        try:
            if process is not None:
                self._sync(process)
        except ShellError as error:
            self._lose_tuples(error)
        self._is_working = False
        self._lock.release()
        if self._process is not None:
            self._process.set_watched(True)
        elif self._held:
            self._timer = Timer(self._pause_left, self.context.call_soon, [self._enter])
            self._timer.daemon = True
            self._timer.start()

    def _sync(self, process: ShellProcess) -> None:
        """Send a heartbeat, and hear the process until it answers that."""
        self._send_heartbeat(process)
        while self._beats:
            messages = process.exchange(_HEARTBEAT_SECS)
            self._hear_all(process, messages)
            if self._beats and not messages:
                self._check_silence(process)
                if self._skipped_sync:
                    self._send_heartbeat(process)
        self._behind = 0
        self._note_answer()

    def _send_heartbeat(self, process: ShellProcess) -> None:
        process.send(system_message("heartbeat", HEARTBEAT))
        self._beats += 1

    def _take_sync(self) -> None:
        if self._after_error and not self._skipped_sync:
            self._skipped_sync = True
        elif self._beats > 1 and self._skipped_sync:  # that was an answer after all
            self._beats, self._skipped_sync = 0, False
        elif self._beats:
            self._beats -= 1
            self._skipped_sync = self._skipped_sync and self._beats > 0
        self._after_error = False

    # -- while the task is elsewhere ----------------------------------------------------------

    def look_at_process(self) -> None:
        """Read what the process has written between two batches; the watching thread calls this."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            process = self._process
            if process is None or not process.is_watched:
                return
            try:
                self._look(process)
            except ShellError as error:
                self._fault = error
            is_news = bool(self._late or self._fault)
            if is_news:
                process.set_watched(False)  # nothing more is read until this is heard
        finally:
            self._lock.release()
        if is_news and self.context.batch_id >= 0:
            self.context.call_soon(self._enter)

    def _look(self, process: ShellProcess) -> None:
        for message in process.exchange():
            if not self._is_for_us(message):
                self._late.append(message)
        if self._held and not self._late:
            if self._beats:
                self._check_silence(process)
            else:
                self._send_heartbeat(process)
                process.flush()

    # -- what the process says ----------------------------------------------------------------

    def _hear_all(self, process: ShellProcess, messages: Iterable[Message]) -> None:
        for message in messages:
            if not self._is_for_us(message):
                self._hear(process, message)

    def _is_for_us(self, message: Message) -> bool:
        """Take the pid and what answers heartbeats; return False for what the bolt hears."""
        if not self._has_pid and isinstance(message, dict) and "pid" in message:
            self._has_pid = True
            return True
        command = command_of(message)
        if command == "sync":
            self._take_sync()
            return True
        self._after_error = command == "error"
        return False

    def _hear(self, process: ShellProcess, message: Message) -> None:
        command = message["command"]
        if command == "emit":
            self._emit(process, emit_of(message))
        elif command == "ack":
            tup = self._settled(message, "acked")
            if tup is not None:
                self.ack(tup)
        elif command == "fail":
            tup = self._settled(message, "failed")
            if tup is not None:
                self.fail(tup, self._reason or "its process said so")
            self._reason = ""
        else:
            if command == "error":
                self._reason = str(message.get("msg", "")).rstrip()
            self._hear_other(command, message, process)

    def _emit(self, process: ShellProcess, emit: Emit) -> None:
        anchors = [tup for anchor in emit.anchors if (tup := self._anchor(anchor)) is not None]
        try:
            if emit.task is not None:
                self.emit_direct(emit.task, emit.values, stream=emit.stream, anchors=anchors)
            elif emit.need_task_ids:
                process.answer(
                    self.emit(emit.values, stream=emit.stream, anchors=anchors, task_ids=True)
                )
            elif emit.stream == "default":
                self.emit(emit.values, anchors=anchors[0] if len(anchors) == 1 else anchors)
            else:
                self.emit(emit.values, stream=emit.stream, anchors=anchors)
        except EmitError as error:
            if self._stops:
                raise
            self.report_error(error)
            for number in emit.anchors:
                tup = self._held.pop(number, None)
                if tup is not None:
                    self.fail(tup, error.message)
            if emit.task is None and emit.need_task_ids:
                process.answer([])

    def _anchor(self, number: str) -> Tuple | None:
        tup = self._held.get(number)
        if tup is None and number not in self._ticks:
            self.report_error(
                f"its process emitted with the anchor {shown(number)}, which is no tuple that it "
                "has neither acked nor failed; the emit is not anchored to it"
            )
        return tup

    def _settled(self, message: Message, what: str) -> Tuple | None:
        number = message.get("id")
        tup = self._held.pop(number, None) if isinstance(number, str) else None
        if tup is None and number not in self._ticks:
            self.report_error(
                f"its process {what} {shown(number)}, which is no tuple that it has neither acked "
                "nor failed"
            )
        self._ticks.pop(str(number), None)
        return tup

    # -- a lost process -----------------------------------------------------------------------

    def _lose_tuples(self, error: ShellError) -> None:
        """Raise the error, or fail what the process was working on; another one comes later."""
        self._lose(error)
        for tup in self._held.values():
            self.fail(tup, error.message)
        self._held.clear()
        self._late.clear()

    def _restart(self) -> None:
        self._meet_process()
        self._process = process = self._start_process()
        self._send_held(process)
        process.watch(self)
