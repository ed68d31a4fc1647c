"""The inline engine by the wall clock, in a thread of its own: `topo local --engine inline`.

The engine needs no Java and saves nothing: state lives as long as the run. Requests from other
threads are answered by the engine's own thread, between two steps.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from topo.config import Config
from topo.engine.completion import Completion
from topo.engine.inline.run import InlineRun
from topo.running import ENDED, BatchRecord, ErrorEntry, Listener, RunStats
from topo.topology.model import Topology
from topo.tracking.clock import SteadyClock

T = TypeVar("T")

_STEP_SECS = 0.05
"""How long a step is to take, about: questions wait for its end."""
_MOST_ROUNDS = 4096
_DRAIN_POLL_SECS = 0.02


class RealTimeRun(Completion):
    """A run that advances in a thread of its own until it ends."""

    ui = ""

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
        self._questions: deque[Callable[[], None]] = deque()
        self._asked = threading.Condition()
        self._ended = True  # not started: nothing moves
        self._is_woken = True  # the first step waits for nothing
        self._thread = threading.Thread(target=self._loop, name=f"topology {name}", daemon=True)
        self.warnings = self._inner.warnings

    def start(self) -> RealTimeRun:
        self._ended = False
        self._thread.start()
        return self

    @property
    def status(self) -> str:
        return self._ask(lambda: self._inner.status)

    @property
    def reason(self) -> str:
        return self._ask(lambda: self._inner.reason)

    def stats(self) -> RunStats:
        return self._ask(self._inner.stats)

    def errors(self) -> list[ErrorEntry]:
        return self._ask(self._inner.errors)

    def batches(self) -> list[BatchRecord]:
        return self._ask(self._inner.batches)

    def tuples(self, component: str, stream: str = "default") -> list[list[Any]]:
        return self._ask(lambda: self._inner.tuples(component, stream))

    @property
    def rows(self) -> dict[tuple[str, str], list[Any]]:
        return self._inner.rows

    @property
    def acked(self) -> dict[str, list[Any]]:
        return self._inner.acked

    @property
    def failed(self) -> dict[str, list[Any]]:
        return self._inner.failed

    def activate(self) -> None:
        self._ask(self._inner.activate)

    def deactivate(self) -> None:
        self._ask(self._inner.deactivate)

    def kill(self, wait_secs: float = 0) -> None:
        """Stop the spouts, wait up to `wait_secs` for messages in flight, then end."""
        if self.status not in ENDED:
            self.deactivate()
        deadline = time.monotonic() + wait_secs
        while time.monotonic() < deadline and self._ask(lambda: self._inner.pending):
            self.wait(_DRAIN_POLL_SECS)
        self._ask(self._inner.kill)
        if self._thread.ident:
            self._thread.join()

    def stop(self) -> None:
        """Stop at once."""
        self.kill()

    def wait(self, secs: float | None = None) -> bool:
        """Wait up to `secs` for the end of the run; return True if it has ended."""
        if self._thread.ident:
            self._thread.join(secs)
        return self._inner.status in ENDED and not self._thread.is_alive()

    def _wake(self) -> None:
        """End the pause between two steps; for any thread."""
        with self._asked:
            self._is_woken = True
            self._asked.notify()

    def _ask(self, question: Callable[[], T]) -> T:
        answer: Future[T] = Future()

        def reply() -> None:
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        with self._asked:
            ended = self._ended
            if not ended:
                self._questions.append(reply)
                self._asked.notify()
        if ended:
            reply()  # nothing moves any more
        return answer.result()

    def _loop(self) -> None:
        moved, rounds = 0, 1
        while self._inner.status not in ENDED:
            with self._asked:
                if not (moved or self._questions or self._is_woken):
                    self._asked.wait(self._poll_secs)
                self._is_woken = False
            self._reply()
            began = time.monotonic()
            try:
                moved = self._inner.step(rounds)
            except Exception as error:
                self.error = error
            is_slow = time.monotonic() - began > _STEP_SECS
            rounds = max(1, rounds // 2) if is_slow else min(_MOST_ROUNDS, rounds * 2)
        with self._asked:
            self._ended = True
        self._reply()

    def _reply(self) -> None:
        while self._questions:
            self._questions.popleft()()
