"""The forms of values as bytes: names of common ones, functions of the user, or a `Format`.

A `Format` has settings of its own, such as a schema. Those of `topo.connectors.schemas` may ask a
Schema Registry: what they raise then is no fault of the record, see `passes_on`.
"""

from __future__ import annotations

import importlib
import json
import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from json.encoder import encode_basestring
from math import isfinite
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from topo.distribution import load_client
from topo.errors import ComponentError, Unavailable

Decode: TypeAlias = Callable[[bytes], Any]
Encode: TypeAlias = Callable[[Any], bytes]
DecodeMany: TypeAlias = Callable[[Sequence[bytes]], "list[Any] | None"]
"""Makes values of many; None if one cannot be read, which its own decoding tells."""

FORMS = ("json", "str", "bytes", "msgpack")
_MSGPACK = "msgpack>=1.0"
_MOST_DEPTH = 200
"""Of JSON; what is nested a few hundred deep does not pickle, and would stop a topology."""
_TOO_DEEP = f"it is nested more than {_MOST_DEPTH} deep"


class Place(NamedTuple):
    """Where encoded values go: a registry names their schemas by it."""

    topic: str
    part: str
    """"key" or "value"."""


class Format:
    """A form of values that has settings of its own."""

    requires: tuple[str, ...] = ()
    """The distributions that it needs where it is used."""
    asks = False
    """True if it asks a Schema Registry."""

    def check(self, connector: str, name: str, *, writes: bool) -> None:
        """Raise ComponentError if it cannot read, or write, as it is."""

    def decoder(self, connector: str) -> Decode:
        """Return the function that makes a value of bytes."""
        raise NotImplementedError

    def encoder(self, connector: str, place: Place | None) -> Encode:
        """Return the function that makes bytes of a value for a place."""
        raise NotImplementedError


Form: TypeAlias = "str | Format | Callable[[Any], Any]"


def passes_on(error: Exception) -> bool:
    """Return True if an error of a form is not about the value: it is to be raised as it is."""
    return isinstance(error, Unavailable | ComponentError)


def decoder(form: str | Format | Decode, connector: str, name: str) -> Decode:
    """Return the function that makes a value of bytes."""
    if isinstance(form, Format):
        return form.decoder(connector)
    by_name: dict[str, Callable[[], Decode]] = {
        "json": _json_loads,
        "str": lambda: _decode_text,
        "bytes": lambda: bytes,
        "msgpack": lambda: _msgpack_loads(connector),
    }
    return form if callable(form) else by_name[_checked_name(form, connector, name)]()


def decoder_of_many(form: Form) -> DecodeMany | None:
    """Return the function that makes the values of many at once; None if the form has none."""
    return _json_loads_many() if form == "json" else None


def encoder(
    form: str | Format | Encode, connector: str, name: str, place: Place | None = None
) -> Encode:
    """Return the function that makes bytes of a value."""
    if isinstance(form, Format):
        return form.encoder(connector, place)
    by_name: dict[str, Callable[[], Encode]] = {
        "json": lambda: dump_json,
        "str": lambda: _encode_text,
        "bytes": lambda: _as_bytes,
        "msgpack": lambda: _msgpack_dumps(connector),
    }
    return form if callable(form) else by_name[_checked_name(form, connector, name)]()


def check_form(
    form: Form, connector: str, name: str, *, writes: bool = False, asks: bool = False
) -> None:
    """Raise ComponentError if a form is not to be had: to write, and to ask a registry."""
    if not isinstance(form, Format):
        if not callable(form):
            _checked_name(form, connector, name)
        return
    if form.asks and not asks:
        raise ComponentError(
            f"{connector}: {name}={type(form).__name__}(...) asks a Schema Registry, which knows "
            "the records of Kafka alone",
            hint="give it a schema, and no registry: then values are read and written by that one",
        )
    form.check(connector, name, writes=writes)


def requirements_of(*forms: Form) -> tuple[str, ...]:
    """Return the distributions that forms need where tasks run."""
    needs = {"msgpack": (_MSGPACK,)}
    of_each = [
        form.requires if isinstance(form, Format) else needs.get(str(form), ()) for form in forms
    ]
    return tuple(dict.fromkeys(need for needed in of_each for need in needed))


def _checked_name(form: Any, connector: str, name: str) -> str:
    if form not in FORMS:
        raise ComponentError(
            f"{connector}: {name}={form!r}; it is one of {', '.join(map(repr, FORMS))}, "
            "a format of topo.connectors.schemas, or a function"
        )
    return str(form)


def _msgpack_loads(connector: str) -> Decode:
    msgpack = load_client("msgpack", connector, "msgpack")

    def loads(data: bytes) -> Any:
        value = msgpack.unpackb(data, timestamp=3, strict_map_key=False)
        if len(data) > _MOST_DEPTH and _is_too_deep(value):
            raise ValueError(_TOO_DEEP)
        return value

    return loads


