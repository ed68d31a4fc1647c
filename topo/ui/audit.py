"""The lines about changes by the pages and by REST, in a file that nobody who asks can empty.

The file is never rotated: a stranger could push every line out of it with requests that are
refused. So these are limited instead, in number and in length; a change that was done always has
its line.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from topo.logs.capture import LineFile
from topo.tracking.clock import SteadyClock

REFUSED_PER_MINUTE = 10
_ACTION_CHARS = 300
log = logging.getLogger("topo.ui")


class AuditLog:
    """An audit file; may be written to by several threads at once."""

    def __init__(self, path: Path, clock: Callable[[], float] | None = None) -> None:
        self._file = LineFile(path, grows=True)
        self._clock = clock or SteadyClock()
        self._lock = threading.Lock()
        self._minute = 0
        self._refused = 0  # in this minute
        self._left_out = 0  # since the last line

    def write(self, line: Mapping[str, Any]) -> None:
        """Write a line; of refused requests, only the first ones of each minute."""
        with self._lock:
            if int(line["status"]) >= 400 and not self._may_note_refused():
                self._left_out += 1
                return
            noted = {**line, "action": str(line["action"])[:_ACTION_CHARS]}
            if self._left_out:
                noted["refused_before"] = self._left_out
                self._left_out = 0
            self._file.write(noted)
        log.info("audit %s", json.dumps(noted))

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _may_note_refused(self) -> bool:
        minute = int(self._clock() // 60)
        if minute != self._minute:
            self._minute, self._refused = minute, 0
        self._refused += 1
        return self._refused <= REFUSED_PER_MINUTE
