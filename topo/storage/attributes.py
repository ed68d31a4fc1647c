"""The saved plain attributes of a component, with the same result with and without a restart.

Saved is every attribute that is not as `open` or `prepare` left it, in one pickle: so what is
shared stays shared, and new constructor arguments and settings win over what never changed. An
attribute that refers to an object of a changed one is saved with it, or it would come back with a
copy. What the task itself handed out (collector, context, settings, keyed state) is referred to
by name, at any depth, and is the new task's own when it comes back.

What does not pickle is left out only if `open` or `prepare` made it, and only as long as nothing
can be seen to change in it (`opaque`).

Told apart by pickles and not by looking at objects one by one, since C pickles fifty times faster
than Python looks. All attributes that seem unchanged are one pickle, so that a batch costs one pass
over them and one over what changed.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topo.components import Component
from topo.errors import StatelessError, UnsavableAttributeError
from topo.shipping.pickling import find_unpicklable
from topo.storage.classes import load_saved
from topo.storage.opaque import inside, is_open_file, slots_of
from topo.storage.pickled import CODE, SCALARS, Pickled, restoring, short_digest
from topo.storage.saving import LARGE_BLOB, Changes
from topo.tuples import Fields

_CONTAINERS = (list, tuple, dict, set, frozenset, Mapping)
_FOR_NOTHING_BEFORE_WARNING = 4
_OVERHEAD = 64  # bytes of a pickle for a name and what it begins and ends with


@dataclass
class _InitialValue:
    """The value of an attribute after open or prepare."""

    value: Any
    size: int = 0
    digest: bytes | None = None
    """Of its pickle; None: it has none, or is compared without."""
    is_opaque: bool = False
    """True: it does not pickle, or is an open file."""
    inside: Any = None
    """What can be seen of an opaque one."""


class SavedAttributes:
    """Saves the plain attributes of one component instance.

    `parts` are what the task handed out, by name; they are never saved. With `strict`, a component
    that says it keeps nothing is looked at deeply in every batch.
    """

    KEY = "attributes"

    def __init__(
        self,
        component: Component,
        owner: str,
        parts: Mapping[str, Any],
        strict: bool = False,
    ) -> None:
        self._component = component
        self._owner = owner
        self._strict = strict
        self._slots = slots_of(type(component))
        self._parts = {"component": component, **parts}
        self._names = {id(part): name for name, part in self._parts.items()}
        self._skipped = frozenset(Fields(component.transient))
        self._left: dict[str, _InitialValue] = {}
        self._left_together = b""  # the digest of all that was left and has a pickle
        self._together = b""  # the same, of those that have not changed since
        self._tied: frozenset[str] = frozenset()  # those that shared an object when left
        self._changed: set[str] = set()  # of those with a pickle
        self._written: bytes | None = None
        self._warned: set[str] = set()
        self._checks = 0
        self._for_nothing = 0  # how often much was pickled only to find it unchanged

    def remember(self) -> None:
        """Take what `open` or `prepare` left as what need not be saved."""
        pickles = {}
        for name, value in self._attributes().items():
            self._left[name] = left = _InitialValue(value)
            if self._is_plain(value):
                continue
            made = None if is_open_file(value) else self._try_pickle(value)
            if made is None:
                left.is_opaque, left.inside = True, inside(value, self._try_pickle)
            else:
                left.digest, left.size = made.digest, len(made.data)
                pickles[name] = made
        self._tied = _tied(pickles)
        self._left_together = self._pickle(
            {name: self._left[name].value for name in pickles}
        ).digest
        self._together = self._left_together

    def hand_out(self, name: str, part: Any) -> None:
        """Take another object that the task hands out; it is referred to by name, never saved."""
        self._parts[name] = part
        self._names[id(part)] = name

    def load(self, saved: Mapping[str, bytes]) -> None:
        blob = saved.get(self.KEY)
        if blob is None:
            return
        with restoring(self._parts):
            values, deleted = load_saved(blob)
        for name, value in values.items():
            if name in self._slots:
                self._slots[name].__set__(self._component, value)
            else:
                vars(self._component)[name] = value
        for name in deleted:
            self._delete(name)
        self._written = short_digest(blob)

    def save(self, changes: Changes) -> None:
        current = self._attributes()
        self._check_opaque(current)
        blob = self._changes(current)
        if blob is None:
            if self._written is not None:
                changes.deletes.append(self.KEY)
                self._written = None
            return
        digest = short_digest(blob)
        if digest == self._written:
            return
        self._written = digest
        changes.puts[self.KEY] = blob
        if len(blob) > LARGE_BLOB:
            self._warn(
                "large",
                f"{self._owner} saves {len(blob):,} bytes of plain attributes, whole in every "
                "batch that changes them; a StatefulBolt's state is saved incrementally",
            )

    def changed_names(self) -> list[str]:
        """Return the names of what `save` has last found changed, or new, or deleted."""
        current = self._attributes()
        names = [name for name, value in current.items() if self._is_changed(name, value)]
        return names + [name for name in self._left if name not in current]

    def check_stateless(self) -> None:
        """Raise StatelessError if an attribute changed.

        Looks deep, which costs what the attributes weigh, at the first checks and ever more
        rarely after, but always in tests; in between only at what is cheap to see.
        """
        self._checks += 1
        deep = self._strict or self._checks & (self._checks - 1) == 0
        current = self._attributes()
        names = {name for name, value in current.items() if self._differs(name, value, deep)}
        names |= {name for name in self._left if name not in current}
        if names:
            shown = ", ".join(map(repr, sorted(names)))
            raise StatelessError(
                f"{self._owner} says stateless = True and changed its attribute {shown}",
                hint="take stateless away, so that it is saved; or name it in `transient`",
            )

    def check_apart(self, values: Mapping[Any, Any]) -> None:
        """Raise an error if an attribute refers to one of these values of the keyed state.

        After a restart it would refer to a copy.
        """
        keys = {id(value): key for key, value in values.items()}
        for name, value in self._attributes().items():
            made = None if self._is_plain(value) else self._try_pickle(value)
            shared = made.mutables().keys() & keys.keys() if made is not None else ()
            for number in shared:
                raise UnsavableAttributeError(
                    f"{self._owner}: attribute {name!r} and the state's value for "
                    f"{keys[number]!r} are one object, and would be two after a restart",
                    hint="read it from the state where it is needed; or name it in "
                    f"transient = ({name!r},)",
                )

    # -- what changed -------------------------------------------------------------------------

    def _changes(self, current: Mapping[str, Any]) -> bytes | None:
        """Return the pickle of what is not as it was left, and of what shares objects with it."""
        rest = self._rest(current)
        together = self._pickle_or_explain(rest, rest)
        if together.digest != self._together:
            together = self._sort_out(rest)
        elif len(together.data) > LARGE_BLOB:
            self._note_pickled_for_nothing(len(together.data))
        deleted = [name for name in self._left if name not in current]
        looked_back = False
        while True:
            values = {name: one for name, one in current.items() if self._is_changed(name, one)}
            if not values and not deleted:
                return None
            made = self._pickle_or_explain((values, deleted), values)
            if not looked_back and self._may_be_back(made) and self._is_back(current):
                looked_back, together = True, self._pickle(self._rest(current))
                continue
            rest = self._rest(current)
            if not rest or not made.shares_with(together):
                return made.data
            together = self._add_sharing(made, rest)

    def _rest(self, current: Mapping[str, Any]) -> dict[str, Any]:
        """Return what has a pickle and has not changed, as far as is known."""
        left, changed = self._left, self._changed
        return {
            name: value
            for name, value in current.items()
            if name in left and left[name].digest is not None and name not in changed
        }

    def _is_changed(self, name: str, value: Any) -> bool:
        left = self._left.get(name)
        if left is None or name in self._changed:
            return True
        if left.digest is not None:
            return False
        return value is not left.value if left.is_opaque else not _is_same(value, left.value)

    def _sort_out(self, rest: Mapping[str, Any]) -> Pickled:
        """Find which of these changed, or what they share; return a pickle of the others."""
        same = {}
        for name, value in rest.items():
            made = self._pickle_or_explain(value, {name: value})
            if made.digest == self._left[name].digest:
                same[name] = made
        tied = self._tied | _tied(same)
        self._changed.update(name for name in rest if name not in same or name in tied)
        return self._pickle_rest(rest)

    def _add_sharing(self, made: Pickled, rest: Mapping[str, Any]) -> Pickled:
        """Count as changed what shares an object with what changed; pickle the others."""
        objects = self._pickle(made.value).mutables().keys()
        for name, value in rest.items():
            if self._pickle(value).mutables().keys() & objects:
                self._changed.add(name)
        return self._pickle_rest(rest)

    def _pickle_rest(self, rest: Mapping[str, Any]) -> Pickled:
        made = self._pickle({n: value for n, value in rest.items() if n not in self._changed})
        self._together = made.digest
        return made

    def _may_be_back(self, made: Pickled) -> bool:
        """Return False if the changed attributes are too large to be as they were left."""
        left = sum(self._left[name].size for name in self._changed)
        return bool(self._changed) and len(made.data) <= left + _OVERHEAD * (1 + len(self._left))

    def _is_back(self, current: Mapping[str, Any]) -> bool:
        """Forget the changes if everything with a pickle is as it was left, together."""
        before, self._changed = self._changed, set()
        rest = self._rest(current)
        if self._pickle_or_explain(rest, rest).digest != self._left_together:
            self._changed = before
            return False
        self._together = self._left_together
        return True

    def _note_pickled_for_nothing(self, size: int) -> None:
        self._for_nothing += 1
        if self._for_nothing == _FOR_NOTHING_BEFORE_WARNING:
            largest = max(self._left, key=lambda name: self._left[name].size)
            self._warn(
                "unchanged",
                f"{self._owner} pickles {size:,} bytes of attributes in every batch to find them "
                f"unchanged, {largest!r} above all; transient = ({largest!r},) says that it is "
                "made anew in open or prepare, or by the constructor, and costs nothing",
            )

    def _differs(self, name: str, value: Any, deep: bool) -> bool:
        """Return True if an attribute of a stateless component is not as it was left."""
        left = self._left.get(name)
        if left is None:
            return True
        if left.digest is None:
            return self._is_changed(name, value)
        if not deep:
            return value is not left.value
        made = self._try_pickle(value)
        return made is None or made.digest != left.digest

    # -- one attribute ------------------------------------------------------------------------

    def _attributes(self) -> dict[str, Any]:
        values = dict(vars(self._component))
        for name, slot in self._slots.items():
            with contextlib.suppress(AttributeError):  # nothing is assigned to it
                values[name] = slot.__get__(self._component)
        for name in self._skipped & values.keys():
            del values[name]
        return values

    def _delete(self, name: str) -> None:
        if name in self._slots:
            with contextlib.suppress(AttributeError):
                self._slots[name].__delete__(self._component)
        else:
            vars(self._component).pop(name, None)

    def _is_plain(self, value: Any) -> bool:
        """Return True if identity, or equality, says enough of the value."""
        return type(value) in SCALARS or isinstance(value, CODE) or id(value) in self._names

    def _pickle(self, value: Any) -> Pickled:
        return Pickled(value, self._names)

    def _try_pickle(self, value: Any) -> Pickled | None:
        try:
            return self._pickle(value)
        except Exception:
            return None

    def _pickle_or_explain(self, value: Any, attributes: Mapping[str, Any]) -> Pickled:
        """Pickle the value, which these attributes are in; name the one that does not pickle."""
        try:
            return self._pickle(value)
        except Exception as error:
            raise self._unsavable(attributes) from error

    def _unsavable(self, values: Mapping[str, Any]) -> UnsavableAttributeError:
        for name, value in values.items():
            found = find_unpicklable(value, pickled=self._pickle)
            if found is None and not is_open_file(value):
                continue
            path, culprit = found or ("", value)
            inside = f" (at self.{name}{path})" if path else ""
            return UnsavableAttributeError(
                f"{self._owner}: attribute {name!r} holds {_named(culprit)}{inside}, "
                "which cannot be saved",
                hint=f"make it in open or prepare, or in restored and name it in "
                f"transient = ({name!r},)",
            )
        return UnsavableAttributeError(f"{self._owner}: its attributes cannot be saved together")

    # -- what does not pickle -----------------------------------------------------------------

    def _check_opaque(self, current: Mapping[str, Any]) -> None:
        """Raise an error if something that is left out of what is saved has changed."""
        for name, left in self._left.items():
            if not left.is_opaque or current.get(name, left) is not left.value:
                continue
            if isinstance(left.value, _CONTAINERS):
                raise self._unsavable({name: left.value})
            if inside(left.value, self._try_pickle) != left.inside:
                raise UnsavableAttributeError(
                    f"{self._owner}: attribute {name!r} holds {_named(left.value)}, which does "
                    "not pickle and has changed: a restart would begin with a new one",
                    hint=f"keep what has to last in an attribute of its own and make {name!r} "
                    f"in restored; if a new one will do, name it in transient = ({name!r},)",
                )

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, stacklevel=2)


def _tied(pickles: Mapping[str, Pickled]) -> frozenset[str]:
    """Return the names of those that have a mutable object in common with another."""
    if len(pickles) < 2:
        return frozenset()
    owners: dict[int, str] = {}
    tied: set[str] = set()
    for name, made in pickles.items():
        for number in made.mutables():
            owner = owners.setdefault(number, name)
            if owner != name:
                tied |= {owner, name}
    return frozenset(tied)


def _is_same(value: Any, left: Any) -> bool:
    if value is left:
        return True
    if type(value) is not type(left) or type(value) not in SCALARS:
        return False
    # Equal, yet not the same, are 0.0 and -0.0; the same, yet not equal, is NaN.
    return repr(value) == repr(left) if type(value) in (float, complex) else bool(value == left)


def _named(value: Any) -> str:
    cls = type(value)
    name = (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )
    return f"a {name}"
