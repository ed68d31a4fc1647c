"""The objects of a file: classes are found, references followed, arguments checked, objects made.

They are made in the order of their references; where they stand in the file does not matter. A
class is imported from the file's own directory first. What its constructor raises is the user's.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from topo.errors import TargetError, TopoError, did_you_mean, sentence_of, shown
from topo.flux.nodes import Entry, Node
from topo.flux.problems import Place, Problems
from topo.flux.schema import ObjectDef
from topo.flux.storm import CLASSES, SHELLS, counterpart, shell_arguments
from topo.traces import users_part

_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_STORM = "org.apache.storm."


class Missing(Exception):
    """An object cannot be made; why is among the problems."""


class Objects:
    """Makes the objects of a definition, each once."""

    def __init__(
        self, components: Mapping[str, ObjectDef], directory: Path, problems: Problems
    ) -> None:
        self._components, self._problems = components, problems
        self._directory = directory
        self._objects: dict[str, Any] = {}
        self._making: list[str] = []
        if sys.path[0] != str(directory):
            sys.path.insert(0, str(directory))
        importlib.invalidate_caches()

    def make_components(self) -> None:
        """Make all components, also those that nothing refers to."""
        for name, definition in self._components.items():
            try:
                self._component(name, definition.place)
            except Missing:
                continue

    def make(self, definition: ObjectDef, what: str) -> Any:
        """Return the object; raise Missing if it cannot be made, TargetError if its code raises."""
        label = f"{what} {definition.id!r}" if definition.id else what
        maker = self._class(definition)
        arguments = self._arguments(definition, "constructorArgs")
        name = str(definition.plain("className"))
        if name in SHELLS:
            maker = _with(maker, shell_arguments(self._directory))
        if definition.entry("factory") is not None:
            maker = self._factory(definition, maker)
            arguments = self._arguments(definition, "factoryArgs")
        key = "factoryArgs" if definition.entry("factory") is not None else "constructorArgs"
        args, options = self._bound(maker, arguments, definition.place_of(key), label)
        made_object = self._call(lambda: maker(*args, **options), definition.place, label)
        self._set_properties(made_object, definition)
        return self._call_methods(made_object, definition)

    def call(self, definition: ObjectDef, source: Any, conf: Mapping[str, Any]) -> Any:
        """Return what the method of a topologySource returns."""
        name = definition.plain("methodName")
        names = [str(name)] if name else ["getTopology", "get_topology"]
        method = _member(source, names)
        place = definition.place_of("methodName" if name else "className")
        if method is None:
            text = f"{type(source).__name__} has no method {' or '.join(map(repr, names))}"
            self._problems.add("unknown-method", place, text, _near(names[-1], source))
            raise Missing
        return self._call(lambda: method(dict(conf)), place, f"{type(source).__name__}.{names[-1]}")

    # -- classes ------------------------------------------------------------------------------

    def _class(self, definition: ObjectDef) -> Any:
        entry = definition.entry("className")
        if entry is None:
            raise Missing  # which is noted
        name = str(entry.node.plain)
        if name in CLASSES:
            return CLASSES[name]
        if name.startswith(_STORM):
            here = counterpart(name)
            hint = f"here it is {here}" if here else "name a class in Python"
            self._problems.add("unknown-class", entry.place, f"{name} is a class of Storm", hint)
            raise Missing
        return self._imported(name.replace("$", "."), entry.place)

    def _imported(self, name: str, place: Place) -> Any:
        parts = name.split(".")
        for count in range(len(parts) - 1, 0, -1):
            module = self._module(".".join(parts[:count]), place)
            if module is None:
                continue
            found_object: Any = module
            for part in parts[count:]:
                if not hasattr(found_object, part):
                    owner = getattr(found_object, "__name__", name)
                    text = f"{owner} has no {part!r}"
                    near = did_you_mean(part, vars(found_object))
                    self._problems.add("unknown-class", place, text, near)
                    raise Missing
                found_object = getattr(found_object, part)
            if not callable(found_object):
                text = f"{name} is {shown(found_object)}, and no class"
                self._problems.add("unknown-class", place, text)
                raise Missing
            return found_object
        text = f"there is no module {parts[0]!r}, in {self._directory} or installed"
        if len(parts) == 1:
            text = f"{name!r} names no class"
        self._problems.add("unknown-class", place, text, "className: package.module.Class")
        raise Missing

    def _module(self, name: str, place: Place) -> Any:
        """Return a module, or None if there is none of that name."""

        def load() -> Any:
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name and (name == error.name or name.startswith(f"{error.name}.")):
                    return None
                raise

        return self._call(load, place, f"the module {name}")

    # -- arguments ----------------------------------------------------------------------------

    def _arguments(self, definition: ObjectDef, key: str) -> Any:
        """Return the arguments of a key: a list, or a mapping for arguments by name."""
        entry = definition.entry(key)
        if entry is None:
            return []
        value = self._value(entry.node)
        if isinstance(entry.node.value, list | dict) and isinstance(value, list | dict):
            return value
        if isinstance(value, list):  # a reflist
            return value
        self._problems.add(
            "kind", entry.place, f"{key} is a list or a mapping; got {entry.node.kind}"
        )
        raise Missing

    def _bound(
        self, maker: Any, arguments: Any, place: Place, label: str
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments that fit, with members of enumerations in the place of their names."""
        is_named = isinstance(arguments, dict)
        args, options = ([], arguments) if is_named else (arguments, {})
        try:
            signature = inspect.signature(maker)
        except (TypeError, ValueError):  # of code in C
            return args, options
        try:
            bound = signature.bind(*args, **options)
        except TypeError as error:
            name = getattr(maker, "__qualname__", str(maker))
            text = f"{label}: {name}{signature} does not take these arguments: {error}"
            self._problems.add("arguments", place, text)
            raise Missing from None
        hints = _annotations(maker)
        for name, value in bound.arguments.items():
            bound.arguments[name] = _member_of_enumeration(hints.get(name), value)
        return list(bound.args), dict(bound.kwargs)

    def _value(self, node: Node) -> Any:
        """Return the value of a node, with objects in the places of references."""
        value = node.value
        if isinstance(value, list):
            return [self._value(part) for part in value]
        if not isinstance(value, dict):
            return value
        if list(value) == ["ref"]:
            return self._referred(value["ref"])
        if list(value) == ["reflist"]:
            return list(self._listed(value["reflist"]))
        return {key: self._value(entry.node) for key, entry in value.items()}

    def _referred(self, entry: Entry) -> Any:
        return self._component(str(entry.node.value), entry.place)

    def _listed(self, entry: Entry) -> Iterator[Any]:
        if not isinstance(entry.node.value, list):
            self._problems.add("kind", entry.place, f"reflist is a list; got {entry.node.kind}")
            raise Missing
        for node in entry.node.value:
            yield self._component(str(node.value), node.place)

    def _component(self, name: str, place: Place) -> Any:
        if name in self._making:
            circle = " -> ".join([*self._making[self._making.index(name) :], name])
            self._problems.add("reference-circle", place, f"components refer in a circle: {circle}")
            raise Missing
        if name in self._objects:
            if self._objects[name] is Missing:
                raise Missing
            return self._objects[name]
        definition = self._components.get(name)
        if definition is None:
            text = f"there is no component {name!r}"
            near = did_you_mean(name, self._components) or "components have what ref names"
            self._problems.add("unknown-reference", place, text, near)
            raise Missing
        self._making.append(name)
        try:
            self._objects[name] = Missing
            self._objects[name] = self.make(definition, "component")
        finally:
            self._making.pop()
        return self._objects[name]

    # -- after the constructor ----------------------------------------------------------------

    def _factory(self, definition: ObjectDef, cls: Any) -> Any:
        name = str(definition.plain("factory"))
        method = _member(cls, [name])
        if method is None:
            text = f"{getattr(cls, '__name__', cls)} has no method {name!r}"
            place = definition.place_of("factory")
            self._problems.add("unknown-method", place, text, _near(name, cls))
            raise Missing
        return method

    def _set_properties(self, target: Any, definition: ObjectDef) -> None:
        for node in _parts(definition.entry("properties")):
            entries = _entries(node)
            name = str(entries["name"].node.value) if "name" in entries else ""
            value = self._property(entries)
            setter = _member(target, [f"set_{name}", f"set{name[:1].upper()}{name[1:]}"])
            attribute = next((n for n in (name, _snake(name)) if hasattr(target, n)), "")
            if setter is not None:
                self._call(partial(setter, value), node.place, name)
            elif attribute:
                setattr(target, attribute, value)
            else:
                text = f"{type(target).__name__} has no property {name!r}"
                self._problems.add("unknown-property", node.place, text, _near(name, target))

    def _property(self, entries: Mapping[str, Entry]) -> Any:
        if "ref" in entries:
            return self._referred(entries["ref"])
        if "reflist" in entries:
            return list(self._listed(entries["reflist"]))
        return self._value(entries["value"].node) if "value" in entries else None

    def _call_methods(self, target: Any, definition: ObjectDef) -> Any:
        for node in _parts(definition.entry("configMethods")):
            entries = _entries(node)
            name = str(entries["name"].node.value) if "name" in entries else ""
            method = _member(target, [name])
            if method is None:
                text = f"{type(target).__name__} has no method {name!r}"
                self._problems.add("unknown-method", node.place, text, _near(name, target))
                continue
            arguments = self._value(entries["args"].node) if "args" in entries else []
            listed = arguments if isinstance(arguments, list | dict) else [arguments]
            args, options = self._bound(method, listed, node.place, name)
            label = f"{type(target).__name__}.{name}"
            result = self._call(partial(method, *args, **options), node.place, label)
            if isinstance(result, type(target)):  # a builder returns itself, or a copy
                target = result
        return target

    def _call(self, call: Callable[[], Any], place: Place, label: str) -> Any:
        """Call the user's code; what it raises names the place in the file."""
        try:
            return call()
        except (Missing, TargetError):
            raise
        except TopoError as error:
            self._problems.add(error.code, place, f"{label}: {error.message}", error.hint)
            raise Missing from error
        except Exception as error:
            raise TargetError(
                f"{label} raised {type(error).__name__}: {sentence_of(error)}",
                at=str(place),
                user_traceback=users_part(error),
            ) from error


