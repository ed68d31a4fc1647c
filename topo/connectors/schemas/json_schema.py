"""JSON values that are checked against a JSON Schema: a registry's, or one that is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from topo.connectors.base import load_client
from topo.connectors.formats import Decode, Encode, Place, decoder, dump_json
from topo.connectors.schemas.framing import SchemaFormat, Subject
from topo.connectors.schemas.registry import EXTRA, Client, Schema, SchemaRegistry
from topo.errors import ComponentError

_NAME = "JsonSchema"

Check: TypeAlias = Callable[[Any], None]
"""Raises ValueError for a value that is not of the schema."""


class JsonSchema(SchemaFormat[Check]):
    """JSON values that follow a schema.

    With a registry a record names its schema, and is checked against that one and, if there is one,
    against `schema`; `check=False` leaves this out, for speed. Without a registry values are plain
    JSON, checked against `schema`. Writing, `subject`, `register` and `latest` are as `Avro` has
    them; the name of a schema is its "title".
    """

    kind = "JSON"

    def __init__(
        self,
        registry: SchemaRegistry | None = None,
        schema: Mapping[str, Any] | str | None = None,
        *,
        check: bool = True,
        subject: Subject = "topic",
        register: bool | None = None,
        latest: bool = False,
    ) -> None:
        super().__init__(
            registry,
            subject=subject,
            register=not latest if register is None else register,
            latest=latest,
            needs=("jsonschema>=4.18",) if check else (),
        )
        if registry is None and schema is None:
            raise ComponentError(
                f"{_NAME}: neither a registry nor a schema",
                hint='JsonSchema(SchemaRegistry("http://host:8081")) or JsonSchema(schema={...})',
            )
        self.schema = json.loads(schema) if isinstance(schema, str) else schema
        self.checks = check

    def check(self, connector: str, name: str, *, writes: bool) -> None:
        if writes and self.schema is None and not self.latest:
            raise ComponentError(
                f"{connector}: {name}={_NAME}(...) has no schema to write by",
                hint="schema={...}, or latest=True for the subject's newest one",
            )

    def decoder(self, connector: str) -> Decode:
        self._load(connector)
        if self.registry is not None:
            return self.framed_decoder(connector)
        loads, check = decoder("json", connector, "value"), self._own_check()
        return lambda data: _checked(loads(data), check)

    def encoder(self, connector: str, place: Place | None) -> Encode:
        self._load(connector)
        if self.registry is not None:
            return self.framed_encoder(connector, place)
        return self.writer(self._own_check())

    def _load(self, connector: str) -> None:
        if self.checks:
            load_client("jsonschema", connector, EXTRA)

    def reader(self, client: Client, schema_id: int) -> Callable[[bytes], Any]:
        schema = client.schema(schema_id)
        self.check_kind(schema, f"schema id {schema_id}")
        writers = self.of_registry(client, schema)
        readers = self._own_check()
        loads = decoder("json", _NAME, "value")
        return lambda data: _checked(_checked(loads(data), writers), readers)

    def writer(self, schema: Check) -> Callable[[Any], bytes]:
        def write(value: Any) -> bytes:
            text = dump_json(value)
            if self.checks:
                schema(json.loads(text))  # as JSON has it: a date is a text there, a tuple a list
            return text

        return write

    def own(self, client: Client, place: Place) -> tuple[Check, str, Schema]:
        assert self.schema is not None
        text = json.dumps(dict(self.schema))
        return self._own_check(), self.schema.get("title", ""), Schema(self.kind, text)

    def of_registry(self, client: Client, schema: Schema) -> Check:
        return self._check(json.loads(schema.text), self._used_by(client, schema))

    def _used_by(self, client: Client, schema: Schema) -> dict[str, Any]:
        """Return the schemas that a schema uses, by the names that it has for them."""
        used: dict[str, Any] = {}
        for reference in schema.references:
            other = client.version(reference)
            used |= self._used_by(client, other)
            used[reference.name] = json.loads(other.text)
        return used

    def _own_check(self) -> Check:
        try:
            return self._check(self.schema, {})
        except ValueError as error:
            raise ComponentError(str(error)) from error

    def _check(self, schema: Any, used: Mapping[str, Any]) -> Check:
        if not self.checks or schema is None:
            return lambda value: None
        import jsonschema
        from referencing import Registry, Resource
        from referencing.jsonschema import DRAFT7

        kind = jsonschema.validators.validator_for(schema, jsonschema.Draft7Validator)
        try:
            kind.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise ValueError(f"{_NAME}: the schema is invalid: {error.message}") from error
        resources = [
            (name, Resource.from_contents(document, default_specification=DRAFT7))
            for name, document in used.items()
        ]
        validator = kind(schema, registry=Registry().with_resources(resources))

        def check(value: Any) -> None:
            error = jsonschema.exceptions.best_match(validator.iter_errors(value))
            if error is not None:
                raise ValueError(f"at {error.json_path}: {error.message}"[:500])

        return check


def _checked(value: Any, check: Check) -> Any:
    check(value)
    return value
