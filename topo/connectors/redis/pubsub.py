"""Hears what is published on Redis channels while it runs: at most once.

A thread reads the connection, since Redis cuts off who is slow; what nobody has taken waits in a
queue of bounded length. What comes when it is full, or while there is no connection, is lost, and
the former is counted.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from topo.components import StatefulSpout
from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_positive
from topo.connectors.formats import Decode, Format
from topo.connectors.inflight import InflightSpout
from topo.connectors.picking import Missing
from topo.connectors.redis.server import REQUIRES, Server, as_bytes, check_url
from topo.connectors.retries import Backoff
from topo.connectors.translation import Arrival
from topo.errors import ComponentError, Unavailable
from topo.tuples import Fields

_NAME = "RedisPubSubSpout"
_POLL_SECS = 0.2
_PAUSE_SECS = 0.5


class Published(NamedTuple):
    """A message; what `translate` is given."""

    channel: str
    message: Any


class RedisPubSubSpout(InflightSpout, StatefulSpout):
    """A spout of published messages: (channel, message).

    `channels` are names, or patterns with `*`, `?` or `[`; they are dealt over the tasks. At most
    `max_in_flight` messages wait; others are dropped, which the figure `dropped` counts. `fields`
    names keys of a message that is read by `value`; `translate` is given a `Published`. Messages
    are tracked if there are ackers, unless `track=False`: one that fails is emitted again after a
    pause, `retry`.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    transient = (*InflightSpout.transient, "_listener")

    @answering({"queue": "max_in_flight"})
    def __init__(
        self,
        url: str | Secret,
        channels: str | Iterable[str],
        *,
        fields: str | Iterable[str] = (),
        value: str | Format | Decode = "str",
        translate: Callable[[Published], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        max_in_flight: int = 100_000,
        missing: Missing = "null",
        on_bad: OnBad = "stop",
        track: bool | None = None,
        retry: Backoff | None = None,
    ) -> None:
        check_url(_NAME, url)
        check_positive(_NAME, max_in_flight=max_in_flight)
        self.url, self.channels = url, tuple(Fields(channels))
        self.max_in_flight = max_in_flight
        self.set_up_reading(
            Published,
            Published._fields,
            track=track,
            retry=retry,
            value=value,
            fields=fields,
            translate=translate,
            streams=streams,
            missing=missing,
            on_bad=on_bad,
        )
        if not self.channels:
            raise ComponentError(f"{_NAME}: channels={channels!r} names no channel")

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.open_reading(conf)
        self._listener: _Listener | None = None

    def activate(self) -> None:
        own = [name for name in self.channels if self.owns(name)]
        if own and self._listener is None:
            listener = _Listener(
                Server(_NAME, self.url, keeps_bytes=True),
                own,
                self.max_in_flight,
                self.context.wake,
            )
            # An instance that is rebuilt elsewhere is let go without a word.
            weakref.finalize(self, listener.stop).atexit = False
            self._listener = listener

    def deactivate(self) -> None:
        if self._listener is not None:
            self._listener.stop()
            self._listener = None

    def close(self) -> None:
        self.deactivate()

    def next_tuple(self) -> None:
        if self.emit_again() or self._listener is None:
            return
        found, dropped = self._listener.take()
        if dropped:
            self.context.counter("dropped", dropped)
        if found:
            self.context.counter("messages", len(found))
            arrivals = (
                Arrival(as_bytes(text), partial(Published, channel), channel)
                for channel, text in found
            )
            self.emit_page(arrivals)
        elif self._listener.trouble:
            raise Unavailable(self._listener.trouble)


class _Listener:
    """A connection with its thread; `take` may be called from another one."""

    def __init__(
        self, server: Server, channels: list[str], queue: int, wake: Callable[[], None]
    ) -> None:
        self._server, self._channels, self._most, self._wake = server, channels, queue, wake
        self._found: deque[list[str]] = deque()
        self._dropped = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.trouble = ""
        """Why there is no connection; "" if there is one."""
        threading.Thread(target=self._run, name="redis-pubsub", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def take(self) -> tuple[list[list[str]], int]:
        """Return the messages that wait, and how many were dropped since the last call."""
        with self._lock:
            found, self._found = list(self._found), deque()
            dropped, self._dropped = self._dropped, 0
        return found, dropped

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._server.reaching():
                    self._listen()
            except Exception as error:
                self.trouble = str(error)
                self._wake()
                self._stopped.wait(_PAUSE_SECS)
        self._server.close()

    def _listen(self) -> None:
        with self._server.client.pubsub(ignore_subscribe_messages=True) as connection:
            patterns = [name for name in self._channels if any(c in name for c in "*?[")]
            names = [name for name in self._channels if name not in patterns]
            if names:
                connection.subscribe(*names)
            if patterns:
                connection.psubscribe(*patterns)
            while not self._stopped.is_set():
                message = connection.get_message(timeout=_POLL_SECS)
                self.trouble = ""
                if message is not None:
                    self._keep([message["channel"], message["data"]])

    def _keep(self, message: list[str]) -> None:
        with self._lock:
            if len(self._found) >= self._most:
                self._dropped += 1
                return
            self._found.append(message)
            first = len(self._found) == 1
        if first:
            self._wake()
