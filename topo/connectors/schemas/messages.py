"""Messages of Protobuf as dicts, and back: with Python's own values where JSON's would lose some.

Protobuf's own `MessageToDict` makes texts of large numbers and of bytes, as JSON needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_AS_JSON = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
_UNIX_ERA = datetime(1970, 1, 1, tzinfo=UTC)
_ENUM, _MESSAGE = 14, 11  # FieldDescriptor.type


def as_dict(message: Any) -> dict[str, Any]:
    """Return the fields of a message; those that are not set and can tell so are None."""
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    if _is_repeated(field):
        values = getattr(message, field.name)
        if _is_map(field):
            of_value = field.message_type.fields_by_name["value"]
            return {key: _value(values[key], of_value) for key in values}
        return [_value(value, field) for value in values]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(getattr(message, field.name), field)


def _value(value: Any, field: Any) -> Any:
    if field.type == _ENUM:
        names = field.enum_type.values_by_number
        return names[value].name if value in names else value
    if field.type != _MESSAGE:
        return value
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return _UNIX_ERA + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if name == _DURATION:
        return timedelta(seconds=value.seconds, microseconds=value.nanos / 1000)
    if name in _WRAPPERS:
        return value.value
    if name in _AS_JSON:
        from google.protobuf import json_format

        return json_format.MessageToDict(value)
    return as_dict(value)


def as_message(kind: Any, values: Mapping[str, Any]) -> Any:
    """Return a message with these fields, None left out; raise ValueError for unknown ones."""
    message = kind()
    _fill(message, values)
    return message


def _fill(message: Any, values: Mapping[str, Any]) -> None:
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in values.items():
        if name not in fields:
            raise ValueError(f"{message.DESCRIPTOR.full_name} has no field {name!r}")
        if value is None:
            continue
        try:
            _set(message, fields[name], value)
        except (TypeError, OverflowError, AttributeError) as error:
            raise ValueError(f"the field {name!r}: {error}") from error


def _set(message: Any, field: Any, value: Any) -> None:
    if _is_map(field):
        of_value = field.message_type.fields_by_name["value"]
        target = getattr(message, field.name)
        for key, each in value.items():
            if of_value.type == _MESSAGE:
                _fill_value(target[key], of_value, each)
            else:
                target[key] = _scalar(each, of_value)
    elif _is_repeated(field):
        target = getattr(message, field.name)
        for each in value:
            if field.type == _MESSAGE:
                _fill_value(target.add(), field, each)
            else:
                target.append(_scalar(each, field))
    elif field.type == _MESSAGE:
        target = getattr(message, field.name)
        target.SetInParent()
        _fill_value(target, field, value)
    else:
        setattr(message, field.name, _scalar(value, field))


def _scalar(value: Any, field: Any) -> Any:
    if field.type == _ENUM and isinstance(value, str):
        names = field.enum_type.values_by_name
        if value not in names:
            raise TypeError(f"{field.enum_type.full_name} has no {value!r}")
        return names[value].number
    return value


def _fill_value(target: Any, field: Any, value: Any) -> None:
    name = field.message_type.full_name
    if hasattr(value, "DESCRIPTOR"):
        target.CopyFrom(value)
    elif name == _TIMESTAMP:
        since = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _UNIX_ERA
        seconds, rest = divmod(since, timedelta(seconds=1))
        nanos = rest // timedelta(microseconds=1) * 1000
        target.CopyFrom(type(target)(seconds=seconds, nanos=nanos))
    elif name == _DURATION:
        target.FromTimedelta(value)
    elif name in _WRAPPERS:
        target.CopyFrom(type(target)(value=value))
    elif name in _AS_JSON:
        from google.protobuf import json_format

        json_format.ParseDict(value, target)
    else:
        _fill(target, value)


def _is_map(field: Any) -> bool:
    kind = field.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)


def _is_repeated(field: Any) -> bool:
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)
