"""The functions behind the collectors: `emit`, `ack` and `fail`.

Each is a closure over the task's own lists, so that a call appends and returns; the flush does the
rest. A task with one declared stream, which is nearly every task, gets an emit that checks the
values and appends them; unusual emits take the long path. The short emits have positional
parameters, though their types say keyword only: a call with keyword-only defaults costs CPython 40
ns more. Defaults are tested by identity, which is the cheapest test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

from topo.runtime.anchors import each_anchor, no_anchor, raise_no_tuple, refuse
from topo.runtime.bulk_emit import BulkEmit
from topo.runtime.column_emit import Origin, column_emit
from topo.runtime.emitter import Emitter
from topo.runtime.out_streams import OutStream
from topo.runtime.threads import CallsFromThreads
from topo.tracking.trees import NO_ANCHOR, NOT_ANCHORED, SEVERAL, Anchor
from topo.tuples import DEFAULT_STREAM, HELD, SETTLED, UNTRACKED, Tuple


@dataclass
class Settling:
    """The inputs that a bolt acked, failed and reset since the last flush."""

    acked: list[int] = field(default_factory=list)  # links, UNTRACKED among them
    acked_held: list[Tuple] = field(default_factory=list)
    failed: list[tuple[Anchor | None, str | None]] = field(default_factory=list)
    reset: list[Anchor] = field(default_factory=list)

    def clear(self) -> None:
        self.acked.clear()
        self.acked_held.clear()
        self.failed.clear()
        self.reset.clear()


class _PortForThreads:
    """The base of ports whose calls may come from any thread.

    A call from another thread than the task's is left for that one, which makes it again.
    """

    _outlet: Emitter
    _threads: CallsFromThreads

    def _append(self, out: OutStream, values: Any, of: Any) -> None:
        """Append a row that comes of these anchors, or has this message id."""
        raise NotImplementedError

    def _emit_or_leave(
        self, values: Any, stream: str, of: Any, task_ids: bool = False
    ) -> list[int] | None:
        out = self._outlet.checked(values, stream, direct=False)
        if self._threads.leave(self._emit_or_leave, values, stream, of, task_ids=task_ids):
            return None
        self._append(out, values, of)
        return self._outlet.flush_in_loop(out) if task_ids else None

    def _emit_or_leave_to(self, task: int, values: Any, stream: str, of: Any) -> None:
        out = self._outlet.checked_direct(task, values, stream)
        if self._threads.leave(self._emit_or_leave_to, task, values, stream, of):
            return
        self._append(out, values, of)
        out.targets.append(task)


_PARENT_OF_ANCHORS = """\
if anchors is None:
    parent(NOT_ANCHORED)
elif isinstance(anchors, Tuple) and (link := anchors._topo_link) >= UNTRACKED:
    parent(NO_ANCHOR if link == UNTRACKED else link)
