"""The documents of the management API: what commands print as JSON and the web pages read.

Times are seconds since 1970, in UTC; durations are seconds where a name ends in `_secs` and
milliseconds where it ends in `_ms`. `null` is what is not known or does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TopologyRow:
    """A topology in the list of all."""

    name: str
    id: str
    status: str
    reason: str
    tasks: int
    workers: int | None
    uptime_secs: float
    acked: int | None
    """In the last ten minutes, or in all if it is over; None if its driver does not answer."""
    failed: int | None
    master: str
    over: bool
    submitted_at: float
    batch: int
    restarts: int
    """How often its driver was started again."""
    last_failure: str
    rows_per_sec: float | None
    lag_secs: float | None
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True)
class TopologyList:
    """Every topology of a registry, and what of the registry cannot be read."""

    topologies: list[TopologyRow]
    damaged: list[str]
    registry: str


@dataclass(frozen=True)
class TopologyView:
    """One topology: how it is, and its figures."""

    name: str
    status: str
    reason: str
    uptime_secs: float
    window: str
    batch: Mapping[str, Any] | None
    components: Mapping[str, Mapping[str, Any]]
    acker: Mapping[str, Any] | None
    id: str
    over: bool
    since: float
    """When the status began."""
    submitted_at: float
    master: str
    host: str
    workers: int | None
    tasks: int
    checkpoint: str
    resumed: bool
    spark_ui: str
    error_code: str
    """Of a FAILED one; the hint and the user's traceback belong to the same error."""
    hint: str
    traceback: str
    starts: int
    restarts: int
    """How often its driver was started again; the figures are those of all its drivers."""
    failures: int
    """Failures in a row of its driver, without a committed batch between."""
    last_failure: str
    answers: bool
    """True if the figures are the driver's own; else they are those it wrote last."""
    tracked: bool
    """False if no ackers run: nothing counts as acked or failed."""
    message_timeout_secs: float
    errors: int
    """How many different errors are known."""


@dataclass(frozen=True)
class StreamView:
    """A stream that a component declares."""

    name: str
    fields: list[str]
    direct: bool


@dataclass(frozen=True)
class InputView:
    """A stream that a bolt reads."""

    component: str
    stream: str
    grouping: str
    fields: list[str]
    loop: bool = False
    """It goes back: what comes over it is executed in the next batch."""


@dataclass(frozen=True)
class PlacedComponent:
    """A component in its topology's plan."""

    id: str
    kind: str
    class_name: str
    tasks: int
    first_task: int
    slots: list[int]
    """The slot of each task, in the order of the tasks."""
    level: int
    fused_into: str | None
    keeps_state: bool
    role: str
    """What it is besides a spout or a bolt: "drpc", "answers", "pattern", "rules" or nothing."""
    pending_limit: int | None
    """How many messages its tasks may have in flight, all together."""
    inputs: list[InputView]
    outputs: list[StreamView]


@dataclass(frozen=True)
class TopologyPlan:
    """The plan of a topology over slots."""

    name: str
    slots: int
    levels: list[list[str]]
    components: list[PlacedComponent]
    is_final: bool
    """False until the driver has written its own: the number of slots is then a guess."""
    warnings: list[str]


@dataclass(frozen=True)
class MarkView:
    """A moment that explains what is seen in charts."""

    at: float
    kind: str
    """restart, rebalance, stall, change or error."""
    text: str


@dataclass(frozen=True)
class HistoryView:
    """Figures over time: a list for each, as long as `times`."""

    name: str
    window: str
    times: list[float]
    series: Mapping[str, list[float | None]]
    marks: list[MarkView]
    """Of the same time, the oldest first."""


@dataclass(frozen=True)
class BatchView:
    """One batch."""

    id: int
    ended_at: float
    ms: float
    waited_ms: float
    rows: int
    phases: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of it by what the engine did; empty if the engine does not tell."""


@dataclass(frozen=True)
class ErrorView:
    """An error, and how often it came."""

    component: str
    task: int
    host: str
    kind: str
    type: str
    message: str
    at: str
    traceback: str
    count: int
    first: float
    last: float


@dataclass(frozen=True)
class LogsView:
    """Log lines, the oldest first, and how many lines there are of each level."""

    lines: list[Mapping[str, Any]]
    levels: Mapping[str, int]


@dataclass(frozen=True)
class SettingView:
    """A setting as it is used; `origin` names the place that decided it."""

    key: str
    value: Any
    origin: str
    meaning: str


@dataclass(frozen=True)
class ProcessView:
    """A process of a run on this machine."""

    pid: int
    role: str
    command: str
    """Empty for those who may not see it."""
    memory_bytes: int
    cpu_secs: float


@dataclass(frozen=True)
class SlotView:
    """A slot, and the tasks in it."""

    slot: int
    tasks: Mapping[str, list[int]]
    """Task ids by component."""
    pid: int | None = None
    """Of its process, if that is one of this machine and can be asked for its stacks."""
    host: str = ""
    """The host that it is on; "" if that is not known."""
    places: list[str] = field(default_factory=list)
    """Host and port of the executors that a cluster runs it in: of several, levels of it each."""


@dataclass(frozen=True)
class WorkersView:
    """The workers of a topology: its slots, its processes, and their restarts."""

    name: str
    master: str
    host: str
    slots: list[SlotView]
    processes: list[ProcessView]
    driver_pid: int | None
    supervisor_pid: int | None
    starts: int
    failures: int
    last_failure: str
    waiting_until: float


@dataclass(frozen=True)
class HostView:
    """A host that topologies run on, or the address of a Spark master that knows its own hosts."""

    host: str
    is_here: bool
    """False of what this machine can tell nothing about."""
    places: int | None = None
    """How many slots can run at the same time: its cores."""
    load: float | None = None
    """Processes that ran or waited to, on average of the last minute."""
    memory_bytes: int | None = None
    free_memory_bytes: int | None = None
    topologies: int = 0
    slots: int = 0
    free: int | None = None
    """Places that no slot takes."""
    executors: int = 0


@dataclass(frozen=True)
class PlacedSlot:
    """A slot of a topology, with the host it is on."""

    host: str
    """The address of its Spark master until its driver tells where it runs."""
    topology: str
    id: str
    status: str
    owner: str
    slot: int
    executors: int
    """Each has one task."""
    components: Mapping[str, int]
    """Tasks by component."""
    places: list[str] = field(default_factory=list)
    """Host and port of the executors that a cluster runs it in: of several, levels of it each."""


@dataclass(frozen=True)
class ExecutorView:
    """An executor that a Spark cluster gives to a topology, or gave."""

    topology: str
    id: str
    host: str
    place: str
    """Its host and port."""
    cores: int
    tasks: int
    """Tasks of Spark's that it is executing."""
    lost_at: float | None
    """When its loss was noticed."""
    why: str
    """Of its loss, in the cluster's words."""
    slots: list[int] = field(default_factory=list)
    """The slots that it executes, or was the last to execute."""


