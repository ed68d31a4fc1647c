"""Avro values: by a registry's schemas, or by one that is given."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from topo.connectors.base import load_client
from topo.connectors.formats import Decode, Encode, Place
from topo.connectors.schemas.framing import SchemaFormat, Subject
from topo.connectors.schemas.registry import EXTRA, Client, Schema, SchemaRegistry
from topo.errors import ComponentError

_NAME = "Avro"

AvroSchema: TypeAlias = "str | Path | Mapping[str, Any] | list[Any]"
Parsed: TypeAlias = Any
"""A schema as fastavro has parsed it."""


class Avro(SchemaFormat[Parsed]):
    """Avro values.

    With a registry a record names its schema; `schema`, if there is one, is then the reader's, to
    which older and newer records are brought. Without one all values are of that schema, and not
    framed. `schema` is a dict, JSON, or the path of an `.avsc` file, which is read at once.

    To write, `schema` is registered under a subject, unless `register=False`: then it has to be
    registered. `latest=True` writes by the subject's newest schema. `subject` is "topic"
    (`TOPIC-value`), "record", "topic-record", or a function of topic, "key" or "value", and the
    record's name.
    """

    kind = "AVRO"

    def __init__(
        self,
        registry: SchemaRegistry | None = None,
        schema: AvroSchema | None = None,
        *,
        subject: Subject = "topic",
        register: bool | None = None,
        latest: bool = False,
    ) -> None:
        super().__init__(
            registry,
            subject=subject,
            register=not latest if register is None else register,
            latest=latest,
            needs=("fastavro>=1.9",),
        )
        if registry is None and schema is None:
            raise ComponentError(
                f"{_NAME}: neither a registry nor a schema",
                hint='Avro(SchemaRegistry("http://host:8081")) or Avro(schema={...})',
            )
        self.schema = None if schema is None else _document(schema)

    def check(self, connector: str, name: str, *, writes: bool) -> None:
        if writes and self.schema is None and not self.latest:
            raise ComponentError(
                f"{connector}: {name}={_NAME}(...) has no schema to write by",
                hint="schema={...}, or latest=True for the subject's newest one",
            )

    def decoder(self, connector: str) -> Decode:
        load_client("fastavro", connector, EXTRA)
        if self.registry is not None:
            return self.framed_decoder(connector)
        return _reader(self._parsed(), None)

    def encoder(self, connector: str, place: Place | None) -> Encode:
        load_client("fastavro", connector, EXTRA)
        if self.registry is not None:
            return self.framed_encoder(connector, place)
        return self.writer(self._parsed())

    def reader(self, client: Client, schema_id: int) -> Callable[[bytes], Any]:
        schema = client.schema(schema_id)
        self.check_kind(schema, f"schema id {schema_id}")
        own = None if self.schema is None else self._parsed()
        return _reader(self.of_registry(client, schema), own)

    def writer(self, schema: Parsed) -> Callable[[Any], bytes]:
        import fastavro

        def write(value: Any) -> bytes:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, schema, value, strict_allow_default=True)
            return out.getvalue()

        return write

    def own(self, client: Client, place: Place) -> tuple[Parsed, str, Schema]:
        document = self.schema
        parsed = self._parsed()
        name = parsed.get("name", "") if isinstance(parsed, dict) else ""
        return parsed, name, Schema(self.kind, json.dumps(document))

    def of_registry(self, client: Client, schema: Schema) -> Parsed:
        return _parsed(json.loads(schema.text), self._names_in(client, schema))

    def _names_in(self, client: Client, schema: Schema) -> dict[str, Any]:
        """Return the named schemas that a schema uses, those that they use included."""
        names: dict[str, Any] = {}
        for reference in schema.references:
            used = client.version(reference)
            names |= self._names_in(client, used)
            _parsed(json.loads(used.text), names)
        return names

    def _parsed(self) -> Parsed:
        try:
            return _parsed(self.schema, {})
        except ValueError as error:
            raise ComponentError(str(error)) from error


def _reader(writers: Parsed, readers: Parsed | None) -> Callable[[bytes], Any]:
    import fastavro

    def read(data: bytes) -> Any:
        source = io.BytesIO(data)
        try:
            value = fastavro.schemaless_reader(source, writers, readers)
        except (EOFError, IndexError) as error:
            raise ValueError("it is shorter than its Avro schema says") from error
        left = len(data) - source.tell()
        if left:
            raise ValueError(f"{left} bytes follow what its Avro schema says")
        return value

    return read


def _parsed(document: Any, names: dict[str, Any]) -> Parsed:
    """Return a schema as fastavro wants it; add the names that it defines to `names`."""
    import fastavro

    try:
        return fastavro.parse_schema(document, named_schemas=names)
    except Exception as error:  # fastavro has several, and KeyError for what is left out
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{_NAME}: the schema is invalid: {reason}") from error


def _document(schema: AvroSchema) -> Any:
    """Return a schema's JSON."""
    where = "schema="
    try:
        if isinstance(schema, Path):
            where = str(schema)
            schema = schema.read_text(encoding="utf-8")
        if isinstance(schema, str):
            return json.loads(schema) if schema.lstrip()[:1] in ("{", "[", '"') else schema
    except (OSError, ValueError) as error:
        raise ComponentError(
            f"{_NAME}: {where} cannot be read: {error}", hint='a dict, JSON, or Path("click.avsc")'
        ) from error
    return schema
