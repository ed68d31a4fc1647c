"""The user's own sources, packed for a cluster's workers.

Components travel with the contents of their modules. Imports at run time are resolved on the
workers: these have the modules that were loaded when the topology was built, and all modules of a
package of which one was loaded.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from topo.shipping.pickling import is_users_own

SOURCES = "sources.zip"
_MOST_FILES = 2000
_MOST_BYTES = 32 << 20


def pack_sources(directory: Path) -> Path | None:
    """Pack the sources into an archive in `directory`; return None if there are none."""
    found = dict(_loaded())
    if not found:
        return None
    archive = directory / SOURCES
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, file in sorted(found.items()):
            packed.write(file, name)
    return archive


def _loaded() -> Iterator[tuple[str, Path]]:
    """Yield the files of the user's modules in this process, with their names in the archive."""
    for name, module in sorted(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "")
        if name != getattr(module, "__name__", "") or name == "__main__" or file.suffix != ".py":
            continue
        if not is_users_own(module) or not file.is_file():
            continue
        place = name.replace(".", "/")
        if file.name != "__init__.py":
            yield f"{place}.py", file
        else:
            yield from _package(place, file)


def _package(place: str, init: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a package, unless it is implausibly large."""
    files = [file for file in sorted(init.parent.rglob("*.py")) if "__pycache__" not in file.parts]
    is_much = len(files) > _MOST_FILES or sum(f.stat().st_size for f in files) > _MOST_BYTES
    for file in [init] if is_much else files:
        yield f"{place}/{file.relative_to(init.parent).as_posix()}", file
