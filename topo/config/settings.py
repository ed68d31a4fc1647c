"""The table of settings: every key topo knows, with its type, default, scope and meaning.

The table is the body of `Settings`, one line a key. `Config` and `ConfigView` inherit it, so each
line is also the typed property of that key; validation, the command line's help and the
documentation's table read the same objects through `SETTINGS`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, overload

T = TypeVar("T")


@dataclass(frozen=True)
class ValueKind(Generic[T]):
    """The kind of values that a setting takes; `words` completes "... must be"."""

    words: str
    accepts: Callable[[object], bool]
    parse: Callable[[str], object] | None = None
    """For hints: return the value that a string was probably meant to be, or None."""

    def or_null(self) -> ValueKind[T | None]:
        return ValueKind(
            f"{self.words}, or null", lambda value: value is None or self.accepts(value), self.parse
        )


def whole(at_least: int) -> ValueKind[int]:
    def accepts(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= at_least

    return ValueKind(f"a whole number of at least {at_least}", accepts, _parse_whole)


_LEAST_SECS, _MOST_SECS = 1e-3, 1e9


def number(above: float) -> ValueKind[float]:
    def accepts(value: object) -> bool:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and math.isfinite(value) and value > above  # type: ignore[arg-type,operator]

    return ValueKind(f"a number above {above:g}", accepts, _parse_number)


def share() -> ValueKind[float]:
    def accepts(value: object) -> bool:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and 0 <= value <= 1  # type: ignore[operator]

    return ValueKind("a number from 0 to 1", accepts, _parse_number)


def part() -> ValueKind[float]:
    """Return the kind of a share that something has to have."""
    kind = share()

    def accepts(value: object) -> bool:
        return kind.accepts(value) and value != 0

    return ValueKind("a number above 0, and 1 at most", accepts, _parse_number)


def period() -> ValueKind[float]:
    """Return the kind of what ackers count in seconds."""
    kind = number(0)

    def accepts(value: object) -> bool:
        return kind.accepts(value) and _LEAST_SECS <= value <= _MOST_SECS  # type: ignore[operator]

    return ValueKind(f"a number from {_LEAST_SECS:g} to {_MOST_SECS:g}", accepts, _parse_number)


def task_ranges() -> ValueKind[dict[str, list[int]]]:
    """Return the kind of a mapping of names to the first of some whole numbers, and how many."""
    positive = whole(1)

    def accepts(value: object) -> bool:
        return isinstance(value, dict) and all(
            isinstance(name, str)
            and isinstance(span, list)
            and len(span) == len(("first", "number"))
            and all(map(positive.accepts, span))
            for name, span in value.items()
        )

    return ValueKind("a mapping of components to [first id, number of tasks]", accepts)


def slots_or_range() -> ValueKind[int]:
    """Return the kind of a number of slots, or of the least and the most there may be."""
    positive = whole(1)

    def accepts(value: object) -> bool:
        if not isinstance(value, dict):
            return positive.accepts(value)
        ends = [value.get("min", 1), value.get("max")]
        return (
            value.keys() <= {"min", "max"}
            and all(map(positive.accepts, ends))
            and (ends[0] <= ends[1])
        )

    return ValueKind('a whole number of at least 1, or {"min": N, "max": M}', accepts, _parse_whole)


def choice(*words: str) -> ValueKind[str]:
    return ValueKind(" or ".join(repr(word) for word in words), lambda value: value in words)


def _parse_whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _parse_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


FLAG: ValueKind[bool] = ValueKind(
    "true or false",
    lambda value: isinstance(value, bool),
    lambda text: {"true": True, "false": False}.get(text.lower()),
)


def _is_address(value: object) -> bool:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return bool(host) and port.isdigit() and 0 < int(port) < 65536


ADDRESSES: ValueKind[list[str]] = ValueKind(
    "a list of HOST:PORT",
    lambda value: isinstance(value, list) and bool(value) and all(map(_is_address, value)),
)
TEXT: ValueKind[str] = ValueKind(
    "a non-empty string", lambda value: isinstance(value, str) and value != ""
)


class _Values(Protocol):
    def get(self, key: str, default: Any, /) -> Any: ...
    def __setitem__(self, key: str, value: Any, /) -> None: ...


class Setting(Generic[T]):
    """One line of the table; also the property of its key."""

    def __init__(
        self,
        key: str,
        default: T,
        kind: ValueKind[T] | ValueKind[T | None],
        meaning: str,
        *,
        component: bool = False,
    ) -> None:
        self.key = key
        self.default = default
        self.kind = kind
        self.meaning = meaning
        self.component = component
        """Whether a component may set it for itself."""
        self.attribute = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.attribute = name

    @overload
    def __get__(self, values: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, values: _Values, owner: type) -> T: ...
    def __get__(self, values: _Values | None, owner: type) -> Setting[T] | T:
        if values is None:
            return self
        return self.meant(values.get(self.key, None))

    def __set__(self, values: _Values, value: T) -> None:
        values[self.key] = value

    def meant(self, value: T | None) -> T:
        """Return the value to use: null is the default, unless null has a meaning of its own."""
        return self.default if value is None else value

    @property
    def bare(self) -> str:
        """The key without "topology.", as in flags and in misspelt settings."""
        return self.key.removeprefix("topology.")


class Settings:
    """The table of all keys."""

    __slots__ = ()

    name = Setting[str | None](
        "topology.name", None, TEXT.or_null(), "The topology's name, if none is given otherwise."
    )
    workers = Setting[int | None](
        "topology.workers",
        None,
        slots_or_range().or_null(),
        "Slots over which tasks are dealt; null: the cores that Spark offers, also the maximum. "
        "{min, max}: a submitted topology scales between the two.",
    )
    workers_min = Setting[int | None](
        "topology.workers.min",
        None,
        whole(1).or_null(),
        "The fewest slots that a topology may scale to: the min of topology.workers. null: 1.",
    )
    workers_max = Setting[int | None](
        "topology.workers.max",
        None,
        whole(1).or_null(),
        "The most slots that a topology may scale to: the max of topology.workers. null: it does "
        "not scale.",
    )
    tasks = Setting[int | None](
        "topology.tasks",
        None,
        whole(1).or_null(),
        "Tasks of a component; null: its parallelism.",
        component=True,
    )
    task_ids = Setting[dict[str, list[int]] | None](
        "topology.task.ids",
        None,
        task_ranges().or_null(),
        "The task ids of components, as {name: [first, number]}, in place of all other numbers of "
        "tasks: topo rebalance -e sets it, and a checkpoint keeps it. null: from 1, by name.",
    )
    max_task_parallelism = Setting[int | None](
        "topology.max.task.parallelism",
        None,
        whole(1).or_null(),
        "Maximum number of tasks of any component, whatever its parallelism.",
        component=True,
    )
    debug = Setting[bool](
        "topology.debug", False, FLAG, "Log every tuple that is emitted.", component=True
    )
    log_level = Setting[str](
        "topology.log.level",
        "INFO",
        choice("DEBUG", "INFO", "WARNING", "ERROR"),
        "Level from which log records of user code are kept, and shown by topo local.",
    )
    uncaught_error = Setting[str](
        "topology.uncaught.error",
        "stop",
        choice("stop", "fail"),
        "Effect of an exception in user code: stop the topology, or fail the tuple and continue.",
    )

    acker_executors = Setting[int](
        "topology.acker.executors",
        1,
        whole(0).or_null(),
        "Ackers that share the tuple trees; null: 1. "
        "0 turns tracking off: every message counts as acked.",
    )
    message_timeout_secs = Setting[float](
        "topology.message.timeout.secs",
        30,
        period(),
        "Seconds after which a message that is not fully processed fails.",
    )
    enable_message_timeouts = Setting[bool](
        "topology.enable.message.timeouts",
        True,
        FLAG,
        "If false, messages never time out.",
    )
    max_spout_pending = Setting[int | None](
        "topology.max.spout.pending",
        None,
        whole(1).or_null(),
        "Unacked messages a spout task may have in flight; null: no limit.",
        component=True,
    )
    tick_tuple_freq_secs = Setting[float | None](
        "topology.tick.tuple.freq.secs",
        None,
        period().or_null(),
        "Seconds between tick tuples; null: none.",
        component=True,
    )

    shellbolt_max_pending = Setting[int](
        "topology.shellbolt.max.pending",
        1000,
        whole(1),
        "Tuples that a ShellBolt sends to its process before it waits for an answer.",
        component=True,
    )
    subprocess_timeout_secs = Setting[float | None](
        "topology.subprocess.timeout.secs",
        None,
        period().or_null(),
        "Silence after which the process of a ShellSpout or ShellBolt counts as hung; null: twice "
        "the message timeout, a minute at least.",
        component=True,
    )

    bolts_window_length_count = Setting[int | None](
        "topology.bolts.window.length.count",
        None,
        whole(1).or_null(),
        "Length of the windows of a WindowedBolt, in tuples.",
        component=True,
    )
    bolts_window_length_duration_ms = Setting[int | None](
        "topology.bolts.window.length.duration.ms",
        None,
        whole(1).or_null(),
        "Length of the windows of a WindowedBolt, as a time.",
        component=True,
    )
    bolts_window_sliding_interval_count = Setting[int | None](
        "topology.bolts.window.sliding.interval.count",
        None,
        whole(1).or_null(),
        "Slide of the windows of a WindowedBolt, in tuples.",
        component=True,
    )
    bolts_window_sliding_interval_duration_ms = Setting[int | None](
        "topology.bolts.window.sliding.interval.duration.ms",
        None,
        whole(1).or_null(),
        "Slide of the windows of a WindowedBolt, as a time.",
        component=True,
    )
    bolts_tuple_timestamp_field_name = Setting[str | None](
        "topology.bolts.tuple.timestamp.field.name",
        None,
        TEXT.or_null(),
        "Field of the time, in milliseconds, that the windows of a WindowedBolt go by.",
        component=True,
    )
    bolts_tuple_timestamp_max_lag_ms = Setting[int | None](
        "topology.bolts.tuple.timestamp.max.lag.ms",
        None,
        whole(0).or_null(),
        "Time by which a tuple may be late in a WindowedBolt.",
        component=True,
    )
    bolts_watermark_event_interval_ms = Setting[int | None](
        "topology.bolts.watermark.event.interval.ms",
        None,
        whole(0).or_null(),
        "Shortest time between two moves of a WindowedBolt's watermark.",
        component=True,
    )
    bolts_late_tuple_stream = Setting[str | None](
        "topology.bolts.late.tuple.stream",
        None,
        TEXT.or_null(),
        "Stream of a WindowedBolt's late tuples, which it must declare.",
        component=True,
    )

    batch_target_ms = Setting[int](
        "topology.batch.target.ms",
        2000,
        whole(1),
        "Target duration of a batch under load. Each batch has a fixed cost of about 110 ms.",
    )
    batch_least_ms = Setting[int](
        "topology.batch.least.ms",
        0,
        whole(0),
        "Least time from one batch to the next: a trickle of tuples then costs fewer batches.",
    )
    batch_max_tuples = Setting[int](
        "topology.batch.max.tuples",
        250_000,
        whole(1),
        "The most tuples the spouts of one slot emit in a batch, which bounds memory. Of untracked "
        "ones that come as Arrow columns, sixteen count as one.",
    )
    loop_max_mb = Setting[int](
        "topology.loop.max.mb",
        256,
        whole(1),
        "The most that a slot's tuples on loops may take; beyond it the topology fails. Spouts are "
        "not asked while they take more than a thirty-second part of it.",
    )
    batch_idle_ms = Setting[int](
        "topology.batch.idle.ms",
        60_000,
        whole(1),
        "Time after which a batch ends empty if no spout has data.",
    )
    batch_source_ms = Setting[int](
        "topology.batch.source.ms",
        1000,
        whole(1),
        "The same in a topology that has a SparkSource, which Spark asks when a batch begins.",
    )
    batch_poll_ms = Setting[int](
        "topology.batch.poll.ms",
        20,
        whole(1),
        "Interval at which spouts are asked again while a batch waits.",
    )
    batch_file_bytes = Setting[int](
        "topology.batch.file.bytes",
        65_536,
        whole(0),
        "On one machine: data of a slot beyond this size goes through a file, not Spark's rows.",
    )
    checkpoint_dir = Setting[str | None](
        "topology.checkpoint.dir",
        None,
        TEXT.or_null(),
        "Directory of state and progress; every worker must reach it. null: chosen by topo.",
    )
    mode = Setting[str](
        "topology.mode",
        "micro-batch",
        choice("micro-batch", "real-time"),
        "micro-batch: throughput; real-time: milliseconds from emit to ack. A checkpoint keeps it.",
    )
    epoch_ms = Setting[int](
        "topology.epoch.ms",
        10,
        whole(0),
        "Real-time: how often state is committed and messages are acked. 0: acked at once, with "
        "no state kept.",
    )
    epoch_sync = Setting[bool](
        "topology.epoch.sync",
        False,
        FLAG,
        "Real-time: whether a commit waits for the disk, to outlive a power failure.",
    )
    checkpoint_sync = Setting[bool | None](
        "topology.checkpoint.sync",
        None,
        FLAG.or_null(),
        "Commit a batch when its files are on the disk; null: if Spark runs on this machine.",
    )
    hang_secs = Setting[float | None](
        "topology.hang.secs",
        None,
        period().or_null(),
        "On one machine, in micro-batches: seconds that a slot may be at one task of a batch; then "
        "it is ended, and the batch runs again. null: no limit.",
    )
    workers_after_loss_secs = Setting[float | None](
        "topology.workers.after.loss.secs",
        None,
        period().or_null(),
        "In real-time mode on a cluster: seconds to wait for places that were lost; then it goes "
        "over to as many slots as there are places for. null: it waits.",
    )
    scale_secs = Setting[float](
        "topology.scale.secs",
        10,
        period(),
        "Seconds between two looks at whether a topology is to have more slots or fewer.",
    )
    scale_window_secs = Setting[float](
        "topology.scale.window.secs",
        300,
        period(),
        "Seconds of which the figures behind such a decision are.",
    )
    scale_utilization = Setting[float](
        "topology.scale.utilization",
        0.7,
        part(),
        "Part of its time for which a slot is to be busy.",
    )
    scale_catch_up_secs = Setting[float](
        "topology.scale.catch.up.secs",
        600,
        period(),
        "Seconds in which what waits in the sources is to be caught up.",
    )
    scale_up_secs = Setting[float](
        "topology.scale.up.secs",
        60,
        period(),
        "How long all looks have to agree before a topology gets more slots.",
    )
    scale_down_secs = Setting[float](
        "topology.scale.down.secs",
        1800,
        period(),
        "How long all looks have to agree before a topology gets fewer slots.",
    )
    scale_rest_secs = Setting[float](
        "topology.scale.rest.secs",
        300,
        period(),
        "Least time from one change of slots, or the start, to the next.",
    )
    scale_retry_secs = Setting[float](
        "topology.scale.retry.secs",
        3600,
        period(),
        "How long a change that failed, or brought nothing, is not tried again.",
    )
    scale_dry_run = Setting[bool](
        "topology.scale.dry.run",
        False,
        FLAG,
        "Decide on slots, and change nothing.",
    )
    restart_max = Setting[int](
        "topology.restart.max",
        10,
        whole(0),
        "Failures in a row, with no batch committed between, before topo gives up.",
    )

    metrics_bind = Setting[str | None](
        "topology.metrics.bind",
        None,
        TEXT.or_null(),
        "HOST:PORT where `/metrics` is served without a token, by the driver or topo local; null: "
        "nowhere.",
    )
    metrics_endpoint = Setting[str | None](
        "topology.metrics.endpoint",
        None,
        TEXT.or_null(),
        "URL that the figures are pushed to, by OTLP over HTTP; null: they are not.",
    )
    metrics_secs = Setting[float](
        "topology.metrics.secs",
        10,
        period(),
        "Seconds between two pushes of the figures.",
    )
    trace_rate = Setting[float](
        "topology.trace.rate",
        0.0,
        share(),
        "Share of tracked messages whose tuple trees are traced by OpenTelemetry; 0: none.",
    )
    trace_endpoint = Setting[str | None](
        "topology.trace.endpoint",
        None,
        TEXT.or_null(),
        "URL that takes traces by OTLP over HTTP; null: what OTEL_EXPORTER_OTLP_ENDPOINT says.",
    )
    acker_bind = Setting[str | None](
        "topology.acker.bind",
        None,
        TEXT.or_null(),
        "HOST or HOST:PORT the ackers listen on; null: loop-back, or the driver's address.",
    )
    acker_addresses = Setting[list[str] | None](
        "topology.acker.addresses",
        None,
        ADDRESSES.or_null(),
        "Ackers started with `topo acker`, which outlive drivers; null: ackers in the driver.",
    )
    acker_token_file = Setting[str | None](
        "topology.acker.token.file",
        None,
        TEXT.or_null(),
        "File whose first line is the token with which those ackers admit topologies.",
    )
    acker_tls_certificate = Setting[str | None](
        "topology.acker.tls.certificate",
        None,
        TEXT.or_null(),
        "The ackers' certificate, a PEM file; with it all calls to them use TLS.",
    )
    acker_tls_key = Setting[str | None](
        "topology.acker.tls.key",
        None,
        TEXT.or_null(),
        "The private key of that certificate, a PEM file.",
    )
    acker_tls_ca = Setting[str | None](
        "topology.acker.tls.ca",
        None,
        TEXT.or_null(),
        "The authority that the certificate is checked against, a PEM file.",
    )
    acker_tls_client_certificate = Setting[str | None](
        "topology.acker.tls.client.certificate",
        None,
        TEXT.or_null(),
        "PEM file of the certificate that workers show to ackers; null: they show none.",
    )
    drpc_addresses = Setting[list[str] | None](
        "topology.drpc.addresses",
        None,
        ADDRESSES.or_null(),
        "Servers of calls started with `topo drpc`, which outlive drivers; null: one in the "
        "driver.",
    )
    drpc_bind = Setting[str | None](
        "topology.drpc.bind",
        None,
        TEXT.or_null(),
        "HOST or HOST:PORT where the driver's server of calls listens; null: loop-back.",
    )
    drpc_http_bind = Setting[str | None](
        "topology.drpc.http.bind",
        None,
        TEXT.or_null(),
        "HOST:PORT where the driver's server answers calls by HTTP; null: nowhere.",
    )
    drpc_token_file = Setting[str | None](
        "topology.drpc.token.file",
        None,
        TEXT.or_null(),
        "File whose first line is the token of the servers of calls; null: one that only the "
        "run's owner can read.",
    )
    drpc_tls_certificate = Setting[str | None](
        "topology.drpc.tls.certificate",
        None,
        TEXT.or_null(),
        "The certificate of the driver's server of calls, a PEM file; with it calls use TLS.",
    )
    drpc_tls_key = Setting[str | None](
        "topology.drpc.tls.key",
        None,
        TEXT.or_null(),
        "The private key of that certificate, a PEM file.",
    )
    drpc_tls_ca = Setting[str | None](
        "topology.drpc.tls.ca",
        None,
        TEXT.or_null(),
        "The authority that the certificates of servers of calls are checked against, a PEM file.",
    )
    acker_tls_client_key = Setting[str | None](
        "topology.acker.tls.client.key",
        None,
        TEXT.or_null(),
        "PEM file of the private key of the workers' certificate.",
    )


SETTINGS: dict[str, Setting[Any]] = {
    setting.key: setting for setting in vars(Settings).values() if isinstance(setting, Setting)
}
"""Every setting by its key, in the order of the table."""


def settings_table() -> str:
    """Return the table as Markdown, for the documentation."""
    lines = ["| key | default | value | meaning |", "|---|---|---|---|"]
    for setting in SETTINGS.values():
        default = (
            setting.default if isinstance(setting.default, str) else json.dumps(setting.default)
        )
        scope = " Also per component." if setting.component else ""
        lines.append(
            f"| `{setting.key}` | `{default}` | {setting.kind.words} | {setting.meaning}{scope} |"
        )
    return "\n".join(lines)
