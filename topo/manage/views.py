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
class HistoryView:
    """Figures over time: a list for each, as long as `times`."""

    name: str
    window: str
    times: list[float]
    series: Mapping[str, list[float | None]]


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
