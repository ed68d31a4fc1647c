"""The frame of a registry's records: a zero byte, the schema's id in four bytes, then the value.

What the three kinds of schemas share stands here as well: where a value's schema comes from, and
the subject that a schema is registered under.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from topo.connectors.base import check_choice
from topo.connectors.formats import Decode, Encode, Format, Place
from topo.connectors.schemas.registry import REQUIRES, Client, Schema, SchemaRegistry
from topo.errors import ComponentError

_HEAD = struct.Struct(">bI")
_BYTES = _HEAD.size

Subject: TypeAlias = "Literal['topic', 'record', 'topic-record'] | Callable[[str, str, str], str]"
T = TypeVar("T")


def unframed(data: bytes) -> tuple[int, bytes]:
    """Return the schema's id and the rest of a record; raise ValueError if it is not framed."""
    if len(data) < _BYTES or data[0] != 0:
        first = f"its first byte is {data[0]}" if data else "it is empty"
        raise ValueError(
            f"it is not in a Schema Registry's frame, which begins with a zero byte and an id: "
            f"{first}"
        )
    return _HEAD.unpack_from(data)[1], data[_BYTES:]


def frame_head(schema_id: int) -> bytes:
    """Return what stands before a value of a schema."""
    return _HEAD.pack(0, schema_id)


class SchemaFormat(Format, Generic[T]):
    """A form whose values follow a schema: the given one, or those of a registry.

    `T` is what a subclass makes of a registry's schema, once each.
    """

    kind = ""
    """The registry's name of such schemas."""

    def __init__(
        self,
        registry: SchemaRegistry | None,
        *,
        subject: Subject,
        register: bool,
        latest: bool,
        needs: tuple[str, ...] = (),
    ) -> None:
        name = type(self).__name__
        if registry is not None and not isinstance(registry, SchemaRegistry):
            raise ComponentError(
                f"{name}: {registry!r} is no registry",
                hint='SchemaRegistry("http://host:8081"); a schema is given as schema=',
            )
        if not callable(subject):
            check_choice(name, "subject", subject, ("topic", "record", "topic-record"))
        if latest and register:
            raise ComponentError(
                f"{name}: latest=True writes by the schema that is registered last",
                hint="register=False goes with it",
            )
        self.registry, self.naming = registry, subject
        self.register, self.latest = register, latest
        self.asks = registry is not None
        self.requires = (*needs, REQUIRES) if self.asks else needs

    # -- what subclasses say ------------------------------------------------------------------

    def reader(self, client: Client, schema_id: int) -> Callable[[bytes], Any]:
        """Return what reads values by a registry's schema."""
        raise NotImplementedError

    def writer(self, schema: T) -> Callable[[Any], bytes]:
        """Return what writes values by a schema; the frame's head is not of it."""
        raise NotImplementedError

    def own(self, client: Client, place: Place) -> tuple[T, str, Schema]:
        """Return the schema to write by, its name, and as the registry is to have it."""
        raise NotImplementedError

    def of_registry(self, client: Client, schema: Schema) -> T:
        """Return a registry's schema to write by, for `latest`."""
        raise ComponentError(f"{type(self).__name__}: latest=True is not to be had")

    # -- with a registry ----------------------------------------------------------------------

    def framed_decoder(self, connector: str) -> Decode:
        """Return what reads records in a registry's frame."""
        assert self.registry is not None
        client = self.registry.connect(connector)
        readers: dict[int, Callable[[bytes], Any]] = {}

        def decode(data: bytes) -> Any:
            schema_id, body = unframed(data)
            read = readers.get(schema_id)
            if read is None:
                read = readers[schema_id] = self.reader(client, schema_id)
            return read(body)

        return decode

    def framed_encoder(self, connector: str, place: Place | None) -> Encode:
        """Return what writes records in a registry's frame; it asks when the first one comes."""
        assert self.registry is not None
        assert place is not None
        client, ready = self.registry.connect(connector), list[Callable[[Any], bytes]]()

        def encode(value: Any) -> bytes:
            if not ready:
                ready.append(self._prepared(client, place))
            return ready[0](value)

        return encode

    def _prepared(self, client: Client, place: Place) -> Callable[[Any], bytes]:
        if self.latest:
            subject = self.subject_of(place, "")
            schema_id, latest = client.latest(subject)
            self.check_kind(latest, f"the subject {subject!r}")
            write = self.writer(self.of_registry(client, latest))
        else:
            schema, name, text = self.own(client, place)
            subject = self.subject_of(place, name)
            if self.register:
                schema_id = client.register(subject, text)
            else:
                schema_id = int(client.find(subject, text)["id"])
            write = self.writer(schema)
        head = frame_head(schema_id)
        return lambda value: head + write(value)

    def subject_of(self, place: Place, name: str) -> str:
        """Return the subject that the schema called `name` has for a place."""
        if callable(self.naming):
            return self.naming(place.topic, place.part, name)
        if self.naming == "topic":
            return f"{place.topic}-{place.part}"
        if not name:
            raise ComponentError(
                f"{type(self).__name__}: subject={self.naming!r} needs the name of a record, and "
                "the schema has none",
                hint="subject='topic', or a function of topic, part and name",
            )
        return name if self.naming == "record" else f"{place.topic}-{name}"

    def check_kind(self, schema: Schema, where: str) -> None:
        """Raise ValueError if a registry's schema is of another kind."""
        if schema.type != self.kind:
            raise ValueError(f"{where} is of type {schema.type}, and not {self.kind}")
