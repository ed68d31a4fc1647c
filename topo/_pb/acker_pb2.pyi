from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTIVE: _ClassVar[Mode]
    INACTIVE: _ClassVar[Mode]
    DRAIN: _ClassVar[Mode]
    LAST_TICK: _ClassVar[Mode]
    CLOSE: _ClassVar[Mode]
ACTIVE: Mode
INACTIVE: Mode
DRAIN: Mode
LAST_TICK: Mode
CLOSE: Mode

class Component(_message.Message):
    __slots__ = ("name", "first_task", "tasks")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIRST_TASK_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    first_task: int
    tasks: int
    def __init__(self, name: _Optional[str] = ..., first_task: _Optional[int] = ..., tasks: _Optional[int] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("levels", "slots", "spout_tasks", "components", "timeout_secs", "tick_secs")
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SPOUT_TASKS_FIELD_NUMBER: _ClassVar[int]
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECS_FIELD_NUMBER: _ClassVar[int]
    TICK_SECS_FIELD_NUMBER: _ClassVar[int]
    levels: int
    slots: int
    spout_tasks: _containers.RepeatedScalarFieldContainer[int]
    components: _containers.RepeatedCompositeFieldContainer[Component]
    timeout_secs: float
    tick_secs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, levels: _Optional[int] = ..., slots: _Optional[int] = ..., spout_tasks: _Optional[_Iterable[int]] = ..., components: _Optional[_Iterable[_Union[Component, _Mapping]]] = ..., timeout_secs: _Optional[float] = ..., tick_secs: _Optional[_Iterable[float]] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("plan", "first_batch", "run_id", "nonce", "shard", "shards", "epoch", "clock", "mode")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    FIRST_BATCH_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    plan: Plan
    first_batch: int
    run_id: str
    nonce: int
    shard: int
    shards: int
    epoch: int
    clock: float
    mode: Mode
    def __init__(self, plan: _Optional[_Union[Plan, _Mapping]] = ..., first_batch: _Optional[int] = ..., run_id: _Optional[str] = ..., nonce: _Optional[int] = ..., shard: _Optional[int] = ..., shards: _Optional[int] = ..., epoch: _Optional[int] = ..., clock: _Optional[float] = ..., mode: _Optional[_Union[Mode, str]] = ...) -> None: ...

class RegisterReply(_message.Message):
    __slots__ = ("epoch", "clock", "incarnation")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    clock: float
    incarnation: int
    def __init__(self, epoch: _Optional[int] = ..., clock: _Optional[float] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("task", "incarnation", "number")
    TASK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    task: int
    incarnation: int
    number: int
    def __init__(self, task: _Optional[int] = ..., incarnation: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class BeginRequest(_message.Message):
    __slots__ = ("epoch", "batch", "slot", "clock", "cursors")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    batch: int
    slot: int
    clock: float
    cursors: _containers.RepeatedCompositeFieldContainer[Cursor]
    def __init__(self, epoch: _Optional[int] = ..., batch: _Optional[int] = ..., slot: _Optional[int] = ..., clock: _Optional[float] = ..., cursors: _Optional[_Iterable[_Union[Cursor, _Mapping]]] = ...) -> None: ...

class TaskVerdicts(_message.Message):
    __slots__ = ("task", "first", "sequences", "failed", "failed_reason", "reasons")
    TASK_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    FAILED_REASON_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    task: int
    first: int
    sequences: bytes
    failed: bytes
    failed_reason: bytes
    reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, task: _Optional[int] = ..., first: _Optional[int] = ..., sequences: _Optional[bytes] = ..., failed: _Optional[bytes] = ..., failed_reason: _Optional[bytes] = ..., reasons: _Optional[_Iterable[str]] = ...) -> None: ...

class BeginReply(_message.Message):
    __slots__ = ("incarnation", "clock", "previous_clock", "mode", "mode_version", "verdicts", "next_timeout")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_CLOCK_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODE_VERSION_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    clock: float
    previous_clock: float
    mode: Mode
    mode_version: int
    verdicts: _containers.RepeatedCompositeFieldContainer[TaskVerdicts]
    next_timeout: float
    def __init__(self, incarnation: _Optional[int] = ..., clock: _Optional[float] = ..., previous_clock: _Optional[float] = ..., mode: _Optional[_Union[Mode, str]] = ..., mode_version: _Optional[int] = ..., verdicts: _Optional[_Iterable[_Union[TaskVerdicts, _Mapping]]] = ..., next_timeout: _Optional[float] = ...) -> None: ...

class WaitRequest(_message.Message):
    __slots__ = ("epoch", "batch", "slot", "limit_secs", "wake_at", "busy")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_SECS_FIELD_NUMBER: _ClassVar[int]
    WAKE_AT_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    batch: int
    slot: int
    limit_secs: float
    wake_at: float
    busy: bool
    def __init__(self, epoch: _Optional[int] = ..., batch: _Optional[int] = ..., slot: _Optional[int] = ..., limit_secs: _Optional[float] = ..., wake_at: _Optional[float] = ..., busy: _Optional[bool] = ...) -> None: ...

class WaitReply(_message.Message):
    __slots__ = ("go", "pause_secs")
    GO_FIELD_NUMBER: _ClassVar[int]
    PAUSE_SECS_FIELD_NUMBER: _ClassVar[int]
    go: bool
    pause_secs: float
    def __init__(self, go: _Optional[bool] = ..., pause_secs: _Optional[float] = ...) -> None: ...

class Updates(_message.Message):
    __slots__ = ("init_roots", "init_values", "ack_roots", "ack_values", "fail_roots", "fail_reason", "reasons", "reset_roots", "held_roots", "held_tasks", "released_roots", "released_tasks")
    INIT_ROOTS_FIELD_NUMBER: _ClassVar[int]
    INIT_VALUES_FIELD_NUMBER: _ClassVar[int]
    ACK_ROOTS_FIELD_NUMBER: _ClassVar[int]
    ACK_VALUES_FIELD_NUMBER: _ClassVar[int]
    FAIL_ROOTS_FIELD_NUMBER: _ClassVar[int]
    FAIL_REASON_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    RESET_ROOTS_FIELD_NUMBER: _ClassVar[int]
    HELD_ROOTS_FIELD_NUMBER: _ClassVar[int]
    HELD_TASKS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_ROOTS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_TASKS_FIELD_NUMBER: _ClassVar[int]
    init_roots: bytes
    init_values: bytes
    ack_roots: bytes
    ack_values: bytes
    fail_roots: bytes
    fail_reason: bytes
    reasons: _containers.RepeatedScalarFieldContainer[str]
    reset_roots: bytes
    held_roots: bytes
    held_tasks: bytes
    released_roots: bytes
    released_tasks: bytes
    def __init__(self, init_roots: _Optional[bytes] = ..., init_values: _Optional[bytes] = ..., ack_roots: _Optional[bytes] = ..., ack_values: _Optional[bytes] = ..., fail_roots: _Optional[bytes] = ..., fail_reason: _Optional[bytes] = ..., reasons: _Optional[_Iterable[str]] = ..., reset_roots: _Optional[bytes] = ..., held_roots: _Optional[bytes] = ..., held_tasks: _Optional[bytes] = ..., released_roots: _Optional[bytes] = ..., released_tasks: _Optional[bytes] = ...) -> None: ...

class StageRequest(_message.Message):
    __slots__ = ("epoch", "batch", "level", "slot", "nonce", "clock", "updates", "payload", "busy", "part", "parts")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    batch: int
    level: int
    slot: int
    nonce: int
    clock: float
    updates: Updates
    payload: bytes
    busy: bool
    part: int
    parts: int
    def __init__(self, epoch: _Optional[int] = ..., batch: _Optional[int] = ..., level: _Optional[int] = ..., slot: _Optional[int] = ..., nonce: _Optional[int] = ..., clock: _Optional[float] = ..., updates: _Optional[_Union[Updates, _Mapping]] = ..., payload: _Optional[bytes] = ..., busy: _Optional[bool] = ..., part: _Optional[int] = ..., parts: _Optional[int] = ...) -> None: ...

class StageReply(_message.Message):
    __slots__ = ("next_timeout",)
    NEXT_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    next_timeout: float
    def __init__(self, next_timeout: _Optional[float] = ...) -> None: ...

class CommandRequest(_message.Message):
    __slots__ = ("mode",)
    MODE_FIELD_NUMBER: _ClassVar[int]
    mode: Mode
    def __init__(self, mode: _Optional[_Union[Mode, str]] = ...) -> None: ...

class CommandReply(_message.Message):
    __slots__ = ("mode_version",)
    MODE_VERSION_FIELD_NUMBER: _ClassVar[int]
    mode_version: int
    def __init__(self, mode_version: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("payloads_after", "payloads")
    PAYLOADS_AFTER_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    payloads_after: int
    payloads: bool
    def __init__(self, payloads_after: _Optional[int] = ..., payloads: _Optional[bool] = ...) -> None: ...

class Execution(_message.Message):
    __slots__ = ("level", "slot")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    level: int
    slot: int
    def __init__(self, level: _Optional[int] = ..., slot: _Optional[int] = ...) -> None: ...

class Payload(_message.Message):
    __slots__ = ("number", "batch", "level", "slot", "payload")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    number: int
    batch: int
    level: int
    slot: int
    payload: bytes
    def __init__(self, number: _Optional[int] = ..., batch: _Optional[int] = ..., level: _Optional[int] = ..., slot: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("epoch", "incarnation", "next_batch", "staged", "poisoned", "mode", "mode_version", "mode_version_begun", "waiting", "clock", "pending", "acked", "failed_by", "oldest_secs", "updates", "updates_per_sec", "held_bytes", "unheard", "dropped", "payloads", "payloads_lost")
    class FailedByEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NEXT_BATCH_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    POISONED_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODE_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODE_VERSION_BEGUN_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    FAILED_BY_FIELD_NUMBER: _ClassVar[int]
    OLDEST_SECS_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    UPDATES_PER_SEC_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNHEARD_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_LOST_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    incarnation: int
    next_batch: int
    staged: _containers.RepeatedCompositeFieldContainer[Execution]
    poisoned: bool
    mode: Mode
    mode_version: int
    mode_version_begun: int
    waiting: int
    clock: float
    pending: int
    acked: int
    failed_by: _containers.ScalarMap[str, int]
    oldest_secs: float
    updates: int
    updates_per_sec: float
    held_bytes: int
    unheard: int
    dropped: int
    payloads: _containers.RepeatedCompositeFieldContainer[Payload]
    payloads_lost: int
    def __init__(self, epoch: _Optional[int] = ..., incarnation: _Optional[int] = ..., next_batch: _Optional[int] = ..., staged: _Optional[_Iterable[_Union[Execution, _Mapping]]] = ..., poisoned: _Optional[bool] = ..., mode: _Optional[_Union[Mode, str]] = ..., mode_version: _Optional[int] = ..., mode_version_begun: _Optional[int] = ..., waiting: _Optional[int] = ..., clock: _Optional[float] = ..., pending: _Optional[int] = ..., acked: _Optional[int] = ..., failed_by: _Optional[_Mapping[str, int]] = ..., oldest_secs: _Optional[float] = ..., updates: _Optional[int] = ..., updates_per_sec: _Optional[float] = ..., held_bytes: _Optional[int] = ..., unheard: _Optional[int] = ..., dropped: _Optional[int] = ..., payloads: _Optional[_Iterable[_Union[Payload, _Mapping]]] = ..., payloads_lost: _Optional[int] = ...) -> None: ...

class UnregisterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UnregisterReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
