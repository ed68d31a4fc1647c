"""Calls of `process_batch`, which gets the tuples of a frame as one RecordBatch.

A batch is of one stream of one task. Where a frame has several streams in the order of their emits,
each run of one stream is a batch, so that the order stays. What is emitted goes to the columns of
its stream at once, with the link of the input that each row is anchored to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from topo.columns import TakesColumns
from topo.components import BasicBolt
from topo.errors import EmitError, EmitTypeError, FailTuple, shown
from topo.runtime.arrow_columns import columns_for, declared_types, record_batch
from topo.runtime.emitter import Emitter
from topo.runtime.threads import CallsFromThreads
from topo.tracking.trees import NO_ANCHOR
from topo.tuples import DEFAULT_STREAM, Tuple
from topo.ways import UNANCHORED
from topo.wire.frame import I64, Column, Frame, Section

_SCATTERED = 3
"""Runs of fewer tuples, on the average, cost more as batches than by `execute`."""

PARENTS_HINT = (
    "parents= has the position of the input for each row: pc.list_parent_indices for lists that "
    "were flattened, numpy.flatnonzero(mask) for a filter; parents=topo.UNANCHORED says that there "
    "is none"
)


@dataclass
class Inputs:
    """The inputs of one call: their section, and the link of the first."""

    section: Section
    first: int

    @classmethod
    def of(cls, tuples: Sequence[Tuple]) -> Inputs:
        """Return tuples of one stream as inputs."""
        columns: list[Column] = [*map(list, zip(*(tup.values for tup in tuples), strict=True))]
        return cls(Section(tuples[0].source_stream, len(tuples), columns), 0)

    @property
    def count(self) -> int:
        return self.section.count


class BatchCalls:
    """The calls of one bolt's `process_batch`, and the `emit_batch` of any basic bolt."""

    def __init__(self, component: BasicBolt, outlet: Emitter, threads: CallsFromThreads) -> None:
        self._component = component
        self._outlet = outlet
        self._threads = threads
        self._inputs: Inputs | None = None

    def are_scattered(self, frames: Sequence[Frame]) -> bool:
        """True iff the tuples of these frames come cheaper one by one, and the bolt takes them."""
        component = self._component
        if not (isinstance(component, TakesColumns) and component.takes_tuples):
            return False
        orders = [frame.order for frame in frames if frame.order is not None]
        runs = sum(1 + int(np.count_nonzero(np.diff(order))) for order in orders)
        return sum(map(len, orders)) < _SCATTERED * runs

    def call(self, inputs: Inputs, fields: Sequence[str], source: str) -> None:
        """Give the bolt these inputs."""
        section, owner, component = inputs.section, self._outlet.owner, self._component
        result = None
        if not isinstance(component, TakesColumns):
            batch = record_batch(
                f"process_batch of {owner}", fields, section.columns, section.count, source
            )
        self._inputs = inputs
        try:
            if isinstance(component, TakesColumns):
                component.process_columns(fields, section.columns, section.count)
            else:
                result = component.process_batch(batch)  # type: ignore[func-returns-value]
        finally:
            self._inputs = None
        if result is not None:
            raise EmitTypeError(
                f"process_batch of {owner} returned a {type(result).__name__}, which goes nowhere",
                hint="call self.emit_batch(columns)",
            )

    def emit_batch(self, data: Any, *, stream: str = DEFAULT_STREAM, parents: Any = None) -> int:
        """Emit the rows of columns, in `process_batch`, or where there is no input."""
        if self._threads.is_elsewhere:
            self._threads.refuse()
        columns, places = self._columns(data, stream, parents)
        count = len(columns[0]) if columns else 0
        if count:
            first = 0 if self._inputs is None else self._inputs.first
            links = np.full(count, NO_ANCHOR) if places is None else places + first
            self._outlet.emit_columns(stream, columns, links)
        return count

    def rows_of(self, data: Any, stream: str, parents: Any) -> tuple[list[Any], list[int] | None]:
        """Return what would be emitted as rows, with the position of each one's input."""
        columns, places = self._columns(data, stream, parents)
        rows = list(map(list, zip(*columns, strict=True)))
        return rows, None if places is None else places.tolist()

    def _columns(self, data: Any, stream: str, parents: Any) -> tuple[list[Column], I64 | None]:
        outlet = self._outlet
        types = declared_types(self._component, stream)
        fields = outlet.fields_of(stream)
        columns = columns_for(outlet.owner, stream, fields, data, types)
        size = None if self._inputs is None else self._inputs.count
        count = len(columns[0]) if columns else 0
        return [*columns], parents_of(outlet.owner, count, parents, size)

    def refuse_single(self) -> None:
        """Raise for an `emit` in `process_batch`, where nobody knows which input it is of."""
        if self._inputs is not None:
            raise EmitError(
                f"{self._outlet.owner} called emit in process_batch, where one emit is of no one "
                "input",
                hint="collect the rows, and call emit_batch(columns, parents=...)",
            )


