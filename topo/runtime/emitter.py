"""The output side of a task: it collects emits and makes frames of them.

Ports append rows to streams; a flush deals them over the target tasks and gives them their place
in the tuple trees; at the end of the batch the rows for each target are packed into frames.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from operator import index
from typing import Any, Protocol

import numpy as np

from topo.errors import EmitError, EmitTypeError, did_you_mean, shown
from topo.routing.groupers import ChoiceFailed, Deal, Direct, Rows, RowsOf, Selector
from topo.runtime.out_streams import OutStream, Subscription
from topo.runtime.outbox import Outbox, Refusing, piece_of, refuse_all
from topo.topology.layout import MAX_TASKS
from topo.tracking.ids import EdgeIds
from topo.wire.arrow import ArrowColumn
from topo.wire.column import dump, dump_emitted
from topo.wire.frame import I64, AnyFrame, Column, PackedFrame, Trees

emitted_tuples = logging.getLogger("topo.emitted")


def _as_it_is(error: BaseException, what: str) -> BaseException:
    return error


class TreeMaker(Protocol):
    """A protocol for placing emitted rows in the tuple trees, a stream and a deal at a time."""

    def start_batch(self, ids: EdgeIds) -> None:
        """Take the ids of this batch's edges from there."""

    def begin(self, stream: OutStream, order: list[int], count: int) -> None:
        """Prepare for dealing `count` rows of `stream`; `order` is the emitter's."""

    def trees(self, rows: I64 | None, copies: int) -> Trees | None:
        """Return the trees of one deal: tuple i of it is row `rows[i]` (None: row i)."""

    def end(self) -> None:
        """Finish a stream, after all its deals."""

    def flushed(self) -> None:
        """Finish a flush, after all streams."""


