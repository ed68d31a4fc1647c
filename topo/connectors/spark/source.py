"""Any streaming source of Spark's as a spout: files, Kafka, rate, and what others bring as jars.

Spark writes down what a batch reads before it reads it. A batch that runs again has the same rows,
so every row counts once, in the state of bolts and in what sinks write by batch. Rows are not
tracked: Spark has no way to read one again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from topo.components import StatefulSpout
from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.errors import ComponentError
from topo.tuples import Fields

_NAME = "SparkSource"
_ALIAS = re.compile(r"(?:^|.*[\s)`])as\s+`?(\w+)`?\s*$", re.IGNORECASE | re.DOTALL)
_COLUMN = re.compile(r"^\s*(?:`(\w+)`|(?:\w+\.)*(\w+))\s*$")


class SparkSource(StatefulSpout):
    """A spout of the rows of `spark.readStream.format(format).options(...)`.

    `select` are expressions of Spark SQL, one a field: `"cast(value as string) as line"`, or
    several of them in a text or a list. Without it, the columns named by `fields` are read.
    `schema` is a text such as "user string, amount double", for sources that need one. An option
    may be a `Secret`, which is looked up where the driver runs.
    """

    transient = ("_is_active",)

    @answering()
    def __init__(
        self,
        format: str,
        options: Mapping[str, Any] | None = None,
        *,
        select: str | Iterable[str] = (),
        fields: str | Iterable[str] = (),
        schema: str | None = None,
    ) -> None:
        if not isinstance(format, str) or not format:
            raise ComponentError(f"{_NAME}: format={format!r}; it is 'json', for example")
        expressions = _split(select) if isinstance(select, str) else list(select)
        names = tuple(Fields(fields)) or tuple(map(_name_of, expressions))
        if not names:
            raise ComponentError(
                f"{_NAME}: the fields of its tuples are not known",
                hint='fields=("user", "amount"), or select="user, amount * 100 as cents"',
            )
        if expressions and len(names) != len(expressions):
            raise ComponentError(
                f"{_NAME}: {len(names)} fields and {len(expressions)} expressions to select",
                hint="give one expression a field",
            )
        self.outputs = names
        self.external = {
            "engine": "spark",
            "source": {
                "format": format,
                "options": checked_options(_NAME, options),
                "schema": schema,
                "select": expressions or [f"`{name}`" for name in names],
                "fields": list(names),
            },
        }

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self._is_active = False

    def activate(self) -> None:
        self._is_active = True

    def deactivate(self) -> None:
        self._is_active = False

    def receive(self, rows: bytes) -> None:
        """Emit rows that Spark has read, or keep them while the topology is not active."""
        if self._is_active and not self.state:
            self._emit(rows)
        else:
            number = max(self.state, default=-1) + 1
            self.state[number] = rows

    def next_tuple(self) -> None:
        first = min(self.state, default=None)
        if first is not None:
            self._emit(self.state.raw()[first])
            del self.state[first]

    def _emit(self, rows: bytes) -> None:
        import pyarrow as pa

        table = pa.ipc.open_stream(rows).read_all()
        self.emit_batch(table)  # columns that stay as Spark has them
        self.context.counter("rows", table.num_rows)


def checked_options(
    connector: str, options: Mapping[str, Any] | None
) -> dict[str, str | int | float | bool | Secret]:
    """Return options as Spark takes them; raise ComponentError for a value that it does not."""
    for name, value in (options or {}).items():
        if not isinstance(value, str | int | float | Secret):
            raise ComponentError(
                f"{connector}: option {name!r} is {value!r}; options are texts and numbers",
                hint="of several values, Spark's sources say how they are written as one text",
            )
    return dict(options or {})


def _split(text: str) -> list[str]:
    """Return the expressions of a select list: cut at commas outside of brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def _name_of(expression: str) -> str:
    found = _ALIAS.match(expression) or _COLUMN.match(expression)
    if found is None:
        raise ComponentError(
            f"{_NAME}: select has {expression!r}, whose name is not known",
            hint=f'name it: "{expression} as amount", or give fields=',
        )
    return str(next(filter(None, found.groups())))