@dataclass(frozen=True)
class OwnerView:
    """A user, and all that the topologies take that the user has submitted."""

    owner: str
    topologies: int
    slots: int
    executors: int


@dataclass(frozen=True)
class ClusterView:
    """The hosts of the topologies that are not over, their slots and owners."""

    hosts: list[HostView]
    slots: list[PlacedSlot]
    spark_executors: list[ExecutorView]
    """Of the topologies on Spark clusters, as their drivers see them."""
    owners: list[OwnerView]
    topologies: int
    slots_used: int
    slots_free: int
    """Of the hosts whose places are known."""
    executors: int


@dataclass(frozen=True)
class ThreadView:
    """A thread of a slot's process, and what it does."""

    name: str
    is_current: bool
    """True of the one that the process was in when it was asked."""
    frames: list[str]
    """The outermost first."""


@dataclass(frozen=True)
class StackView:
    """Functions that called each other, the outermost first, and how often they were met so."""

    frames: list[str]
    count: int


@dataclass(frozen=True)
class StacksView:
    """What the threads of a slot's process do: at one moment, and in samples over a time."""

    name: str
    slot: int
    pid: int
    by: str
    """py-spy, which leaves out threads that wait, or faulthandler, which has all."""
    samples: int
    threads: list[ThreadView]
    stacks: list[StackView]


@dataclass(frozen=True)
class SavepointView:
    """A savepoint beside the registry."""

    directory: str
    batch: int
    mode: str
    made_at: float
    pending: int
    """Messages that are in flight in it."""
    bytes: int
    components: Mapping[str, Any]


@dataclass(frozen=True)
class SavepointList:
    """The savepoints of a topology beside the registry, and those that cannot be read."""

    savepoints: list[SavepointView]
    damaged: list[str]


@dataclass(frozen=True)
class DecisionView:
    """A decision on how many slots a topology is to have, with the figures behind it."""

    at: float
    until: float
    """When it was decided for the last time in a row."""
    verdict: str
    """up, down or undo; or why it stays: stay, wait, rest, skew, limit, barred, failed."""
    reason: str
    slots: int
    to: int
    """Others than `slots` if it was a step."""
    needed: int | None
    """The slots that the load takes, whatever the limits are."""
    rate: float | None
    """Tuples that came in each second; None, as the other figures, if it was not measured."""
    demand: float | None
    """Tuples to be done each second, so that what waits is caught up."""
    busy: float | None
    """The part of its time in which a slot was busy."""
    slot_rate: float | None
    """Tuples that a slot does in a second in which it is busy."""
    lag: float | None
    """Messages that wait in the sources."""
    is_dry: bool
    """It was decided and not made."""


@dataclass(frozen=True)
class ScaleView:
    """What a topology that scales by itself has decided, the latest first."""

    name: str
    slots: int | None
    least: int | None
    most: int | None
    """None if it does not scale by itself."""
    is_dry: bool
    """True if it decides only."""
    decisions: list[DecisionView]
    next: DecisionView | None
    """What would be decided at this moment, if its driver says so."""


@dataclass(frozen=True)
class StateView:
    """Entries of a component's keyed state."""

    name: str
    component: str
    entries: list[Mapping[str, Any]]
    """Component, index of the task, key and value of each; what JSON lacks as Python writes it."""


@dataclass(frozen=True)
class LogLevel:
    """A level that was asked for while a topology runs."""

    logger: str
    """"" is the root logger."""
    level: str
    until: float


@dataclass(frozen=True)
class SampleView:
    """A sample of a component's emitted tuples, which are lines of its log."""

    component: str
    per_sec: float
    until: float


@dataclass(frozen=True)
class LogRequestsView:
    """Everything that is asked of a topology's logs at the moment."""

    levels: list[LogLevel]
    samples: list[SampleView]


@dataclass(frozen=True)
class Change:
    """The result of a change: the present status, and the previous one."""

    name: str
    status: str
    was: str
