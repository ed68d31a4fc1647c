"""Answers as JSON documents, and back: dataclasses as mappings, times as ISO-8601 in UTC."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

T = TypeVar("T")
_JSON_TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "int | None": (int, type(None)),
    "float | None": (int, float, type(None)),
}


def plain(value: object) -> Any:
    """Convert `value` to the types of JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def made_of(kind: type[T], document: Mapping[str, Any]) -> T:
    """Return a dataclass of a document; what the class does not know is left out."""
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {key: value for key, value in document.items() if key in names}
    for key in {"first", "last"} & values.keys():
        if isinstance(values[key], str):
            values[key] = datetime.fromisoformat(values[key]).timestamp()
    view = kind(**values)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if not isinstance(getattr(view, field.name), _JSON_TYPES.get(str(field.type), object)):
            raise TypeError(f"{field.name} is no {field.type}")
    return view
