"""The functions behind the collector of a basic bolt, by the rules of `ports`."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

from topo.runtime.anchors import raise_no_tuple
from topo.runtime.emitter import Emitter
from topo.runtime.ports import emits_plainly
from topo.runtime.threads import CallsFromThreads
from topo.tuples import DEFAULT_STREAM, Tuple


class BasicBoltPort:
    """The calls of a basic bolt; `this_input` is the link of the input being executed."""

    def __init__(
        self,
        outlet: Emitter,
        this_input: Callable[[], int | None],
        report_error: Callable[[BaseException | str], None],
        threads: CallsFromThreads,
    ) -> None:
        self.report_error = report_error
        self.reset: list[int] = []
        self._outlet = outlet
        self.observe_time = outlet.observe_time
        self.observe_times = outlet.observe_times
        self._this_input = this_input
        self._threads = threads
        self.emit = self.any_emit
        if emits_plainly(outlet):
            self.emit = self._plain_emit()
        elif not outlet.strict:
            self.emit = self._emit_to_streams()

    def _plain_emit(self) -> Callable[..., list[int] | None]:
        out = self._outlet.streams[DEFAULT_STREAM]
        width, append, long_way = out.width, out.rows.append, self.any_emit
        threads = self._threads

        def emit(
            values: Any, stream: Any = DEFAULT_STREAM, task_ids: Any = None
        ) -> list[int] | None:
            if (
                type(values) is list
                and len(values) == width
                and stream is DEFAULT_STREAM
                and task_ids is None
                and get_ident() == threads.fast
            ):
                append(values)
                return None
            return long_way(values, stream=stream, task_ids=bool(task_ids))

        count = 0

        def emit_to_nobody(
            values: Any, stream: Any = DEFAULT_STREAM, task_ids: Any = None
        ) -> list[int] | None:
            if (
                type(values) is list
                and len(values) == width
                and stream is DEFAULT_STREAM
                and task_ids is None
                and get_ident() == threads.fast
            ):
                nonlocal count
                count += 1
                return None
            return long_way(values, stream=stream, task_ids=bool(task_ids))

        def take_count() -> int:
            nonlocal count
            taken, count = count, 0
            return taken

        if self._outlet.is_read(out):
            return emit
        out.take_unread = take_count
        return emit_to_nobody

    def _emit_to_streams(self) -> Callable[..., list[int] | None]:
        """Return the emit of a task with several streams, whose common order is noted."""
        find, note, threads = self._outlet.streams.get, self._outlet.order.append, self._threads
        long_way, keeps_order = self.any_emit, self._outlet.keeps_order

        def emit(
            values: Any, stream: Any = DEFAULT_STREAM, task_ids: Any = None
        ) -> list[int] | None:
            if (
                type(values) is list
                and type(stream) is str
                and (out := find(stream)) is not None
                and len(values) == out.width
                and task_ids is None
                and not out.takes_direct
                and get_ident() == threads.fast
            ):
                if keeps_order:
                    note(out.index)
                out.rows.append(values)
                return None
            return long_way(values, stream=stream, task_ids=bool(task_ids))

        return emit

    def any_emit(
        self, values: Any, *, stream: str = DEFAULT_STREAM, task_ids: bool = False
    ) -> list[int] | None:
        """Emit in any of the ways there are."""
        if self._threads.is_elsewhere:
            self._threads.refuse()
        out = self._outlet.checked(values, stream, direct=False)
        self._outlet.added(out, values)
        out.add(values)
        return self._outlet.flush_in_loop(out) if task_ids else None

    def emit_direct(self, task: int, values: Any, *, stream: str = DEFAULT_STREAM) -> None:
        if self._threads.is_elsewhere:
            self._threads.refuse()
        out = self._outlet.checked_direct(task, values, stream)
        self._outlet.added(out, values)
        out.rows.append(values)
        out.targets.append(task)

    def reset_timeout(self, tup: Tuple) -> None:
        if not isinstance(tup, Tuple):
            raise_no_tuple(tup, "reset_timeout")
        link = self._this_input()
        if link is not None:
            self.reset.append(link)
