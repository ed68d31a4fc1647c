"""Spark's schema texts as Arrow types, so that rows are checked where the user's code made them."""

from __future__ import annotations

import re
from typing import Any

from topo.errors import ComponentError, did_you_mean

_TOKEN = re.compile(r"\s*(`[^`]+`|\w+|[<>(),:])")
_SIMPLE = {
    "string": "string",
    "boolean": "bool_",
    "tinyint": "int8",
    "byte": "int8",
    "smallint": "int16",
    "short": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "long": "int64",
    "float": "float32",
    "real": "float32",
    "double": "float64",
    "binary": "binary",
    "date": "date32",
}


def arrow_schema(text: str) -> Any:
    """Return the Arrow schema of "user string, tags array<string>"; raise ComponentError."""
    import pyarrow as pa

    reader = _Reader(pa, text)
    columns = reader.columns(end="")
    if not columns:
        raise reader.wrong("it names no column")
    names = [column.name for column in columns]
    if len({name.lower() for name in names}) < len(names):
        raise reader.wrong("it names a column twice; Spark does not tell capitals apart")
    return pa.schema(columns)


class _Reader:
    def __init__(self, pa: Any, text: str) -> None:
        self._pa, self._text = pa, text
        self._tokens = _TOKEN.findall(text)
        if re.sub(r"\s", "", "".join(self._tokens)) != re.sub(r"\s", "", text):
            raise self.wrong("it has a character that belongs to no schema")

    def columns(self, end: str) -> list[Any]:
        """Return the columns up to a closing bracket, or to the end of the text."""
        found = []
        while self._next != end:
            name = self._take().strip("`")
            if self._next == ":":
                self._take()
            found.append(self._pa.field(name, self._type()))
            if self._next != end:
                self._expect(",")
        return found

    def wrong(self, why: str) -> ComponentError:
        return ComponentError(
            f"SparkSink: schema={self._text!r}: {why}",
            hint='write it as for Spark: "user string, amount decimal(10,2), at timestamp"',
        )

    def _type(self) -> Any:
        pa, word = self._pa, self._take().lower()
        if word in _SIMPLE:
            return getattr(pa, _SIMPLE[word])()
        if word == "timestamp":
            return pa.timestamp("us", tz="UTC")
        if word == "timestamp_ntz":
            return pa.timestamp("us")
        if word == "decimal":
            return pa.decimal128(*self._numbers())
        if word in ("array", "map", "struct"):
            self._expect("<")
            if word == "array":
                made = pa.list_(self._type())
            elif word == "struct":
                made = pa.struct(self.columns(end=">"))
            else:
                key = self._type()
                self._expect(",")
                made = pa.map_(key, self._type())
            self._expect(">")
            return made
        known = [*_SIMPLE, "timestamp", "timestamp_ntz", "decimal", "array", "map", "struct"]
        raise self.wrong(f"no type {word!r}; {did_you_mean(word, known)}".rstrip("; "))

    def _numbers(self) -> tuple[int, int]:
        if self._next != "(":
            return 10, 0
        self._take()
        numbers = [self._number()]
        while self._next == ",":
            self._take()
            numbers.append(self._number())
        self._expect(")")
        precision, scale = (*numbers, 0)[:2]
        return precision, scale

    def _number(self) -> int:
        token = self._take()
        if not token.isdigit():
            raise self.wrong(f"{token!r} where a number belongs")
        return int(token)

    @property
    def _next(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _take(self) -> str:
        if not self._tokens:
            raise self.wrong("it ends too early")
        return str(self._tokens.pop(0))

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise self.wrong(f"a {token!r} is missing")
