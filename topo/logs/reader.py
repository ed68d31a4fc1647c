"""A reader of a submitted topology's log lines, from all its processes, in time order."""

from __future__ import annotations

import heapq
import json
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topo.logs.search import Search

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass
class Wanted:
    """A filter of lines; `seen` counts the lines of the time span by level, wanted or not."""

    level: str = "INFO"
    since: str = ""
    component: str | None = None
    task: int | None = None
    search: Search | None = None
    seen: Counter[str] = field(default_factory=Counter)

    def accepts(self, line: dict[str, Any]) -> bool:
        if line["time"] < self.since:
            return False
        self.seen[line["level"]] += 1
        return (
            _rank(line["level"]) >= _rank(self.level)
            and self.component in (None, line["component"])
            and self.task in (None, line["task"])
            and isinstance(line["message"], str)
        )


class LogReader:
    """The lines of one run, until `close`; a further `read` returns the lines that came since."""

    def __init__(self, directory: Path, wanted: Wanted) -> None:
        self._directory = directory
        self._wanted = wanted
        self._read_to: dict[tuple[str, bytes], int] = {}

    def last(self, count: int) -> list[dict[str, Any]]:
        """Return the last `count` wanted lines."""
        return list(deque(self.read(), maxlen=count))

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the wanted lines that were not read before."""
        files = [self._lines(path) for path in sorted(self._directory.glob("*.jsonl*"))]
        lines = heapq.merge(*files, key=lambda line: line["time"])
        search = self._wanted.search
        return lines if search is None else search.matching(lines)

    def close(self) -> None:
        if self._wanted.search is not None:
            self._wanted.search.close()

    def _lines(self, path: Path) -> Iterator[dict[str, Any]]:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return  # it was moved on while we looked
        with file:
            # A file keeps its first line when it is renamed to `.1`; an inode may be used again.
            identity = (path.name.removesuffix(".1"), file.readline())
            file.seek(self._read_to.get(identity, 0))
            for text in file:
                if not text.endswith(b"\n"):
                    break  # being written
                self._read_to[identity] = self._read_to.get(identity, 0) + len(text)
                try:
                    line = json.loads(text)
                    is_wanted = self._wanted.accepts(line)
                except (ValueError, KeyError, TypeError):
                    continue  # cut short by a full disk
                if is_wanted:
                    yield line


def _rank(level: str) -> int:
    return LEVELS.index(level) if level in LEVELS else LEVELS.index("INFO")
