"""Messages of Protobuf for tests, as protoc would make them: there is no protoc here."""

from __future__ import annotations

from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

_BUILT_IN = (duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
"""In the pool, since they are imported."""
_Field = descriptor_pb2.FieldDescriptorProto
_KINDS = {"int32": 5, "int64": 3, "string": 9, "bytes": 12}


def _file(name: str, *imports: str) -> Any:
    return descriptor_pb2.FileDescriptorProto(
        name=name, package="shop", syntax="proto3", dependency=imports
    )


def _add(message: Any, name: str, kind: str, *, repeated: bool = False) -> Any:
    field = message.field.add(name=name, number=len(message.field) + 1)
    field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    if kind in _KINDS:
        field.type = _KINDS[kind]
    else:
        field.type_name = kind
        field.type = _Field.TYPE_ENUM if kind.endswith("Colour") else _Field.TYPE_MESSAGE
    return field


def _add_map(message: Any, name: str, kind: str) -> None:
    entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
    entry.options.map_entry = True
    _add(entry, "key", "string")
    _add(entry, "value", kind)
    _add(message, name, f".shop.{message.name}.{entry.name}", repeated=True)


def _click_file() -> Any:
    file = _file("shop/click.proto", "google/protobuf/timestamp.proto")
    _add(file.message_type.add(name="Other"), "x", "int32")
    click = file.message_type.add(name="Click")
    _add(click, "user", "string")
    _add(click, "n", "int64")
    _add(click, "at", ".google.protobuf.Timestamp")
    _add(click.nested_type.add(name="Address"), "city", "string")
    return file


def _order_file() -> Any:
    file = _file("shop/order.proto", "shop/click.proto")
    order = file.message_type.add(name="Order")
    _add(order, "to", ".shop.Click.Address")
    _add(order, "click", ".shop.Click")
    return file


def _everything_file() -> Any:
    built_in = ("timestamp", "duration", "wrappers", "struct")
    file = _file("shop/all.proto", *(f"google/protobuf/{name}.proto" for name in built_in))
    _add(file.message_type.add(name="Place"), "city", "string")
    colours = file.enum_type.add(name="Colour")
    colours.value.add(name="NONE", number=0)
    colours.value.add(name="RED", number=1)
    message = file.message_type.add(name="Everything")
    _add(message, "number", "int64")
    _add(message, "raw", "bytes")
    _add(message, "colour", ".shop.Colour")
    _add(message, "names", "string", repeated=True)
    _add_map(message, "counts", "int32")
    _add_map(message, "places", ".shop.Place")
    _add(message, "home", ".shop.Place")
    _add(message, "at", ".google.protobuf.Timestamp")
    _add(message, "lasted", ".google.protobuf.Duration")
    _add(message, "wrapped", ".google.protobuf.Int64Value")
    maybe = _add(message, "maybe", "int32")
    maybe.proto3_optional, maybe.oneof_index = True, 0
    message.oneof_decl.add(name="_maybe")
    _add(message, "anything", ".google.protobuf.Struct")
    _add(message, "days", ".google.protobuf.Timestamp", repeated=True)
    return file


_POOL = descriptor_pool.Default()
for _each in (_click_file(), _order_file(), _everything_file()):
    _POOL.AddSerializedFile(_each.SerializeToString())


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"shop.{name}"))


CLICK, ADDRESS = _message("Click"), _message("Click.Address")
ORDER, EVERYTHING = _message("Order"), _message("Everything")
