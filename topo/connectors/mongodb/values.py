"""Documents as Python has them, and back.

BSON has types of its own: ids of objects, decimals, times of the cluster. Spouts make plain values
of them, which every bolt and sink takes; a document is decoded by itself, so that one that is
damaged is a bad record and does not end the stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

from topo.connectors.base import load_client

_USER = "MongoDB"


@cache
def options() -> Any:
    """Return how BSON is read and written: aware times, UUIDs, and what Python has besides."""
    codec = load_client("bson.codec_options", _USER, "mongodb")
    binary = load_client("bson.binary", _USER, "mongodb")
    return codec.CodecOptions(
        tz_aware=True,
        tzinfo=UTC,
        uuid_representation=binary.UuidRepresentation.STANDARD,
        datetime_conversion=codec.DatetimeConversion.DATETIME_AUTO,
        type_registry=codec.TypeRegistry(fallback_encoder=_as_bson),
    )


@cache
def raw_options() -> Any:
    """Return the same for documents that are decoded later."""
    raw = load_client("bson.raw_bson", _USER, "mongodb")
    return options().with_options(document_class=raw.RawBSONDocument)


def decode_bson(data: bytes) -> Any:
    """Return a document with BSON's own types."""
    return load_client("bson", _USER, "mongodb").decode(data, options())


def decode_plain(data: bytes) -> Any:
    """Return a document of plain values."""
    return plain(decode_bson(data))


def encode(document: Mapping[str, Any]) -> bytes:
    """Return a document as bytes."""
    data: bytes = load_client("bson", _USER, "mongodb").encode(document, codec_options=options())
    return data


def plain(value: Any) -> Any:
    """Return a value without BSON's own types."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    kind = type(value)
    convert = _converters().get(kind)
    return value if convert is None else convert(value)


@cache
def _converters() -> Mapping[type, Any]:
    bson = load_client("bson", _USER, "mongodb")
    return {
        bson.ObjectId: str,
        bson.Decimal128: lambda value: value.to_decimal(),
        bson.Int64: int,
        bson.Timestamp: lambda value: value.as_datetime().astimezone(UTC),
        bson.Binary: bytes,
        bson.Regex: lambda value: value.pattern,
        bson.Code: str,
        bson.DatetimeMS: int,
    }


def _as_bson(value: Any) -> Any:
    """Return what BSON has for a value that it does not know."""
    if isinstance(value, Decimal):
        return load_client("bson", _USER, "mongodb").Decimal128(value)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, set | frozenset):
        return list(value)
    if hasattr(value, "item") and not hasattr(value, "__len__"):  # a number of numpy
        return value.item()
    if isinstance(value, int):
        raise OverflowError("integers of BSON have 64 bits")
    raise TypeError(f"BSON has nothing for a {type(value).__name__}")
