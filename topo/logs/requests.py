"""Requests to the logs of a running topology: levels of loggers, and a sample of emitted tuples.

They are a file in the directory of the log, which the slot processes beside it look at once in an
execution: one `stat`, unless the file has changed. Processes on other machines have no such file.
A sampled tuple is a log line, so that it comes by the way of all other lines.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from topo.logs.capture import LOG_DIR

FILE = "requests.json"
SAMPLED = "sample of "
"""The beginning of a sampled tuple's line."""
LEVEL_SECS, MOST_LEVEL_SECS = 600.0, 86_400
"""For how long a level is set: by default, and at most."""
PER_SEC, MOST_PER_SEC = 5.0, 100
SAMPLE_SECS, MOST_SAMPLE_SECS = 60.0, 3_600
_VALUE_CHARS = 200
_LINE_VALUES = 50
_log = logging.getLogger("topo.sample")


@dataclass(frozen=True)
class AskedLevel:
    """The level that a logger has until a time."""

    level: str
    until: float


@dataclass(frozen=True)
class Sample:
    """A number of tuples that each task of a component logs in a second, until a time."""

    component: str
    per_sec: float
    until: float


@dataclass(frozen=True)
class Requests:
    """Everything that is asked of the logs of one run."""

    levels: Mapping[str, AskedLevel] = field(default_factory=dict)
    """By logger; the root logger is ""."""
    samples: Sequence[Sample] = ()

    def now(self, at: float) -> Requests:
        """Return the requests that are still to be met."""
        levels = {name: level for name, level in self.levels.items() if level.until > at}
        return Requests(levels, tuple(one for one in self.samples if one.until > at))


def read_requests(directory: Path) -> Requests:
    """Return what is asked of the logs in a directory; nothing if the file is damaged."""
    try:
        document: Any = json.loads((directory / FILE).read_bytes())
        levels = {str(name): AskedLevel(**level) for name, level in document["levels"].items()}
        return Requests(levels, tuple(Sample(**sample) for sample in document["samples"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Requests()


def as_document(requests: Requests) -> dict[str, Any]:
    """Return requests as they are written."""
    return asdict(requests)


Listening: TypeAlias = Callable[[str, int, Sequence[Any]], None]
"""A function that is shown the rows of each flush: their stream, the task, their values."""


class Emits(Protocol):
    """The emitter of a task."""

    @property
    def hear(self) -> Listening | None: ...
    def listen(self, hear: Listening | None) -> None: ...
    def fields_of(self, name: str) -> tuple[str, ...]: ...


class Emitting(Protocol):
    """A task whose emits can be heard."""

    @property
    def id(self) -> int: ...
    @property
    def component_id(self) -> str: ...
    @property
    def outlet(self) -> Emits: ...


class LogRequests:
    """The requests as one process meets them; used by one thread."""

    def __init__(self, mask: Callable[[str, Any], Any], directory: str | None = None) -> None:
        found = directory or os.environ.get(LOG_DIR)
        self._path = Path(found) / FILE if found else None
        self._mask = mask
        self._stamp: tuple[int, int] | None = None
        self._requests = Requests()
        self._ends = 0.0
        self._before: dict[str, int] = {}
        self._heard: dict[int, Emits] = {}

    def meet(self, tasks: Iterable[Emitting]) -> None:
        """Read the file if it has changed; set levels, and listen to the emits that are asked for.

        To be called before tasks work, with all tasks that are going to.
        """
        if self._path is None:
            return
        try:
            status = os.stat(self._path)
        except OSError:
            return
        stamp, now = (status.st_mtime_ns, status.st_ino), time.time()
        if stamp != self._stamp:
            self._stamp = stamp
            self._requests = read_requests(self._path.parent).now(now)
            self._set_levels()
        elif now >= self._ends and self._ends:
            self._requests = self._requests.now(now)
            self._set_levels()
        elif not self._requests.samples and not self._heard:
            return
        self._listen(tasks)

    def _set_levels(self) -> None:
        wanted = self._requests.levels
        for name in self._before.keys() - wanted.keys():
            logging.getLogger(name or None).setLevel(self._before.pop(name))
        for name, level in wanted.items():
            logger = logging.getLogger(name or None)
            self._before.setdefault(name, logger.level)
            logger.setLevel(level.level)
        ends = [level.until for level in wanted.values()]
        ends += [sample.until for sample in self._requests.samples]
        self._ends = min(ends, default=0.0)

    def _listen(self, tasks: Iterable[Emitting]) -> None:
        wanted = {sample.component: sample for sample in self._requests.samples}
        for task in tasks:
            sample = wanted.get(task.component_id)
            outlet = self._heard.get(task.id)
            if sample is None:
                if outlet is task.outlet:
                    del self._heard[task.id]
                    outlet.listen(None)
            elif outlet is not task.outlet and task.outlet.hear is None:
                self._heard[task.id] = task.outlet
                budget = _Budget(sample.per_sec)
                task.outlet.listen(partial(self._log, task.component_id, task.outlet, budget))

    def _log(
        self,
        component: str,
        outlet: Emits,
        budget: _Budget,
        stream: str,
        task: int,
        rows: Sequence[Any],
    ) -> None:
        for row in rows[: budget.take(len(rows))]:
            named = zip(outlet.fields_of(stream), list(row)[:_LINE_VALUES], strict=False)
            values = ", ".join(f"{name}={self._shown(name, value)}" for name, value in named)
            _log.info("%s%s: %s", SAMPLED, stream, values, extra={"topo_task": (component, task)})

    def _shown(self, name: str, value: Any) -> str:
        try:
            text = repr(self._mask(name, value))
        except Exception as error:  # of the user's class
            text = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
        return text if len(text) <= _VALUE_CHARS else f"{text[: _VALUE_CHARS - 3]}..."


class _Budget:
    """So many in a second, and at least one for each second that has passed."""

    def __init__(self, per_sec: float) -> None:
        self._per_sec = per_sec
        self._left = max(1.0, per_sec)
        self._at = time.monotonic()

    def take(self, count: int) -> int:
        """Return how many of `count` may be had now."""
        now = time.monotonic()
        most = max(1.0, self._per_sec)
        self._left = min(most, self._left + (now - self._at) * self._per_sec)
        self._at = now
        taken = min(count, int(self._left))
        self._left -= taken
        return taken
