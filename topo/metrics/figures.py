"""The table of figures: one line each, from which everything that shows figures is made.

A task counts under a line's name (or its `source`); sums, windows of time, `topo stats`, JSON
documents, the reference page and the names for Prometheus come out of the line. Who adds a figure
writes its line here and counts it where it happens: `task.metrics.NAME += 1`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topo.metrics.figure import (
    Figure,
    counter,
    counters,
    figures_of,
    gauge,
    gauges,
    histogram,
    mean,
    means,
    share,
)
from topo.metrics.keys import INPUT


@dataclass(frozen=True)
class ComponentStats:
    """The figures of one component, or of one of its tasks."""

    kind: str
    tasks: int
    executors: int = 1
    emitted: int = counter("tuples", "Tuples emitted", label="EMITTED")
    emitted_by: Mapping[str, int] = counters(
        "stream", "tuples", "Tuples emitted, by stream", source="emitted"
    )
    transferred: int = counter("tuples", "Tuples sent to tasks: one that two bolts read counts two")
    executed: int = counter("tuples", "Tuples executed", label="EXECUTED", of="bolt")
    acked: int = counter(
        "messages", "A bolt's acked tuples, or a spout's acked messages", label="ACKED"
    )
    failed: int = counter(
        "messages", "A bolt's failed tuples, or a spout's failed messages", label="FAILED"
    )
    failed_by: Mapping[str, int] = counters(
        "reason", "messages", "A spout's failed messages, by reason", label="FAILED", of="spout"
    )
    unanchored: int = counter("tuples", "Tuples emitted without anchors, unintentionally perhaps")
    pending: int = gauge("messages", "Messages neither acked nor failed", of="spout")
    oldest_pending_secs: float = gauge(
        "seconds",
        "Age of the oldest of these when the last batch began",
        merge="max",
        of="spout",
        default=0.0,
        exposed="oldest_message_secs",
    )
    held: int = gauge(
        "tuples", "Tuples that a bolt neither acked nor failed", label="HELD (OLDEST)", of="bolt"
    )
    oldest_held_secs: float = gauge(
        "seconds",
        "Age of the oldest of these",
        label="HELD (OLDEST)",
        merge="max",
        of="bolt",
        default=0.0,
    )
    looping: int = gauge(
        "tuples", "Tuples sent over a loop that wait for the next batch", of="bolt"
    )
    late: int = counter("tuples", "Tuples too late for every window of theirs", of="bolt")
    expired: int = counter(
        "tuples", "Tuples that wanted an older version of a row than a table keeps", of="bolt"
    )
    ahead: int = counter("tuples", "Tuples whose time is too far ahead of the clock", of="bolt")
    state_rows: int = gauge("rows", "Windows, cells or tuples that windows hold", of="bolt")
    execute_ms: float | None = mean(
        "execute_seconds", "executed", 1000, "milliseconds",
        "Mean time of one execute", label="LATENCY ms", of="bolt",
    )  # fmt: skip
    settled: int = counter("tuples", "Tuples executed; one that is held, when acked", of="bolt")
    process_ms: float | None = mean(
        "process_seconds", "settled", 1000, "milliseconds",
        "Mean time from execute to ack; a held tuple's has the batches in between", of="bolt",
    )  # fmt: skip
    executed_by_input: Mapping[str, int] = counters(
        INPUT, "tuples", "Tuples executed, by the stream they came from", of="bolt",
        exposed="topo_input_tuples",
    )  # fmt: skip
    execute_ms_by_input: Mapping[str, float] = means(
        "execute_seconds_by_input", "executed_by_input", 1000, "milliseconds",
        "Mean time of one execute, by the stream its tuple came from", by=INPUT, of="bolt",
        exposed="topo_input_execute_seconds",
    )  # fmt: skip
    settled_by_input: Mapping[str, int] = counters(
        INPUT, "tuples", "Tuples executed, by the stream they came from; one that is held, when "
        "acked", of="bolt", exposed="topo_input_settled_tuples",
    )  # fmt: skip
    process_ms_by_input: Mapping[str, float] = means(
        "process_seconds_by_input", "settled_by_input", 1000, "milliseconds",
        "Mean time from execute to ack, by the stream the tuple came from", by=INPUT, of="bolt",
        exposed="topo_input_process_seconds",
    )  # fmt: skip
    complete_ms: float | None = mean(
        "complete_seconds", "acked", 1000, "milliseconds",
        "Mean time from emit to ack of a message", label="LATENCY ms", of="spout",
    )  # fmt: skip
    complete_by: Mapping[str, int] = histogram(
        "seconds", "Acked messages, by the time from emit to ack", of="spout"
    )
    capacity: float | None = share(
        "execute_seconds", "ratio", "Part of the time that a bolt's tasks were busy",
        label="CAPACITY", of="bolt",
    )  # fmt: skip
    saved_bytes: int = gauge(
        "bytes", "Size of the saved state", label="STATE", merge="sticky", exposed="state_bytes"
    )
    by_task: Mapping[int, ComponentStats] = field(default_factory=dict)
    histograms: Mapping[str, float] = counters(
        "name and upper bound", "", "How many of the values that it observes lay in which range"
    )
    counters: Mapping[str, int] = counters("name", "", "What the component counts itself")
    gauges: Mapping[str, float] = gauges("", "Levels that the component notes, such as a lag")


@dataclass(frozen=True)
class BatchStats:
    """The last micro-batch, and the recent ones."""

    id: int = gauge("", "Number of the last batch")
    ms: float = gauge("milliseconds", "Time the last batch took", default=0.0)
    rows: int = gauge("tuples", "Tuples that the spouts emitted in the last batch")
    waited_ms: float = gauge(
        "milliseconds", "Part of that time spent waiting for the spouts", default=0.0
    )
    p50_ms: float | None = gauge(
        "milliseconds", "Median time of the latest hundred batches, without waiting", default=None
    )
    p99_ms: float | None = gauge(
        "milliseconds",
        "99th percentile of the latest hundred batches, without waiting",
        default=None,
    )
    rows_per_sec: float = gauge("tuples", "Tuples emitted by spouts each second", default=0.0)
    count: int = counter("batches", "Batches since the start")
    worked_secs: float = gauge("seconds", "Time they took, without waiting", default=0.0)
    wait_secs: float = gauge("seconds", "Time they waited for spouts", default=0.0)
    by_seconds: tuple[int, ...] = ()
    """How many batches worked for no longer than each limit of BATCH_SECONDS."""


@dataclass(frozen=True)
class BatchRecord:
    """One micro-batch that has ended."""

    id: int
    ended_at: float
    """In seconds since 1970."""
    ms: float
    waited_ms: float
    rows: int
    phases: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of it by what the engine did, if the engine tells."""


