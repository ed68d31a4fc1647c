"""Things that a task holds open in this process: a connection, a socket that listens.

An instance that is rebuilt after a batch was rolled back leaves its predecessor behind without a
word, while the predecessor's connection still receives. So whatever is held is noted by its task,
and the next instance takes it over, or closes it before it opens its own. What no instance claims
for some seconds is closed: its task has gone elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeAlias
from weakref import finalize

from topo.context import TopologyContext

_GRACE_SECS = 5.0

Key: TypeAlias = tuple[str, str, int]


class Shared:
    """Something that may outlive the instance that has opened it."""

    claims = 0

    def close(self) -> None:
        """End it; twice does no harm."""
        raise NotImplementedError


class Belongings(Shared):
    """What one instance has open, closed together; the next instance takes nothing of it over."""

    def __init__(self) -> None:
        self._closing = ExitStack()

    def add(self, close: Callable[[], object]) -> None:
        """Have this called at the end; it must not lead to the instance, whose claim would stay."""
        self._closing.callback(close)

    def close(self) -> None:
        self._closing.close()


class Claim:
    """An instance's hold on something shared; it ends with the instance."""

    __slots__ = ("__weakref__",)


_lock = threading.Lock()
_held: dict[Key, Shared] = {}


def held_by(context: TopologyContext) -> Shared | None:
    """Return what an earlier instance of the task has left open, if there is something."""
    with _lock:
        return _held.get(_key(context))


def hold(context: TopologyContext, shared: Shared) -> Claim:
    """Note what the task has open; it stays so while its instance keeps what this returns."""
    key, claim = _key(context), Claim()
    with _lock:
        _held[key] = shared
        shared.claims += 1
        finalize(claim, _released, key, shared, shared.claims).atexit = False
    return claim


def close_earlier(context: TopologyContext) -> None:
    """Close what an earlier instance of the task has left open."""
    with _lock:
        earlier = _held.pop(_key(context), None)
    if earlier is not None:
        earlier.close()


def let_go(context: TopologyContext, shared: Shared) -> None:
    """Close what the task has open."""
    with _lock:
        if _held.get(_key(context)) is shared:
            del _held[_key(context)]
    shared.close()


def _key(context: TopologyContext) -> Key:
    return context.checkpoint_id, context.this_component_id, context.this_task_index


def _released(key: Key, shared: Shared, number: int) -> None:
    """Begin the grace of something whose instance is gone; in whatever thread collects it."""
    timer = threading.Timer(_GRACE_SECS, _close_unclaimed, (key, shared, number))
    timer.daemon = True
    timer.start()


def _close_unclaimed(key: Key, shared: Shared, number: int) -> None:
    with _lock:
        if _held.get(key) is not shared or shared.claims != number:
            return
        del _held[key]
    shared.close()
