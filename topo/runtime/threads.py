"""Calls of `emit`, `ack` and the like from threads that user code has started.

A port belongs to the thread that runs its task: what a call means depends on what that thread is
executing. A call from any other thread waits here until the task's own thread makes it: before the
next batch is worked on, or at the next flush of this one. Storm allows such calls as well; as in
Storm, calls that wait are lost in a crash, and the messages they are about fail by their timeout.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from threading import current_thread, get_ident
from typing import Any

from topo.errors import EmitError


class CallsFromThreads:
    """The calls that wait for the task's thread. Any thread may add one, the task's takes them."""

    __slots__ = ("_is_making", "_owner", "_thread", "_waiting", "_wake", "fast")

    def __init__(self, owner: str, wake: Callable[[], None] | None) -> None:
        self._owner = owner
        self._wake = wake
        self._waiting: deque[Callable[[], Any]] = deque()
        self._is_making = False
        self._thread = get_ident()
        self.fast = self._thread
        """The task's thread; 0 while calls wait. So one comparison, which is all that a call can
        afford, sends both to the long way: who is elsewhere, and who has to make those first."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def is_elsewhere(self) -> bool:
        """True if the calling thread is not the task's."""
        return get_ident() != self._thread

    def here(self) -> None:
        """Make the calling thread the task's."""
        self._thread = get_ident()
        self.fast = 0 if self._waiting else self._thread

    def leave(self, call: Callable[..., Any], *values: Any, **options: Any) -> bool:
        """Leave the call to the task's thread and return True; in that thread, make those left."""
        if not self.is_elsewhere:
            if self._waiting:
                self.make()
            return False
        if options.pop("task_ids", False):
            raise EmitError(
                f"{self._owner} emitted with task_ids=True in thread {current_thread().name!r}, "
                "where they are not known yet",
                hint="leave task_ids out, or emit in the task's own thread",
            )
        self._waiting.append(partial(call, *values, **options))
        self.fast = 0
        if self._wake is not None:
            self._wake()
        return True

    def refuse(self) -> None:
        """Raise what an emit of a basic bolt raises: it has no input to belong to."""
        raise EmitError(
            f"{self._owner} emitted in thread {current_thread().name!r}; what a basic bolt emits "
            "belongs to the input it executes",
            hint="write it as a Bolt, which names its anchors; or hand the values over through a "
            "queue.Queue and emit them in execute or on_tick",
        )

    def make(self) -> None:
        """Make the calls that wait, in their order."""
        if self._is_making:
            return
        self._is_making = True
        try:
            while self._waiting:
                self._waiting.popleft()()
        finally:
            self._is_making = False
            self.here()