@dataclass(frozen=True)
class AckerStats:
    """All the ackers of a run, together."""

    executors: int = gauge("", "Number of ackers")
    pending: int = gauge("messages", "Messages neither acked nor failed: those of all spouts")
    lag_secs: float = gauge(
        "seconds", "Age of the oldest of these, until its spout hears of its verdict", default=0.0
    )
    quiet_secs: float = gauge("seconds", "Time since the last committed batch", default=0.0)
    unheard: int = gauge("messages", "Acks and failures not yet delivered to their spouts")
    updates: int = counter("updates", "Updates of tuple trees")
    updates_per_sec: float | None = gauge(
        "updates", "Updates of tuple trees each second", default=None
    )
    held_bytes: int = gauge("bytes", "Memory of the tuple trees")


@dataclass(frozen=True)
class RunStats:
    """The figures of a run."""

    name: str
    status: str
    reason: str
    uptime_secs: float
    window: str
    batch: BatchStats
    components: Mapping[str, ComponentStats]
    acker: AckerStats | None = None
    """None: tracking is off, or nothing runs yet."""


COMPONENT: tuple[Figure, ...] = figures_of(ComponentStats)
BATCH: tuple[Figure, ...] = figures_of(BatchStats)
ACKER: tuple[Figure, ...] = figures_of(AckerStats)
