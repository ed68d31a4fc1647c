"""The forms of values as bytes: "json", "str", "bytes", or functions of the user."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

from topo.errors import ComponentError

Decode: TypeAlias = Callable[[bytes], Any]
Encode: TypeAlias = Callable[[Any], bytes]

FORMS = ("json", "str", "bytes")
_MOST_DEPTH = 200
"""Of JSON; what is nested a few hundred deep does not pickle, and would stop a topology."""


def decoder(form: str | Decode, connector: str, name: str) -> Decode:
    """Return the function that makes a value of bytes."""
    return _looked_up(form, {"json": _json_loads(), "str": _decode_text, "bytes": bytes},
                      connector, name)  # fmt: skip


def encoder(form: str | Encode, connector: str, name: str) -> Encode:
    """Return the function that makes bytes of a value."""
    known: dict[str, Encode] = {"json": dump_json, "str": _encode_text, "bytes": _as_bytes}
    return _looked_up(form, known, connector, name)


def check_form(form: str | Callable[[Any], Any], connector: str, name: str) -> None:
    """Raise ComponentError if a form is neither known nor a function."""
    _looked_up(form, dict.fromkeys(FORMS, bytes), connector, name)


def _looked_up(
    form: str | Callable[[Any], Any],
    known: Mapping[str, Callable[[Any], Any]],
    connector: str,
    name: str,
) -> Callable[[Any], Any]:
    if callable(form):
        return form
    if form not in known:
        raise ComponentError(
            f"{connector}: {name}={form!r}; it is one of {', '.join(map(repr, known))}, "
            "or a function"
        )
    return known[form]


def _json_loads() -> Decode:
    """Return the fastest reader of JSON that is installed, with a limit of depth."""
    decode = _fastest_loads()

    def loads(data: bytes) -> Any:
        value = decode(data)
        if len(data) > 2 * _MOST_DEPTH and _is_too_deep(value, data):
            raise ValueError(f"it is nested more than {_MOST_DEPTH} deep")
        return value

    return loads


def _fastest_loads() -> Decode:
    for module, attribute in (("orjson", "loads"), ("msgspec.json", "decode")):
        try:
            found: Decode = getattr(importlib.import_module(module), attribute)
        except ImportError:
            continue
        return found
    decode = json.JSONDecoder().decode
    return lambda data: decode(data.decode())  # json.loads looks for the encoding first


def _is_too_deep(value: Any, data: bytes) -> bool:
    """Return True if a value is nested so deep that it could be read, and not be pickled."""
    if data.count(b"[") + data.count(b"{") <= _MOST_DEPTH:
        return False
    level = [value]
    for _ in range(_MOST_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def dump_json(value: Any) -> bytes:
    """Return a value as compact JSON; dates, decimals and ids as text."""
    return _as_json(value).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    raise TypeError(f"a {type(value).__name__} is no JSON")


# json.dumps would make an encoder for each value.
_as_json = json.JSONEncoder(default=_plain, separators=(",", ":"), ensure_ascii=False).encode


def _decode_text(data: bytes) -> str:
    return data.decode()


def _encode_text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"bytes are wanted; got a {type(value).__name__}")
