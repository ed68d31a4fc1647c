"""The loading of a target of the command line: `PATH.py[:ATTR]` or `package.module[:ATTR]`.

The module is imported under its own name, so that its classes have one that other processes can
import, and `if __name__ == "__main__"` does not run. Errors refer to the target: the one of a
missing attribute lists the suitable ones, and an exception in the user's code comes with the user's
own part of the traceback.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, TypeGuard

from topo.builder import TopologyBuilder
from topo.config import Layer
from topo.errors import TargetError, TopoError, did_you_mean
from topo.flux.build import load_file
from topo.streamparse.specs import Topology as TopologyClass
from topo.topology.model import Topology
from topo.topology.submission import name_for
from topo.traces import is_librarys, is_ours, users_part

DEFAULT_ATTRIBUTE = "topology"
YAML = (".yaml", ".yml")
CONF_ATTRIBUTE = "conf"


@dataclass(frozen=True)
class Target:
    """A loaded topology with its code's settings."""

    spec: str
    topology: Topology
    conf: Layer
    default_name: str
    """The default name: that of the file or module."""
    directory: Path
    """The directory that was put first on `sys.path` for the import."""


def load_target(
    spec: str,
    args: Sequence[str] = (),
    *,
    command: str = "topo local",
    filters: Sequence[str] = (),
) -> Target:
    """Import, build and return the target `spec`; `args` are passed to its code.

    Hints begin with `command`; `filters` are files of properties for a target in YAML.
    """
    if spec.endswith(YAML):
        return _load_yaml(spec, filters)
    if filters:
        raise TargetError(f"--filter fills placeholders of a topology in YAML; got {spec}")
    place, _, attribute = spec.partition(":")
    hints = _Hints(command, place, list(args), attribute)
    with _argv([place, *args]):
        module, directory = _import(place, hints)
        found = _find(module, place, attribute, hints)
        topology, conf = _build(found, f"{place}:{attribute or DEFAULT_ATTRIBUTE}", args, hints)
    if conf is None:
        conf = getattr(module, CONF_ATTRIBUTE, None) or {}
    if not isinstance(conf, Mapping):
        raise TargetError(
            f"{place}: conf is a {type(conf).__name__}; it must be a Config or a dict"
        )
    name = (module.__name__ if place.endswith(".py") else place).rpartition(".")[2]
    return Target(spec, topology, Layer(place, dict(conf)), name_for(name), directory)


def _load_yaml(spec: str, filters: Sequence[str]) -> Target:
    path = Path(spec)
    if not path.is_file():
        near = did_you_mean(path.name, [p.name for p in path.absolute().parent.glob("*.y*ml")])
        raise TargetError(f"no file {spec!r}", hint=near)
    loaded = load_file(path, filters=filters)
    directory = path.resolve().parent
    return Target(spec, loaded.topology, Layer(spec, loaded.conf), loaded.name, directory)


@dataclass(frozen=True)
class _Hints:
    command: str
    place: str
    args: list[str]
    attribute: str = ""

    def with_attribute(self, attribute: str) -> str:
        return self.with_args(attribute, self.args)

    def with_place(self, place: str) -> str:
        attribute = f":{self.attribute}" if self.attribute else ""
        return " ".join([self.command, place + attribute, *self._args(self.args)])

    def with_args(self, attribute: str, args: Sequence[str]) -> str:
        place = f"{self.place}:{attribute}" if attribute != DEFAULT_ATTRIBUTE else self.place
        return " ".join([self.command, place, *self._args(args)])

    @staticmethod
    def _args(args: Sequence[str]) -> list[str]:
        return ["--", *args] if args else []


