"""The functions behind the collector of a basic bolt, by the rules of `ports`."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

from topo.errors import EmitError
from topo.runtime.anchors import raise_no_tuple
from topo.runtime.arrow_columns import columns_for
from topo.runtime.batch_calls import BatchCalls
from topo.runtime.column_emit import Origin, column_emit, column_emit_values
from topo.runtime.emitter import Emitter
from topo.runtime.out_streams import OutStream
from topo.runtime.ports import emits_plainly
from topo.runtime.threads import CallsFromThreads
from topo.tuples import DEFAULT_STREAM, Tuple


class BasicBoltPort:
    """The calls of a basic bolt; `this_input` is the link of the input being executed.

    `by_columns`: what it emits may go to columns at once, for nothing else puts rows into a stream.
    """

    def __init__(
        self,
        outlet: Emitter,
        this_input: Callable[[], int | None],
        report_error: Callable[[BaseException | str], None],
        threads: CallsFromThreads,
        *,
        by_columns: bool,
    ) -> None:
        self.report_error = report_error
        self.emit_batch: Callable[..., int] = self._emit_batch_of_one
        self.reset: list[int] = []
        self._outlet = outlet
        self.observe_time = outlet.observe_time
        self._this_input = this_input
        self._threads = threads
        self.emit: Callable[..., list[int] | None] = self.any_emit
        self.emit_values: Callable[..., None] = self._any_emit_values
        self.writes_columns = False
        """Whether an emit appends to columns that stay the same lists."""
        if emits_plainly(outlet):
            self._emit_plainly(outlet.streams[DEFAULT_STREAM], by_columns)
        elif not outlet.strict:
            self.emit = self._emit_to_streams()

    def _emit_plainly(self, out: OutStream, by_columns: bool) -> None:
        if not self._outlet.is_read(out):
            self._count_only(out)
        elif by_columns and out.width:
            self.writes_columns = True
            self._write_columns(out)
        else:
            self.emit = self._emit_rows(out)

    def _emit_rows(self, out: OutStream) -> Callable[..., list[int] | None]:
        width, append, threads = out.width, out.rows.append, self._threads
        long_way = self.any_emit

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

        return emit

    def _write_columns(self, out: OutStream) -> None:
        """Emit to the columns of the stream from now on."""
        self.emit = column_emit(out, self._threads, self.any_emit, Origin())
        self.emit_values = column_emit_values(out, self._threads, self._any_emit_values)

    def _count_only(self, out: OutStream) -> None:
        """Emit to nobody: no bolt reads the stream."""
        width, threads, outlet = out.width, self._threads, self._outlet
        emit_otherwise, values_otherwise = self.any_emit, self._any_emit_values
        count = 0

        def emit(
            values: Any, stream: Any = DEFAULT_STREAM, task_ids: Any = None
        ) -> list[int] | None:
            if (
                type(values) is list
                and len(values) == width
                and stream is DEFAULT_STREAM
                and task_ids is None
                and outlet.hear is None  # a sample may be asked for at any time
                and get_ident() == threads.fast
            ):
                nonlocal count
                count += 1
                return None
            return emit_otherwise(values, stream=stream, task_ids=bool(task_ids))

        def emit_values(*values: Any, stream: Any = DEFAULT_STREAM) -> None:
            if (
                len(values) == width
                and stream is DEFAULT_STREAM
                and outlet.hear is None
                and get_ident() == threads.fast
            ):
                nonlocal count
                count += 1
                return
            values_otherwise(*values, stream=stream)

        def take_count() -> int:
            nonlocal count
            taken, count = count, 0
            return taken

        out.take_unread = take_count
        self.emit, self.emit_values = emit, emit_values

    def _any_emit_values(self, *values: Any, stream: str = DEFAULT_STREAM) -> None:
        self.emit(list(values), stream=stream)

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

    def emit_by_batch(self, calls: BatchCalls) -> None:
        """Emit batches from now on, and single tuples only where there is no batch of inputs."""
        self.emit_batch = calls.emit_batch
        single = self.any_emit

        def emit(
            values: Any, stream: str = DEFAULT_STREAM, task_ids: bool = False
        ) -> list[int] | None:
            calls.refuse_single()
            return single(values, stream=stream, task_ids=task_ids)

        self.emit = emit
        self.emit_values = self._any_emit_values

    def _emit_batch_of_one(
        self, columns: Any, *, stream: str = DEFAULT_STREAM, parents: Any = None
    ) -> int:
        """Emit rows in a bolt that gets one input at a time, to which all are anchored."""
        outlet = self._outlet
        if parents is not None:
            raise EmitError(
                f"{outlet.owner} gave parents to emit_batch outside of process_batch, where all "
                "rows are anchored to the input in work",
                hint="leave parents out",
            )
        arrays = columns_for(outlet.owner, stream, outlet.fields_of(stream), columns, {})
        for values in zip(*arrays, strict=True):
            self.emit(list(values), stream=stream)
        return len(arrays[0]) if arrays else 0

    def emit_beside_columns(self) -> None:
        """Emit by the long way from now on: it knows of the columns that a loop appends to."""
        self.emit, self.emit_values = self.any_emit, self._any_emit_values

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
