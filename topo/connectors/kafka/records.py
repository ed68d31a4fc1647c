"""A record of Kafka, and what the spout emits of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from topo.components import Spout
from topo.connectors import translation
from topo.connectors.formats import Decode, Format, check_form, decoder, passes_on
from topo.connectors.kafka.client import Message
from topo.connectors.kafka.dead_letters import DeadLetters
from topo.connectors.translation import Columns, Reader

_NAME = "KafkaSpout"
DEFAULT_FIELDS = ("topic", "partition", "offset", "key", "value")
DEAD_FIELDS = (*DEFAULT_FIELDS, "headers", "reason", "failures")

_NO_FIELDS = b"{}"
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


class MessageReader(Reader):
    """The translation of messages, with its decoders loaded.

    A message without a value, a tombstone, has None for each field of its value.
    """

    def __init__(self, rule: Translation, spout: Spout, letters: DeadLetters | None) -> None:
        super().__init__(rule, spout)
        self._letters = letters
        self._decode_key = decoder(rule.key, _NAME, "key")
        self._translate = rule.translate
        self._count = len(rule.fields)
        self._decoded: Callable[[Message], Any] = self._record
        if self._translate is None and rule.of_value:
            self._decoded = self._picked
        elif self._translate is None:
            whole = rule.fields == DEFAULT_FIELDS  # a Record takes longer to make
            self._decoded = self._whole if whole else self._parts

    def read_message(self, spout: Spout, message: Message) -> Any:
        """Return the values to emit, (stream, values) or None; tell of what cannot be read: None.

        Raise what is not about the message: a registry that does not answer, for example.
        """
        try:
            decoded = self._decoded(message)
        except Exception as error:
            if passes_on(error):
                raise
            self._tell_bad(spout, message, error)
            return None
        if self._translate is None:
            return decoded
        try:
            return self._translate(decoded)
        except Exception as error:
            self._tell_bad(spout, message, error)
            return None

    def read_messages(self, messages: Sequence[Message]) -> Columns | None:
        """Return by field what is emitted of messages; None: each is to be read by itself."""
        if not self.decodes_many:
            return None
        raws = [message.value() for message in messages]
        if None in raws:  # tombstones, which have all the fields
            raws = [_NO_FIELDS if raw is None else raw for raw in raws]
        return self.columns_of_raws(raws)

    def _tell_bad(self, spout: Spout, message: Message, error: Exception) -> None:
        where = f"{message.topic()}-{message.partition()} at {message.offset()}"
        bad = self.tell_bad(spout, message.value(), error, where)
        if self._letters is not None and self._of.on_bad == "dead_letter":
            self._letters.bury(message, bad.error, 0)
            spout.context.end_batch()

    def _picked(self, message: Message) -> list[Any]:
        value = message.value()
        return [None] * self._count if value is None else self._pick(self.decode(value))

    def _whole(self, message: Message) -> list[Any]:
        key, value = message.key(), message.value()
        return [
            message.topic(),
            message.partition(),
            message.offset(),
            None if key is None else self._decode_key(key),
            None if value is None else self.decode(value),
        ]

    def _parts(self, message: Message) -> list[Any]:
        return self.chosen(self._record(message))

    def _record(self, message: Message) -> Record:
        kind, millis = message.timestamp()
        time = (millis, _TIMESTAMP_TYPES.get(kind, "none"))
        return Record._make((*self._whole(message), *time, message.headers() or []))
