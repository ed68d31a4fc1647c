"""The instances of a keyed bolt: one object for each key, and what is saved of it.

An instance is an object of a class made for the task, below the user's: its class attributes are
the attributes of the task's own component, which all keys share. So an instance's `__dict__` has
what belongs to its key and nothing else, it costs no more than that, and reading a shared attribute
is reading a class attribute.

What an instance and another object both refer to would be two objects after a restart. Only values
that somebody else refers to can be such ones, and the count of references tells those apart for
next to nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from topo.components import Bolt
from topo.errors import UnsavableAttributeError
from topo.state import may_change
from topo.storage.opaque import slots_of
from topo.storage.pickled import IMMUTABLE
from topo.tuples import Fields, Tuple

_PLAIN = frozenset({int, float, str, bytes, bool, type(None)})
"""The types of most attributes, of which nobody asks who else refers to the value."""
_OWN_REFERENCES = 3
"""To a value that an instance alone has: its `__dict__`, the loop, the call that counts."""


class Instances:
    """Makes the instances of one task, reads what is saved of them and lays it over new ones.

    `name` is the attribute with the key. `calls` are functions that every instance has under a
    name, unless its class defines that itself.
    """

    def __init__(
        self,
        component: Bolt,
        owner: str,
        calls: Mapping[str, Callable[..., Any]],
        name: str = "key",
    ) -> None:
        cls = type(component)
        self._owner = owner
        self._name = name
        self._slots = slots_of(cls)
        self._skipped = frozenset(Fields(component.transient))
        shared = {**vars(component), **self._in_slots(component), **_not_overridden(cls, calls)}
        # A function in a class would become a method, and any descriptor something else.
        names = {
            own: staticmethod(value) if hasattr(type(value), "__get__") else value
            for own, value in shared.items()
        }
        about = {"__slots__": (name,), "__module__": cls.__module__, "__doc__": cls.__doc__}
        self._class: Any = type(cls.__name__, (cls,), {**names, **about})
        self._class.__qualname__ = cls.__qualname__
        self._of_all = {id(value): own for own, value in shared.items() if _can_change(value)}
        self._referred: dict[int, tuple[Any, str, Any]] = {}
        """Values that others refer to as well: the key that has it, the attribute, the value."""
        self._with_referred: dict[Any, list[int]] = {}

    def create(self, key: Any, attributes: Mapping[str, Any] | None = None) -> Any:
        """Return a new instance of a key, with these attributes."""
        instance = object.__new__(self._class)
        object.__setattr__(instance, self._name, key)
        for name, value in (attributes or {}).items():
            object.__setattr__(instance, name, value)
        return instance

    def attributes(self, instance: Any) -> dict[str, Any]:
        """Return what is saved of an instance; nobody may change it."""
        values: dict[str, Any] = vars(instance)
        if not self._slots and self._skipped.isdisjoint(values):
            return values
        values = {**values, **self._in_slots(instance)}
        for name in self._skipped:
            values.pop(name, None)
        return values

    def _in_slots(self, instance: Any) -> dict[str, Any]:
        """Return the attributes that the user's classes keep in slots."""
        names = (name for name, slot in self._slots.items() if _has(slot, instance))
        return {name: self._slots[name].__get__(instance) for name in names}

    def forget(self, key: Any) -> None:
        """Take note that a key is gone."""
        for number in self._with_referred.pop(key, ()):
            self._referred.pop(number, None)

    def check_apart(self, instances: Iterable[tuple[Any, Any]]) -> None:
        """Raise an error if an object belongs to two of these keys, or to one and to all.

        Objects in which something is shared are not looked into.
        """
        for key, instance in instances:
            if key in self._with_referred:
                self.forget(key)
            for name, value in self._referred_by_others(instance):
                if id(value) in self._of_all:
                    shared_by = f"attribute {self._of_all[id(value)]!r}, which all keys share,"
                elif id(value) in self._referred:
                    other, its_name, _ = self._referred[id(value)]
                    shared_by = f"{its_name!r} of key {other!r}"
                else:
                    self._referred[id(value)] = (key, name, value)
                    self._with_referred.setdefault(key, []).append(id(value))
                    continue
                raise UnsavableAttributeError(
                    f"{self._owner}: attribute {name!r} of key {key!r} and {shared_by} are one "
                    "object, and would be two after a restart",
                    hint=f"give the key an object of its own in created: self.{name} = ...",
                )

    def _referred_by_others(self, instance: Any) -> Iterator[tuple[str, Any]]:
        values = vars(instance)
        for name in values:
            value = values[name]
            if type(value) in _PLAIN or name in self._skipped:
                continue
            noted = id(value) in self._referred
            if (noted or sys.getrefcount(value) > _OWN_REFERENCES) and _can_change(value):
                yield name, value


def _can_change(value: Any) -> bool:
    """True iff it matters whether two refer to the value; a kept tuple is one wherever it is."""
    return not isinstance(value, (*IMMUTABLE, Tuple)) and may_change(value)


def _has(slot: Any, instance: Any) -> bool:
    try:
        slot.__get__(instance)
    except AttributeError:  # nothing is assigned to it
        return False
    return True


def _not_overridden(
    cls: type, calls: Mapping[str, Callable[..., Any]]
) -> dict[str, Callable[..., Any]]:
    """Return the calls whose names no class of the user's defines."""
    return {
        name: call
        for name, call in calls.items()
        if next(base for base in cls.__mro__ if name in vars(base)).__module__.startswith("topo.")
    }
