"""Saved objects whose classes have other names by now.

A pickle names the class of each object by module and name. A component says in `moved` where the
classes went, and what it has saved is read by that, wherever it is read: when a task begins, and
when its state is dealt to others. Frames between tasks are never older than the code, so their
unpickling asks nobody.

C's own unpickler comes first, since most states are of classes that stayed: another one, which asks
for each class, costs a state of many small records twice the time.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from topo.errors import CheckpointError, sentence_of

_NOWHERE: tuple[str, Mapping[str, str]] = ("", {})
_reading: ContextVar[tuple[str, Mapping[str, str]]] = ContextVar("_reading", default=_NOWHERE)


@contextmanager
def saved_by(owner: str, moved: Mapping[str, str]) -> Iterator[None]:
    """While this lasts, what is read was saved by `owner`, and these classes have moved since."""
    token = _reading.set((owner, moved))
    try:
        yield
    finally:
        _reading.reset(token)


def load_saved(data: bytes | memoryview) -> Any:
    """Unpickle what was saved; raise a CheckpointError that names a class that is not there."""
    owner, moved = _reading.get()
    if not moved:
        try:
            return pickle.loads(data)
        except (ImportError, AttributeError):
            pass  # the other unpickler tells which class, or that it was something else
    return _Unpickler(data, owner, moved).load()


class _Unpickler(pickle.Unpickler):
    """Looks for classes where they are now."""

    def __init__(self, data: bytes | memoryview, owner: str, moved: Mapping[str, str]) -> None:
        super().__init__(io.BytesIO(data))
        self._owner = owner
        self._moved = moved

    def find_class(self, module: str, name: str) -> Any:
        now = self._place_of(module, name)
        try:
            return super().find_class(*now)
        except (ImportError, AttributeError) as error:
            raise self._missing(f"{module}:{name}", ":".join(now), error) from error

    def _place_of(self, module: str, name: str) -> tuple[str, str]:
        """Return the module and name of a class now; one inside another goes with it."""
        outer, inner = name, ""
        while outer:
            if place := self._moved.get(f"{module}:{outer}"):
                now, _, renamed = place.partition(":")
                return now, renamed + inner
            outer, dot, last = outer.rpartition(".")
            inner = f"{dot}{last}{inner}"
        return module, name

    def _missing(self, saved: str, now: str, error: Exception) -> CheckpointError:
        whose = f"{self._owner} has saved objects of {saved}" if self._owner else saved
        where = f", which moved says is {now} now," if now != saved else ""
        return CheckpointError(
            f"{whose}{where} and it is not there: {sentence_of(error)}",
            hint=f'say in the component where it is now: moved = {{"{saved}": "module:Name"}}',
        )
