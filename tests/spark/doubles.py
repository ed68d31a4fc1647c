"""Components that many of these tests are made of, and ways to wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from topo import Bolt, Spout, Tuple

WORKERS = {"topology.workers": 2}
LONGEST_SECS = 120.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for what other processes bring about."""
    deadline = time.monotonic() + LONGEST_SECS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {LONGEST_SECS:g} s: {what}"
        pause.wait(0.02)


class Endless(Spout):
    """One tracked number after the other, without end."""

    outputs = ("num",)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        self.emit([self.next], msg_id=self.next)
        self.next += 1


class Keeping(Bolt):
    """Keeps every tuple and acks none."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)
