"""Spouts of sources that push: a thread receives into a bounded queue, the task emits from it.

The thread connects again by itself, after growing pauses, and stops receiving while the queue is
full: what the source then does, wait or drop, is the source's. The queue outlives an instance that
is rebuilt, so that a batch that is rolled back loses nothing. What a dead process had received is
lost, unless the source resumes after a position, which is saved with the batch that emitted it.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Unpack

from topo.connectors.inflight import InflightSpout
from topo.connectors.retries import Backoff
from topo.connectors.translation import Arrival, Reading
from topo.errors import ComponentError, TopoError, Unavailable
from topo.takeover import Claim, Shared, close_earlier, held_by, hold

_MOST = 1_000  # items a call of next_tuple
_FIRST_PAUSE_SECS = 0.25
_LONGEST_PAUSE_SECS = 10.0


@dataclass(slots=True, eq=False)
class Item:
    """Something that a source has pushed."""

    raw: Any
    record: Callable[[Any], Any]
    """Makes its record of the decoded value."""
    position: Any
    """Where the source resumes after it; None: it does not."""
    where: str
    size: int = 0
    serial: int = -1
    batch: int = -1


class Receiver:
    """A way to receive: it knows the settings of a spout, and not the spout.

    `receive` connects, puts what comes into the feed, and returns or raises when the connection
    ends. `interrupt` ends it from another thread.
    """

    where = ""

    def receive(self, feed: Feed, position: Any) -> None:
        raise NotImplementedError

    def interrupt(self) -> None:
        """End a receive that waits; it may be none."""

    def in_words(self, error: Exception) -> Exception:
        """Return what to raise for an error; ComponentError if it will not pass."""
        raise NotImplementedError


class Feed(Shared):
    """The thread and its queue. The thread puts; all else is for the task's thread."""

    def __init__(
        self,
        source: Receiver,
        position: Any,
        *,
        most: int,
        most_bytes: int,
        wake: Callable[[], None],
    ) -> None:
        self.nonce = secrets.token_hex(8)
        """A name that no other feed has."""
        self.is_connected = False
        self._source, self._position = source, position
        self._most, self._most_bytes, self._wake = most, most_bytes, wake
        self._changed = threading.Condition()
        self._queue: deque[Item] = deque()
        self._emitted: deque[Item] = deque()
        self._bytes = 0
        self._serial = 0
        self._error: Exception | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="topo-feed", daemon=True)
        self._thread.start()

    # -- the task's thread --------------------------------------------------------------------

    def take(self, most: int, batch: int) -> list[Item]:
        """Take what has come; raise the error of a source that is not connected."""
        with self._changed:
            taken = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
            for item in taken:
                item.batch = batch
            self._emitted.extend(taken)
            self._bytes -= sum(item.size for item in taken)
            error = self._error
            self._changed.notify_all()
        if not taken and error is not None:
            raise error
        return taken

    def commit(self, batch: int) -> None:
        """Forget what is durable."""
        while self._emitted and self._emitted[0].batch <= batch:
            self._emitted.popleft()

    def rewind(self, serial: int) -> None:
        """Have what came after this one taken again."""
        with self._changed:
            while self._emitted and self._emitted[-1].serial > serial:
                item = self._emitted.pop()
                self._queue.appendleft(item)
                self._bytes += item.size
            self._emitted.clear()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._source.interrupt()
        if threading.current_thread() is not self._thread:
            self._thread.join(5)

    # -- the feed's thread --------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def connected(self) -> None:
        """Note that the source delivers."""
        self.is_connected = True
        self._error = None
        self._wake()

    def put(self, item: Item) -> bool:
        """Queue an item, once there is room; return False if nobody wants any more."""
        with self._changed:
            self._changed.wait_for(self._has_room)
            if self._is_closed:
                return False
            self._serial += 1
            item.serial = self._serial
            self._bytes += item.size
            self._queue.append(item)
            if item.position is not None:
                self._position = item.position
            is_first = len(self._queue) == 1
        if is_first:
            self._wake()
        return True

    def _has_room(self) -> bool:
        has_room = len(self._queue) < self._most and self._bytes < self._most_bytes
        return has_room or self._is_closed

    def _run(self) -> None:
        pause = _FIRST_PAUSE_SECS
        while not self._is_closed:
            try:
                self._source.receive(self, self._position)
                error: Exception = ConnectionError("the connection is closed")
            except Exception as raised:
                error = raised
            if self._is_closed:
                return
            was_connected, self.is_connected = self.is_connected, False
            said = error if isinstance(error, TopoError) else self._source.in_words(error)
            self._error = said
            self._wake()
            if isinstance(said, ComponentError):
                return
            pause = _FIRST_PAUSE_SECS if was_connected else min(2 * pause, _LONGEST_PAUSE_SECS)
            after = said.after_secs if isinstance(said, Unavailable) else None
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, after or pause)


class FeedSpout(InflightSpout):
    """A spout of what a source pushes."""

    transient: Iterable[str] = (*InflightSpout.transient, "_feed", "_claim")

    def set_up(
        self,
        record: type[Any],
        default: tuple[str, ...],
        *,
        most: int,
        track: bool | None,
        retry: Backoff | None,
        most_bytes: int = 64_000_000,
        **reading: Unpack[Reading],
    ) -> None:
        """Check and keep what every such spout has; called by the constructor."""
        self.most_waiting, self.most_bytes = most, most_bytes
        self.set_up_reading(record, default, track=track, retry=retry, **reading)
        self.position: Any = None
        """Where the source resumes, saved with the batch that emitted up to it."""
        self.taken = ("", -1)
        """The feed, and its last item that was emitted: saved with the batch."""

    def source(self) -> Receiver:
        """Return what receives."""
        raise NotImplementedError

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        if len(context.component_tasks(context.this_component_id)) > 1:
            raise ComponentError(
                f"{self.connector}: each task would receive everything, and there are several",
                hint="set parallelism=1; bolts behind it share the work",
            )
        self.open_reading(conf)
        self._feed: Feed | None = None

    def restored(self) -> None:
        """Take over what an earlier instance has received."""
        earlier = held_by(self.context)
        if isinstance(earlier, Feed):
            nonce, serial = self.taken
            earlier.rewind(serial if nonce == earlier.nonce else -1)
            self._feed = earlier
            self._claim: Claim = hold(self.context, earlier)

    def close(self) -> None:
        self._feed = None
        close_earlier(self.context)

    def _fed(self) -> Feed:
        if self._feed is None:
            close_earlier(self.context)
            self._feed = Feed(
                self.source(),
                self.position,
                most=self.most_waiting,
                most_bytes=self.most_bytes,
                wake=self.context.wake,
            )
            self._claim = hold(self.context, self._feed)
        return self._feed

    def next_tuple(self) -> None:
        feed = self._fed()
        if self.emit_again():
            return
        items = feed.take(self.most(_MOST), self.context.batch_id)

        def arrivals() -> Iterator[Arrival]:
            for item in items:
                self.taken = (feed.nonce, item.serial)
                if item.position is not None:
                    self.position = item.position
                yield Arrival(item.raw, item.record, item.where)

        self.emit_page(arrivals())
        if items:
            self.context.counter("received", len(items))

    def pre_commit(self, batch_id: int) -> None:
        """Show whether the source is connected."""
        feed = self._feed
        self.context.gauge("connected", int(feed is not None and feed.is_connected))

    def committed(self, batch_id: int) -> None:
        """Forget what is durable."""
        if self._feed is not None:
            self._feed.commit(batch_id)
