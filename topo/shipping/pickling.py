"""Pickling of components.

There are two pickles of a component. The one that travels is made by cloudpickle with the user's
own modules by value, so that executors only need topo. The local one, for engines in this process,
refers to classes and functions by identity: with the other one every class's methods would get
copies of the module's globals, and a test would see the wrong ones.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import inspect
import io
import operator
import pickle
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from topo.errors import UnpicklableComponentError
from topo.functions import FunctionBolt
from topo.shipping.stand_ins import stand_in
from topo.traces import is_librarys

if TYPE_CHECKING:
    from topo.components import Component
    from topo.topology.model import ComponentDef

_by_value = threading.RLock()
"""Held while modules are registered with cloudpickle, which has one registry for all threads."""


@dataclass(frozen=True)
class LocalPickle:
    """A pickle that refers to the classes and functions of this process."""

    data: bytes
    shared: tuple[Any, ...]

    def load(self) -> Any:
        return _LocalUnpickler(self.data, self.shared).load()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, FunctionBolt):  # whose name may lead nowhere where it is loaded
            return value.taken_apart()
        return super().reducer_override(value)


class _LocalPickler(_Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.shared: list[Any] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, type | types.FunctionType):
            return None
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.shared)
            self.shared.append(value)
        return self._numbers[id(value)]


class _LocalUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, shared: tuple[Any, ...]) -> None:
        super().__init__(io.BytesIO(data))
        self._shared = shared

    def persistent_load(self, number: Any) -> Any:
        return self._shared[number]


def pickle_locally(value: Any) -> LocalPickle:
    buffer = io.BytesIO()
    pickler = _LocalPickler(buffer)
    pickler.dump(value)
    return LocalPickle(buffer.getvalue(), tuple(pickler.shared))


def pickle_to_travel(value: Any) -> bytes:
    buffer = io.BytesIO()
    with _by_value, _user_modules_by_value():
        _Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def pickle_component(component: Component, where: str) -> tuple[bytes, LocalPickle]:
    """Return both pickles; `where` names the component in the error ("bolt 'db'")."""
    try:
        return pickle_to_travel(component), pickle_locally(component)
    except Exception as error:
        raise _explained(component, where, error) from error


def load_component(component: ComponentDef) -> Component:
    """Return a new instance of the component, as it was when the topology was created."""
    made: Component
    made = component.local.load() if component.local else cloudpickle.loads(component.pickled)
    return made


def is_users_own(module: types.ModuleType) -> bool:
    """True iff a module is the user's: not topo's, Python's or an installed package's."""
    name = module.__name__
    if name == "topo" or name.startswith("topo."):
        return False
    if name == "__main__":
        return True
    origin = _origin_of(module)
    if not isinstance(origin, str) or origin in ("built-in", "frozen"):
        return False
    spec = getattr(module, "__spec__", None)
    if isinstance(getattr(spec, "loader", None), importlib.machinery.ExtensionFileLoader):
        return False
    return not _is_installed(origin, name.count("."))


def _origin_of(module: types.ModuleType) -> object:
    spec = getattr(module, "__spec__", None)
    return getattr(module, "__file__", None) or getattr(spec, "origin", None)


def _is_installed(origin: str, depth: int) -> bool:
    """Return True if a module's file was put there by Python's or a package's installer."""
    if is_librarys(origin):
        return True
    parents = Path(origin).parents
    top = depth + (Path(origin).stem == "__init__")  # where the outermost package lies
    return len(parents) > top and _has_installed_packages(parents[top])


@functools.cache
def _has_installed_packages(directory: Path) -> bool:
    """Return True for a directory that `pip install --target` filled, wherever it is."""
    return any(directory.glob("*.dist-info"))


class _ImportedModules:
    """The user's own modules that are imported; whoever uses it holds `_by_value`.

    There may be thousands of modules, and each component asks for the user's: so a module is judged
    once, and again when its name leads to another one. One without a file may still get one.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._modules: Sequence[object] = []
        self._users: list[types.ModuleType] = []
        self._unsure: list[types.ModuleType] = []

    def users(self) -> list[types.ModuleType]:
        names, modules = list(sys.modules), list(sys.modules.values())
        if names != self._names or not all(map(operator.is_, modules, self._modules)):
            self._judge(names, modules)
        return [*self._users, *filter(is_users_own, self._unsure)]

    def _judge(self, names: list[str], modules: Sequence[object]) -> None:
        self._names, self._modules, self._users, self._unsure = names, modules, [], []
        for name, module in zip(names, modules, strict=True):
            if not isinstance(module, types.ModuleType) or module.__name__ != name:
                continue
            if name == "__main__":  # which travels by value anyway
                continue
            if not isinstance(_origin_of(module), str):
                self._unsure.append(module)
            elif is_users_own(module):
                self._users.append(module)


_imported = _ImportedModules()


@contextlib.contextmanager
def _user_modules_by_value() -> Iterator[None]:
    already = cloudpickle.list_registry_pickle_by_value()
    registered = [module for module in _imported.users() if module.__name__ not in already]
    for module in registered:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


@dataclass(frozen=True)
class UserClass:
    """A pickled class of one of the user's own modules."""

    module: str
    name: str
    pickled: bytes


