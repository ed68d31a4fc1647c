"""A run followed from the terminal: its figures, its tuples, Ctrl-C, its end.

On a terminal, stderr shows a live table; otherwise a line every few seconds. The tuples selected by
`--show` go to stdout, one JSON line per tuple.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Literal, Protocol

import click

from topo.cli.failures import INTERRUPTED, usage_error
from topo.cli.output import Output
from topo.cli.runs import count
from topo.cli.stats import COLUMNS, cells_of, head_of
from topo.engine.base import Run
from topo.errors import RunError, did_you_mean, printable_json
from topo.manage.documents import plain
from topo.running import ENDED, INACTIVE, STARTING, RunStats
from topo.topology.model import Topology

REFRESH_SECS = 0.5
POLL_SECS = 0.05
LONGEST_DRAIN_SECS = 10.0
"""After --time, messages in flight get no longer: who names a time wants it kept."""
LINE_SECS = 5.0
_ROWS_KEPT = 10_000
_WIDE = 120
FORCED = 3
_LAST_WRITE_SECS = 1.0
_EXPENDABLE = ("KIND", "TASKS", "HELD (OLDEST)", "STATE")
"""Columns that a terminal narrower than _WIDE does without."""


class TupleOutput:
    """Tuples of the selected components and streams on their way to stdout.

    This is a listener of tasks. A thread of its own prints the tuples, so that a slow terminal
    delays the run but not requests to it.
    """

    def __init__(self, wanted: Sequence[str], topology: Topology, limit: int | None = None) -> None:
        self.wanted = frozenset(_parse_show(text, topology) for text in wanted)
        self.enough = threading.Event()
        """The limit is reached, or nobody reads."""
        self.error: OSError | None = None
        self._limit = limit
        self._is_given_up = False
        self._rows: queue.Queue[dict[str, Any] | None] = queue.Queue(_ROWS_KEPT)
        self._printer = threading.Thread(target=self._print, name="show", daemon=True)
        self._printer.start()

    @property
    def components(self) -> list[str]:
        return sorted({component for component, _ in self.wanted})

    def emitted(self, component: str, stream: str, task: int, rows: Sequence[Any]) -> None:
        if (component, stream) not in self.wanted:
            return
        for values in rows:
            if self.enough.is_set():
                return
            self._put(
                {"component": component, "stream": stream, "task": task, "values": list(values)}
            )

    def _put(self, row: dict[str, Any] | None) -> None:
        """Wait for room, unless nobody reads any more."""
        while not self.enough.is_set() or row is None:
            try:
                return self._rows.put(row, timeout=POLL_SECS)
            except queue.Full:
                if self._is_given_up:
                    return None
        return None

    def give_up(self) -> None:
        """Let go of everybody who waits for a reader that has stopped reading."""
        self._is_given_up = True
        self.enough.set()

    @property
    def is_stuck(self) -> bool:
        """True if a write to stdout does not return, which holds the lock of its buffer."""
        return self._is_given_up and self._printer.is_alive()

    def concluded(self, component: str, msg_id: Any, reason: str | None) -> None:
        """Do nothing: the figures count verdicts."""

    def finish(self) -> None:
        """Print the remaining tuples; raise the printing thread's exception, if any."""
        self._put(None)
        while self._printer.is_alive():
            self._printer.join(POLL_SECS)
            if self._is_given_up:
                self._printer.join(_LAST_WRITE_SECS)
                break
        if self.error:
            raise self.error

    def _print(self) -> None:
        printed = 0
        while (row := self._rows.get()) is not None:
            if self.enough.is_set():
                continue  # those who wait to put a row must get through
            try:
                click.echo(line_of(row))
            except OSError as error:
                self.error = error
                self.enough.set()
            printed += 1
            if printed == self._limit:
                self.enough.set()


