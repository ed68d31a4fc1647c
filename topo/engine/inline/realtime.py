"""The inline engine by the wall clock, in a thread of its own: `topo local --engine inline`.

The engine needs no Java and saves nothing: state lives as long as the run. Requests from other
threads are answered by the engine's own thread, between two steps. Code of the user's that does not
return keeps that thread: a request then gets what is known without it after a while, a command is
obeyed when the code returns, and the run can still be stopped, whose thread is left behind.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from topo.config import Config
from topo.drpc.calls import DEFAULT_SECS
from topo.engine.completion import Completion
from topo.engine.inline.recorder import RecordedRun
from topo.engine.inline.run import InlineRun
from topo.errors import EngineError, sentence_of
from topo.running import ENDED, BatchRecord, ErrorEntry, Listener, RunStats
from topo.topology.model import Topology
from topo.tracking.clock import SteadyClock

T = TypeVar("T")

_PATIENCE_SECS = 1.0
"""How long a question waits for the engine's thread before it is answered without it."""
_STEP_SECS = 0.05
"""How long a step is to take, about: questions wait for its end."""
_MOST_ROUNDS = 4096
_DRAIN_POLL_SECS = 0.02


class Busy(Exception):
    """The engine's thread is kept by user code that does not return."""


class RealTimeRun(RecordedRun, Completion):
    """A run that advances in a thread of its own until it ends."""

    ui = ""
    drpc = None  # it has no socket

    def __init__(
        self,
        name: str,
        topology: Topology,
        conf: Mapping[str, Any],
        *,
        active: bool = True,
        record: bool = False,
        listener: Listener | None = None,
    ) -> None:
        self.name = name
        self.topology = topology
        self._poll_secs = Config(conf).batch_poll_ms / 1000
        self._inner = InlineRun(
            name,
            topology,
            conf,
            now=SteadyClock(),
            active=active,
            strict=False,
            record=record,
            listener=listener,
            wake=self._wake,
        )
        self._seen = self._inner.stats()
        self._stepped = time.monotonic()  # when the engine's thread began its last step
        self._is_abandoned = threading.Event()
        self._questions: deque[Callable[[], None]] = deque()
        self._asked = threading.Condition()
        self._ended = True  # not started: nothing moves
        self._is_woken = True  # the first step waits for nothing
        self._thread = threading.Thread(target=self._loop, name=f"topology {name}", daemon=True)
        self.warnings = self._inner.warnings
        self.recorder = self._inner.recorder

    def start(self) -> RealTimeRun:
        self._ended = False
        self._thread.start()
        return self

    @property
    def status(self) -> str:
        return self._ask_or(lambda: self._inner.status, lambda: self._inner.status)

    @property
    def reason(self) -> str:
        return self._ask_or(lambda: self._inner.reason, self._why_busy)

    def stats(self) -> RunStats:
        """Return the figures; while user code does not return, those from before."""

        def look() -> RunStats:
            self._seen = self._inner.stats()
            return self._seen

        return self._ask_or(look, lambda: replace(self._seen, reason=self._why_busy()))

    def errors(self) -> list[ErrorEntry]:
        return self._ask_or(self._inner.errors, self._inner.errors)

    def batches(self) -> list[BatchRecord]:
        return self._ask_or(self._inner.batches, self._inner.batches)

    def tuples(self, component: str, stream: str = "default") -> list[list[Any]]:
        def look() -> list[list[Any]]:
            return self._inner.tuples(component, stream)

        return self._ask_or(look, look)

    def call(self, function: str, args: str, timeout: float = DEFAULT_SECS) -> str:
        """Call a function that the topology computes, and wait for the answer."""
        desk = self._inner.desk
        return desk.wait(desk.begin(function, args, timeout), timeout).value()

    def activate(self) -> None:
        self._command(self._inner.activate)

    def deactivate(self) -> None:
        self._command(self._inner.deactivate)

    def kill(self, wait_secs: float = 0) -> None:
        """Stop the spouts, wait up to `wait_secs` for messages in flight, then end."""
        deadline = time.monotonic() + wait_secs
        while not self._is_abandoned.is_set():
            try:
                left = self._ask(self._settle, _PATIENCE_SECS)
            except Busy:
                left = 1
            if not left or time.monotonic() >= deadline:
                break
            self.wait(_DRAIN_POLL_SECS)
        self.stop()

    def _settle(self) -> int:
        """Stop the spouts; return how much is in flight. It may have ended by itself."""
        if self._inner.status in ENDED:
            return 0
        self._inner.deactivate()
        return self._inner.pending + self._inner.looping

    def stop(self) -> None:
        """Stop at once; a thread that is kept by user code is left behind."""
        if self._is_abandoned.is_set():
            return
        try:
            self._ask(self._inner.kill, _PATIENCE_SECS)
        except Busy:
            self._is_abandoned.set()
            self._inner.abandon(self._why_busy())
            return
        if self._thread.ident:
            self._thread.join()

    def wait(self, secs: float | None = None) -> bool:
        """Wait up to `secs` for the end of the run; return True if it has ended."""
        if self._is_abandoned.is_set():
            return True
        if self._thread.ident:
            self._thread.join(secs)
        return self._inner.status in ENDED and not self._thread.is_alive()

    def _wake(self) -> None:
        """End the pause between two steps; for any thread."""
        with self._asked:
            self._is_woken = True
            self._asked.notify()

    def _command(self, command: Callable[[], None]) -> None:
        """Let the engine's thread obey: now, or as soon as user code returns to it."""
        with suppress(Busy):
            self._ask(command, _PATIENCE_SECS, keep=True)

    def _ask_or(self, question: Callable[[], T], otherwise: Callable[[], T]) -> T:
        try:
            return self._ask(question, _PATIENCE_SECS)
        except Busy:
            return otherwise()

    def _ask(self, question: Callable[[], T], patience: float, *, keep: bool = False) -> T:
        """Return the answer of the engine's thread; raise Busy if it takes longer than that.

        With `keep` the question is answered nevertheless, when the thread is back.
        """
        answer: Future[T] = Future()

        def reply() -> None:
            if not answer.set_running_or_notify_cancel():
                return  # nobody waits any more
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        with self._asked:
            ended = self._ended or self._is_abandoned.is_set()
            if not ended:
                self._questions.append(reply)
                self._asked.notify()
        if ended:
            reply()  # nothing moves any more
        try:
            return answer.result(patience)
        except TimeoutError:
            if keep or answer.cancel():
                raise Busy from None
            return answer.result()  # it has just begun to answer

    def _why_busy(self) -> str:
        secs = time.monotonic() - self._stepped
        return f"the topology's code has not returned for {secs:.0f} s"

    def _loop(self) -> None:
        try:
            self._advance()
        finally:
            with self._asked:
                self._ended = True
            self._reply()

    def _advance(self) -> None:
        moved, rounds = 0, 1
        while self._inner.status not in ENDED:
            with self._asked:
                if not (moved or self._questions or self._is_woken):
                    self._asked.wait(self._poll_secs)
                self._is_woken = False
            self._reply()
            began = self._stepped = time.monotonic()
            try:
                moved = self._inner.step(rounds)
            except Exception as error:
                self.error = error
            except BaseException as error:  # no Exception, yet it ended the run as one would
                self.error = EngineError(
                    f"{type(error).__name__}: {sentence_of(error)}", code="uncaught"
                )
            is_slow = time.monotonic() - began > _STEP_SECS
            rounds = max(1, rounds // 2) if is_slow else min(_MOST_ROUNDS, rounds * 2)

    def _reply(self) -> None:
        while self._questions:
            self._questions.popleft()()
