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
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from topo.config import Config, Layer, effective
from topo.engine.abilities import ClusterRun, Savable, Scalable
from topo.engine.base import Engine, Run, engine_named
from topo.engine.elastic import StatefulLaunch
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
from topo.manage.answers import read_document, written_errors, written_figures
from topo.manage.autoscaling import Autoscaling
from topo.manage.control import DriverStatus
from topo.manage.documents import plain
from topo.manage.exposing import announce, pages_of, pushed_figures
from topo.manage.files import ProcessLock, write_json_if_possible
from topo.manage.marks import note_mark
from topo.manage.records import (
    FINAL,
    LIVE,
    RegistryError,
    State,
    is_of,
    read_state,
    read_submission,
    read_supervision,
    read_wanted,
)
from topo.manage.registry import Registry, draw_token
from topo.manage.service import DriverServer
from topo.manage.timeline import Timeline
from topo.metrics.continued import all_errors, continued
from topo.metrics.history import Windows
from topo.metrics.prometheus import Exposed
from topo.metrics.series import Series, sample_of
from topo.shipping.sources import SOURCES
from topo.storage.ownership import StillHeld
from topo.topology.layout import TaskLayout
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
COUNTS_SHARE = 0.02
"""The part of its time that a driver may spend on writing its figures after each batch, so that
one that is killed loses the counts of hardly any batch."""
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
    """One topology's run, with its engine, its server and its directory."""

    def __init__(self, directory: Path, host: str = "") -> None:
        self._directory = directory
        self._registry = Registry(directory.parent.parent)
        submission = read_submission(directory)
        self.submission = replace(submission, host=host or submission.host)
        self._state = replace(read_state(directory), status="STARTING", since=time.time())
        self._is_said = False  # as it is, in the registry
        self._is_taken = False
        """Another host has the run by now, which was seen when a file was to be written."""
        self._engine: Engine | None = None
        self._run: Run | None = None
        self._starting = threading.Lock()
        self._storing = threading.Lock()  # a record lock is no lock between two threads
        self._wake = threading.Event()
        self._ending = False
        self._before = written_figures(directory)
        self._errors_before = written_errors(directory)
        self._windows = Windows()
        if self._before is not None:
            self._windows.begin(time.monotonic(), self._before)
        self._history = Series.load(_written_history(directory))
        self._history_due = 0.0
        self._timeline = Timeline(read_document(directory / "batches.json"))
        self._noting = threading.Lock()
        self._killing: threading.Thread | None = None
        self._rebalanced_from: tuple[int | None, ...] = ()
        """The number of slots that was asked for before, while it goes over to another, or to other
        tasks."""
        self._scaling: Autoscaling | None = None

    def main(self) -> int:
        """Run the topology to its end; return the process's exit code."""
        if self._wanted() == "KILLED":  # by force, before this process could be seen
            self._say(replace(self._state, status="KILLED", reason="", address=""))
            return 0
        conf = Config(self.submission.conf)
        token = self._draw_token()
        pages = pages_of(lambda: self._run, self._exposed)
        try:
            server = DriverServer(self, token, pages, conf.metrics_bind)
        except Exception as error:
            self._fail(error)
            return 1
        if server.pages_address:
            announce(server.pages_address)
        self._say(
            replace(self._state, address=server.address, reason="", code="", hint="", traceback="")
        )
        ends = ExitStack()
        try:
            if self._is_taken:
                return 1
            run = self._start()
            ends.enter_context(pushed_figures(run.name, conf, lambda: self._exposed(run)))
            with self._starting:
                self._run = run
                if self._wanted() == "KILLED":  # before there was a run to kill
                    run.kill(wait_secs=0)
            self._follow(run)
        except Exception as error:
            self._fail(error)
        finally:
            server.stop()
            ends.close()
            if self._engine and self._run:
                self._engine.stop()
        return 0 if self._state.status in ("KILLED", "COMPLETED") else 1

    def _draw_token(self) -> str:
        """Return the token of this driver, which is in the registry; on a full disk the last one's.

        Somebody else, to whose port commands were sent, has nothing of it.
        """
        if is_of(self._directory, self.submission.host):
            with suppress(OSError):
                draw_token(self._directory)
        return (self._directory / "token").read_text()

    @property
    def log_level(self) -> str:
        """The level from which the log records of user code are kept."""
        return str(effective(Layer("conf", self.submission.conf))[Config.log_level.key].value)

    def end(self) -> None:
        """Stop at once, to be restarted later."""
        self._ending = True
        self._wake.set()

    # Requests of the control service

    def status(self) -> DriverStatus:
        run = self._run
        status = run.status if run else self._state.status
        answer = DriverStatus(self.submission.id, status, reason=(run.reason if run else "") or "")
        if run:
            stats = run.stats()
            pending = sum(c.pending for c in stats.components.values())
            answer = replace(answer, pending=pending, batch=stats.batch.id)
        if isinstance(run, Scalable):
            answer = replace(answer, slots=run.slots, rebalance_failure=run.rebalance_failure)
            if run.is_rebalancing or (self._rebalanced_from and status not in FINAL):
                # Until the registry has what came of it, too.
                answer = replace(answer, status="REBALANCING")
        return answer

    def stats(self, window_secs: float | None) -> dict[str, Any]:
        figures = self._figures(self._started())
        if window_secs is None:
            return figures
        return self._windows.last(window_secs, time.monotonic(), figures)

    def errors(self) -> list[dict[str, Any]]:
        return self._errors(self._started())

    def history(self, window_secs: float) -> dict[str, Any]:
        with self._noting:
            return dict(self._history.last(window_secs, time.time()))

    def batches(self, before: int | None, limit: int) -> list[dict[str, Any]]:
        self._started()
        return [asdict(batch) for batch in self._timeline.page(before, limit)]

    def executors(self) -> list[dict[str, Any]]:
        """Return the executors that a cluster gives to the run; none on one machine."""
        run = self._started()
        return [asdict(each) for each in run.placed()] if isinstance(run, ClusterRun) else []

    def activate(self) -> str:
        return self._change("ACTIVE", lambda run: run.activate())

    def deactivate(self) -> str:
        return self._change("INACTIVE", lambda run: run.deactivate())

    def begin_rebalance(
        self, workers: int | None, tasks: Mapping[str, int], *, explain: bool = False
    ) -> str:
        """Begin to go over to so many slots, and tasks of components.

        A driver that follows this one ends what is begun. With `explain`, raise what would keep it
        from being made, and begin nothing.
        """
        run = self._started()
        if not isinstance(run, Scalable):
            raise RunError(f"the slots of {self.submission.name} are its engine's")
        was = run.status
        changed = run.rebalance(workers, tasks, explain=explain)
        if explain:
            return was
        slots = changed[Config.workers.key]
        what = "".join(f", {name} to {count} tasks" for name, count in sorted(tasks.items()))
        note_mark(self._directory, "rebalance", f"rebalance to {slots} slots{what} begins")
        self._rebalanced_from = (self.submission.workers,)
        if not self._write_conf(changed):
            raise RunError(f"another host has taken {self.submission.name} over")
        self._wake.set()
        return was

    def _write_conf(self, changed: Mapping[str, Any]) -> bool:
        """Store settings for the next driver; return False if that is another host's."""
        conf = {**self.submission.conf, **changed}
        workers, tasks = conf.get(Config.workers.key), self.submission.tasks
        if Config.task_ids.key in changed:
            topology = Topology.from_bytes((self._directory / "topology.pb").read_bytes())
            tasks = TaskLayout(topology, conf).count
        self.submission = replace(self.submission, conf=conf, workers=workers, tasks=tasks)
        try:
            with self._storing:
                is_ours = self._registry.amend(self.submission)
        except RegistryError as error:  # the disk may be full
            log.warning("%s", sentence_of(error))
            return True
        if not is_ours:
            self._leave()
        return is_ours

    def _follow_rebalance(self, run: Run) -> None:
        """Take back what the next driver would do if this one could not."""
        if not isinstance(run, Scalable) or run.is_rebalancing:
            return
        for workers in self._rebalanced_from:
            ended = run.rebalance_failure or f"it runs on {run.slots} slots"
            note_mark(self._directory, "rebalance", f"rebalance ended: {ended}")
            if run.rebalance_failure:
                self._write_conf({Config.workers.key: workers})
            if self._scaling is not None:
                self._scaling.settle(run)
        if run.task_ids != self.submission.conf.get(Config.task_ids.key):
            self._write_conf({Config.task_ids.key: run.task_ids})
        self._rebalanced_from = ()

    def scale(self) -> dict[str, Any]:
        """Return the decisions on slots; nothing if the topology does not scale by itself."""
        return self._scaling.document() if self._scaling is not None else {}

    def save(self, directory: str) -> dict[str, Any]:
        run = self._started()
        if not isinstance(run, Savable):
            raise RunError(f"the engine of {self.submission.name} writes no savepoints")
        return run.save(Path(directory))

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
        note_mark(self._directory, "change", f"{was} to {wanted}")
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
        return read_wanted(self._directory)

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
        launch = StatefulLaunch(
            self.submission.name,
            topology,
            self.submission.conf,
            master=self.submission.master,
            active=active,
            log_file=self._directory / "log" / "spark.log",
            run_id=self.submission.id,
            fate=self.submission.fate,
            begin=self.submission.begin,
            files=(*self.submission.py_files, *([str(sources)] if sources.exists() else [])),
            archives=self.submission.archives,
        )
        self._engine = engine_named(self.submission.engine)
        run = self._engine.launch(launch).start()
        self._scaling = Autoscaling(
            self._directory, launch, lambda slots: self.begin_rebalance(slots, {})
        )
        return run

    def _exposed(self, run: Run) -> Exposed:
        """Return what others are shown of this run."""
        supervision = read_supervision(self._directory)
        return Exposed(
            run.name,
            run.status,
            self._figures(run),
            self._errors(run),
            supervision.restarts if supervision else 0,
        )

    def _follow(self, run: Run) -> None:
        figures_due = counts_due = 0.0
        counted = -1
        while not self._ending and not self._is_taken:
            status = run.status
            if status in FINAL:
                break
            self._note(run, status)
            self._timeline.take(run.batches())
            self._follow_rebalance(run)
            if self._scaling is not None:
                self._scaling.follow(run)
            now = time.perf_counter()
            if now >= figures_due:
                self._write_figures(run)
                figures_due = time.perf_counter() + FIGURES_SECS
            elif counted != self._state.batch and now >= counts_due:
                counted = self._state.batch
                self._write_counts(run)
                ended = time.perf_counter()
                counts_due = ended + (ended - now) / COUNTS_SHARE
            self._wake.wait(POLL_SECS)
            self._wake.clear()
        if self._ending or self._is_taken:
            run.stop()  # and closes no component: the next driver resumes
            if self._is_taken:
                return
            self._write_figures(run)
            why = "its driver was told to end"
            self._say(replace(self._state, status="FAILED", reason=why, address=""))
            return
        if self._killing:
            self._killing.join()
        self._write_figures(run)
        error = run.error
        if error:
            raise error
        self._note(run, run.status)

    def _note(self, run: Run, status: str) -> None:
        remark = self._scaling.remark if self._scaling is not None else ""
        reason = "; ".join(filter(None, [run.reason, remark]))
        before = self._state
        last = run.batches()[-1:]  # not the figures of all tasks, five times a second
        drpc, token_file = run.drpc or ("", "")
        self._state = replace(
            before,
            status=status,
            reason=reason,
            ui=run.ui,
            drpc=drpc,
            drpc_token_file=token_file,
            batch=max([before.batch, *(batch.id for batch in last)]),
            has_committed=before.has_committed or bool(last),
        )
        is_news = (status, reason, run.ui, drpc) != (
            before.status,
            before.reason,
            before.ui,
            before.drpc,
        )
        if is_news or not self._is_said:
            since = before.since if status == before.status else time.time()
            if status == "STALLED" and before.status != "STALLED":
                note_mark(self._directory, "stall", f"stalled: {reason}")
            self._say(replace(self._state, since=since))

    def _fail(self, error: Exception) -> None:
        with suppress(OSError):  # the disk may be full
            print("".join(traceback.format_exception(error)), file=sys.stderr, flush=True)
        users = error.user_traceback if isinstance(error, UncaughtError) else ""
        words = sentence_of(error)
        if not isinstance(error, TopoError):
            words = f"{type(error).__name__}: {words}"
        # What has never worked has to be seen to by somebody; some failures are nobody's fault.
        has_worked = self._state.has_committed or self.submission.resumed
        is_nobodys = isinstance(error, StillHeld) or getattr(error, "code", "") == "spark-died"
        self._say(
            replace(
                self._state,
                status="FAILED",
                reason=words,
                since=time.time(),
                address="",  # or its token would be sent to whoever gets the port next
                code=getattr(error, "code", ""),
                hint=getattr(error, "hint", ""),
                traceback=users,
                may_restart=(has_worked or is_nobodys) and not isinstance(error, _FINAL_ERRORS),
            )
        )

    def _figures(self, run: Run) -> dict[str, Any]:
        """Return the figures of this topology's run, with those of earlier drivers."""
        return continued(self._before, plain(run.stats()))

    def _errors(self, run: Run) -> list[dict[str, Any]]:
        return all_errors(self._errors_before, plain(run.errors()))

    def _write_counts(self, run: Run) -> dict[str, Any]:
        figures = self._figures(run)
        self._write("stats.json", figures)
        return figures

    def _write_figures(self, run: Run) -> None:
        figures, errors = self._write_counts(run), self._errors(run)
        self._windows.add(time.monotonic(), figures)
        with self._noting:
            self._history.add(time.time(), sample_of(figures, sum(e["count"] for e in errors)))
        self._write("state.json", asdict(self._state))
        self._write("errors.json", errors)
        for name in ("spark.log", "driver.log"):
            cut_down(self._directory / "log" / name)
        if run.status in FINAL or self._ending or time.monotonic() >= self._history_due:
            self._history_due = time.monotonic() + HISTORY_SECS
            self._write("history.json", self._history.dump())
            self._timeline.take(run.batches())
            self._write("batches.json", self._timeline.dump())

    def _say(self, state: State) -> None:
        self._state = state
        # On a full disk the address of the driver before would stay there for ever.
        self._is_said = self._write("state.json", asdict(state))

    def _write(self, name: str, document: object) -> bool:
        """Write a file of the run; end the run here if another host has taken it over."""
        if not is_of(self._directory, self.submission.host):
            self._leave()
            return False
        return write_json_if_possible(self._directory / name, document)

    def _leave(self) -> None:
        if not self._is_taken:
            log.warning("another host has taken %s over: ending here", self.submission.name)
        self._is_taken = True
        self._wake.set()


def _written_history(directory: Path) -> object:
    try:
        return json.loads((directory / "history.json").read_bytes())
    except (OSError, ValueError):  # it is the first driver, or the disk was full
        return None


def main(directory: Path, host: str = "") -> int:
    """Run a driver; a supervisor from before an upgrade names no host."""
    if host and not is_of(directory, host):
        return 1  # or it would wait for the lock that the other host's has
    lock = ProcessLock(directory / "driver.lock")
    os.environ[LOG_DIR] = str(directory / "log")  # for the processes it starts
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    driver = Driver(directory, host)
    os.environ[LOG_LEVEL] = driver.log_level
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: driver.end())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        return driver.main()
    finally:
        lock.release()


if __name__ == "__main__":
    ended = main(Path(sys.argv[1]), *sys.argv[2:3])
    try:
        sys.stderr.flush()
    except OSError:  # or the interpreter would try again, and end with another code
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.exit(ended)