def line_of(row: dict[str, Any]) -> str:
    """Return a row as JSON; a value that JSON or UTF-8 lacks is shown as Python writes it."""
    try:
        line = json.dumps(row, ensure_ascii=False, default=repr)
        line.encode()
    except Exception:  # of the user's __repr__, too
        values = [_shown(value) for value in row["values"]]
        return json.dumps({**row, "values": values})
    return printable_json(line)


def _shown(value: Any) -> Any:
    try:
        json.dumps(value)
    except Exception:
        try:
            return repr(value)
        except Exception as error:
            return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    return value


def _parse_show(text: str, topology: Topology) -> tuple[str, str]:
    component, _, stream = text.partition(":")
    stream = stream or "default"
    definition = topology.components.get(component)
    if definition is None:
        known = list(topology.components)
        hint = did_you_mean(component, known) or f"there are: {', '.join(known)}"
        raise usage_error(f"no component {component!r}", at=f"--show {text}", hint=hint)
    try:
        definition.declared(stream)
    except RunError as error:
        raise usage_error(error.message, at=f"--show {text}", hint=error.hint) from None
    return component, stream


class Interrupts:
    """A counter of Ctrl-C and SIGTERM, which are then not raised at arbitrary places.

    The third ends the process as it stands, whatever does not return. A terminal that is closed
    counts as one Ctrl-C, though shell and kernel may both tell of it; nothing is written to it any
    more. A run whose starter ignores SIGHUP, as `nohup` does, hears nothing of it.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first = 0
        """The number of the first signal; 0 before there is one."""
        self._before: dict[int, Any] = {}
        self._terminals: list[int] = []

    def __enter__(self) -> Interrupts:
        self._terminals = [handle for handle in (0, 1, 2) if os.isatty(handle)]
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._note_hangup)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        self.count += 1
        self.first = self.first or number
        if self.count >= FORCED:
            os._exit(INTERRUPTED)

    def _note_hangup(self, number: int, frame: object) -> None:
        if self._terminals:
            nothing = os.open(os.devnull, os.O_RDWR)
            for handle in self._terminals:
                os.dup2(nothing, handle)
            os.close(nothing)
            self._terminals = []
        if not self.count:
            self._note(number, frame)


class Foreground:
    """A loop that follows one run until it ends or is to be stopped."""

    def __init__(
        self,
        out: Output,
        run: Run,
        shown: TupleOutput,
        secs: float | None,
        interrupts: Interrupts,
        display: Display | None = None,
    ) -> None:
        self._out = out
        self._run = run
        self._shown = shown
        self._secs = secs
        self._interrupts = interrupts
        self._chosen = display
        self._began = time.monotonic()
        self._active_since: float | None = None

    def follow(self, drain_secs: float) -> str:
        """Return why it stopped: "completed", "time", "limit", "interrupted" or "failed".

        The first Ctrl-C stops the spouts and waits for messages in flight, the second ends at once.
        """
        why = self._until_over()
        if why == "interrupted":
            self._out.say("stopping: what is in flight is finished first; Ctrl-C again: at once")
        drain_secs = {"limit": 0.0, "time": min(drain_secs, LONGEST_DRAIN_SECS)}.get(
            why, drain_secs
        )
        self._kill(drain_secs)
        self._shown.finish()
        return why

    def _kill(self, wait_secs: float) -> None:
        before = min(self._interrupts.count, 1)
        with ThreadPoolExecutor(1, "kill") as threads:
            killed = threads.submit(self._run.kill, wait_secs=wait_secs)
            while not wait([killed], POLL_SECS).done:
                if self._interrupts.count > before:
                    self._shown.give_up()
                    self._run.stop()
            killed.result()

    @property
    def elapsed_secs(self) -> float:
        return time.monotonic() - self._began

    def _until_over(self) -> str:
        with self._display() as refresh:
            while True:
                if self._shown.enough.is_set():
                    return "limit"
                if self._interrupts.count:
                    return "interrupted"
                if self._run.status in ENDED:
                    return "failed" if self._run.error else "completed"
                if self._secs is not None and self._active_secs() >= self._secs:
                    return "time"
                refresh()
                if self._shown.wanted:
                    self._shown.enough.wait(POLL_SECS)
                else:
                    self._run.wait(POLL_SECS)

    def _active_secs(self) -> float:
        """Return the seconds since the run became active: starting Spark does not count."""
        if self._active_since is None:
            if self._run.status == STARTING:
                return -1.0
            self._active_since = time.monotonic()
        return time.monotonic() - self._active_since

    def _display(self) -> Display:
        if self._chosen is not None:
            return self._chosen
        live = not self._out.quiet and self._out.err_is_terminal and not self._shown.wanted
        return _LiveTable(self._run) if live else _Lines(self._out, self._run, self._began)


class Display(Protocol):
    """Shows what a run does: entered, it gives the function that is called to refresh it."""

    def __enter__(self) -> Callable[[], None]: ...
    def __exit__(self, *exception: object) -> None: ...


class _Lines:
    """A display of one line of figures every few seconds."""

    def __init__(self, out: Output, run: Run, began: float) -> None:
        self._out = out
        self._run = run
        self._began = began
        self._due = began + LINE_SECS
        self._before = (began, 0)

    def __enter__(self) -> Callable[[], None]:
        return self._refresh

    def __exit__(self, *exception: object) -> None:
        pass

    def _refresh(self) -> None:
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + LINE_SECS
        stats = self._run.stats()
        if stats.batch.p50_ms is None and stats.reason:
            self._out.say(f"{now - self._began:7.0f} s  {stats.status}: {stats.reason}")
            return
        emitted = sum(c.emitted for c in stats.components.values() if c.kind == "spout")
        then, before = self._before
        self._before = (now, emitted)
        rate = (emitted - before) / (now - then)
        totals = totals_of(stats)
        line = (
            f"{now - self._began:7.0f} s  batch {stats.batch.id}  in {count(rate)}/s  "
            f"acked {totals['acked']:,}  failed {totals['failed']:,}  "
            f"pending {totals['pending']:,}  p50 {stats.batch.p50_ms or 0.0:,.0f} ms"
        )
        if stats.reason or stats.status == INACTIVE:
            line += "  " + ": ".join(filter(None, [stats.status, stats.reason]))
        self._out.say(line)


class _LiveTable:
    """A table of every component's figures, redrawn in place."""

    def __init__(self, run: Run) -> None:
        from rich.console import Console
        from rich.live import Live

        self._run = run
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(self._table(), console=self._console, auto_refresh=False)
        self._due = 0.0

    def __enter__(self) -> Callable[[], None]:
        self._live.start(refresh=True)
        return self._refresh

    def __exit__(self, *exception: object) -> None:
        self._live.update(self._table(), refresh=True)
        self._live.stop()

    def _refresh(self) -> None:
        if time.monotonic() >= self._due:
            self._live.update(self._table(), refresh=True)
            self._due = time.monotonic() + REFRESH_SECS

    def _table(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        stats = self._run.stats()
        table = Table(box=None, pad_edge=False)
        is_narrow = self._console.width < _WIDE
        shown = [i for i, name in enumerate(COLUMNS) if not (is_narrow and name in _EXPENDABLE)]
        for index in shown:
            justify: Literal["left", "right"] = "left" if index == 0 else "right"
            table.add_column(COLUMNS[index], justify=justify, no_wrap=True)
        for name, component in stats.components.items():
            cells = cells_of(name, plain(component))
            table.add_row(*(Text(cells[index]) for index in shown))
        return Group(Text(head_of(plain(stats))), table)


def totals_of(stats: RunStats) -> dict[str, int]:
    spouts = [c for c in stats.components.values() if c.kind == "spout"]
    return {
        "acked": sum(c.acked for c in spouts),
        "failed": sum(c.failed for c in spouts),
        "pending": sum(c.pending for c in spouts),
    }
