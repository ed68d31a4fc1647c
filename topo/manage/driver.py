"""The process that runs one submitted topology and serves its control service.

It holds its lock while it lives, keeps `state.json` current, writes the figures every few seconds,
and obeys the control service. The supervisor decides what follows its end: a run that is over
leaves a final status; any other is restarted.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from topo._pb import control_pb2 as pb
from topo.config import Config, Layer, effective
from topo.config.masters import split_address
from topo.engine.base import Engine, Launch, Run, engine_named
from topo.errors import (
    CheckpointError,
    ComponentError,
    ConfigError,
    EmitError,
    InvalidTopologyError,
    RunError,
    StatelessError,
    TargetError,
    TopoError,
    UncaughtError,
    UnpicklableComponentError,
    UnsavableAttributeError,
    sentence_of,
)
from topo.logs.capture import LOG_DIR, LOG_LEVEL
from topo.logs.rotation import cut_down
from topo.manage.documents import plain
from topo.manage.files import ProcessLock, read_json, write_json_if_possible
from topo.manage.records import FINAL, LIVE, State, read_state, read_submission
from topo.manage.service import ControlServer
from topo.metrics.history import Windows
from topo.metrics.prometheus import Exposed, exposition
from topo.metrics.series import Series, sample_of
from topo.metrics.serving import FigureServer
from topo.shipping.sources import SOURCES
from topo.topology.model import Topology

log = logging.getLogger("topo.manage")
POLL_SECS = 0.2
_FINAL_ERRORS = (
    UncaughtError, CheckpointError, ComponentError, ConfigError, EmitError, InvalidTopologyError,
    StatelessError, TargetError, UnpicklableComponentError, UnsavableAttributeError,
)  # fmt: skip
"""Of the user's code, settings or checkpoint: another start meets the same."""
FIGURES_SECS = 3.0
"""How often what changes all the time is written: figures, and the last batch."""
HISTORY_SECS = 30.0
"""How often the series and the batches are written; a driver that dies loses no more of them."""
CHANGE_SECS = 5.0
"""How long an answer waits for the change to have happened, which it does with the next batch."""
CHANGE_POLL_SECS = 0.02
_REACHED = {
    "ACTIVE": (*FINAL, "ACTIVE", "STALLED"),
    "INACTIVE": (*FINAL, "INACTIVE"),
    "KILLED": (*FINAL, *LIVE),  # that takes its time, and is followed by the caller
}