else:
    parent(parent_of(anchors, out))"""


class BoltPort(_PortForThreads):
    """The calls of a rich bolt.

    `by_columns`: what it emits may go to columns at once, for nothing else puts rows into a stream.
    """

    def __init__(
        self,
        outlet: Emitter,
        tracking: bool,
        report_error: Callable[[BaseException | str], None],
        threads: CallsFromThreads,
        *,
        by_columns: bool,
    ) -> None:
        self.settling = Settling()
        self.report_error = report_error
        self._outlet = outlet
        self.observe_time = outlet.observe_time
        self._tracking = tracking
        self._threads = threads
        self.emit: Callable[..., list[int] | None] = self.any_emit
        self.writes_columns = False
        """Whether an emit appends to columns that stay the same lists."""
        if emits_plainly(outlet):
            out = outlet.streams[DEFAULT_STREAM]
            self.writes_columns = by_columns and out.width > 0
            self.emit = self._column_emit(out) if self.writes_columns else self._row_emit(out)
        self.ack = self._make_ack()

    def _column_emit(self, out: OutStream) -> Callable[..., list[int] | None]:
        if not self._tracking:
            return column_emit(out, self._threads, self.any_emit, Origin("anchors"))
        names = {
            "NOT_ANCHORED": NOT_ANCHORED,
            "NO_ANCHOR": NO_ANCHOR,
            "UNTRACKED": UNTRACKED,
            "Tuple": Tuple,
            "parent": out.parents.append,
            "parent_of": self._parent_of,
            "out": out,
        }
        origin = Origin("anchors", _PARENT_OF_ANCHORS, names)
        return column_emit(out, self._threads, self.any_emit, origin)

    def _row_emit(self, out: OutStream) -> Callable[..., list[int] | None]:
        width, append, parent = out.width, out.rows.append, out.parents.append
        long_way, tracking, parent_of = self.any_emit, self._tracking, self._parent_of
        threads = self._threads

        def emit(
            values: Any, stream: Any = DEFAULT_STREAM, anchors: Any = None, task_ids: Any = None
        ) -> list[int] | None:
            if (
                type(values) is list
                and len(values) == width
                and stream is DEFAULT_STREAM
                and task_ids is None
                and get_ident() == threads.fast
            ):
                if tracking:
                    if anchors is None:
                        parent(NOT_ANCHORED)
                    elif isinstance(anchors, Tuple) and (link := anchors._topo_link) >= UNTRACKED:
                        parent(NO_ANCHOR if link == UNTRACKED else link)
                    else:
                        parent(parent_of(anchors, out))
                append(values)
                return None
            return long_way(values, stream=stream, anchors=anchors, task_ids=bool(task_ids))

        return emit

    def emit_beside_columns(self) -> None:
        """Emit by the long way from now on: it knows of the columns that a loop appends to."""
        self.emit = self.any_emit

    def any_emit(
        self,
        values: Any,
        *,
        stream: str = DEFAULT_STREAM,
        anchors: Any = None,
        task_ids: bool = False,
    ) -> list[int] | None:
        """Emit in any of the ways there are."""
        return self._emit_or_leave(values, stream, anchors, task_ids)

    def emit_direct(
        self, task: int, values: Any, *, stream: str = DEFAULT_STREAM, anchors: Any = None
    ) -> None:
        self._emit_or_leave_to(task, values, stream, anchors)

    def _append(self, out: OutStream, values: Any, anchors: Any) -> None:
        parent = NOT_ANCHORED if anchors is None else self._parent_of(anchors, out)
        self._outlet.added(out, values)
        out.parents.append(parent)
        out.add(values)

    def _parent_of(self, anchors: Any, out: OutStream) -> int:
        """Return the entry of `parents` for these anchors of the next row."""
        found: list[Anchor] = []
        for anchor in (anchors,) if isinstance(anchors, Tuple) else each_anchor(anchors):
            if not isinstance(anchor, Tuple):
                raise no_anchor(anchor)
            link = anchor._topo_link
            if link >= 0:
                found.append(link)
            elif link == HELD:
                found.append(anchor._topo_held)
            elif link != UNTRACKED:
                refuse(anchor, "anchored to")
        if not found:
            return NO_ANCHOR
        if len(found) == 1 and isinstance(found[0], int):
            return found[0]
        out.several[out.waiting] = found
        return SEVERAL

    def _make_ack(self) -> Callable[[Tuple], None]:
        acked, held = self.settling.acked.append, self.settling.acked_held.append
        threads = self._threads

        def ack(tup: Tuple) -> None:
            if get_ident() != threads.fast and threads.leave(ack, tup):
                return
            try:
                link = tup._topo_link
            except AttributeError:
                raise_no_tuple(tup, "ack")
            if link >= UNTRACKED:
                tup._topo_link = SETTLED
                acked(link)
            elif link == HELD:
                tup._topo_link = SETTLED
                held(tup)
            else:
                refuse(tup, "acked")

        return ack

    def ack_all(self, tuples: Iterable[Tuple]) -> None:
        """Ack tuples that are not settled yet; only the task's own thread may call it."""
        acked, held = self.settling.acked.append, self.settling.acked_held.append
        for tup in tuples:
            link = tup._topo_link
            if link >= UNTRACKED:
                tup._topo_link = SETTLED
                acked(link)
            elif link == HELD:
                tup._topo_link = SETTLED
                held(tup)

    def fail(self, tup: Tuple, reason: str | None = None) -> None:
        if self._threads.leave(self.fail, tup, reason):
            return
        anchor = self._place_of(tup, "fail", "failed")
        tup._topo_link = SETTLED
        self.settling.failed.append((anchor, reason))

    def reset_timeout(self, tup: Tuple) -> None:
        if self._threads.leave(self.reset_timeout, tup):
            return
        anchor = self._place_of(tup, "reset_timeout", "given more time")
        if anchor is not None:
            self.settling.reset.append(anchor)

    def _place_of(self, tup: Tuple, call: str, done: str) -> Anchor | None:
        if not isinstance(tup, Tuple):
            raise_no_tuple(tup, call)
        link = tup._topo_link
        if link == UNTRACKED:
            return None
        if link == HELD:
            return tup._topo_held
        if link < 0:
            refuse(tup, done)
        return link


