"""The cases of Trident's operations: what Trident does to one batch, a program of streams does.

A batch of Trident's is a unit of the user's; here that is a request, so what ends with a batch
there is asked by a call, whose argument has the rows. What keeps state goes over a stream.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.cases import Case
from tests.parity.areas import Runner, parameters
from tests.property.scale import seeds
from topo import BasicBolt, Combiner, Count, FromList, Tuple
from topo.streams import KeyedRequestStream, NonTransactional, RequestStream, StreamBuilder
from topo.testing import TestCluster, complete_topology

Rows = list[list[Any]]
LEFT_OUT = {
    "several aggregates of each partition": "a partition of a batch is no unit of the user's",
}


def rows_of(case: Case) -> Rows:
    return [row for rows in case["settings"]["partitions"].values() for row in rows]


# -- what ends with a batch -----------------------------------------------------------------------


def count_and_sum(totals: Any, row: list[Any]) -> list[int]:
    count, total = totals
    return [count + 1, total + row[1]]


def above_mean(rows: Sequence[list[Any]]) -> list[list[Any]]:
    mean = sum(value for _, value in rows) / len(rows)
    return [row for row in rows if row[1] > mean]


def grouped(rows: RequestStream[Any]) -> KeyedRequestStream[Any, Any]:
    keyed: KeyedRequestStream[Any, Any] = rows.key_by(lambda row: row[0])
    return keyed.fold(0, lambda total, row: total + row[1], parallelism=2)


OF_A_REQUEST: dict[str, Callable[[RequestStream[Any]], RequestStream[Any]]] = {
    "chained: count of all, sum of b": lambda rows: rows.fold([0, 0], count_and_sum),
    "group by a, sum of b": grouped,
    "reduce(init=0, b -> max) without keys": lambda rows: rows.fold(0, lambda a, r: max(a, r[1])),
    "per batch: one tuple for each value above the mean of b": lambda rows: rows.fold(
        list, lambda seen, row: [*seen, row]
    ).flat_map(above_mean),
    "flat_map(words of a) as word": lambda rows: rows.flat_map(lambda row: row[0].split()),
    "project b": lambda rows: rows.map(lambda row: row[1]),
}


def asked(
    program: Callable[[RequestStream[Any]], RequestStream[Any]], rows: Rows, seed: int
) -> Any:
    s = StreamBuilder()
    program(s.requests("f").flat_map(json.loads)).answer(parallelism=2)
    with TestCluster(seed) as cluster:
        return json.loads(cluster.submit_topology("t", s.build()).call("f", json.dumps(rows)))


# -- what goes over a stream ----------------------------------------------------------------------


class Where(BasicBolt):
    """Emits the number of the task to which each tuple comes."""

    outputs = ("task",)

    def execute(self, tup: Tuple) -> None:
        self.emit([self.context.this_task_index])


def broadcast(case: Case, seed: int) -> Any:
    s = StreamBuilder()
    rows = s.stream(FromList(rows_of(case), ["a", "b"]))
    rows.to(Where(), parallelism=3, grouping="broadcast", name="where")
    with TestCluster(seed) as cluster:
        run = cluster.submit_topology("t", s.build())
        run.settle()
        tasks = Counter(task for (task,) in run.tuples("where"))
    return {str(task): [[count]] for task, count in tasks.items()}


class CountingStore:
    """A store that counts how often it is asked."""

    def __init__(self, values: dict[Any, Any]) -> None:
        self.values = values
        self.calls = 0

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        self.calls += 1
        return [self.values.get(key) for key in keys]

    def multi_put(self, items: Any) -> None:
        self.values.update(items)


class Put(Combiner):
    """The value that came last."""

    def init(self) -> Any:
        return None

    def add(self, acc: Any, value: Any) -> Any:
        return value

    def merge(self, a: Any, b: Any) -> Any:
        return b

    def result(self, acc: Any) -> Any:
        return acc


def persisted(case: Case, seed: int) -> Any:
    s = StreamBuilder()
    rows = s.stream(FromList(rows_of(case), ["a", "b"]))
    state = rows.key_by("a").map_values(lambda row: row.b).persistent_aggregate(Put(None))
    updates: list[list[Any]] = []
    state.updates().for_each(lambda pair: updates.append(list(pair)))
    complete_topology(s.build())
    latest: dict[Any, Any] = dict(map(tuple, updates))
    changed = [[key, value] for key, value in latest.items()]  # more than one batch may have come
    return {"state": latest, "out": changed}


STORE = CountingStore({})


class Shared:
    """The store of a case, which a topology's components find again by its name."""

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        return STORE.multi_get(keys)

    def multi_put(self, items: Any) -> None:
        STORE.multi_put(items)


def static(case: Case, seed: int) -> Any:
    STORE.values, STORE.calls = dict(case["settings"]["store"]), 0
    s = StreamBuilder()
    nothing = s.stream(FromList([], ["a"])).key_by("a")
    state = nothing.persistent_aggregate(Count(), NonTransactional(Shared()))
    asked = s.requests("f").flat_map(json.loads).map(lambda row: row[0]).key_by()
    asked.state_query(state).answer()
    with TestCluster(seed) as cluster:
        run = cluster.submit_topology("t", s.build())
        answers = json.loads(run.call("f", json.dumps(rows_of(case))))
    return {"out": answers, "calls": STORE.calls}


OVER_A_STREAM: dict[str, Callable[[Case, int], Any]] = {
    "broadcast over 3, count by partition": broadcast,
    "partitionPersist(put a -> b), then the new values": persisted,
    "stateQuery of a store with multi_get, keys of one batch in one call": static,
}


def run_trident(case: Case, seed: int = 0) -> None:
    operation, expected = case["settings"]["operation"], case["expect"]["out"]
    if operation in OF_A_REQUEST:
        found = asked(OF_A_REQUEST[operation], rows_of(case), seed)
        assert sorted(found) == sorted(expected)
        return
    assert in_order(OVER_A_STREAM[operation](case, seed)) == in_order(expected)


def in_order(value: Any) -> Any:
    """Return a document with its lists of rows in one order: the cases leave that open."""
    if isinstance(value, dict):
        return {key: in_order(part) for key, part in value.items()}
    return sorted(value, key=repr) if isinstance(value, list) else value


RUNNERS: dict[str, Runner] = {"trident": run_trident}


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("case", parameters(RUNNERS, LEFT_OUT))
def test_operations_of_trident(case: Case, seed: int) -> None:
    run_trident(case, seed)
