"""Pickles of attributes that refer to what the task handed out, and know what they have in common.

Copying a pickler's memo costs four times the pickle; so whether two pickles have an object in
common is found by counting what the memo grows by.
"""

from __future__ import annotations

import io
import pickle
import types
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from hashlib import blake2b
from pathlib import PurePath
from typing import Any
from uuid import UUID

import cloudpickle

SCALARS: frozenset[type] = frozenset({int, float, complex, bool, str, bytes, type(None)})
CODE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)
# It does not matter whether two attributes have one of these in common. A tuple's parts are
# looked at by themselves.
IMMUTABLE: tuple[type, ...] = (
    *SCALARS, *CODE, tuple, frozenset, date, time, timedelta, tzinfo, Decimal, Fraction, UUID,
    PurePath, Enum, range,
)  # fmt: skip
_SHORT_FETCH = 4  # bytes: protocol, opcode and a number of one byte

_restoring: ContextVar[Mapping[str, Any]] = ContextVar("_restoring")


def _task_part(name: str) -> Any:
    """Return what the task being restored has under this name; pickles call it."""
    return _restoring.get()[name]


@contextmanager
def restoring(parts: Mapping[str, Any]) -> Iterator[None]:
    """While this lasts, references to what a task handed out lead to these."""
    token = _restoring.set(parts)
    try:
        yield
    finally:
        _restoring.reset(token)


class _PlainPickler(pickle.Pickler):
    """Refers to what the task handed out by name, and knows how many objects it has seen."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self.file = io.BytesIO()
        super().__init__(self.file, protocol=5)
        self.names = names
        self._asked = 0

    def reducer_override(self, value: Any) -> Any:
        name = self.names.get(id(value))
        return NotImplemented if name is None else (_task_part, (name,))

    def seen(self) -> int:
        """Return how many objects are in the memo."""
        # A list that was pickled before is fetched by its number, which is how many came before.
        marker: list[Any] = []
        self.dump(marker)
        start = self.file.tell()
        self.dump(marker)
        with self.file.getbuffer() as written:  # not a copy of it all
            fetch = bytes(written[start:-1])
        number = fetch[-1:] if len(fetch) == _SHORT_FETCH else fetch[-4:]
        self._asked += 1
        return int.from_bytes(number, "little") - self._asked + 1


class _CodePickler(_PlainPickler, cloudpickle.Pickler):  # type: ignore[misc]
    """For lambdas and classes of functions, which plain pickle refuses."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self.file = io.BytesIO()
        cloudpickle.Pickler.__init__(self, self.file, protocol=5)
        self.names = names
        self._asked = 0

    def reducer_override(self, value: Any) -> Any:
        found = _PlainPickler.reducer_override(self, value)
        if found is NotImplemented:
            return cloudpickle.Pickler.reducer_override(self, value)
        return found


class Pickled:
    """One pickle, whose pickler still knows which objects are in it."""

    def __init__(self, value: Any, names: Mapping[int, str]) -> None:
        self.value = value
        try:
            self._pickler = self._dumped(_PlainPickler(names))
        except (pickle.PicklingError, AttributeError, TypeError):
            self._pickler = self._dumped(_CodePickler(names))
        self.data = self._pickler.file.getvalue()

    def _dumped(self, pickler: _PlainPickler) -> _PlainPickler:
        try:
            pickler.dump(self.value)
        except DeprecationWarning:  # of itertools in 3.12 and 3.13, where warnings are errors
            pickler = type(pickler)(pickler.names)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                pickler.dump(self.value)
        return pickler

    @property
    def digest(self) -> bytes:
        return short_digest(self.data)

    def shares_with(self, other: Pickled) -> bool:
        """Return True if a mutable object is in both. Asked once: it uses a pickler up."""
        small, large = sorted((self, other), key=lambda one: len(one.data))
        alone = large._pickler.seen()
        if type(small._pickler) is type(large._pickler):
            apart = alone + small._pickler.seen()
            large._pickler.dump(small.value)
            if large._pickler.seen() == apart:
                return False
        # Something is in both: in most cases a text or a class. Look for the rest alone.
        seed = small.mutables()
        again = type(large._pickler)(large._pickler.names)
        again.memo = {key: (place, one) for place, (key, one) in enumerate(seed.items())}
        again.dump(large.value)
        return again.seen() < alone + len(seed)

    def mutables(self) -> dict[int, Any]:
        """Return the objects in the pickle that can be changed, by id."""
        return {
            key: one
            for key, (_, one) in self._pickler.memo.copy().items()
            if not isinstance(one, IMMUTABLE) and key not in self._pickler.names
        }


def short_digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