class SpoutPort(_PortForThreads):
    """The calls of a spout."""

    def __init__(
        self,
        outlet: Emitter,
        track: Callable[[Any], int],
        track_many: Callable[[list[Any]], Sequence[int]],
        pending: Callable[[], int],
        report_error: Callable[[BaseException | str], None],
        threads: CallsFromThreads,
        types_of: Callable[[str], Mapping[str, Any]],
    ) -> None:
        self.report_error = report_error
        self.pending_count = pending
        self._outlet = outlet
        self.observe_time = outlet.observe_time
        self._track = track
        self._threads = threads
        self.emit_many = BulkEmit(outlet, track, track_many, threads, types_of)
        self.emit_batch = self.emit_many.batch
        self.from_split = outlet.from_split
        self.hears_splits = outlet.is_observed
        self.splits: dict[str, bool] | None = None
        """The parts of the source, and whether each has more; None: it has no parts."""
        self.emit: Callable[..., list[int] | None] = self._any_emit
        if emits_plainly(outlet) and (out := outlet.streams[DEFAULT_STREAM]).width:
            note = "parent(0 if msg_id is None else track(msg_id))"
            names = {"parent": out.parents.append, "track": track}
            self.emit = column_emit(out, threads, self._any_emit, Origin("msg_id", note, names))

    def _any_emit(
        self,
        values: Any,
        *,
        stream: str = DEFAULT_STREAM,
        msg_id: Any = None,
        task_ids: bool = False,
    ) -> list[int] | None:
        return self._emit_or_leave(values, stream, msg_id, task_ids)

    def emit_direct(
        self, task: int, values: Any, *, stream: str = DEFAULT_STREAM, msg_id: Any = None
    ) -> None:
        self._emit_or_leave_to(task, values, stream, msg_id)

    def read_splits(self, splits: Mapping[str, bool]) -> None:
        """Take note of the parts of the source, if a bolt hears of them."""
        if self.hears_splits:
            self.splits = dict(splits)

    def _append(self, out: OutStream, values: Any, msg_id: Any) -> None:
        self._outlet.added(out, values)
        out.parents.append(0 if msg_id is None else self._track(msg_id))
        out.add(values)


def emits_plainly(outlet: Emitter) -> bool:
    """True iff an emit on the default stream only appends its row."""
    stream = outlet.streams.get(DEFAULT_STREAM)
    if stream is None or len(outlet.streams) > 1:
        return False
    return not (stream.takes_direct or outlet.strict or outlet.keeps_order)
