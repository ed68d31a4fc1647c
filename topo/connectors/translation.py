"""The way from records to tuples: values are decoded, then translated by function or fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypedDict, cast

from topo.components import Spout
from topo.connectors.base import BAD_FIELDS, BadRecord, check_choice
from topo.connectors.formats import Decode, Format, check_form, decoder, decoder_of_many
from topo.connectors.picking import Missing, Picker, check_missing
from topo.errors import ComponentError
from topo.tuples import DEFAULT_STREAM, Fields
from topo.wire.frame import Column
from topo.wire.plain_arrays import LEAST_OF_COLUMNS, column_of_values

Columns: TypeAlias = dict[str, Column]
"""What is emitted of many records, by field."""

_LEAST_TOGETHER = 64
"""Fewer values are decoded one by one. Below `LEAST_OF_COLUMNS` they become columns and then rows,
which costs 0.3 us a value of 64; that they are decoded together saves 0.7 us with Python's json."""


class Arrival(NamedTuple):
    """A record that has come, and is not read yet."""

    raw: Any
    """Its value as bytes, or decoded, if the source has values of its own."""
    record: Callable[[Any], Any]
    """Makes the record of its decoded value."""
    where: str
    """The place that it came from, as told if it is bad or given up."""
    tag: Any = None
    """What the source calls it, hashable; None if the source forgets it."""


@dataclass(slots=True)
class Page:
    """What records that have come together make; also if one of them stops the topology."""

    rows: list[Any] = field(default_factory=list)
    """The values for the default stream."""
    places: list[str] = field(default_factory=list)
    """For each of the rows, where its record came from."""
    tags: list[Any] = field(default_factory=list)
    """For each of the rows, what the source calls its record."""
    done: list[Any] = field(default_factory=list)
    """The tags of records of which nothing is emitted."""


class Reading(TypedDict):
    """The arguments of a source that say how its records become tuples."""

    value: str | Format | Decode
    fields: str | Iterable[str]
    translate: Callable[[Any], Any] | None
    streams: Mapping[str, str | Iterable[str]] | None
    missing: Missing
    on_bad: str


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
        value: str | Format | Decode,
        fields: str | Iterable[str],
        translate: Callable[[Any], Any] | None,
        streams: Mapping[str, str | Iterable[str]] | None,
        missing: Missing,
        on_bad: str,
        on_bad_choices: Iterable[str] = ("stop", "stream", "skip"),
        asks: bool = False,
        dead: tuple[str, ...] = (),
    ) -> None:
        check_form(value, connector, "value", asks=asks)
        check_missing(connector, missing)
        self.missing = missing
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
        if translate is not None:
            _check_takes_record(connector, translate)
        others = dict(streams or {})
        self.outputs = outputs_of(connector, self.fields, others, on_bad=on_bad, dead=dead)

    def reader(self, spout: Spout) -> Reader:
        """Return what reads records, where the task runs."""
        return Reader(self, spout)


