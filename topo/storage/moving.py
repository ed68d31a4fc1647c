"""The move of a checkpoint: Spark writes whole paths into it, which then lead to the old place.

The metadata of each operator that has state names the files with the schema of that state. Spark
would look for them at the old place, and make its directories again; and a copy would work only as
long as the original is there. So these paths are made to begin with where the checkpoint is.
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

METADATA = "state/{operator}/_metadata/v2"
"""The directory of an operator's metadata, in a checkpoint."""
_STATE = "/state/"
_PATHS = "stateSchemaFilePaths"


def moved_here(text: str, location: str) -> str | None:
    """Return the text of an operator's metadata with its paths below `location`.

    None: they are, or it is not what Spark writes, which Spark will refuse.
    """
    version, _, body = text.partition("\n")
    try:
        metadata: Any = json.loads(body)
        stores = [store for store in metadata["stateStoreInfo"] if _PATHS in store]
        before = [store[_PATHS] for store in stores]
        moved = [[_below(path, location) for path in paths] for paths in before]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if moved == before:
        return None
    for store, paths in zip(stores, moved, strict=True):
        store[_PATHS] = paths
    return f"{version}\n{json.dumps(metadata, separators=(',', ':'), ensure_ascii=False)}"


def _below(path: str, location: str) -> str:
    return f"{location}{_STATE}{path.rpartition(_STATE)[2]}"


def move_local(directory: Path, location: str) -> bool:
    """Correct the paths in a checkpoint of this machine's; return True if there was any to correct.

    `location` is how Spark writes the directory.
    """
    is_moved = False
    for path in directory.glob(METADATA.format(operator="*") + "/*"):
        try:
            moved = moved_here(path.read_text(encoding="utf-8"), location)
        except (OSError, ValueError):  # Spark will refuse it
            continue
        if moved is None:
            continue
        swap_local(path, moved)
        is_moved = True
    return is_moved


def swap_local(path: Path, text: str) -> None:
    """Write a file of this machine's over another; after a power cut there is one of them."""
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's, of the old text
    os.replace(unfinished, path)
    _sync(path.parent)


def sync_tree(directory: Path) -> None:
    """Make everything in a directory durable, and that it is there."""
    for path in (*directory.rglob("*"), directory, directory.parent):
        if path.exists():
            _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
