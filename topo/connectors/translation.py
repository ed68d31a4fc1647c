"""The way from a record to tuples: its value is decoded, then translated by function or fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, cast

from topo.components import Spout
from topo.connectors.base import BAD_FIELDS, BadRecord, check_choice, field_values
from topo.connectors.serdes import Decode, check_form, decoder
from topo.errors import ComponentError
from topo.tuples import DEFAULT_STREAM, Fields


class Translation:
    """A rule that makes values of records, and says what becomes of those that cannot be read.

    `record` is the NamedTuple that `translate` is given; `default` are the fields of it that are
    emitted if no others are named. Names that are no part of the record are keys of its value.
    """

    def __init__(
        self,
        connector: str,
        record: type[Any],
        default: tuple[str, ...],
        *,
        value: str | Decode,
        fields: str | Iterable[str],
        translate: Callable[[Any], Any] | None,
        streams: Mapping[str, str | Iterable[str]] | None,
        on_bad: str,
        on_bad_choices: Iterable[str] = ("stop", "stream", "skip"),
    ) -> None:
        check_form(value, connector, "value")
        check_choice(connector, "on_bad", on_bad, on_bad_choices)
        self.connector, self.value, self.translate, self.on_bad = (
            connector,
            value,
            translate,
            on_bad,
        )
        self.fields = tuple(Fields(fields)) or default
        if translate is not None and not tuple(Fields(fields)):
            raise ComponentError(
                f"{connector}: the fields of what translate returns are not known",
                hint='name them: fields=("user", "url")',
            )
        unknown = [name for name in self.fields if name not in record._fields]
        self.of_value = bool(unknown) and translate is None
        if self.of_value and value in ("bytes", "str"):
            raise ComponentError(
                f"{connector}: {unknown[0]!r} is no part of a record; fields of its value are read "
                'with value="json"'
            )
        self.outputs = self._streams(dict(streams or {}))

    def _streams(self, others: dict[str, Any]) -> dict[str, Any]:
        own: dict[str, Any] = {DEFAULT_STREAM: self.fields}
        if self.on_bad == "stream":
            own["bad"] = BAD_FIELDS
        for name in others:
            if name in own:
                raise ComponentError(
                    f"{self.connector}: the stream {name!r} has its fields already"
                )
        return {**own, **others}

    def reader(self) -> Reader:
        """Return what reads records, where the task runs."""
        return Reader(self)


class Reader:
    """The translation with its decoder loaded."""

    def __init__(self, translation: Translation) -> None:
        self._of = translation
        self._decode = decoder(translation.value, translation.connector, "value")
        chosen = attrgetter(*translation.fields) if not self._is_by_value else None
        self._single = len(translation.fields) == 1
        self._chosen = chosen

    @property
    def _is_by_value(self) -> bool:
        return self._of.translate is not None or self._of.of_value

    def values(self, raw: Any, record: Callable[[Any], Any]) -> Any:
        """Return the values to emit, (stream, values) or None; raise what the reading raises.

        `record` makes the record of its decoded value.
        """
        return self.values_of(self._decode(raw), record)

    def values_of(self, value: Any, record: Callable[[Any], Any]) -> Any:
        """Return the values to emit of a value that is decoded already."""
        of = self._of
        if of.translate is not None:
            return of.translate(record(value))
        if of.of_value:
            return field_values(value, of.fields)
        assert self._chosen is not None
        found = self._chosen(record(value))
        return [found] if self._single else list(found)

    def tell_bad(self, spout: Spout, raw: Any, error: Exception, where: str) -> None:
        """Count a record that cannot be read; stop, emit it on the stream `bad`, or skip it."""
        of = self._of
        bad = BadRecord(raw, f"{type(error).__name__}: {error}", where)
        spout.context.counter("bad_records")
        if of.on_bad == "stop":
            raise ComponentError(
                f"{of.connector}: a record cannot be read: {bad}",
                hint="on_bad='stream' emits such records on the stream 'bad', 'skip' drops them",
            ) from error
        if of.on_bad == "stream":
            spout.emit([bad.raw, bad.error, bad.where], stream="bad")


def stream_and_values(made: Any) -> tuple[str, Any]:
    """Return the stream and the values of what a translation has made."""
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], str):
        return cast(tuple[str, Any], made)
    return DEFAULT_STREAM, made
