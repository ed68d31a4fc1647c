from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("id", "status", "reason", "pending", "batch", "slots", "rebalance_failure")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_FAILURE_FIELD_NUMBER: _ClassVar[int]
    id: str
    status: str
    reason: str
    pending: int
    batch: int
    slots: int
    rebalance_failure: str
    def __init__(self, id: _Optional[str] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ..., pending: _Optional[int] = ..., batch: _Optional[int] = ..., slots: _Optional[int] = ..., rebalance_failure: _Optional[str] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("window_secs",)
    WINDOW_SECS_FIELD_NUMBER: _ClassVar[int]
    window_secs: float
    def __init__(self, window_secs: _Optional[float] = ...) -> None: ...

class ErrorsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Document(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class ActivateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeactivateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RebalanceRequest(_message.Message):
    __slots__ = ("workers", "tasks", "explain")
    class TasksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    workers: int
    tasks: _containers.ScalarMap[str, int]
    explain: bool
    def __init__(self, workers: _Optional[int] = ..., tasks: _Optional[_Mapping[str, int]] = ..., explain: _Optional[bool] = ...) -> None: ...

class SavepointRequest(_message.Message):
    __slots__ = ("directory",)
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    directory: str
    def __init__(self, directory: _Optional[str] = ...) -> None: ...

class KillRequest(_message.Message):
    __slots__ = ("wait_secs",)
    WAIT_SECS_FIELD_NUMBER: _ClassVar[int]
    wait_secs: float
    def __init__(self, wait_secs: _Optional[float] = ...) -> None: ...

class ChangeReply(_message.Message):
    __slots__ = ("status", "was")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    WAS_FIELD_NUMBER: _ClassVar[int]
    status: str
    was: str
    def __init__(self, status: _Optional[str] = ..., was: _Optional[str] = ...) -> None: ...