@contextmanager
def _argv(argv: list[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = argv
    try:
        yield
    finally:
        sys.argv = before


# Importing


def _import(place: str, hints: _Hints) -> tuple[ModuleType, Path]:
    if place.endswith(".py"):
        path = _existing_file(place)
        name, directory = path.stem, path.parent
        if "." in name:
            raise TargetError(
                f"{path.name} cannot be imported: its name has a dot", hint="rename the file"
            )
        _first_on_path(directory)
        _refuse_shadowed(name, path)
    else:
        if os.sep in place or not all(part.isidentifier() for part in place.split(".")):
            hint = "a target is PATH.py or package.module"
            if Path(f"{place}.py").exists():
                hint = f"did you mean '{place}.py'?"
            raise TargetError(f"{place!r} is neither a file nor a module", hint=hint)
        name, directory = place, Path.cwd()
        _first_on_path(directory)
    with _users_code(place):
        try:
            return importlib.import_module(name), directory
        except ModuleNotFoundError as error:
            if error.name and (name == error.name or name.startswith(f"{error.name}.")):
                raise _no_module(place) from None
            raise
        except ImportError as error:
            if place.endswith(".py") and "relative import" in str(error):
                raise _in_package(place, path, hints) from None
            raise


def _in_package(place: str, path: Path, hints: _Hints) -> TargetError:
    """Return the error of a file that imports from its package, which nobody has named."""
    parts, directory = [path.stem], path.parent
    while (directory / "__init__.py").exists():
        parts.insert(0, directory.name)
        directory = directory.parent
    if len(parts) == 1:  # a package without the file that says so
        parts, directory = [directory.name, *parts], directory.parent
    there = "" if directory == Path.cwd() else f"cd {directory} && "
    return TargetError(
        f"{place} imports from its own package, and is read as a file outside of one",
        hint=f"name it as a module: {there}{hints.with_place('.'.join(parts))}",
    )


def _existing_file(place: str) -> Path:
    path = Path(place).resolve()
    if path.is_file():
        return path
    try:
        siblings = [sibling.name for sibling in path.parent.glob("*.py")]
    except OSError:
        siblings = []
    if path.is_dir():
        raise TargetError(f"{place!r} is a directory", hint="a target is PATH.py or package.module")
    raise TargetError(f"no file {place!r}", hint=did_you_mean(path.name, siblings))


def _no_module(place: str) -> TargetError:
    files = [path.stem for path in Path.cwd().glob("*.py")]
    return TargetError(
        f"no module {place!r}, from {Path.cwd()} or installed", hint=did_you_mean(place, files)
    )


def _first_on_path(directory: Path) -> None:
    text = str(directory)
    if sys.path[0] != text:
        sys.path.insert(0, text)
    importlib.invalidate_caches()


def _refuse_shadowed(name: str, path: Path) -> None:
    """Refuse a module named like a standard one: `json.py` would resolve to the library's json."""
    loaded = sys.modules.get(name)
    if loaded is None:
        return
    file = getattr(loaded, "__file__", None)
    if file is None or Path(file).resolve() != path:
        where = f", {file}" if file else ""
        raise TargetError(
            f"{path.name} cannot be imported under its own name: {name!r} is another module{where}",
            hint="rename the file",
        )


# Finding and building


def _find(module: ModuleType, place: str, attribute: str, hints: _Hints) -> object:
    wanted = attribute or DEFAULT_ATTRIBUTE
    found: object = module
    for part in wanted.split("."):
        if not hasattr(found, part):
            candidates = _candidates(module)
            it_has = f"; it has {', '.join(candidates)}" if candidates else ""
            builders = [name for name in candidates if name != CONF_ATTRIBUTE]
            near = did_you_mean(wanted, builders) if attribute else ""
            hint = near or (hints.with_attribute(builders[0]) if builders else "")
            raise TargetError(f"{place} has no {wanted!r}{it_has}", hint=hint or _WRITE_ONE)
        found = getattr(found, part)
    return found


_WRITE_ONE = "topology = builder.create_topology(), or def topology(): ..."


def _candidates(module: ModuleType) -> list[str]:
    """Return the module's public names that could be a target, and its conf."""
    names = []
    for name, value in vars(module).items():
        own = (inspect.isfunction(value) or _builds_itself(value)) and (
            value.__module__ == module.__name__
        )
        if not name.startswith("_") and (
            own or isinstance(value, Topology | TopologyBuilder) or name == CONF_ATTRIBUTE
        ):
            names.append(name)
    return sorted(names)


def _build(
    found: object, label: str, args: Sequence[str], hints: _Hints
) -> tuple[Topology, object]:
    said = label
    if _builds_itself(found):
        with _users_code(label):
            return found.create_topology(), dict(found.config)
    if callable(found) and not isinstance(found, TopologyBuilder):
        _check_arguments(found, label, args, hints)
        with _users_code(label):
            found = found(*args)
        said = f"{label}()"
    conf: object = None
    if isinstance(found, tuple) and len(found) == 2:
        found, conf = found
    if isinstance(found, TopologyBuilder):
        found = found.create_topology()
    if isinstance(found, Topology):
        return found, conf
    what = "returned" if said.endswith("()") else "is"
    described = "None" if found is None else f"a {type(found).__name__}"
    raise TargetError(
        f"{said} {what} {described}, not a topology",
        hint="return builder.create_topology()" if what == "returned" else _WRITE_ONE,
    )


def _builds_itself(found: object) -> TypeGuard[type[TopologyClass]]:
    """Return True if this is a topology written as a class, in the manner of streamparse."""
    return isinstance(found, type) and issubclass(found, TopologyClass) and bool(found.specs())


def _check_arguments(factory: Any, label: str, args: Sequence[str], hints: _Hints) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args)
        return
    except TypeError:
        pass
    parameters = [p for p in signature.parameters.values() if p.kind in _POSITIONAL]
    required = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    keyword_only = [
        p.name
        for p in signature.parameters.values()
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty
    ]
    shown = ", ".join(signature.parameters)
    attribute = label.rpartition(":")[2]
    if len(args) > len(parameters):
        extra = args[len(parameters)]
        takes = f"at most {len(parameters)}" if parameters else "no"
        raise TargetError(
            f"{label}({shown}) takes {takes} argument{'s' if len(parameters) != 1 else ''}; "
            f"got {extra!r} too",
            hint=hints.with_args(attribute, [*args[: len(parameters)]]),
        )
    missing = required[len(args) :]
    if missing:
        needs = " and ".join(repr(name) for name in missing)
        raise TargetError(
            f"{label}({shown}) needs {needs}",
            hint=hints.with_args(attribute, [*args, *(name.upper() for name in missing)]),
        )
    raise TargetError(
        f"{label}({shown}) needs {keyword_only[0]!r} by keyword",
        hint="arguments are passed by position: drop the '*'",
    )


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


# The user's code


@contextmanager
def _users_code(label: str) -> Iterator[None]:
    """Convert the user's exceptions to a TargetError with the user's part of the traceback."""
    try:
        yield
    except TopoError as error:
        frame = _last_user_frame(error.__traceback__)
        if frame and not error.at:
            error.at = frame
        raise
    except SystemExit as error:
        code = error.code if error.code is not None else 0
        raise TargetError(
            f"{label} ended the process with exit code {code}",
            at=_last_user_frame(error.__traceback__),
            user_traceback=users_part(error),
        ) from None
    except SyntaxError as error:
        place = f"{_shown(error.filename or '')}:{error.lineno}" if error.lineno else ""
        raise TargetError(
            f"{label} raised {type(error).__name__}: {error.msg}",
            at=place or _last_user_frame(error.__traceback__),
            user_traceback=users_part(error),
        ) from error
    except Exception as error:
        raise TargetError(
            f"{label} raised {type(error).__name__}: {error}",
            at=_last_user_frame(error.__traceback__),
            user_traceback=users_part(error),
        ) from error


def _last_user_frame(trace: TracebackType | None) -> str:
    """Return the last place of the user's own code; a library's if there is no such place."""
    frames = [f for f in traceback.extract_tb(trace) if not is_ours(f.filename)]
    frames = [f for f in frames if not is_librarys(f.filename)] or frames
    return f"{_shown(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def _shown(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
