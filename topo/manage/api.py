"""The management API: what is known of the topologies of a registry, and what can be asked of them.

The command line and the web pages read and change topologies by this module only. It keeps nothing
itself: every answer comes from the registry's files and from the drivers at the time of the call.
A driver that does not answer is replaced by the figures it wrote last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

from topo.config import SETTINGS, Config
from topo.config.masters import is_local
from topo.config.secrets import masked
from topo.errors import ConfigError, RunError, TopoError, did_you_mean, shown, words_of
from topo.logs.reader import LogReader, Wanted
from topo.logs.requests import FILE as REQUESTS
from topo.logs.requests import AskedLevel, Requests, Sample, as_document, read_requests
from topo.manage.answers import (
    WINDOWS,
    asked_of,
    errors_of,
    read_document,
    row_or_none,
    view_of,
    views_of,
)
from topo.manage.autoscaling import scale_of
from topo.manage.client import ControlClient
from topo.manage.ending import begin_kill, connect
from topo.manage.files import locked, write_json
from topo.manage.hosts import cluster_of, executors_of, host_of, places_by_slot
from topo.manage.marks import marks_of
from topo.manage.plans import plan_of, slots_of
from topo.manage.processes import processes_of
from topo.manage.records import RegistryError, RunRecord
from topo.manage.registry import Registry
from topo.manage.savepoints import next_place, savepoint_view, savepoints_of, state_of
from topo.manage.stacks import slot_processes, stacks_of
from topo.manage.timeline import PAGE, Timeline
from topo.manage.views import (
    BatchView,
    Change,
    ClusterView,
    ErrorView,
    HistoryView,
    LogLevel,
    LogRequestsView,
    LogsView,
    SampleView,
    SavepointList,
    SavepointView,
    ScaleView,
    SettingView,
    StacksView,
    StateView,
    TopologyList,
    TopologyPlan,
    TopologyView,
    WorkersView,
)
from topo.metrics.series import Series
from topo.topology.layout import MAX_TASKS

_MOST_LINES = 5000
_ASKED_AT_ONCE = 8


class UnknownTopology(TopoError):
    """No run of the registry has that name or id."""

    code = "unknown-topology"


class UnknownComponent(TopoError):
    """A topology has no component of that name."""

    code = "unknown-component"


class Management:
    """Answers for one registry; may be used by several threads at once."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    # What is known

    def find(self, name: str) -> RunRecord:
        """Return the live run of that name or id, else the latest."""
        run = self.registry.latest(name)
        if run is None:
            names = sorted({run.name for run in self.registry.runs()})
            raise UnknownTopology(
                f"no topology {name!r}", hint=did_you_mean(name, names) or "topo list --all"
            )
        return run

    def topologies(self, *, everything: bool = True) -> TopologyList:
        """Return every topology, those that run before those that are over, the latest first."""
        damaged = [directory.name for directory in self.registry.damaged()]
        runs = self.registry.runs(all_of_them=everything)
        with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:  # a driver that hangs holds up one thread
            found = list(pool.map(row_or_none, runs))
        rows = [row for row in found if row is not None]
        damaged += [run.directory.name for run, row in zip(runs, found, strict=True) if row is None]
        rows.sort(key=lambda row: (row.over, -row.submitted_at))
        return TopologyList(rows, sorted(set(damaged)), str(self.registry.home))

    def cluster(self) -> ClusterView:
        """Return hosts, slots and owners of the topologies that are not over."""
        return cluster_of(self.registry.runs(all_of_them=False))

    def topology(self, name: str, window: str = "all") -> TopologyView:
        """Return one topology with its figures of a window."""
        return view_of(self.find(name), window)

    def plan(self, name: str) -> TopologyPlan:
        """Return what runs where."""
        return plan_of(self.find(name))

    def history(self, name: str, window: str = "10m") -> HistoryView:
        """Return the figures of a topology over time."""
        run = self.find(name)
        secs = WINDOWS[window] or WINDOWS["1d"] or 0.0
        ends = run.ended_at or time.time()
        columns = asked_of(run, lambda client: client.history(secs))
        if columns is None:
            series = Series.load(read_document(run.directory / "history.json"))
            columns = series.last(secs, ends)
        times = [at or 0.0 for at in columns.pop("times", [])]
        since = times[0] if times else ends - secs
        marks = marks_of(run.directory, self.errors(name), since)
        return HistoryView(run.name, window, times, columns, marks)

    def batches(self, name: str, before: int | None = None, limit: int = PAGE) -> list[BatchView]:
        """Return so many batches before that of a number, or the latest, the oldest first."""
        run = self.find(name)
        documents = asked_of(run, lambda client: client.batches(before, limit))
        if documents is None:
            written = Timeline(read_document(run.directory / "batches.json"))
            documents = [vars(batch) for batch in written.page(before, limit)]
        return views_of(BatchView, documents)

    def errors(
        self, name: str, component: str | None = None, limit: int | None = None
    ) -> list[ErrorView]:
        """Return the errors of a topology, the latest first."""
        run = self.find(name)
        found = views_of(ErrorView, errors_of(run))
        chosen = [error for error in found if component in (None, error.component)]
        chosen.sort(key=lambda error: error.last, reverse=True)
        return chosen[:limit]

    def logs(self, name: str, wanted: Wanted, count: int) -> LogsView:
        """Return the last `count` log lines that are wanted."""
        with closing(self.log_reader(name, wanted)) as reader:
            lines = reader.last(min(count, _MOST_LINES))
        return LogsView(list(lines), dict(wanted.seen))

    def log_reader(self, name: str, wanted: Wanted) -> LogReader:
        """Return a reader of the log lines of a topology, for following them."""
        return LogReader(self.find(name).directory / "log", wanted)

    def scale(self, name: str) -> ScaleView:
        """Return the decisions on a topology's slots, the latest first."""
        return scale_of(self.find(name))

    def conf(self, name: str) -> list[SettingView]:
        """Return every setting as it is used, with its origin; secrets are hidden."""
        submission = self.find(name).submission
        return [
            _setting(key, submission.conf, submission.origins)
            for key in sorted({*SETTINGS, *submission.conf})
        ]

    def workers(self, name: str) -> WorkersView:
        """Return where a topology runs."""
        run = self.find(name)
        supervision = run.supervision
        running, places = slot_processes(run), places_by_slot(executors_of(run), run.id)
        with_slots = [
            replace(
                slot,
                pid=running.get(slot.slot),
                host=host_of(run, places.get(slot.slot, ())),
                places=sorted(places.get(slot.slot, ())),
            )
            for slot in slots_of(plan_of(run))
        ]
        return WorkersView(
            name=run.name,
            master=run.submission.master,
            host=run.submission.host,
            slots=with_slots,
            processes=processes_of(run.driver_pid, run.supervisor_pid),
            driver_pid=run.driver_pid,
            supervisor_pid=run.supervisor_pid,
            starts=supervision.starts if supervision else 0,
            failures=supervision.failures if supervision else 0,
            last_failure=supervision.last_failure if supervision else "",
            waiting_until=supervision.waiting_until if supervision else 0.0,
        )

    # What can be asked

    def activate(self, name: str) -> Change:
        """Resume the spouts."""
        return self._change(name, lambda client: client.activate())

    def deactivate(self, name: str) -> Change:
        """Stop the spouts; what is in flight is still processed."""
        return self._change(name, lambda client: client.deactivate())

    def rebalance(
        self, name: str, workers: int | None = None, tasks: Mapping[str, int] | None = None
    ) -> Change:
        """Begin to go over to other numbers of slots or tasks; its status tells when it has."""
        if not workers and not tasks:
            raise ConfigError("neither slots nor tasks are to change", hint='{"workers": 4}')
        for component, count in (tasks or {}).items():
            if type(count) is not int or not 1 <= count <= MAX_TASKS:
                raise ConfigError(f"{component}: {shown(count)} is no number of tasks")
        return self._change(name, lambda client: client.rebalance(workers, tasks))

    def kill(self, name: str, wait_secs: float | None = None) -> Change:
        """Begin to end a topology, which drains for `wait_secs`, or for its message timeout."""
        run = self.find(name)
        if run.over:
            raise RunError(f"{run.name} is {run.status} already")
        limit = Config(run.submission.conf).message_timeout_secs if wait_secs is None else wait_secs
        was = run.status
        run = begin_kill(self.registry, run, limit)
        return Change(run.name, run.status, was)

    def stacks(self, name: str, slot: int, secs: float) -> StacksView:
        """Return what the threads of a slot do, sampled for so many seconds; 0: once."""
        run = self.find(name)
        if run.over:
            raise RunError(f"{run.name} is {run.status}")
        return stacks_of(run, slot, secs)

    def savepoints(self, name: str) -> SavepointList:
        """Return the savepoints of a topology beside the registry, the latest first."""
        return savepoints_of(self.registry.home, self.find(name).name)

    def savepoint(self, name: str) -> SavepointView:
        """Have a topology that runs write a savepoint beside the registry."""
        run = self.find(name)
        if run.over:
            raise RunError(f"{run.name} is {run.status}", hint=f"topo savepoint {run.name}")
        with connect(run) as client:
            place = next_place(self.registry.home, run.name)
            return savepoint_view(client.savepoint(str(place)))

    def state(self, name: str, component: str, key: str, like: str, limit: int) -> StateView:
        """Return entries of the keyed state of a component, as it was committed last."""
        run = self.find(name)
        if run.over:  # to read its checkpoint a Spark would have to be started
            raise RunError(f"{run.name} is {run.status}", hint=f"topo state {run.name} {component}")
        return state_of(run, self.registry.home, component, key, like, limit)

    def log_requests(self, name: str) -> LogRequestsView:
        """Return the log levels and samples that are asked for at the moment."""
        directory = self.find(name).directory / "log"
        return _shown_requests(read_requests(directory).now(time.time()))

    def set_log_level(self, name: str, logger: str, level: str, secs: float) -> LogRequestsView:
        """Give a logger of the user's code a level for a while; 0 seconds: its own again."""

        def changed(requests: Requests, now: float) -> Requests:
            levels = {**requests.levels, logger: AskedLevel(level, now + secs)}
            return Requests(levels, requests.samples)

        return self._ask_logs(name, changed)

    def sample(self, name: str, component: str, per_sec: float, secs: float) -> LogRequestsView:
        """Log some of the tuples that a component emits for a while; 0 seconds: no more."""
        known = [placed.id for placed in self.plan(name).components]
        if component not in known:
            raise UnknownComponent(
                f"{name} has no component {component!r}", hint=did_you_mean(component, known)
            )

        def changed(requests: Requests, now: float) -> Requests:
            others = [one for one in requests.samples if one.component != component]
            return Requests(requests.levels, (*others, Sample(component, per_sec, now + secs)))

        return self._ask_logs(name, changed)

    def _ask_logs(
        self, name: str, changed: Callable[[Requests, float], Requests]
    ) -> LogRequestsView:
        run = self.find(name)
        if run.over:
            raise RunError(f"{run.name} is {run.status}")
        if not is_local(run.submission.master):
            raise RunError(
                f"the tasks of {run.name} run on {run.submission.master}, where requests to the "
                "logs do not reach them",
                hint="topology.debug logs all tuples; it is a setting of topo submit",
            )
        directory, now = run.directory / "log", time.time()
        try:
            with locked(directory / "requests.lock"):
                requests = changed(read_requests(directory), now).now(now)
                write_json(directory / REQUESTS, as_document(requests))
        except OSError as error:
            raise RegistryError(f"cannot write to {directory}: {words_of(error)}") from None
        return _shown_requests(requests)

    def _change(self, name: str, change: Callable[[ControlClient], Any]) -> Change:
        run = self.find(name)
        if run.over or run.status == "STARTING":
            raise RunError(f"{run.name} is {run.status}")
        with connect(run) as client:
            reply = change(client)
        return Change(run.name, reply.status, reply.was)


# Documents of one run


def _shown_requests(requests: Requests) -> LogRequestsView:
    return LogRequestsView(
        [LogLevel(name, level.level, level.until) for name, level in requests.levels.items()],
        [SampleView(one.component, one.per_sec, one.until) for one in requests.samples],
    )


def _setting(key: str, conf: Mapping[str, Any], origins: Mapping[str, str]) -> SettingView:
    setting = SETTINGS.get(key)
    value = conf.get(key)
    if setting is not None:
        value = setting.meant(value)
    origin = origins.get(key, "topo submit") if key in conf else "default"
    return SettingView(key, masked(key, value), origin, setting.meaning if setting else "")