class Driver:
    """One topology's run, with its engine, its control service and its directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.submission = read_submission(directory)
        self._state = replace(read_state(directory), status="STARTING", since=time.time())
        self._engine: Engine | None = None
        self._run: Run | None = None
        self._starting = threading.Lock()
        self._wake = threading.Event()
        self._ending = False
        self._windows = Windows()
        self._history = Series.load(_written_history(directory))
        self._history_due = 0.0
        self._noting = threading.Lock()
        self._killing: threading.Thread | None = None

    def main(self) -> int:
        """Run the topology to its end; return the process's exit code."""
        server = ControlServer(self, (self._directory / "token").read_text())
        self._say(
            replace(self._state, address=server.address, reason="", code="", hint="", traceback="")
        )
        metrics: FigureServer | None = None
        try:
            run = self._start()
            metrics = self._metrics_server(run)
            with self._starting:
                self._run = run
                if self._wanted() == "KILLED":  # before there was a run to kill
                    run.kill(wait_secs=0)
            self._follow(run)
        except Exception as error:
            self._fail(error)
        finally:
            server.stop()
            if metrics:
                metrics.stop()
            if self._engine and self._run:
                self._engine.stop()
        return 0 if self._state.status in ("KILLED", "COMPLETED") else 1

    @property
    def log_level(self) -> str:
        """The level from which the log records of user code are kept."""
        return str(effective(Layer("conf", self.submission.conf))[Config.log_level.key].value)

    def end(self) -> None:
        """Stop at once, to be restarted later."""
        self._ending = True
        self._wake.set()

    # Requests of the control service

    def status(self) -> pb.StatusReply:
        run = self._run
        status = run.status if run else self._state.status
        reply = pb.StatusReply(
            id=self.submission.id, status=status, reason=(run.reason if run else "") or ""
        )
        if run:
            stats = run.stats()
            reply.pending = sum(c.pending for c in stats.components.values())
            reply.batch = stats.batch.id
        return reply

    def stats(self, window_secs: float | None) -> dict[str, Any]:
        figures: dict[str, Any] = plain(self._started().stats())
        if window_secs is None:
            return figures
        return self._windows.last(window_secs, time.monotonic(), figures)

    def errors(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = plain(self._started().errors())
        return found

    def history(self, window_secs: float) -> dict[str, Any]:
        with self._noting:
            return dict(self._history.last(window_secs, time.time()))

    def batches(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = plain(self._started().batches())
        return found

    def activate(self) -> str:
        return self._change("ACTIVE", lambda run: run.activate())

    def deactivate(self) -> str:
        return self._change("INACTIVE", lambda run: run.deactivate())

    def begin_kill(self, wait_secs: float) -> str:
        def begin(run: Run) -> None:
            self._killing = threading.Thread(
                target=run.kill, kwargs={"wait_secs": wait_secs}, name="kill"
            )
            self._killing.start()

        with self._starting:
            if self._run is None:
                self._remember("KILLED")
                return "STARTING"
        return self._change("KILLED", begin)

    def _change(self, wanted: str, change: Callable[[Run], None]) -> str:
        run = self._started()
        was = run.status
        if was in FINAL:
            raise RunError(f"{self.submission.name} is {was}")
        self._remember(wanted)
        change(run)
        self._wake.set()
        reached = _REACHED[wanted]
        deadline = time.monotonic() + CHANGE_SECS
        while run.status not in reached and time.monotonic() < deadline:
            time.sleep(CHANGE_POLL_SECS)
        return was

    def _remember(self, wanted: str) -> None:
        """Store the wanted status for the next driver, in case this one dies."""
        self._write("wanted.json", {"status": wanted})

    def _wanted(self) -> str:
        return str((read_json(self._directory / "wanted.json") or {}).get("status", ""))

    def _started(self) -> Run:
        if self._run is None:
            raise RunError(f"{self.submission.name} is STARTING")
        return self._run

    # The run's life

    def _start(self) -> Run:
        sys.path.insert(0, self.submission.code_directory)
        topology = Topology.from_bytes((self._directory / "topology.pb").read_bytes())
        wanted = self._wanted()
        active = wanted != "INACTIVE" if wanted else self.submission.active
        sources = self._directory / SOURCES
        launch = Launch(
            self.submission.name,
            topology,
            self.submission.conf,
            master=self.submission.master,
            active=active,
            log_file=self._directory / "log" / "spark.log",
            run_id=self.submission.id,
            files=(*self.submission.py_files, *([str(sources)] if sources.exists() else [])),
            archives=self.submission.archives,
        )
        self._engine = engine_named(self.submission.engine)
        return self._engine.launch(launch).start()

    def _metrics_server(self, run: Run) -> FigureServer | None:
        """Serve `/metrics` if `topology.metrics.bind` says where."""
        bind = Config(self.submission.conf).metrics_bind
        if not bind:
            return None

        def metrics(accept: str, query: Mapping[str, list[str]]) -> tuple[bytes, str]:
            shown = Exposed(run.name, run.status, plain(run.stats()), plain(run.errors()))
            return exposition([shown], accept, by_task=query.get("by") == ["task"])

        server = FigureServer(*split_address(bind), {"/metrics": metrics})
        log.info("figures for Prometheus at http://%s/metrics", server.address)
        return server

    def _follow(self, run: Run) -> None:
        figures_due = 0.0
        while not self._ending:
            status = run.status
            if status in FINAL:
                break
            self._note(run, status)
            if time.monotonic() >= figures_due:
                self._write_figures(run)
                figures_due = time.monotonic() + FIGURES_SECS
            self._wake.wait(POLL_SECS)
            self._wake.clear()
        if self._ending:
            run.stop()  # and closes no component: the next driver resumes
            self._write_figures(run)
            self._say(replace(self._state, status="FAILED", reason="its driver was told to end"))
            return
        if self._killing:
            self._killing.join()
        self._write_figures(run)
        error = run.error
        if error:
            raise error
        self._note(run, run.status)

    def _note(self, run: Run, status: str) -> None:
        reason = run.reason or ""
        before = self._state
        last = run.batches()[-1:]  # not the figures of all tasks, five times a second
        self._state = replace(
            before,
            status=status,
            reason=reason,
            ui=run.ui,
            batch=max([before.batch, *(batch.id for batch in last)]),
            has_committed=before.has_committed or bool(last),
        )
        if (status, reason, run.ui) != (before.status, before.reason, before.ui):
            since = before.since if status == before.status else time.time()
            self._say(replace(self._state, since=since))

    def _fail(self, error: Exception) -> None:
        with suppress(OSError):  # the disk may be full
            print("".join(traceback.format_exception(error)), file=sys.stderr, flush=True)
        users = error.user_traceback if isinstance(error, UncaughtError) else ""
        words = sentence_of(error)
        if not isinstance(error, TopoError):
            words = f"{type(error).__name__}: {words}"
        # What has never worked has to be seen to by somebody; Spark's death is nobody's fault.
        has_worked = self._state.has_committed or self.submission.resumed
        may_pass = has_worked or getattr(error, "code", "") == "spark-died"
        self._say(
            replace(
                self._state,
                status="FAILED",
                reason=words,
                since=time.time(),
                code=getattr(error, "code", ""),
                hint=getattr(error, "hint", ""),
                traceback=users,
                may_restart=may_pass and not isinstance(error, _FINAL_ERRORS),
            )
        )

    def _write_figures(self, run: Run) -> None:
        figures = plain(run.stats())
        self._windows.add(time.monotonic(), figures)
        with self._noting:
            self._history.add(time.time(), sample_of(figures))
        self._write("stats.json", figures)
        self._write("state.json", asdict(self._state))
        self._write("errors.json", plain(run.errors()))
        for name in ("spark.log", "driver.log"):
            cut_down(self._directory / "log" / name)
        if run.status in FINAL or self._ending or time.monotonic() >= self._history_due:
            self._history_due = time.monotonic() + HISTORY_SECS
            self._write("history.json", self._history.dump())
            self._write("batches.json", plain(run.batches()))

    def _say(self, state: State) -> None:
        self._state = state
        self._write("state.json", asdict(state))

    def _write(self, name: str, document: object) -> None:
        write_json_if_possible(self._directory / name, document)


def _written_history(directory: Path) -> object:
    try:
        return json.loads((directory / "history.json").read_bytes())
    except (OSError, ValueError):  # it is the first driver, or the disk was full
        return None


def main(directory: Path) -> int:
    lock = ProcessLock(directory / "driver.lock")
    os.environ[LOG_DIR] = str(directory / "log")  # for the processes it starts
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    driver = Driver(directory)
    os.environ[LOG_LEVEL] = driver.log_level
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: driver.end())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        return driver.main()
    finally:
        lock.release()


if __name__ == "__main__":
    ended = main(Path(sys.argv[1]))
    try:
        sys.stderr.flush()
    except OSError:  # or the interpreter would try again, and end with another code
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.exit(ended)
