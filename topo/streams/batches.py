"""`map_batches`: a function over the Arrow columns of many elements at once, as a bolt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from topo.components import BasicBolt, FieldNames
from topo.errors import StreamError
from topo.tuples import Fields


class BatchFunction(BasicBolt):
    """Emits what a function returns for a batch.

    That is columns in one of the forms of `emit_batch`, or one array if there is one field; nothing
    for None; or a pair of these and the parents of the rows.
    """

    stateless = True

    def __init__(self, function: Callable[[Any], Any], fields: FieldNames) -> None:
        self.function = function
        self.fields = tuple(Fields(fields))
        self.outputs = self.fields
        if not self.fields:
            raise StreamError("map_batches needs a field", hint="write fields=('name', ...)")

    def process_batch(self, batch: Any) -> None:
        result, parents = self.function(batch), None
        if isinstance(result, tuple) and len(result) == 2:
            result, parents = result
        if result is None:
            return
        is_columns = isinstance(result, Mapping) or hasattr(result, "columns")
        if not is_columns and len(self.fields) == 1:
            result = {self.fields[0]: result}
        self.emit_batch(result, parents=parents)