def _with(maker: Any, options: Mapping[str, Any]) -> Any:
    def make(command: list[str], outputs: list[str] | None = None) -> Any:
        return maker(command, tuple(outputs or ()), **options)

    return make


def _parts(entry: Entry | None) -> list[Node]:
    return entry.node.value if entry is not None and isinstance(entry.node.value, list) else []


def _entries(node: Node) -> dict[str, Entry]:
    return node.value if isinstance(node.value, dict) else {}


def _member(target: Any, names: list[str]) -> Any:
    """Return the method of one of these names, as written or as Python writes it."""
    for name in names:
        for spelling in (name, _snake(name)):
            method = getattr(target, spelling, None)
            if callable(method):
                return method
    return None


def _snake(name: str) -> str:
    return _CAPITAL.sub(r"_\1", name).lower() if name else name


def _near(name: str, target: Any) -> str:
    names = [member for member in dir(target) if not member.startswith("_")]
    return did_you_mean(_snake(name), names)


def _annotations(maker: Any) -> dict[str, Any]:
    try:
        function: Any = getattr(maker, "__init__", None) if isinstance(maker, type) else maker
        return typing.get_type_hints(function)
    except Exception:  # an annotation that names what is not there
        return {}


def _member_of_enumeration(annotation: Any, value: Any) -> Any:
    """Return the member that a text names, where a parameter takes one."""
    for kind in (annotation, *typing.get_args(annotation)):
        is_enumeration = isinstance(kind, type) and issubclass(kind, Enum)
        if is_enumeration and isinstance(value, str) and value in kind.__members__:
            return kind[value]
    return value