def _msgpack_dumps(connector: str) -> Encode:
    msgpack = load_client("msgpack", connector, "msgpack")

    def dumps(value: Any) -> bytes:
        data: bytes = msgpack.packb(value, default=plain)
        return data

    def plain(value: Any) -> Any:
        if isinstance(value, datetime) and value.tzinfo is not None:
            return msgpack.Timestamp.from_datetime(value)
        return _plain(value, "MessagePack")

    return dumps


def _json_loads() -> Decode:
    """Return the fastest reader of JSON that is installed, with a limit of depth."""
    decode = _fastest_loads()

    def loads(data: bytes) -> Any:
        try:
            value = decode(data)
        except RecursionError:
            raise ValueError(_TOO_DEEP) from None
        if len(data) > 2 * _MOST_DEPTH and _is_deep_json(data, value):
            raise ValueError(_TOO_DEEP)
        return value

    return loads


def _json_loads_many() -> DecodeMany:
    """Return a reader of many JSON values as one list, which takes half of the time.

    Between two values stands a mark that nobody who writes them can know. If each second item of
    the list is the mark, all marks stand between items, none in a text or a list of a value: so
    each of the values has been read as it is by itself. (pyarrow's reader takes a third. It makes
    floats of large integers and times of some texts, and a line of `null` ends the process.)
    """
    decode = _fastest_loads()
    mark = secrets.token_hex(8)
    separator = f',"{mark}",'.encode()

    def loads_many(datas: Sequence[bytes]) -> list[Any] | None:
        try:
            items = decode(b"[%b]" % separator.join(datas))
        except Exception:  # of whatever reader; read alone, the value says it again
            return None
        marks = items[1::2]
        if len(items) != 2 * len(datas) - 1 or marks.count(mark) != len(marks):
            return None
        values: list[Any] = items[::2]
        if max(map(len, datas)) > 2 * _MOST_DEPTH and any(map(_is_deep_json, datas, values)):
            return None
        return values

    return loads_many


def _is_deep_json(data: bytes, value: Any) -> bool:
    """Return True if what was read of these bytes is nested too deep."""
    return data.count(b"[") + data.count(b"{") > _MOST_DEPTH and _is_too_deep(value)


def _fastest_loads() -> Decode:
    for module, attribute in (("orjson", "loads"), ("msgspec.json", "decode")):
        try:
            loads: Decode = getattr(importlib.import_module(module), attribute)
        except ImportError:
            continue
        return loads
    decode = json.JSONDecoder().decode
    return lambda data: decode(data.decode())  # json.loads looks for the encoding first


def _is_too_deep(value: Any) -> bool:
    """Return True if a value is nested so deep that it could be read, and not be pickled."""
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


def _plain(value: Any, form: str = "JSON") -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    raise TypeError(f"a {type(value).__name__} is no {form}")


_encoder = json.JSONEncoder(default=_plain, separators=(",", ":"), ensure_ascii=False)


def _one_encoder() -> Callable[[Any], str]:
    """Return what makes JSON of values, as `_encoder.encode` does, in half of the time.

    That makes an encoder in C for each value, with a book of what it is in: to tell a value that
    contains itself. Without the book the recursion ends, and the slower way says which of both it
    was.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _encoder.encode
    encode = make(None, _plain, json.encoder.encode_basestring, None, ":", ",", False, False, True)

    def as_json(value: Any) -> str:
        try:
            return "".join(encode(value, 0))
        except RecursionError:
            return _encoder.encode(value)

    return as_json


_as_json = _one_encoder()


def dump_json_rows(
    fields: Sequence[str], columns: Sequence[Sequence[Any]], count: int
) -> list[bytes]:
    """Return what `dump_json` makes of `count` dicts, for their columns.

    A column is of one type mostly, and then its values take a third of the time.
    """
    if not fields:
        return [b"{}"] * count
    names = (encode_basestring(name).replace("%", "%%") for name in fields)
    line = "{" + ",".join(f"{name}:%s" for name in names) + "}"
    return [(line % row).encode() for row in zip(*map(_texts, columns), strict=True)]


def _texts(column: Sequence[Any]) -> Iterable[Any]:
    """Return what "%s" writes as JSON, for each value."""
    values = list(column)
    kinds = set(map(type, values))
    if kinds == {str}:
        return map(encode_basestring, values)
    if kinds == {int} or (kinds == {float} and all(map(isfinite, values))):
        return values
    return map(_as_json, values)


def _decode_text(data: bytes) -> str:
    return data.decode()


def _encode_text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"bytes are wanted; got a {type(value).__name__}")
