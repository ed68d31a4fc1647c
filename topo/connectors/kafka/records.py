"""A record of Kafka, and what the spout emits of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from topo.connectors.base import BadRecord, field_values
from topo.connectors.kafka.client import Message
from topo.connectors.serdes import Decode, check_form, decoder
from topo.errors import ComponentError
from topo.tuples import Fields

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


class Translation:
    """A rule that makes values of records: decoded, and translated by a function or by fields."""

    def __init__(
        self,
        key: str | Decode,
        value: str | Decode,
        fields: str | Iterable[str],
        translate: Callable[[Record], Any] | None,
    ) -> None:
        self.key, self.value, self.translate = key, value, translate
        self.fields = tuple(Fields(fields)) or DEFAULT_FIELDS
        check_form(key, "KafkaSpout", "key")
        check_form(value, "KafkaSpout", "value")
        if translate is not None and self.fields == DEFAULT_FIELDS:
            raise ComponentError(
                "KafkaSpout: the fields of what translate returns are not known",
                hint='name them: fields=("user", "url")',
            )
        unknown = [name for name in self.fields if name not in Record._fields]
        self._of_value = bool(unknown) and translate is None
        if self._of_value and value == "bytes":
            raise ComponentError(
                f"KafkaSpout: {unknown[0]!r} is no part of a record; fields of its value are read "
                'with value="json"'
            )

    def decoders(self) -> tuple[Decode, Decode]:
        """Return the functions that read keys and values."""
        return decoder(self.key, "KafkaSpout", "key"), decoder(self.value, "KafkaSpout", "value")

    def quick(self, key_of: Decode, value_of: Decode) -> Callable[[Message], Any] | None:
        """Return a shorter way from a message to its values, if nothing else of it is wanted."""
        fields = self.fields
        if self.translate is not None:
            return None
        if self._of_value:

            def chosen(message: Message) -> list[Any]:
                value = message.value()
                # A tombstone: a key without a value.
                return field_values({} if value is None else value_of(value), fields)

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
        """Decode a message; raise BadRecord if it cannot be read."""
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
            raise bad_record(message, error) from error

    def values(self, record: Record, message: Message) -> Any:
        """Return the values to emit, (stream, values), or None; raise BadRecord."""
        try:
            if self.translate is not None:
                return self.translate(record)
            if self._of_value:
                return field_values(record.value, self.fields)
            return [getattr(record, name) for name in self.fields]
        except Exception as error:
            raise bad_record(message, error) from error


def bad_record(message: Message, error: Exception) -> BadRecord:
    """Return what is told of a message that cannot be read."""
    where = f"{message.topic()}-{message.partition()} at {message.offset()}"
    return BadRecord(message.value(), f"{type(error).__name__}: {error}", where)
