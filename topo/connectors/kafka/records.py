"""A record of Kafka, and what the spout emits of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from topo.connectors import translation
from topo.connectors.base import BadRecord
from topo.connectors.formats import Decode, Format, check_form, decoder, passes_on
from topo.connectors.kafka.client import Message
from topo.connectors.picking import Picker

_NAME = "KafkaSpout"
DEFAULT_FIELDS = ("topic", "partition", "offset", "key", "value")
DEAD_FIELDS = (*DEFAULT_FIELDS, "headers", "reason", "failures")

_TIMESTAMP_TYPES = {0: "none", 1: "create", 2: "append"}


class Record(NamedTuple):
    """A record, key and value decoded; what `translate` is given."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    timestamp: int
    """Milliseconds since 1970."""
    timestamp_type: str
    """"create": the producer's, "append": the broker's, or "none"."""
    headers: list[tuple[str, bytes]]


class Translation(translation.Translation):
    """A rule that makes values of records, which have keys as well."""

    def __init__(self, key: str | Format | Decode, **more: Any) -> None:
        check_form(key, _NAME, "key", asks=True)
        super().__init__(_NAME, Record, DEFAULT_FIELDS, asks=True, **more)
        self.key = key

    def decoders(self) -> tuple[Decode, Decode]:
        """Return the functions that read keys and values."""
        return decoder(self.key, _NAME, "key"), decoder(self.value, _NAME, "value")

    def quick(
        self, key_of: Decode, value_of: Decode, pick: Picker
    ) -> Callable[[Message], Any] | None:
        """Return a shorter way from a message to its values, if nothing else of it is wanted."""
        fields = self.fields
        if self.translate is not None:
            return None
        if self.of_value:

            def chosen(message: Message) -> list[Any]:
                value = message.value()
                if value is None:  # a tombstone: a key without a value
                    return [None] * len(fields)
                return pick(value_of(value))

            return chosen
        if fields != DEFAULT_FIELDS:
            return None

        def whole(message: Message) -> list[Any]:
            key, value = message.key(), message.value()
            return [
                message.topic(),
                message.partition(),
                message.offset(),
                None if key is None else key_of(key),
                None if value is None else value_of(value),
            ]

        return whole

    def record(self, message: Message, key_of: Decode, value_of: Decode) -> Record:
        """Decode a message; raise BadRecord if it cannot be read, Unavailable if a schema is."""
        raw_key, raw_value = message.key(), message.value()
        try:
            kind, millis = message.timestamp()
            return Record(
                message.topic(),
                message.partition(),
                message.offset(),
                None if raw_key is None else key_of(raw_key),
                None if raw_value is None else value_of(raw_value),
                millis,
                _TIMESTAMP_TYPES.get(kind, "none"),
                message.headers() or [],
            )
        except Exception as error:
            raise error_of(message, error) from error

    def values(self, record: Record, message: Message) -> Any:
        """Return the values to emit, (stream, values), or None; raise BadRecord."""
        try:
            if self.translate is not None:
                return self.translate(record)
            return [getattr(record, name) for name in self.fields]
        except Exception as error:
            raise bad_record(message, error) from error


def error_of(message: Message, error: Exception) -> Exception:
    """Return what to raise for a message that cannot be read: not always is that its fault."""
    return error if passes_on(error) else bad_record(message, error)


def bad_record(message: Message, error: Exception) -> BadRecord:
    """Return what is told of a message that cannot be read."""
    where = f"{message.topic()}-{message.partition()} at {message.offset()}"
    return BadRecord(message.value(), f"{type(error).__name__}: {error}", where)