def user_classes(components: Mapping[str, ComponentDef]) -> tuple[UserClass, ...]:
    """Return the classes of the components' modules, and of those that these import.

    Values and saved attributes of these classes pickle by name; if the module itself cannot be
    imported, `install_user_classes` makes the names resolve. A class that does not pickle is
    left out: its values travel with their class, which is slower.
    """
    found = []
    for module in _reachable_modules(components):
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value.__module__ == module.__name__:
                with contextlib.suppress(Exception):
                    found.append(UserClass(module.__name__, name, pickle_to_travel(value)))
    return tuple(found)


def install_user_classes(classes: tuple[UserClass, ...]) -> None:
    """Make the user's classes importable by name in this process, unless they are already."""
    for user_class in classes:
        module = stand_in(user_class.module)
        if user_class.name not in vars(module):
            setattr(module, user_class.name, cloudpickle.loads(user_class.pickled))


def _reachable_modules(components: Mapping[str, ComponentDef]) -> list[types.ModuleType]:
    waiting: list[str | None] = []
    for component in components.values():
        if component.local is not None:
            waiting.extend(getattr(shared, "__module__", None) for shared in component.local.shared)
    reached: dict[str, types.ModuleType] = {}
    while waiting:
        name = waiting.pop()
        if not isinstance(name, str) or name in reached:
            continue
        module = sys.modules.get(name)
        if module is None or not is_users_own(module):
            continue
        reached[name] = module
        for value in list(vars(module).values()):
            is_module = isinstance(value, types.ModuleType)
            waiting.append(value.__name__ if is_module else getattr(value, "__module__", None))
    return [reached[name] for name in sorted(reached)]


def _explained(component: Component, where: str, error: Exception) -> UnpicklableComponentError:
    start = "open" if where.startswith("spout") else "prepare"
    for name, value in vars(component).items():
        found = find_unpicklable(value)
        if found is None:
            continue
        path, culprit = found
        line = _assignment_line(component, name)
        inside = f", inside it {path.strip()}" if path else ""
        what = _type_name(culprit)
        return UnpicklableComponentError(
            f"{where}: attribute {name!r}{inside} is a {what}, made in __init__"
            f"{f' ({line})' if line else ''}, and does not pickle",
            at=line,
            hint=f"make it in {start}",
        )
    return UnpicklableComponentError(
        f"{where}: its class {type(component).__name__} does not pickle: {error}",
        hint=f"what a method or a global it uses holds open should be made in {start}",
    )


def find_unpicklable(
    value: Any,
    path: str = "",
    depth: int = 4,
    pickled: Callable[[Any], object] = pickle_to_travel,
) -> tuple[str, Any] | None:
    """Return the innermost part of `value` that does not pickle and its path; None if all do."""
    try:
        pickled(value)
    except Exception:
        pass
    else:
        return None
    parts: list[tuple[str, Any]] = []
    if depth and isinstance(value, Mapping):
        parts = [(f"{path}[{key!r}]", part) for key, part in value.items()]
    elif depth and isinstance(value, list | tuple | set | frozenset):
        parts = [(f"{path}[{index}]", part) for index, part in enumerate(value)]
    elif depth and hasattr(value, "__dict__") and not isinstance(value, type):
        parts = [(f"{path}.{name}", part) for name, part in vars(value).items()]
    for deeper, part in parts:
        if (found := find_unpicklable(part, deeper, depth - 1, pickled)) is not None:
            return found
    return path, value


def _type_name(value: object) -> str:
    cls = type(value)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def _assignment_line(component: Component, attribute: str) -> str:
    """Return the place at which __init__ assigns the attribute: "sink.py:14"."""
    for cls in type(component).__mro__:
        made = cls.__dict__.get("__init__")
        if not inspect.isfunction(made):
            continue
        try:
            lines, first = inspect.getsourcelines(made)
        except OSError:
            continue
        for number, line in enumerate(lines, first):
            if re.search(rf"\bself\.{re.escape(attribute)}\b[^=]*=[^=]", line):
                return f"{made.__code__.co_filename}:{number}"
    return ""
