"""The OpenAPI document of the management API, from its endpoints and the dataclasses they answer.

Nothing is written twice: paths and parameters come from the table of endpoints, schemas from the
types and docstrings of the dataclasses.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints

from topo.distribution import VERSION
from topo.serving.endpoints import Endpoint, Parameter

_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object"}


@dataclasses.dataclass(frozen=True)
class Problem:
    """The reason for a refused request, and what to do about it."""

    error: str
    message: str
    hint: str = ""


def openapi(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the document that describes `endpoints`."""
    schemas: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "topo management API",
            "version": VERSION,
            "description": "What `topo ui` knows of topologies, and what can be asked of them.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    problem = {"application/json": {"schema": schema_of(Problem, schemas)}}
    content: dict[str, Any] = {"application/json": {"schema": schema_of(endpoint.answer, schemas)}}
    if endpoint.streams:
        content = {"text/event-stream": {"schema": {"type": "string"}}}
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": endpoint.name,
        "parameters": [_parameter(parameter) for parameter in endpoint.parameters],
        "responses": {
            str(endpoint.status): {"description": "The answer.", "content": content},
            **{
                str(status): {"description": words, "content": problem}
                for status, words in endpoint.refusals.items()
            },
        },
    }
    if endpoint.body:
        operation["requestBody"] = {
            "required": bool(endpoint.least_given) or any(one.is_required for one in endpoint.body),
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {one.name: _of_parameter(one) for one in endpoint.body},
                        "required": [one.name for one in endpoint.body if one.is_required],
                        "additionalProperties": False,
                        "minProperties": endpoint.least_given,
                    }
                }
            },
        }
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.meaning,
        "schema": _of_parameter(parameter),
    }


def _of_parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _PLAIN[parameter.kind]}
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    if parameter.default is not None:
        schema["default"] = parameter.default
    if parameter.kind in (int, float):
        schema["minimum"] = parameter.least
        schema["maximum"] = parameter.most
    elif parameter.kind is str and not parameter.choices:
        schema |= {"minLength": int(parameter.place == "path"), "maxLength": parameter.longest}
    if parameter.values is not None:
        schema |= {"additionalProperties": _of_parameter(parameter.values), "minProperties": 1}
    if parameter.form:
        schema["format"] = parameter.form
    return schema


def schema_of(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a type; those of dataclasses are put into `schemas`."""
    if dataclasses.is_dataclass(kind):
        return _of_dataclass(kind, schemas)
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind is type(None):
        return {"type": "null"}
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(one, schemas) for one in args]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(args[1], schemas)}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": schema_of(args[0], schemas)}
    return {}


def _of_dataclass(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in schemas:
        schemas[name] = {}
        hints, meanings = get_type_hints(kind), _meanings(kind)
        properties = {}
        for field in dataclasses.fields(kind):
            schema = schema_of(hints[field.name], schemas)
            if field.name in meanings:
                schema = {**schema, "description": meanings[field.name]}
            properties[field.name] = schema
        schemas[name] = {
            "type": "object",
            "description": inspect.getdoc(kind) or "",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    return {"$ref": f"#/components/schemas/{name}"}


_FIELD = re.compile(r'^    (\w+):[^\n]*\n    """(.*?)"""', re.M | re.S)


def _meanings(kind: type) -> dict[str, str]:
    """Return the docstrings under the fields of a dataclass, which Python does not keep."""
    return {name: " ".join(text.split()) for name, text in _FIELD.findall(inspect.getsource(kind))}
