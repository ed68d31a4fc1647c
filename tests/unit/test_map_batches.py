"""`map_batches`: what a function over columns may return, and what comes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from topo import EmitError, FromList
from topo.errors import StreamError
from topo.streams import StreamBuilder
from topo.testing import complete_topology

pc = pytest.importorskip("pyarrow.compute")


def run(function: Any, fields: Any = "value", *, keyed: bool = False) -> Any:
    s = StreamBuilder()
    numbers: Any = s.stream(FromList([1, 2, 3], fields="value")).map(lambda n: n + 1)
    if keyed:
        numbers = numbers.key_by(lambda n: n % 2)
    numbers.map_batches(function, fields, name="mapped").map(lambda value: value).print()
    return complete_topology(s.build())


def test_an_array_is_the_value_of_each_element() -> None:
    result = run(lambda batch: pc.multiply(batch["value"], 10))
    assert sorted(result.tuples("mapped")) == [[20], [30], [40]]
    (acked,) = result.acked.values()
    assert sorted(acked) == [0, 1, 2]


def test_columns_with_fields_and_parents() -> None:
    def larger(batch: Any) -> Any:
        rows = np.flatnonzero(pc.greater(batch["value"], 2))
        taken = batch["value"].take(rows)
        return {"a": taken, "b": pc.add(taken, 1)}, rows

    assert sorted(run(larger, ("a", "b")).tuples("mapped")) == [[3, 4], [4, 5]]


def test_none_is_nothing_and_keys_are_a_column() -> None:
    assert run(lambda batch: None).tuples("mapped") == []
    result = run(lambda batch: pc.add(batch["key"], batch["value"]), keyed=True)
    assert sorted(result.tuples("mapped")) == [[2], [4], [4]]


def test_mistakes_are_told_of() -> None:
    with pytest.raises(EmitError, match=r"emitted 1 rows of a batch of \d inputs"):
        run(lambda batch: [1])
    with pytest.raises(StreamError):
        run(3)
    with pytest.raises(StreamError, match="needs a field"):
        run(lambda batch: None, ())
