"""The turns in which logs are looked at that are followed as they grow.

Of thousands of logs a few are written at a time, and to look at all of them for each page of
records would cost more than to read it. So all of them are looked at when the directory is listed,
and in between those that were read last, and some of the others in turn: few enough logs are all
looked at each time. A log that has grown keeps its turn until all of it is read, so that what was
rotated comes before what followed it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from topo.connectors.files.listing import ListedFile

_MOST_LOOKS = 64
"""Logs that are looked at in turn, each time that none is known to have grown."""
_MOST_RECENT = 32
"""Logs that were read last, and are looked at each time."""


class Turns:
    """The logs of a task, and those of them whose turn it is."""

    def __init__(self) -> None:
        self._logs: Sequence[ListedFile] = ()
        self._places: dict[str, int] = {}
        self._waiting: deque[ListedFile] = deque()
        self._recent: dict[str, None] = {}
        self._next = 0

    def set_logs(self, logs: Sequence[ListedFile], grown: Iterable[ListedFile]) -> None:
        """Take logs in the order in which they are to be read; `grown` have more than was read."""
        self._logs = logs
        self._places = {log.path: place for place, log in enumerate(logs)}
        self._waiting = deque(grown)

    def begin(self) -> None:
        """Choose logs to look at, if none is left that may have grown."""
        if self._waiting or not self._logs:
            return
        count = len(self._logs)
        places = {self._places[path] for path in self._recent if path in self._places}
        places.update((self._next + step) % count for step in range(min(count, _MOST_LOOKS)))
        self._next = (self._next + _MOST_LOOKS) % count
        self._waiting.extend(self._logs[place] for place in sorted(places))

    def first(self) -> ListedFile | None:
        """Return the log whose turn it is; None if there is none for now."""
        return self._waiting[0] if self._waiting else None

    def was_read(self) -> None:
        """Hear that the first log had more; it keeps its turn."""
        path = self._waiting[0].path
        self._recent.pop(path, None)
        self._recent[path] = None
        for oldest in list(islice(self._recent, max(0, len(self._recent) - _MOST_RECENT))):
            del self._recent[oldest]

    def pass_on(self) -> None:
        """Hear that the first log has no more for now."""
        self._waiting.popleft()
