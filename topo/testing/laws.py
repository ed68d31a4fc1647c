"""One input, one result: however it is cut into batches, restarted and dealt over tasks.

An input comes in batches that nobody chooses, a process may end behind any of them, and a component
may have any number of tasks. What a topology computes must not depend on that; a test that feeds
all rows at once, to the end of the input, sees none of it. So the law is run over live input: the
watermark is that of the rows, and what waits for its end waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product, zip_longest
from random import Random
from typing import Any, TypeAlias

from topo.errors import RunError
from topo.shipping.pickling import pickle_locally, pickle_to_travel
from topo.testing.cluster import TestCluster
from topo.testing.feeder import EndingFeeder, FeederSpout
from topo.topology.model import ComponentDef, Topology

Row: TypeAlias = "list[Any] | tuple[Any, ...]"
Results: TypeAlias = dict[str, list[list[Any]]]

_MOST_SHOWN = 5


@dataclass(frozen=True)
class _Way:
    """One way in which an input may come."""

    ends: frozenset[int]
    """The places of the rows behind which a batch ends."""
    restarts: bool
    tasks: int

    def described(self, count: int) -> str:
        """Return the way in words."""
        places = ", ".join(str(place + 1) for place in sorted(self.ends)) or "none"
        restarts = ", with a restart after each batch" if self.restarts else ""
        tasks = "" if self.tasks == 1 else f", with {self.tasks} tasks"
        return f"a batch ends behind these of {count} rows: {places}{restarts}{tasks}"


def laws_of_batches(
    topology: Topology | Callable[[int], Topology],
    rows: Mapping[str, Iterable[Row]],
    *,
    results: str | Sequence[str] | None = None,
    tasks: Sequence[int] = (1, 2, 3),
    most: int = 32,
    to_end: bool = False,
    seed: int = 0,
) -> Results:
    """Raise an AssertionError unless an input gives one result, however it comes.

    `rows` has the input of each spout, which it replaces as `mock_sources` do. It is cut into
    batches in every way, or in `most` ways, without and with a restart after each batch; if
    `topology` is a function, it is called with each number of `tasks`. `results` names the
    components whose tuples are compared, in any order, and returned: by default those that nobody
    reads, or only such as emit nothing. Numbers are compared to twelve digits. The input goes on
    unless `to_end`. The law does not hold for rows that come later than the lag: which of them are
    late depends on batches.
    """
    make = topology if callable(topology) else lambda count: topology
    flat = _in_turn(rows)
    counts = tasks if callable(topology) else tasks[:1]
    names: list[str] = []
    common: Results = {}
    first: _Way | None = None
    for count in counts:
        program = make(count)
        names = names or _names(program, results)
        for ends, restarts in product(_cuts(len(flat), most, Random(seed)), (False, True)):
            way = _Way(ends, restarts, count if callable(topology) else 1)
            emitted = _run(program, list(rows), flat, names, way, to_end=to_end, seed=seed)
            if first is None:
                first, common = way, emitted
            for name in names:
                _compare(name, common[name], emitted[name], (first, way), len(flat))
    return common


def _in_turn(rows: Mapping[str, Iterable[Row]]) -> list[tuple[str, Row]]:
    """Return the rows of all spouts, one of each in turn."""
    if not rows:
        raise RunError("laws_of_batches: rows has no spout", hint='write {"my_spout": [["a", 1]]}')
    named = ([(name, row) for row in of_spout] for name, of_spout in rows.items())
    return [fed for fed in chain.from_iterable(zip_longest(*named)) if fed is not None]


def _cuts(count: int, most: int, random: Random) -> Iterator[frozenset[int]]:
    """Yield the ways to cut so many rows into batches, the shortest and the longest first."""
    inner = range(count - 1)
    yield frozenset()
    if count < 2:
        return
    yield frozenset(inner)
    if 2 ** len(inner) <= most:
        for chosen in product((False, True), repeat=len(inner)):
            if any(chosen) and not all(chosen):
                yield frozenset(place for place in inner if chosen[place])
        return
    for _ in range(most - 2):
        share = random.random()
        yield frozenset(place for place in inner if random.random() < share)


def _names(topology: Topology, results: str | Sequence[str] | None) -> list[str]:
    """Return the components whose tuples are compared."""
    if results is not None:
        names = [results] if isinstance(results, str) else list(results)
        for name in names:
            topology.component(name).declared("default")
        return names
    emits = {bolt.id for bolt in topology.bolts if bolt.output("default") is not None}
    names = [name for name in emits if not any(c.id in emits for c, _ in topology.consumers(name))]
    if not names:
        raise RunError(
            "laws_of_batches: no bolt emits results on its default stream",
            hint='name the component whose tuples are compared: results="counts"',
        )
    return sorted(names)


def _run(
    topology: Topology,
    spouts: Sequence[str],
    rows: Sequence[tuple[str, Row]],
    names: Sequence[str],
    way: _Way,
    *,
    to_end: bool,
    seed: int,
) -> Results:
    """Return what components have emitted when the rows have come in one way."""
    feeders = {name: _feeder(topology.component(name), to_end=to_end) for name in spouts}
    components = {**topology.components}
    for name, feeder in feeders.items():
        components[name] = _fed(components[name], feeder, finite=to_end)
    fed = Topology(components.values(), topology.warnings, topology.user_classes)
    with TestCluster(seed) as cluster:
        run = cluster.submit_topology("laws", fed)
        for place, (name, values) in enumerate(rows):
            feeders[name].feed(values)
            if place in way.ends:
                run.settle()
                if way.restarts:
                    run.restart()
        run.settle()
        if way.restarts:
            run.restart()
        for feeder in feeders.values():
            if isinstance(feeder, EndingFeeder):
                feeder.end()
        run.settle()
        return {name: run.tuples(name) for name in names}


def _feeder(spout: ComponentDef, *, to_end: bool) -> FeederSpout:
    if not spout.is_spout:
        raise RunError(f"laws_of_batches: {spout.id!r} is a bolt; rows are of spouts")
    fields = spout.declared("default").fields
    return (EndingFeeder if to_end else FeederSpout)(fields)


def _fed(spout: ComponentDef, feeder: FeederSpout, *, finite: bool) -> ComponentDef:
    return replace(
        spout,
        class_name="FeederSpout",
        pickled=pickle_to_travel(feeder),
        local=pickle_locally(feeder),
        finite=finite,
        external={},
    )


def _compare(
    name: str, common: list[Any], others: list[Any], ways: tuple[_Way, _Way], count: int
) -> None:
    """Raise an AssertionError unless two results are equal."""
    before, now = Counter(map(_comparable, common)), Counter(map(_comparable, others))
    if before == now:
        return
    missing, more = _listed(before - now), _listed(now - before)
    raise AssertionError(
        f"the results of {name!r} depend on how its input comes. If {ways[1].described(count)}, "
        f"it emits\n  {more}\nand not\n  {missing}\nas it does if {ways[0].described(count)}"
    )


def _listed(rows: Counter[str]) -> str:
    several = sorted(rows.elements())
    rest = f"\n  and {len(several) - _MOST_SHOWN} more" if len(several) > _MOST_SHOWN else ""
    return "\n  ".join(several[:_MOST_SHOWN]) + rest or "nothing else"


def _comparable(value: Any) -> str:
    """Return a value as text in which numbers that are equal to twelve digits are equal."""
    if isinstance(value, bool | int):
        return str(int(value))
    if isinstance(value, float):
        short = float(f"{value:.12g}")
        return str(int(short)) if short.is_integer() else repr(short)
    if isinstance(value, Mapping):
        pairs = sorted(f"{_comparable(k)}: {_comparable(v)}" for k, v in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_comparable, value)))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_comparable, value))}]"
    return repr(value)
