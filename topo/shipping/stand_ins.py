"""Stand-ins for the user's own modules, for classes that came without their modules.

A stand-in has the classes that came, so that values of these classes pickle by name. It takes any
other attribute from the module itself, if that can be found on this machine: in a file of
`--py-files`, or in the archive of sources. The module then uses the same classes: no class may
exist twice.

A stand-in has a spec, so that what reads a package's data by its name (`importlib.resources`,
`pkgutil`) finds the data beside the module's file.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from typing import Any, NoReturn


class CarriedModule(types.ModuleType):
    """The stand-in for one module."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        spec = _find(name)
        self.__carried_spec = spec
        self.__carried_itself: types.ModuleType | None = None
        # A new one, for Python notes in a spec that its module is being loaded.
        self.__spec__ = _find(name) or ModuleSpec(name, _NoFile(), is_package=True)
        self.__loader__ = self.__spec__.loader
        if spec is not None:
            self.__file__ = spec.origin
        # With a path, submodules are imported, or missed, as usual.
        self.__path__ = list((spec and spec.submodule_search_locations) or [])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        itself = self.__loaded()
        if itself is None:
            raise AttributeError(
                f"of module {self.__name__!r} only the classes are here, and {name!r} is none of "
                "them; import it at the top of the module that uses it, or bring it by --py-files"
            )
        return getattr(itself, name)

    def __loaded(self) -> types.ModuleType | None:
        spec = self.__carried_spec
        if self.__carried_itself is None and spec is not None and spec.loader is not None:
            made = self.__carried_itself = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(made)
            ours = {name: kept for name, kept in vars(self).items() if isinstance(kept, type)}
            vars(made).update(ours)
        return self.__carried_itself


class _NoFile(Loader):
    """The loader of a module that is nowhere on this machine."""

    def get_resource_reader(self, name: str) -> NoReturn:
        raise FileNotFoundError(
            f"the files of package {name!r} are not on this machine; bring them by --archives, or "
            "read them where the topology is built and give them to the component"
        )


def stand_in(name: str) -> types.ModuleType:
    """Return the module of that name; make a stand-in for it and its parents if necessary."""
    module = sys.modules.get(name)
    if module is None:
        parent, _, last = name.rpartition(".")
        above = stand_in(parent) if parent else None
        module = sys.modules[name] = CarriedModule(name)
        if above is not None:
            setattr(above, last, module)
    return module


def _find(name: str) -> ModuleSpec | None:
    """Find the module itself; its parents, or their stand-ins, must have been imported."""
    parent, _, _ = name.rpartition(".")
    path = getattr(sys.modules[parent], "__path__", []) if parent else None
    return importlib.machinery.PathFinder.find_spec(name, path)
