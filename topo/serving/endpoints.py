"""Endpoints of an API: path, parameters, answer, and the reading of requests.

Values are checked here, once, against the same table that the OpenAPI document is made of.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from topo.serving.access import Refused

MOST_BODY_BYTES = 64 << 10
MOST_CHARS = 1000
_MOST = 1e9


@dataclass(frozen=True)
class Parameter:
    """A value in the path, the query or the body of a request."""

    name: str
    kind: type = str
    meaning: str = ""
    default: Any = None
    choices: tuple[str, ...] = ()
    place: str = "query"
    form: str = ""
    """The format of a string, as JSON schema names it."""
    least: float = 0
    most: float = _MOST
    longest: int = MOST_CHARS
    is_required: bool = False
    values: Parameter | None = None
    """What each value of an object is, of which there has to be one; None: anything."""

    def of_text(self, text: str) -> Any:
        """Return the value that stands in a path or query as `text`."""
        try:
            value: Any = text
            if self.kind is bool:
                value = {"true": True, "1": True, "false": False, "0": False}[text.lower()]
            elif self.kind is not str:
                value = self.kind(text)
        except (ValueError, KeyError, OverflowError):
            raise self._invalid(text) from None
        return self.checked(value)

    def checked(self, value: Any) -> Any:
        """Return `value`, as the parameter has it; raise Refused if it may not."""
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value) if abs(value) <= _MOST else math.inf
        elif self.kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)  # to JSON, 5.0 is an integer
        if not self._accepts(value):
            raise self._invalid(value)
        if self.values is not None:
            return {key: self.values.checked(each) for key, each in value.items()}
        return value

    def _accepts(self, value: Any) -> bool:
        if self.choices and value not in self.choices:
            return False
        if isinstance(value, str):
            return self.kind is str and len(value) <= self.longest
        if isinstance(value, dict):
            return self.kind is dict and (self.values is None or bool(value))
        if isinstance(value, bool) or type(value) is not self.kind:
            return self.kind is bool and isinstance(value, bool)
        return isinstance(value, int | float) and self.least <= value <= self.most

    def _invalid(self, value: object) -> Refused:
        kind = "JSON object" if self.kind is dict else self.kind.__name__
        words = f"one of {', '.join(self.choices)}" if self.choices else f"a {kind}"
        if self.kind in (int, float):
            words += f" from {self.least:g} to {self.most:g}"
        return Refused(400, f"{self.name} must be {words}; got {str(value)[:100]!r}")


@dataclass(frozen=True)
class Endpoint:
    """One operation of the API."""

    method: str
    path: str
    name: str
    summary: str
    answer: Any
    handle: Callable[..., Any]
    """Called in a thread with the parameters by name."""
    parameters: tuple[Parameter, ...] = ()
    body: tuple[Parameter, ...] = ()
    least_given: int = 0
    """How many of the body's parameters there have to be."""
    status: int = 200
    streams: bool = False
    most_bytes: int = MOST_BODY_BYTES
    """Of a request's body."""
    for_viewers: Callable[[Any], Any] | None = None
    """Makes of an answer what the role `view` may see; None: all of it."""
    is_shared: bool = False
    """True if who asks soon after somebody else gets the same answer."""
    refusals: Mapping[int, str] = field(default_factory=dict)

    def arguments(self, path: Mapping[str, str], query: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of the path and query of a request, checked."""
        unknown = sorted(set(query) - {each.name for each in self.parameters})
        if unknown:
            raise Refused(400, f"no parameter {unknown[0][:100]!r}", hint="/api/openapi.json")
        values = {}
        for each in self.parameters:
            texts = path if each.place == "path" else query
            text = texts.get(each.name)
            values[each.name] = each.default if text is None else each.of_text(text)
        return values

    def body_arguments(self, body: bytes) -> dict[str, Any]:
        """Return the values of a request's body, checked."""
        try:
            document = json.loads(body) if body.strip() else {}
        except (ValueError, RecursionError):
            raise Refused(400, "the body is not JSON") from None
        if not isinstance(document, dict):
            raise Refused(400, "the body is not a JSON object")
        parameters = {each.name: each for each in self.body}
        unknown = sorted(set(document) - set(parameters))
        if unknown:
            raise Refused(400, f"no parameter {unknown[0][:100]!r}", hint="/api/openapi.json")
        for each in self.body:
            if each.is_required and each.name not in document:
                raise Refused(400, f"{each.name} is missing", hint=each.meaning)
        if len(document) < self.least_given:
            names = ", ".join(parameters)
            raise Refused(400, f"the body has none of {names}", hint="/api/openapi.json")
        return {
            name: each.checked(document[name]) if name in document else each.default
            for name, each in parameters.items()
        }