def parents_of(owner: str, count: int, parents: Any, inputs: int | None) -> I64 | None:
    """Return the position of the input of each of `count` rows; None if they have no anchor."""
    if parents is UNANCHORED:
        return None
    if inputs is None:
        if parents is None:
            return None
        raise EmitError(f"{owner} gave parents to rows that it emitted while it has no input")
    if parents is None:
        if count in (0, inputs):
            return np.arange(count)
        raise EmitError(
            f"{owner} emitted {count} rows of a batch of {inputs} inputs, and does not say which "
            "row is of which input",
            hint=PARENTS_HINT,
        )
    places = positions(owner, "parents", parents, inputs)
    if len(places) != count:
        raise EmitError(
            f"{owner} emitted {count} rows with {len(places)} parents", hint=PARENTS_HINT
        )
    return places


def positions(owner: str, what: str, data: Any, inputs: int) -> I64:
    """Return positions of inputs that came in any form; raise for what is none."""
    if hasattr(data, "combine_chunks") and hasattr(data, "to_pylist"):  # a ChunkedArray
        data = data.to_pylist()
    elif hasattr(data, "null_count") and hasattr(data, "to_numpy"):
        data = data.to_pylist() if data.null_count else data.to_numpy(zero_copy_only=False)
    places = np.asarray(data if hasattr(data, "__len__") else list(data))
    if places.size == 0:
        return np.empty(0, np.int64)
    if places.dtype == bool:
        hint = "a mask is result positions by numpy.flatnonzero(mask)"
        raise EmitTypeError(f"{owner} gave a mask as {what}", hint=hint)
    if places.ndim != 1 or places.dtype.kind not in "iu":
        raise EmitTypeError(
            f"{owner} gave {shown(data)} as {what}, which are no positions of inputs",
            hint="a whole number for each, from 0 on",
        )
    if places.min() < 0 or places.max() >= inputs:
        odd = int(places.min() if places.min() < 0 else places.max())
        raise EmitError(f"{owner} named input {odd} in {what}, of a batch of {inputs}")
    return places.astype(np.int64)


def failed_rows(owner: str, failure: FailTuple, inputs: int) -> list[int]:
    """Return the positions of the inputs that a FailTuple fails."""
    if failure.rows is None:
        return list(range(inputs))
    rows: list[int] = np.unique(positions(owner, "rows", failure.rows, inputs)).tolist()
    return rows


def batches_of(frame: Frame, first: int) -> Iterator[Inputs]:
    """Yield the inputs of a frame, whose links begin at `first`, in batches of one stream."""
    starts, at = [], first
    for section in frame.sections:
        starts.append(at)
        at += section.count
    if frame.order is None:
        for section, start in zip(frame.sections, starts, strict=True):
            if section.count:
                yield Inputs(section, start)
        return
    done = [0] * len(frame.sections)
    order = frame.order
    cuts = np.flatnonzero(np.diff(order)) + 1
    for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(order)], strict=True):
        number = int(order[begin])
        start, stop = done[number], done[number] + end - begin
        done[number] = stop
        yield Inputs(frame.sections[number].cut(start, stop), starts[number] + start)
