"""Logs that are followed, whatever names rotation gives them.

A log is its inode. But the inode of a log that was removed is given to the next file that is made,
and its position with it, if nothing else is looked at: so how a log begins is kept, too.

Tasks know nothing of each other's logs. Which task reads one is told by its name alone, and as few
ends of names as possible are taken for rotation's there: all logs of one name are one task's, and
a log that is dealt by another name after an upgrade is read again from its beginning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

from topo.connectors.files.listing import ListedFile

_HEAD_BYTES = 256

_BEHIND = tuple(
    map(re.compile, (r"[-.]\d{8}\d*(?:[-T_.]\d+)*$", r"\.\d+$", r"\.(?:gz|bz2|xz|zst)$"))
)
"""The ends by which logs are dealt over tasks. A saved position is a task's by them: never change
them."""
_ROTATED = (
    re.compile(r"[-._]\d{8}\d*(?:[-T_.]\d+)*$"),
    re.compile(r"[-._]\d{4}-\d\d-\d\d(?:[-T_.:]\d+)*$"),
    *_BEHIND[1:],
)
"""All ends that rotation gives to names. They are taken off one by one: a pattern that repeats
them has many ways to read the same digits, and tries them all."""


def log_key(log: ListedFile) -> str:
    """Return what the position of a log is filed under that was not seen before."""
    head, name = os.path.split(log.path)
    return f"{os.path.join(head, _without(_BEHIND, name) or name)}#{log.inode}"


def dealt_name(key: str) -> str:
    """Return the name by which a log is dealt to a task."""
    return key.rpartition("#")[0]


def family(path: str) -> str:
    """Return the name under which a log file was written before it was rotated.

    What rotation adds comes behind the name, or in front of its suffix: `app.log.1`, `app.1.log`.
    """
    head, name = os.path.split(path)
    base = _without(_ROTATED, name) or name
    stem, suffix = os.path.splitext(base)
    return os.path.join(head, (_without(_ROTATED, stem) or stem) + suffix)


def _without(ends: Iterable[re.Pattern[str]], name: str) -> str:
    while True:
        shorter = name
        for end in ends:
            shorter = end.sub("", shorter)
        if shorter == name:
            return name
        name = shorter


def head_of(file: int, at: int, before: tuple[int, int]) -> tuple[int, int]:
    """Return the size and the checksum of how an open log begins, as far as it was read."""
    size = min(at, _HEAD_BYTES)
    return before if before[0] == size else (size, crc32(os.pread(file, size, 0)))


def is_same_log(entry: Mapping[str, Any], log: ListedFile) -> bool:
    """Return True if a file is the log that an entry of its inode tells of.

    Under the same name it is, and may have been truncated. Under another one it has to begin as the
    log did; of one of which nothing was read, or that an earlier topo has read, names have to tell.
    """
    path: str = entry["path"]
    if log.path == path:
        return True
    size, checksum = entry.get("head") or (0, 0)
    if not size:
        return family(log.path) == family(path)
    try:
        with open(log.path, "rb") as file:
            head = file.read(size)
    except OSError:
        return False
    return (len(head), crc32(head)) == (size, checksum)


class KnownLogs:
    """The keys of the logs that were seen before, by directory and inode."""

    def __init__(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        self._entries = entries
        self._places: dict[tuple[str, int], list[str]] = {}
        for key, entry in entries.items():
            place = os.path.dirname(entry["path"]), entry["inode"]
            self._places.setdefault(place, []).append(key)
        self._keys: dict[tuple[str, int], str] = {}

    def find(self, log: ListedFile) -> str | None:
        """Return the key of a log that was seen before, and know it from now on; None if none."""
        place = os.path.dirname(log.path), log.inode
        name = log_key(log)
        for key in sorted(self._places.get(place, ()), key=lambda key: key != name):
            entry = self._entries.get(key)  # it may have been forgotten
            if entry is not None and is_same_log(entry, log):
                self._keys[place] = key
                return key
        return None

    def key(self, log: ListedFile) -> str:
        """Return the key of a log."""
        place = os.path.dirname(log.path), log.inode
        return self._keys.get(place) or log_key(log)
