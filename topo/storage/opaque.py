"""Inspection of values that do not pickle, to detect what a restart would lose.

A client of an installed package is opaque. An object of the user's own classes, a queue or a
generator is looked into; where an iterator of Python's stands cannot be seen.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import queue
import socket
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from topo.shipping.pickling import is_users_own
from topo.storage.pickled import Pickled

_ITERATOR_MODULES = frozenset({"builtins", "itertools", "_csv", "_collections"})
_DEPTH = 6

Pickles: TypeAlias = "Callable[[Any], Pickled | None]"
"""Makes the pickle of a value, if it has one."""


def inside(value: Any, pickled: Pickles, depth: int = _DEPTH) -> Any:
    """Return what can be seen of a value that does not pickle, to compare it by."""
    if not depth:
        return None
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        if frame is None:
            return "ended"
        return inspect.getgeneratorstate(value), _parts_inside(dict(frame.f_locals), pickled, depth)
    if isinstance(value, queue.Queue):
        return _parts_inside(dict(enumerate(value.queue)), pickled, depth)
    if isinstance(value, queue.SimpleQueue):
        return value.qsize()
    if isinstance(value, Iterator) and type(value).__module__ in _ITERATOR_MODULES:
        return object()  # where it stands cannot be seen
    if isinstance(value, Mapping):
        return _parts_inside(dict(value), pickled, depth)
    if isinstance(value, list | tuple | deque):
        return _parts_inside(dict(enumerate(value)), pickled, depth)
    if _is_of_the_user(type(value)):
        return _parts_inside(fields_of(value), pickled, depth)
    return None


def _parts_inside(parts: Mapping[Any, Any], pickled: Pickles, depth: int) -> list[tuple[Any, Any]]:
    seen = []
    for name, part in parts.items():
        made = None if is_open_file(part) else pickled(part)
        seen_inside = inside(part, pickled, depth - 1) if made is None else made.digest
        seen.append((name, seen_inside))
    return seen


def slots_of(cls: type) -> dict[str, Any]:
    """Return what a class declares in `__slots__`, its bases too: the descriptors by name."""
    return {
        name: member
        for base in reversed(cls.__mro__)
        for name, member in vars(base).items()
        if isinstance(member, types.MemberDescriptorType)
    }


def fields_of(value: Any) -> dict[str, Any]:
    fields = dict(getattr(value, "__dict__", {}))
    for name, slot in slots_of(type(value)).items():
        with contextlib.suppress(AttributeError):
            fields[name] = slot.__get__(value)
    return fields


def _is_of_the_user(cls: type) -> bool:
    """Return True if the class and all its bases, but for object, are the user's own."""
    modules = [sys.modules.get(base.__module__) for base in cls.__mro__[:-1]]
    return all(module is None or is_users_own(module) for module in modules)


def is_open_file(value: Any) -> bool:
    in_memory = isinstance(value, io.BytesIO | io.StringIO)
    return isinstance(value, io.IOBase | socket.socket) and not in_memory