class Reader:
    """The translation with its decoder loaded."""

    def __init__(self, translation: Translation, spout: Spout) -> None:
        self._of = of = translation
        self._pick = Picker(of.connector, of.fields, of.missing, spout.report_error)
        self.decode = decoder(translation.value, translation.connector, "value")
        self._decode_many = decoder_of_many(translation.value) if of.of_value else None
        chosen = attrgetter(*translation.fields) if not self._is_by_value else None
        self._single = len(translation.fields) == 1
        self._chosen = chosen

    @property
    def _is_by_value(self) -> bool:
        return self._of.translate is not None or self._of.of_value

    def values_of(self, value: Any, record: Callable[[Any], Any]) -> Any:
        """Return the values to emit of a decoded value, (stream, values) or None.

        `record` makes the record of it. Raise what the reading raises.
        """
        of = self._of
        if of.translate is not None:
            return of.translate(record(value))
        if of.of_value:
            return self._pick(value)
        return self.chosen(record(value))

    @property
    def decodes_many(self) -> bool:
        """True iff `columns_of_raws` may return columns."""
        return self._decode_many is not None

    def columns_of_raws(self, raws: Sequence[bytes]) -> Columns | None:
        """Return by field what is emitted of many values as bytes, decoded at once.

        None: their rows are to be made one by one, as by `columns_of`.
        """
        if len(raws) < _LEAST_TOGETHER or self._decode_many is None:
            return None
        values = self._decode_many(raws)
        return self._columns(values) if values is not None else None

    def columns_of(self, values: Sequence[Any]) -> Columns | None:
        """Return by field what is emitted of many values; Arrow columns, if bolts cannot tell.

        None: their rows are to be made one by one, since they are few, since a function makes them,
        or since one of the values cannot be read.
        """
        return self._columns(values) if len(values) >= LEAST_OF_COLUMNS else None

    def _columns(self, values: Sequence[Any]) -> Columns | None:
        columns = self._pick.columns(values) if self._of.of_value else None
        return _typed(columns, len(values)) if columns is not None else None

    def columns_by_name(self, columns: Mapping[str, Column], count: int) -> Columns | None:
        """Return by field what is emitted of records whose values are lists by name.

        None: the records lack a field, and are to be looked at one by one.
        """
        chosen = self._pick.chosen(columns)
        return _typed(chosen, count) if chosen is not None else None

    def chosen(self, record: Any) -> list[Any]:
        """Return the parts of a record that are emitted, where its value has none of them."""
        assert self._chosen is not None
        parts = self._chosen(record)
        return [parts] if self._single else list(parts)

    def read(self, spout: Spout, raw: Any, record: Callable[[Any], Any], where: str) -> Any:
        """Return what `values_of` returns; tell of a record that cannot be read: None."""
        try:
            return self.values_of(self.decode(raw), record)
        except Exception as error:
            self.tell_bad(spout, raw, error, where)
            return None

    def read_value(self, spout: Spout, value: Any, record: Callable[[Any], Any], where: str) -> Any:
        """Return what `values_of` returns; tell of a record that cannot be read: None."""
        try:
            return self.values_of(value, record)
        except Exception as error:
            self.tell_bad(spout, value, error, where)
            return None

    def read_page(
        self,
        spout: Spout,
        arrivals: Iterable[Arrival],
        page: Page,
        other: Callable[[str, Any, Arrival], None],
        *,
        is_decoded: bool = False,
    ) -> None:
        """Add to a page what records make; give `other` what goes to another stream.

        The next arrival is asked for once this one is read: so `arrivals` may note how far the
        source is.
        """
        read = self.read_value if is_decoded else self.read
        for arrival in arrivals:
            result = read(spout, arrival.raw, arrival.record, arrival.where)
            if result is None:
                page.done.append(arrival.tag)
                continue
            stream, values = stream_and_values(result)
            if stream == DEFAULT_STREAM:
                page.rows.append(values)
                page.places.append(arrival.where)
                page.tags.append(arrival.tag)
            else:
                other(stream, values, arrival)

    def tell_bad(self, spout: Spout, raw: Any, error: Exception, where: str) -> BadRecord:
        """Count a record that cannot be read; stop, emit it on the stream `bad`, or skip it."""
        return self.tell(spout, BadRecord(raw, f"{type(error).__name__}: {error}", where), error)

    def tell(self, spout: Spout, bad: BadRecord, cause: Exception | None = None) -> BadRecord:
        """Do what `on_bad` says with what could not be read; return it."""
        of = self._of
        spout.context.counter("bad_records")
        if of.on_bad == "stop":
            raise ComponentError(
                f"{of.connector}: a record cannot be read: {bad}",
                hint="on_bad='stream' emits such records on the stream 'bad', 'skip' drops them",
            ) from cause
        if of.on_bad == "stream":
            spout.emit([bad.raw, bad.error, bad.where], stream="bad")
        return bad


def _typed(columns: Mapping[str, Any], count: int) -> Columns:
    """Return lists of values as columns; Arrow's if they are worth it, and bolts cannot tell."""
    if count < LEAST_OF_COLUMNS:
        return {**columns}
    return {name: column_of_values(column) for name, column in columns.items()}


def outputs_of(
    connector: str,
    fields: tuple[str, ...],
    others: dict[str, Any],
    *,
    on_bad: str,
    dead: tuple[str, ...],
) -> dict[str, Any]:
    """Return the streams of a source with their fields; `others` are the user's."""
    own: dict[str, Any] = {DEFAULT_STREAM: fields}
    if on_bad == "stream":
        own["bad"] = BAD_FIELDS
    if dead:
        own["dead"] = dead
    for name in others:
        if name in own:
            raise ComponentError(f"{connector}: the stream {name!r} has its fields already")
    return {**own, **others}


def _check_takes_record(connector: str, translate: Callable[..., Any]) -> None:
    try:
        inspect.signature(translate).bind(None)
    except TypeError:
        raise ComponentError(
            f"{connector}: translate= is given one argument, the record", hint="its parts are named"
        ) from None
    except ValueError:  # a function that does not say what it takes
        return


def stream_and_values(made: Any) -> tuple[str, Any]:
    """Return the stream and the values of what a translation has made."""
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], str):
        return cast(tuple[str, Any], made)
    return DEFAULT_STREAM, made
