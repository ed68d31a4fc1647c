"""Protobuf values: of a class that protoc has made, or of the descriptors that a registry has.

A registry's record says which message of its file it is, by a path of numbers. The file comes as a
descriptor (`format=serialized`), so that no parser of `.proto` texts is needed here.
"""

from __future__ import annotations

import base64
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from topo.connectors.formats import Decode, Encode, Place
from topo.connectors.schemas.framing import SchemaFormat, Subject
from topo.connectors.schemas.messages import as_dict, as_message
from topo.connectors.schemas.registry import Client, Reference, Schema, SchemaRegistry
from topo.errors import ComponentError

_NAME = "Protobuf"
_BUILT_IN = "google/protobuf/"
_SERIALIZED = "serialized"
_MOST_NUMBERS = 100

Message = Any
"""A class of messages, or one of them."""


class Protobuf(SchemaFormat[Message]):
    """Protobuf values, as dicts: enums by their names, timestamps as datetimes.

    `message` is a class that protoc has made. To read by a registry it may be left out: then each
    record is of the message that it says. With it, a record of another message is a bad one.
    Without a registry values are not framed. Written are dicts and messages alike; `subject` and
    `register` are as `Avro` has them, and the files that a message's file imports are registered
    under their names. The class travels to the tasks as a descriptor: they need no module of it.
    """

    kind = "PROTOBUF"

    def __init__(
        self,
        registry: SchemaRegistry | None = None,
        message: Message | None = None,
        *,
        subject: Subject = "topic",
        register: bool = True,
    ) -> None:
        super().__init__(registry, subject=subject, register=register, latest=False)
        if message is not None and not hasattr(message, "DESCRIPTOR"):
            raise ComponentError(
                f"{_NAME}: message={message!r} is no class of messages",
                hint="protoc --python_out=. click.proto makes click_pb2, with a class each",
            )
        if message is None and registry is None:
            raise ComponentError(
                f"{_NAME}: which message?", hint="message=click_pb2.Click, a class made by protoc"
            )
        self.message = message

    def __getstate__(self) -> dict[str, Any]:
        own = dict(self.__dict__)
        if self.message is not None:
            descriptor = self.message.DESCRIPTOR
            own["message"] = (descriptor.full_name, _files_of(descriptor.file, {}))
        return own

    def __setstate__(self, own: dict[str, Any]) -> None:
        self.__dict__.update(own)
        if own["message"] is not None:
            self.message = _class_in_default_pool(*own["message"])

    def check(self, connector: str, name: str, *, writes: bool) -> None:
        if writes and self.message is None:
            raise ComponentError(
                f"{connector}: {name}={_NAME}(...) has no message to write",
                hint="message=click_pb2.Click, a class made by protoc",
            )

    def decoder(self, connector: str) -> Decode:
        if self.registry is not None:
            return self.framed_decoder(connector)
        return self._reads(self.message)

    def encoder(self, connector: str, place: Place | None) -> Encode:
        if self.registry is not None:
            return self.framed_encoder(connector, place)
        return self._writes

    # -- reading ------------------------------------------------------------------------------

    def reader(self, client: Client, schema_id: int) -> Callable[[bytes], Any]:
        schema = client.schema(schema_id, _SERIALIZED)
        self.check_kind(schema, f"schema id {schema_id}")
        file = _file_of(client, schema)
        readers: dict[tuple[int, ...], Callable[[bytes], Any]] = {}

        def read(data: bytes) -> Any:
            path, body = _unpacked_path(data)
            reads = readers.get(path)
            if reads is None:
                reads = readers[path] = self._reads(self._class_at(file, path))
            return reads(body)

        return read

    def _class_at(self, file: Any, path: tuple[int, ...]) -> Message:
        """Return the class of a message of a file, by the numbers that lead to it."""
        try:
            descriptor = list(file.message_types_by_name.values())[path[0]]
            for number in path[1:]:
                descriptor = descriptor.nested_types[number]
        except IndexError:
            raise ValueError(
                f"it is message {list(path)} of {file.name!r}, which has no such message"
            ) from None
        if self.message is None:
            return _message_class(descriptor)
        if descriptor.full_name != self.message.DESCRIPTOR.full_name:
            own = self.message.DESCRIPTOR.full_name
            raise ValueError(f"it is a {descriptor.full_name}, and not a {own}")
        return self.message

    def _reads(self, message: Message) -> Callable[[bytes], Any]:
        def read(data: bytes) -> Any:
            value = message()
            try:
                value.ParseFromString(bytes(data))
            except Exception as error:  # protobuf's DecodeError, which is no ValueError
                raise ValueError(f"it is no {message.DESCRIPTOR.full_name}: {error}") from error
            return as_dict(value)

        return read

    # -- writing ------------------------------------------------------------------------------

    def own(self, client: Client, place: Place) -> tuple[Message, str, Schema]:
        assert self.message is not None
        descriptor = self.message.DESCRIPTOR
        file = descriptor.file
        references = self._references(client, file)
        return self.message, descriptor.full_name, _as_schema(file, references)

    def _references(self, client: Client, file: Any) -> tuple[Reference, ...]:
        """Return the files that a file imports, as the registry has them."""
        references = []
        for used in file.dependencies:
            if not used.name.startswith(_BUILT_IN):
                schema = _as_schema(used, self._references(client, used))
                if self.register:
                    client.register(used.name, schema)
                version = int(client.find(used.name, schema)["version"])
                references.append(Reference(used.name, used.name, version))
        return tuple(references)

    def writer(self, schema: Message) -> Callable[[Any], bytes]:
        path = _packed_path(_path_to(schema.DESCRIPTOR))
        return lambda value: path + self._writes(value)

    def _writes(self, value: Any) -> bytes:
        message = as_message(self.message, value) if isinstance(value, Mapping) else value
        assert self.message is not None
        full_name = self.message.DESCRIPTOR.full_name
        descriptor = getattr(message, "DESCRIPTOR", None)
        if descriptor is None or descriptor.full_name != full_name:
            raise ValueError(f"a dict or a {full_name} is wanted; got a {type(value).__name__}")
        data: bytes = message.SerializeToString()
        return data