class Emitter:
    """The output side of one task: whole when it is made, but for who listens to it.

    `most_tasks` are those that a direct emit may name; `uncaught` makes the error of a grouping of
    the user's; `orders_all` keeps the common order of all emits, read by one bolt or not.
    """

    def __init__(
        self,
        owner: str,
        task: int,
        streams: list[OutStream],
        *,
        strict: bool,
        debug: bool,
        trees: TreeMaker | None = None,
        orders_all: bool = False,
        most_tasks: int = MAX_TASKS,
        uncaught: Callable[[BaseException, str], BaseException] = _as_it_is,
        refuse: Refusing = refuse_all,
        hear: Callable[[str, int, Sequence[Any]], None] | None = None,
    ) -> None:
        self.owner = owner  # "bolt 'count'", for errors
        self.task = task
        self.streams = {stream.name: stream for stream in streams}
        self.strict = strict
        self.debug = debug
        self.by_order = _reads_several(streams)
        self.keeps_order = self.by_order or (orders_all and len(streams) > 1)
        self.order: list[int] = []  # of all emits since the last flush, the stream's index
        self.trees = trees
        self.hear = hear
        self.most_tasks = most_tasks
        self.uncaught = uncaught
        self.emitted: dict[str, int] = {}
        self.dealt = 0  # how many rows were flushed in this batch
        self.transferred = 0
        self.untracked_columns = 0
        """How many tuples of this batch came as Arrow columns and have no message id."""
        self.outbox = Outbox(task, refuse)
        self.looped: Outbox | None = None
        """For what goes over loops, if the task feeds any: it waits for the next batch."""
        if any(reader.loop for stream in streams for reader in stream.subscriptions):
            self.looped = Outbox(task, refuse)
        self._broken: BaseException | None = None
        self._position = 0
        self._split: str | None = None

    @property
    def emitted_in_all(self) -> int:
        """The number of tuples emitted for other tasks in this batch, flushed or not."""
        return self.dealt + sum(stream.waiting for stream in self.streams.values())

    @property
    def is_waiting(self) -> bool:
        """True iff an emitted row has not been dealt."""
        return any(stream.waiting for stream in self.streams.values())

    def take_emitted(self) -> dict[str, int]:
        """Return the number of tuples emitted in this batch, by stream."""
        for stream in self.streams.values():
            if stream.take_unread is not None and (count := stream.take_unread()):
                self.emitted[stream.name] = self.emitted.get(stream.name, 0) + count
        return self.emitted

    def even_columns(self) -> None:
        """Drop what an interrupted emit has put into some columns of a stream only."""
        for stream in self.streams.values():
            most = self.order.count(stream.index) if self.keeps_order else None
            stream.even_columns(most)

    def is_read(self, stream: OutStream) -> bool:
        """True iff a bolt, a listener or a check needs the rows of the stream."""
        return bool(stream.subscriptions or self.hear or self.strict or self.debug)

    def listen(self, hear: Callable[[str, int, Sequence[Any]], None] | None) -> None:
        """Show the rows of each flush to a listener from now on; None: to nobody any more."""
        self.hear = hear

    def fields_of(self, name: str) -> tuple[str, ...]:
        """Return the stream to emit on; raise an error if the emit is wrong."""
        return self._stream(name).fields

    def _stream(self, name: str) -> OutStream:
        try:
            return self.streams[name]
        except (KeyError, TypeError):  # TypeError: a list is no key
            raise self._no_stream(name) from None

    def checked(self, values: Any, name: str, direct: bool) -> OutStream:
        """Return the stream to emit on; raise if the emit is invalid."""
        stream = self._stream(name)
        if type(values) is not list and type(values) is not tuple:
            check_values(values, f"{self.owner} emitted")
        if len(values) != len(stream.fields):
            raise EmitError(
                f"{self.owner} emitted {len(values)} values, {shown(values)}, on stream "
                f"{name!r}, which has {len(stream.fields)} fields: {', '.join(stream.fields)}",
                hint="emit a value for each field, in the declared order",
            )
        if not direct and stream.takes_direct:
            raise EmitError(
                f"{self.owner} made a regular emit on stream {name!r}, which is a direct one",
                hint="emit_direct(task, values, stream=...) names the task",
            )
        return stream

    def checked_direct(self, task: int, values: Any, name: str) -> OutStream:
        try:
            is_task = 1 <= index(task) <= self.most_tasks
        except TypeError:
            is_task = False
        if not is_task:
            raise EmitError(
                f"{self.owner} made a direct emit to {shown(task)}, which is no task",
                hint="emit_direct(task, values): "
                "context.component_tasks(component) has the ids of a component's tasks",
            )
        stream = self.checked(values, name, direct=True)
        if not stream.takes_direct:
            raise EmitError(
                f"{self.owner} made a direct emit on stream {name!r}, which is a regular one",
                hint=f"declare it with direct=True, or emit(values, stream={name!r})",
            )
        for subscription in stream.subscriptions:
            grouper = subscription.grouper
            if task in grouper.tasks and not isinstance(grouper, Direct):
                raise EmitError(
                    f"{self.owner} made a direct emit on stream {name!r} to task {task} of "
                    f"{subscription.consumer!r}, which reads it by a regular grouping",
                    hint=f"read it by direct_grouping in {subscription.consumer!r}",
                )
        return stream

    def _no_stream(self, name: Any) -> EmitError:
        if not self.streams:
            hint = 'declare its fields: outputs = ("field", ...)'
            return EmitError(f"{self.owner} emitted, but declares no outputs", hint=hint)
        if not isinstance(name, str):
            return EmitError(
                f"{self.owner} emitted on stream {shown(name)}; a stream's name is a str",
                hint="emit(values, stream=..., anchors=... or msg_id=...): "
                "all but the values is given by name",
            )
        known = ", ".join(map(repr, self.streams))
        return EmitError(
            f"{self.owner} emitted on stream {name!r}, which it does not declare; "
            f"it declares {known}",
            hint=did_you_mean(name, self.streams),
        )

    def added(self, stream: OutStream, values: Any) -> None:
        """Do the rare work of an emit besides appending its row: order, strict copies."""
        if self.strict:
            stream.copies.append(dump_emitted(list(values)))  # which may refuse them
        if self.keeps_order:
            self.order.append(stream.index)

    def flush(self, asked: OutStream | None = None) -> list[int]:
        """Deal all rows; return the target tasks of the last row of the stream asked for."""
        if self._broken is not None:
            raise self._broken
        chosen: list[int] = []
        for stream in self.streams.values():
            if stream.waiting:
                last = stream.waiting - 1 if stream is asked else -1
                chosen += self._flush(stream, last)
        if self.trees is not None:
            self.trees.flushed()
        self._position += len(self.order)
        self.order.clear()
        self._pack_full()
        return chosen

    def flush_in_loop(self, asked: OutStream) -> list[int]:
        """Do what `flush` does, while a loop appends to the columns of the streams."""
        for stream in self.streams.values():
            stream.holds_columns = True
        try:
            return self.flush(asked)
        finally:
            for stream in self.streams.values():
                stream.holds_columns = False

    @property
    def takes_columns(self) -> bool:
        """True iff nothing needs the single rows of what is emitted."""
        return not (self.strict or self.keeps_order or self.debug or self.hear)

    def emit_columns(self, name: str, columns: list[Column], parents: Sequence[int] | I64) -> None:
        """Emit the rows of columns: as they are if nothing needs the single rows."""
        stream = self._stream(name)
        rows = RowsOf(columns)
        if stream.takes_direct:
            self.checked(rows[0], name, direct=False)
        if self.takes_columns:
            self.flush_columns(stream, columns, parents)
            return
        for values in rows:
            self.added(stream, values)
            stream.add(values)
        stream.parents.extend(np.asarray(parents).tolist())

    def flush_untracked(self, stream: OutStream, columns: list[Column], count: int) -> None:
        """Deal rows of a spout that were emitted as columns, and have no message ids."""
        if all(isinstance(column, ArrowColumn) for column in columns):
            self.untracked_columns += count
        self.flush_columns(stream, columns, np.zeros(count, np.int64))

    def flush_columns(
        self, stream: OutStream, columns: list[Column], parents: Sequence[int] | I64
    ) -> None:
        """Deal rows that were emitted as columns, after those that wait; if `takes_columns`."""
        self.flush()
        stream.take_parents(parents)
        self._deal_rows(stream, Rows(RowsOf(columns), columns, stream.targets), -1)
        if self.trees is not None:
            self.trees.flushed()
        self._pack_full()

    def _pack_full(self) -> None:
        self.outbox.pack_full()
        if self.looped is not None:
            self.looped.pack_full()

    def _flush(self, stream: OutStream, asked_row: int) -> list[int]:
        values: Sequence[Any] = stream.rows
        if values:
            columns: list[Column] = [[row[i] for row in values] for i in range(stream.width)]
        else:
            columns = stream.take_columns()
            values = RowsOf(columns)
        self._check_unchanged(stream, values)
        return self._deal_rows(stream, Rows(values, columns, stream.targets), asked_row)

    def _deal_rows(self, stream: OutStream, rows: Rows, asked_row: int) -> list[int]:
        count, chosen_rows = rows.count, None
        if stream.shedder is not None and rows.columns:
            chosen_rows, columns = stream.shedder.admit(rows.columns, count, stream.parents)
            rows = Rows(RowsOf(columns), columns, rows.targets)
        columns = rows.columns
        admitted = rows if chosen_rows is None else _rows_at(rows, chosen_rows)
        self._show(stream, admitted.values)
        # All of them before the first is handed out: a grouping of the user's may raise.
        readers = stream.subscriptions if admitted.count else ()
        deals = [
            (self._outbox_to(reader), deal)
            for reader in readers
            for deal in self._deals(reader, admitted)
        ]
        if chosen_rows is not None:
            deals = [
                (to, Deal(chosen_rows if deal.rows is None else chosen_rows[deal.rows], deal.parts))
                for to, deal in deals
            ]
        for observer in stream.observers:
            observer.note(columns, count)
        for hold in stream.holds:
            hold.note(columns, count, np.asarray(stream.waiting_parents).tolist())
        self.emitted[stream.name] = self.emitted.get(stream.name, 0) + admitted.count
        self.dealt += count
        trees = self.trees
        if trees is not None:
            trees.begin(stream, self.order, count)
        chosen: list[int] = []
        positions = self._positions(stream) if deals else None
        for outbox, deal in deals:
            copies = count if deal.rows is None else len(deal.rows)
            made = trees.trees(deal.rows, copies) if trees is not None else None
            for task, selector in deal.parts:
                piece = piece_of(stream.name, rows, deal.rows, selector, made, positions)
                self.transferred += piece.section.count
                outbox.add(task, piece)
                if asked_row >= 0 and _has_row(deal.rows, selector, asked_row, count):
                    chosen.append(task)
        if trees is not None:
            trees.end()
        stream.clear()
        return chosen

    def _outbox_to(self, subscription: Subscription) -> Outbox:
        return self.looped if subscription.loop and self.looped is not None else self.outbox

    def _deals(self, subscription: Subscription, rows: Rows) -> list[Deal]:
        try:
            return subscription.grouper.deal(rows)
        except ChoiceFailed as failed:
            cause = failed.__cause__ or failed
            what = f"{failed.grouping} of {subscription.consumer!r}, emitted {shown(failed.values)}"
            # Whatever the user's code around an emit does with it, the next flush raises it again.
            self._broken = self.uncaught(cause, what)
            raise self._broken from cause

    def _positions(self, stream: OutStream) -> I64 | None:
        if not self.by_order:
            return None
        return np.flatnonzero(np.array(self.order, np.int64) == stream.index) + self._position

    def _show(self, stream: OutStream, rows: Sequence[Any]) -> None:
        """Log and report the rows as far as configured, before they are dealt."""
        if self.debug:
            for values in rows:
                emitted_tuples.info("%s task %d %s %r", self.owner, self.task, stream.name, values)
        if self.hear is not None:
            self.hear(stream.name, self.task, list(rows))

    def _check_unchanged(self, stream: OutStream, rows: Sequence[Any]) -> None:
        """Raise an error if a row is not as it was emitted."""
        for values, copy in zip(rows, stream.copies, strict=False):
            if dump(list(values)) != copy:
                raise EmitError(
                    f"{self.owner}: values emitted on stream {stream.name!r} were changed after "
                    f"the emit, to {shown(values)}",
                    hint="emit a copy: self.emit([list(value)])",
                )

    def frames(self) -> Iterator[AnyFrame]:
        """Return all flushed rows as frames, and leave the emitter empty."""
        self._position = 0
        return self.outbox.take()

    def looped_frames(self) -> Iterator[PackedFrame]:
        """Return all flushed rows that go over loops as frames."""
        for frame in self.looped.take() if self.looped is not None else ():
            assert isinstance(frame, PackedFrame), "it is kept, so it is packed"
            yield frame

    def observe_time(self, value: Any, stream: str = "default") -> None:
        """Take a time that was seen, as if a tuple of it had been emitted on the stream."""
        if stream not in self.streams:
            raise self._no_stream(stream)
        for observer in self.streams[stream].observers:
            observer.observe(value)

    @property
    def is_observed(self) -> bool:
        """True iff a bolt in event time hears of the times of what is emitted here."""
        return any(stream.observers for stream in self.streams.values())

    def from_split(self, split: str) -> None:
        """Take what is emitted next as of a part of the source."""
        if split == self._split or not self.is_observed:
            return
        if self.is_waiting:
            self.flush()  # what waits is of another part
        self._split = split
        for stream in self.streams.values():
            for observer in stream.observers:
                observer.from_split(split)

    def start_batch(self) -> None:
        self.outbox.start_batch()
        self.emitted = {}
        self.dealt = 0
        self.transferred = 0
        self.untracked_columns = 0


def check_values(values: Any, said: str) -> None:
    """Raise the error of an emit of these values; `said` begins it: "bolt 'b' emitted"."""
    if isinstance(values, list | tuple):
        return
    text = shown(values)
    hint = f"write [{text}]" if isinstance(values, str | bytes) else "emit a list of values"
    raise EmitTypeError(
        f"{said} {_article(type(values).__name__)}, {text}; values are a list or a tuple",
        hint=hint,
    )


def _reads_several(streams: Sequence[OutStream]) -> bool:
    """True iff a bolt reads two of these streams, so that their common order matters."""
    readers = [s.consumer for stream in streams for s in stream.subscriptions]
    return len(readers) > len(set(readers))


def _has_row(rows: I64 | None, selector: Selector, row: int, count: int) -> bool:
    numbers = np.arange(count) if rows is None else rows
    return bool((numbers if selector is None else numbers[selector]).tolist().count(row))


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def _rows_at(rows: Rows, numbers: I64) -> Rows:
    """Return some of the rows."""
    places = numbers.tolist()
    columns: list[Column] = [[column[place] for place in places] for column in rows.columns]
    return Rows(RowsOf(columns), columns, [])
