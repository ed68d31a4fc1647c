from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CallRequest(_message.Message):
    __slots__ = ("function", "args")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    function: str
    args: str
    def __init__(self, function: _Optional[str] = ..., args: _Optional[str] = ...) -> None: ...

class CallReply(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: str
    def __init__(self, result: _Optional[str] = ...) -> None: ...

class Attach(_message.Message):
    __slots__ = ("checkpoint", "function", "task", "taken", "gathers")
    class TakenEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    GATHERS_FIELD_NUMBER: _ClassVar[int]
    checkpoint: str
    function: str
    task: int
    taken: _containers.ScalarMap[str, int]
    gathers: bool
    def __init__(self, checkpoint: _Optional[str] = ..., function: _Optional[str] = ..., task: _Optional[int] = ..., taken: _Optional[_Mapping[str, int]] = ..., gathers: _Optional[bool] = ...) -> None: ...

class Concluded(_message.Message):
    __slots__ = ("id", "part", "parts", "failed", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: str
    part: str
    parts: _containers.RepeatedScalarFieldContainer[str]
    failed: bool
    reason: str
    def __init__(self, id: _Optional[str] = ..., part: _Optional[str] = ..., parts: _Optional[_Iterable[str]] = ..., failed: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class FetchMessage(_message.Message):
    __slots__ = ("attach", "upto", "concluded")
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    CONCLUDED_FIELD_NUMBER: _ClassVar[int]
    attach: Attach
    upto: int
    concluded: Concluded
    def __init__(self, attach: _Optional[_Union[Attach, _Mapping]] = ..., upto: _Optional[int] = ..., concluded: _Optional[_Union[Concluded, _Mapping]] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("id", "args", "serial", "left_secs")
    ID_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    LEFT_SECS_FIELD_NUMBER: _ClassVar[int]
    id: str
    args: str
    serial: int
    left_secs: float
    def __init__(self, id: _Optional[str] = ..., args: _Optional[str] = ..., serial: _Optional[int] = ..., left_secs: _Optional[float] = ...) -> None: ...

class FetchReply(_message.Message):
    __slots__ = ("number", "request")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    number: str
    request: Request
    def __init__(self, number: _Optional[str] = ..., request: _Optional[_Union[Request, _Mapping]] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("id", "result")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    id: str
    result: str
    def __init__(self, id: _Optional[str] = ..., result: _Optional[str] = ...) -> None: ...

class Answers(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Result]
    def __init__(self, results: _Optional[_Iterable[_Union[Result, _Mapping]]] = ...) -> None: ...

class AnswersReply(_message.Message):
    __slots__ = ("late", "number")
    LATE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    late: int
    number: str
    def __init__(self, late: _Optional[int] = ..., number: _Optional[str] = ...) -> None: ...
