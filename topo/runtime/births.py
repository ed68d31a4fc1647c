"""The places where the times of a bolt's inputs are born, and whose marks it therefore hears.

A watermark that were made of what reaches a bolt would stand while a filter drops everything, and
behind a window it would move with its next result only. So a mark comes from where the time is
known first, and is addressed to every bolt in event time behind it: bolts in between that work on
each tuple in the batch in which it came can hold nothing back, and all levels of a batch run before
it ends. Of bolts in between,

- those that topo makes of operators say in which field they read it (`ComponentDef.times_in`);
- a `BasicBolt` of a user's passes on the marks of a bolt in event time if the time is in a field of
  the same name and unit, unless `passes_time` is False; behind spouts, the time is born where it is
  emitted, since a user's bolt may have made it of anything.

Any other bolt may keep tuples: the time of what it emits is born in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from topo.timed import InputFields, TimedBolt
from topo.topology.model import ComponentDef, InputDef, Topology


@dataclass(frozen=True)
class Birth:
    """A stream at which the time of an input is born."""

    component: str
    stream: str
    field: str | None
    """The field that has the time; None if the component's watermark says it."""
    read: InputDef
    """The input of the reading bolt that it is the time of."""


def births(
    topology: Topology, consumer: ComponentDef, timed: Callable[[str], TimedBolt]
) -> list[Birth]:
    """Return where the times of a timed bolt's inputs are born; `timed` declares such bolts."""
    bolt = timed(consumer.id)
    time = bolt.timing()
    if time is None:
        return []
    places: dict[tuple[str, str], Birth] = {}
    for read in consumer.inputs:
        if read.component in time.untimed:
            continue
        name = None
        if time.extractor is None:
            fields = topology.component(read.component).declared(read.stream).fields
            name = bolt.time_field(InputFields(read.component, read.stream, fields, "", ()))
        for birth in _births_of(topology, timed, time.unit, read, name, read):
            places.setdefault((birth.component, birth.stream), birth)
    return list(places.values())


def _births_of(
    topology: Topology,
    timed: Callable[[str], TimedBolt],
    unit: str,
    read: InputDef,
    name: str | None,
    first: InputDef,
) -> list[Birth]:
    """Return where the time in the field of a stream is born."""
    here = [Birth(read.component, read.stream, name, first)]
    producer = topology.component(read.component)
    if producer.timed:
        return [Birth(read.component, read.stream, None, first)]
    if name is None or read.stream not in producer.times_in:
        return here
    places: list[Birth] = []
    for before in producer.forward:  # a watermark would wait for itself
        field = producer.times_in[read.stream]
        earlier = _passed_on(topology, timed, unit, before, field or name, bool(field), first)
        if not earlier:
            return here
        places += earlier
    return places or here


def _passed_on(
    topology: Topology,
    timed: Callable[[str], TimedBolt],
    unit: str,
    before: InputDef,
    field: str,
    of_topo: bool,
    first: InputDef,
) -> list[Birth]:
    """Return where the time in a field of a bolt's input is born; nothing if it makes its own."""
    source = topology.component(before.component)
    if source.timed:
        result, time = timed(source.id).result_time(before.stream), timed(source.id).timing()
        keeps_time = result is not None and result[0] == field
        if of_topo or (keeps_time and time is not None and time.unit == unit):
            return [Birth(before.component, before.stream, None, first)]
        return []
    if field not in source.declared(before.stream).fields:
        return []
    if of_topo and source.is_spout:
        return [Birth(before.component, before.stream, field, first)]
    places = _births_of(topology, timed, unit, before, field, first)
    return places if of_topo or all(birth.field is None for birth in places) else []