def _as_schema(file: Any, references: tuple[Reference, ...]) -> Schema:
    return Schema(Protobuf.kind, base64.b64encode(file.serialized_pb).decode(), references)


def _path_to(descriptor: Any) -> list[int]:
    """Return the numbers that lead to a message of its file."""
    path: list[int] = []
    while descriptor is not None:
        above = descriptor.containing_type
        beside = above.nested_types if above else descriptor.file.message_types_by_name.values()
        path.insert(0, [each.name for each in beside].index(descriptor.name))
        descriptor = above
    return path


def _packed_path(path: Sequence[int]) -> bytes:
    """Return the path before a value; the first message of a file has a shorter form."""
    if list(path) == [0]:
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(path), *path))


def _zigzag(number: int) -> bytes:
    left, out = number << 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def _unpacked_path(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the path before a value, and the value."""
    count, at = _number(data, 0)
    if count == 0:
        return (0,), data[at:]
    if count > _MOST_NUMBERS:
        raise ValueError(f"the path to its message has {count} numbers")
    path = []
    for _ in range(count):
        number, at = _number(data, at)
        path.append(number)
    return tuple(path), data[at:]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number that is packed, and where the next one begins."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 35:
            raise ValueError("the path to its message is cut off, or none")
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    if number & 1:
        raise ValueError("the path to its message has a number below zero")
    return number >> 1, at


def _file_of(client: Client, schema: Schema) -> Any:
    """Return the descriptor of a registry's file, in a pool of its own."""
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    return _added(pool, client, schema, "main.proto", set())


def _added(pool: Any, client: Client, schema: Schema, name: str, there: set[str]) -> Any:
    """Add a file and those that it imports to a pool; return its descriptor."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(schema.text, validate=True))
    except Exception as error:  # DecodeError, or binascii's
        raise ValueError(
            "the registry gives no descriptor (format=serialized) of the Protobuf schema"
        ) from error
    for reference in schema.references:
        if reference.name not in there:
            there.add(reference.name)
            _added(pool, client, client.version(reference, _SERIALIZED), reference.name, there)
    file.name = file.name if file.name and file.name != "default" else name
    if name != "main.proto":
        file.name = name  # as the files that import it call it
    for used in file.dependency:
        if used.startswith(_BUILT_IN) and used not in there:
            there.add(used)
            _add_built_in(pool, used)
    try:
        pool.Add(file)
        return pool.FindFileByName(file.name)
    except Exception as error:  # TypeError of the C++ pool, KeyError of Python's
        raise ValueError(f"the registry's Protobuf schema cannot be used: {error}") from error


def _add_built_in(pool: Any, name: str) -> None:
    from google.protobuf import descriptor_pb2

    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    try:
        built_in = importlib.import_module(module).DESCRIPTOR
    except ImportError as error:
        raise ValueError(f"{name} is not known to this protobuf") from error
    file = descriptor_pb2.FileDescriptorProto()
    built_in.CopyToProto(file)
    for used in file.dependency:
        _add_built_in(pool, used)
    pool.Add(file)


def _files_of(file: Any, files: dict[str, bytes]) -> dict[str, bytes]:
    """Return a file and those that it imports, each behind what it imports itself."""
    for used in file.dependencies:
        if used.name not in files:
            _files_of(used, files)
    files[file.name] = file.serialized_pb
    return files


def _class_in_default_pool(full_name: str, files: Mapping[str, bytes]) -> Message:
    """Return a class of messages, which this process may know already."""
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.Default()
    for serialized in files.values():
        pool.AddSerializedFile(serialized)  # of what is there already it makes nothing
    return _message_class(pool.FindMessageTypeByName(full_name))


def _message_class(descriptor: Any) -> Message:
    from google.protobuf import message_factory

    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(descriptor.file.pool).GetPrototype(descriptor)
