"""Validation of a topology: all structural problems are reported at once.

The checks go beyond Storm's: fields are checked against the stream that is read, and a bolt that
reads nothing, an input given twice and a cycle without a mark are problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from topo.columns import ByColumns, TakesColumns
from topo.components import BasicBolt, OutputFieldsDeclarer, Spout, StatefulBasicBolt
from topo.config import Config
from topo.errors import ComponentError, InvalidTopologyError, Problem, TopoError, did_you_mean
from topo.event_time import EventTime
from topo.shipping.pickling import pickle_component
from topo.shipping.requirements import parse_requirement
from topo.timed import InputFields, TimedBolt, spouts_before
from topo.topology.draft import Draft
from topo.topology.layout import TaskLayout
from topo.topology.lint import component_problems, sleeping_warnings
from topo.topology.loops import cycle_problems, forward_reads, loop_problems, producers
from topo.topology.model import ComponentDef, InputDef, StreamDef, Topology
from topo.topology.shared_containers import shared_containers
from topo.topology.shedding import shedding_problems
from topo.tuples import RESERVED_FIELD_NAMES, Fields
from topo.ways import BY_BATCH, BY_VALUES, Asked, asked_by, hook_of

Streams = dict[str, StreamDef]

# What ackers and frames have room for.
MAX_NAME_CHARS = 1000
MAX_LEVELS = 256
MAX_STREAMS = 256
"""Of one component, that one bolt reads: a frame counts them in a byte."""


def build_topology(drafts: Mapping[str, Draft], found_before: list[Problem]) -> Topology:
    problems = list(found_before)
    outputs: dict[str, Streams] = {}
    confs: dict[str, dict[str, Any]] = {}
    warnings: list[str] = []
    is_finite = all(_is_finite(one.component) for one in drafts.values() if one.kind == "spout")
    for draft in _producers_first(drafts):
        problems += _read_inputs(draft, drafts, outputs)
        outputs[draft.id] = _declared_outputs(draft, problems)
    for draft in drafts.values():
        problems += draft.problems
        problems += _name_problems(f"{draft.kind} {draft.id[:40]!r}", "its name", draft.id)
        problems += component_problems(draft.component, draft.where)
        confs[draft.id] = _component_conf(draft, problems, warnings)
        warnings += _shadowed_fields(draft, outputs[draft.id])
        warnings += shared_containers(draft.component, draft.where)
        warnings += sleeping_warnings(draft.component, draft.where)
        if isinstance(draft.component, TimedBolt):
            warnings += draft.component.warnings(draft.where, is_finite)
    if not any(draft.kind == "spout" for draft in drafts.values()):
        problems.append(
            Problem("no-spout", "topology", "the topology has no spout", "add one with set_spout")
        )
    for draft in drafts.values():
        problems += _input_problems(draft, drafts, outputs)
        problems += _time_problems(draft, drafts, outputs, confs[draft.id])
        problems += shedding_problems(draft.component, draft.where, outputs[draft.id])
    problems += list(cycle_problems(drafts)) or [*_depth_problems(drafts), *loop_problems(drafts)]
    if problems:
        raise InvalidTopologyError(problems)
    topology = Topology(
        (_component(draft, outputs[draft.id], confs[draft.id]) for draft in drafts.values()),
        warnings,
    )
    TaskLayout(topology)  # raises for numbers of tasks that do not fit
    return topology


def _producers_first(drafts: Mapping[str, Draft]) -> list[Draft]:
    """Return the drafts in an order in which inputs are known; in theirs if there is a cycle."""
    sorter = TopologicalSorter({name: forward_reads(drafts, name) for name in drafts})
    try:
        return [drafts[name] for name in sorter.static_order()]
    except CycleError:
        return list(drafts.values())


def _read_inputs(
    draft: Draft, drafts: Mapping[str, Draft], outputs: Mapping[str, Streams]
) -> Iterator[Problem]:
    if not isinstance(draft.component, TimedBolt):
        return
    try:
        draft.component.read_inputs(_input_fields(draft, drafts, outputs))
    except TopoError as error:
        yield Problem("inputs", draft.where, f"{draft.where}: {error.message}", error.hint)


def _input_fields(
    draft: Draft, drafts: Mapping[str, Draft], outputs: Mapping[str, Streams]
) -> list[InputFields]:
    """Return what a bolt reads, as far as the streams exist."""
    return [
        InputFields(
            read.component,
            read.stream,
            outputs[read.component][read.stream].fields,
            read.grouping.kind,
            tuple(read.grouping.fields),
            _class_names(type(drafts[read.component].component)),
        )
        for read in draft.inputs
        if read.stream in outputs.get(read.component, {})
    ]


def _class_names(cls: type) -> tuple[str, ...]:
    return tuple(f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__)


def declared_streams(draft: Draft) -> Streams:
    """Return the streams that the component declares; its declaration may raise."""
    declarer = OutputFieldsDeclarer()
    draft.component.declare_output_fields(declarer)
    return {
        name: StreamDef(name, tuple(stream.fields), stream.direct)
        for name, stream in declarer.streams.items()
    }


def _component(draft: Draft, outputs: Streams, conf: Mapping[str, Any]) -> ComponentDef:
    pickled, local = pickle_component(draft.component, draft.where)
    return ComponentDef(
        id=draft.id,
        kind=draft.kind,
        class_name=type(draft.component).__qualname__,
        parallelism=draft.parallelism,
        outputs=tuple(outputs.values()),
        inputs=tuple(draft.inputs),
        conf=dict(conf),
        pickled=pickled,
        stateless=bool(draft.component.stateless),
        finite=_is_finite(draft.component),
        basic=isinstance(draft.component, BasicBolt),
        timed=isinstance(draft.component, TimedBolt),
        times_in=_times_in(draft.component, conf, outputs),
        requires=_requires(draft.component),
        external=draft.component.external,
        leaves=draft.component.leaves,
        role=type(draft.component)._topo_role,
        local=local,
    )


def _requires(component: Any) -> tuple[str, ...]:
    """Return the distributions that a component says it imports, and those of its way."""
    required = tuple(Fields(component.requires))
    by_batch = isinstance(component, BasicBolt) and hook_of(component) == BY_BATCH
    by_batch = by_batch and not isinstance(component, TakesColumns)
    names = {parse_requirement(text)[0] for text in required}
    return (*required, "pyarrow>=18") if by_batch and "pyarrow" not in names else required


def _times_in(component: Any, conf: Mapping[str, Any], outputs: Streams) -> Mapping[str, str]:
    """Return the fields of the times that a bolt passes on in the same batch, by stream."""
    if isinstance(component, ByColumns):
        return component.times_in()
    if not isinstance(component, BasicBolt):
        return {}
    cls = type(component)
    late = ("on_tick", "tick", "pre_commit")
    emits_later = any(getattr(cls, name) is not getattr(BasicBolt, name) for name in late)
    may_hold = emits_later or isinstance(component, StatefulBasicBolt)
    may_hold = may_hold or bool(conf.get("topology.tick.tuple.freq.secs"))
    passes = not may_hold if component.passes_time is None else component.passes_time
    return dict.fromkeys(outputs, "") if passes else {}


def _is_finite(component: Any) -> bool:
    return isinstance(component, Spout) and type(component).is_exhausted is not Spout.is_exhausted


def _declared_outputs(draft: Draft, problems: list[Problem]) -> Streams:
    try:
        streams = declared_streams(draft)
    except TopoError as error:
        problems.append(
            Problem("outputs", draft.where, f"{draft.where}: {error.message}", error.hint)
        )
        return {}
    except Exception as error:
        text = f"{draft.where}: its output declaration raised {type(error).__name__}: {error}"
        hint = "outputs is a tuple of field names, or {stream: fields}"
        problems.append(Problem("outputs", draft.where, text, hint))
        return {}
    for name in streams:
        problems += _name_problems(draft.where, f"stream {name[:40]!r}", name)
        if name.startswith("__"):
            text = f"{draft.where}: stream {name!r}: names that begin with '__' are reserved"
            problems.append(Problem("reserved-name", draft.where, text, "choose another name"))
    return streams


def _component_conf(draft: Draft, problems: list[Problem], warnings: list[str]) -> dict[str, Any]:
    try:
        own = dict(draft.component.get_component_configuration() or {})
        warnings += Config.validate(own, at=draft.where, component=draft.id)
    except TopoError as error:
        problems.append(Problem("config", draft.where, error.message, error.hint))
        own = {}
    # The declarer has checked the settings that it added.
    warnings += Config.validate(draft.conf, component=draft.id)
    return {**own, **draft.conf}


def _shadowed_fields(draft: Draft, streams: Streams) -> Iterator[str]:
    for stream in streams.values():
        for name in stream.fields:
            if name in RESERVED_FIELD_NAMES:
                yield (
                    f"{draft.where}: field {name!r} of stream {stream.name!r} is read by "
                    f"tup[{name!r}] only; tup.{name} is a tuple's own"
                )


def _input_problems(
    draft: Draft, drafts: Mapping[str, Draft], outputs: Mapping[str, Streams]
) -> Iterator[Problem]:
    if draft.kind == "spout":
        return
    if not draft.inputs and not draft.problems:
        text = f"{draft.where} reads nothing"
        hint = "give it an input, such as .shuffle_grouping('spout')"
        yield Problem("no-input", draft.where, text, hint)
    needs = _asked(draft.component)
    seen: set[tuple[str, str]] = set()
    for read in draft.inputs:
        if needs is not None and read.stream in outputs.get(read.component, {}):
            fields = outputs[read.component][read.stream].fields
            of_stream = "" if read.stream == "default" else f" stream {read.stream!r}"
            refusal = needs.refusal(fields, f"{read.component!r}{of_stream}")
            if refusal is not None:
                text = f"{draft.where}: {refusal[0]}"
                yield Problem("unknown-field", draft.where, text, refusal[1])
        if (read.component, read.stream) in seen:
            text = f"{draft.where} reads stream {read.stream!r} of {read.component!r} twice"
            yield Problem(
                "duplicate-input", draft.where, text, "keep one; Storm would keep the last"
            )
        seen.add((read.component, read.stream))
        if sum(component == read.component for component, _ in seen) == MAX_STREAMS + 1:
            text = f"{draft.where} reads more than {MAX_STREAMS} streams of {read.component!r}"
            hint = "emit on fewer streams, and put the difference into a field"
            yield Problem("many-streams", draft.where, text, hint)
        yield from _read_problems(draft, read, drafts, outputs)


def _asked(component: Any) -> Asked | None:
    """Return what the `process` of a bolt asks for; None if it has none, or one of no use."""
    try:
        is_asking = isinstance(component, BasicBolt) and hook_of(component) == BY_VALUES
        return asked_by(component) if is_asking else None
    except ComponentError:  # told of with the component's own problems
        return None


def _read_problems(
    draft: Draft, read: InputDef, drafts: Mapping[str, Draft], outputs: Mapping[str, Streams]
) -> Iterator[Problem]:
    if read.component not in drafts:
        text = f"{draft.where} reads {read.component!r}, which the topology does not have"
        hint = did_you_mean(read.component, drafts) or f"it has {_names(drafts)}"
        yield Problem("unknown-component", draft.where, text, hint)
        return
    streams = outputs[read.component]
    if read.stream not in streams:
        text = (
            f"{draft.where} reads stream {read.stream!r} of {read.component!r}, "
            f"which declares {_names(streams)}"
        )
        yield Problem("unknown-stream", draft.where, text, did_you_mean(read.stream, streams))
        return
    fields = streams[read.stream].fields
    for name in read.grouping.fields:
        if name not in fields:
            text = (
                f"{draft.where} groups {read.component!r} stream {read.stream!r} by field "
                f"{name!r}, which has {_names(fields)}"
            )
            yield Problem("unknown-field", draft.where, text, did_you_mean(name, fields))


def _time_problems(
    draft: Draft,
    drafts: Mapping[str, Draft],
    outputs: Mapping[str, Streams],
    conf: Mapping[str, Any],
) -> Iterator[Problem]:
    bolt = draft.component
    if not isinstance(bolt, TimedBolt):
        return
    reads = _input_fields(draft, drafts, outputs)
    if bolt.stateless:
        text = f"{draft.where} says stateless = True, but keeps windows or the like"
        yield Problem("stateless", draft.where, text, "take stateless = True away")
    try:
        bolt.configure(conf)
        time = bolt.timing()
        tasks = max(draft.parallelism, conf.get("topology.tasks") or 1)
        yield from bolt.problems(draft.where, reads, tasks, outputs[draft.id])
    except TopoError as error:
        yield Problem("window", draft.where, f"{draft.where}: {error.message}", error.hint)
        return
    late = outputs[draft.id].get(bolt.late_stream or "")
    if late is not None and len(late.fields) != 1:
        text = f"{draft.where}: its late stream {late.name!r} has {_names(late.fields)}"
        yield Problem("late-stream", draft.where, text, "it takes one field, the late tuple")
    for untimed in time.untimed if time is not None else ():
        if all(untimed != read.component for read in reads):
            text = f"{draft.where}: untimed names {untimed!r}, which it does not read"
            near = did_you_mean(untimed, [read.component for read in reads])
            yield Problem("time-field", draft.where, text, near or "take it away")
    if time is not None and time.hold_pending:
        yield from _hold_problems(draft, drafts, outputs, time)
    if time is None or time.extractor is not None:
        return
    for read in reads:
        if read.component in time.untimed:
            continue
        producer = drafts[read.component].component
        name = bolt.time_field(read)
        if name is None and isinstance(producer, TimedBolt):
            found = producer.result_time(read.stream)
            name = found[0] if found else None
        if name is None or name not in read.fields:
            wanted = "no time field is named" if name is None else f"there is no field {name!r}"
            text = f"{draft.where} reads {read.component!r} in event time, where {wanted}"
            hint = f"its fields are {_names(read.fields)}; an input without times is named in "
            hint += f"EventTime(..., untimed=[{read.component!r}])"
            near = did_you_mean(name, read.fields) if name is not None else ""
            yield Problem("time-field", draft.where, text, near or hint)


def _hold_problems(
    draft: Draft, drafts: Mapping[str, Draft], outputs: Mapping[str, Streams], time: EventTime
) -> Iterator[Problem]:
    """Yield a problem for each spout that cannot say the times of its pending messages."""
    if isinstance(draft.component, TimedBolt) and draft.component.acks == "expiry":
        text = (
            f"{draft.where}: with hold_pending its watermark waits for the tuples to be acked, "
            'which with ack="expiry" wait for the watermark'
        )
        yield Problem("time-hold", draft.where, text, 'write .with_ack("state")')

    def reads(name: str) -> list[str]:
        return [
            one for one in producers(drafts, name) if name != draft.id or one not in time.untimed
        ]

    before: list[EventTime | None] = []

    def is_timed(name: str) -> bool:
        bolt = drafts[name].component
        if isinstance(bolt, TimedBolt):
            before.append(bolt.timing())
        return isinstance(bolt, TimedBolt)

    spouts = spouts_before(draft.id, reads, is_timed)
    if not spouts and not any(one is not None and one.hold_pending for one in before):
        text = f"{draft.where}: hold_pending is for what comes from spouts, not from other windows"
        yield Problem("time-hold", draft.where, text, "say it where spouts' tuples are read first")
    for spout in sorted(spouts):
        streams = outputs[spout].values()
        name = time.held_field_of(spout)
        if time.extractor is None and any(name in stream.fields for stream in streams):
            continue
        if time.extractor is not None and spout in reads(draft.id):
            continue
        if time.extractor is not None:
            text = f"{draft.where}: hold_pending with an extractor is for spouts that it reads"
            text += f"; between it and {spout!r} is another bolt"
            hint = "name a field of the time instead"
        else:
            known = " or ".join(_names(stream.fields) for stream in streams)
            wanted = "no field is named" if name is None else f"there is no field {name!r}"
            text = f"{draft.where}: hold_pending needs the time of the messages of {spout!r}, "
            text += f"where {wanted}"
            hint = f"its fields are {known}; write EventTime(..., hold_pending={{{spout!r}: ...}})"
        yield Problem("time-hold", draft.where, text, hint)


def _name_problems(where: str, what: str, name: str) -> Iterator[Problem]:
    """Yield a problem for a name that messages and files have no room or no code for."""
    if len(name) > MAX_NAME_CHARS:
        text = f"{where}: {what} has {len(name):,} characters; {MAX_NAME_CHARS:,} is the most"
        yield Problem("long-name", where, text, "choose a shorter name")
    try:
        name.encode()
    except UnicodeEncodeError:
        text = f"{where}: {what} has a character that is none, {name[:40]!a}"
        yield Problem("odd-name", where, text, "choose another name")


def _depth_problems(drafts: Mapping[str, Draft]) -> Iterator[Problem]:
    depths: dict[str, int] = {}
    for name in TopologicalSorter(
        {name: forward_reads(drafts, name) for name in drafts}
    ).static_order():
        depths[name] = 1 + max((depths[read] for read in forward_reads(drafts, name)), default=0)
        if depths[name] == MAX_LEVELS + 1:
            text = f"{drafts[name].where} is {depths[name]} components from its spout"
            hint = f"{MAX_LEVELS} is the most; do more in one bolt"
            yield Problem("too-deep", drafts[name].where, text, hint)


def _names(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"
