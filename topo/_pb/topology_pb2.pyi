from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Topology(_message.Message):
    __slots__ = ("version", "components", "warnings", "user_classes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    USER_CLASSES_FIELD_NUMBER: _ClassVar[int]
    version: int
    components: _containers.RepeatedCompositeFieldContainer[Component]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    user_classes: _containers.RepeatedCompositeFieldContainer[UserClass]
    def __init__(self, version: _Optional[int] = ..., components: _Optional[_Iterable[_Union[Component, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ..., user_classes: _Optional[_Iterable[_Union[UserClass, _Mapping]]] = ...) -> None: ...

class Component(_message.Message):
    __slots__ = ("id", "spout", "class_name", "parallelism", "outputs", "inputs", "conf", "pickled", "stateless", "finite", "basic", "requires", "timed", "external", "leaves", "times_in", "role")
    class TimesInEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    SPOUT_FIELD_NUMBER: _ClassVar[int]
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    CONF_FIELD_NUMBER: _ClassVar[int]
    PICKLED_FIELD_NUMBER: _ClassVar[int]
    STATELESS_FIELD_NUMBER: _ClassVar[int]
    FINITE_FIELD_NUMBER: _ClassVar[int]
    BASIC_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_FIELD_NUMBER: _ClassVar[int]
    TIMED_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    TIMES_IN_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    id: str
    spout: bool
    class_name: str
    parallelism: int
    outputs: _containers.RepeatedCompositeFieldContainer[Stream]
    inputs: _containers.RepeatedCompositeFieldContainer[Input]
    conf: str
    pickled: bytes
    stateless: bool
    finite: bool
    basic: bool
    requires: _containers.RepeatedScalarFieldContainer[str]
    timed: bool
    external: str
    leaves: str
    times_in: _containers.ScalarMap[str, str]
    role: str
    def __init__(self, id: _Optional[str] = ..., spout: _Optional[bool] = ..., class_name: _Optional[str] = ..., parallelism: _Optional[int] = ..., outputs: _Optional[_Iterable[_Union[Stream, _Mapping]]] = ..., inputs: _Optional[_Iterable[_Union[Input, _Mapping]]] = ..., conf: _Optional[str] = ..., pickled: _Optional[bytes] = ..., stateless: _Optional[bool] = ..., finite: _Optional[bool] = ..., basic: _Optional[bool] = ..., requires: _Optional[_Iterable[str]] = ..., timed: _Optional[bool] = ..., external: _Optional[str] = ..., leaves: _Optional[str] = ..., times_in: _Optional[_Mapping[str, str]] = ..., role: _Optional[str] = ...) -> None: ...

class Stream(_message.Message):
    __slots__ = ("name", "fields", "direct")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    DIRECT_FIELD_NUMBER: _ClassVar[int]
    name: str
    fields: _containers.RepeatedScalarFieldContainer[str]
    direct: bool
    def __init__(self, name: _Optional[str] = ..., fields: _Optional[_Iterable[str]] = ..., direct: _Optional[bool] = ...) -> None: ...

class Input(_message.Message):
    __slots__ = ("component", "stream", "grouping", "fields", "custom", "loop")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    GROUPING_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_FIELD_NUMBER: _ClassVar[int]
    LOOP_FIELD_NUMBER: _ClassVar[int]
    component: str
    stream: str
    grouping: str
    fields: _containers.RepeatedScalarFieldContainer[str]
    custom: bytes
    loop: bool
    def __init__(self, component: _Optional[str] = ..., stream: _Optional[str] = ..., grouping: _Optional[str] = ..., fields: _Optional[_Iterable[str]] = ..., custom: _Optional[bytes] = ..., loop: _Optional[bool] = ...) -> None: ...

class UserClass(_message.Message):
    __slots__ = ("module", "name", "pickled")
    MODULE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PICKLED_FIELD_NUMBER: _ClassVar[int]
    module: str
    name: str
    pickled: bytes
    def __init__(self, module: _Optional[str] = ..., name: _Optional[str] = ..., pickled: _Optional[bytes] = ...) -> None: ...
