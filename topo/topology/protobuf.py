"""The topology as a protobuf message, `proto/topology.proto`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from topo._pb import topology_pb2 as pb
from topo.config.secrets import Secret
from topo.errors import TopoError
from topo.shipping.pickling import UserClass, user_classes
from topo.topology.model import ComponentDef, GroupingDef, InputDef, StreamDef, Topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION = 1
_SECRET = "$secret"


def topology_to_bytes(topology: Topology) -> bytes:
    message = pb.Topology(version=VERSION, warnings=topology.warnings)
    for component in topology.components.values():
        message.components.append(_component_message(component))
    for user_class in topology.user_classes or user_classes(topology.components):
        message.user_classes.add(
            module=user_class.module, name=user_class.name, pickled=user_class.pickled
        )
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def topology_from_bytes(data: bytes) -> Topology:
    message = pb.Topology()
    try:
        message.ParseFromString(data)
    except Exception as error:
        raise TopoError(f"these {len(data)} bytes are no topology: {error}") from error
    if message.version != VERSION:
        raise TopoError(
            f"this topology is in format {message.version}; this topo reads format {VERSION}",
            hint="submit it with the version of topo that runs it",
        )
    return Topology(
        map(_component, message.components),
        message.warnings,
        tuple(UserClass(c.module, c.name, c.pickled) for c in message.user_classes),
    )


def _component_message(component: ComponentDef) -> pb.Component:
    message = pb.Component(
        id=component.id,
        spout=component.is_spout,
        class_name=component.class_name,
        parallelism=component.parallelism,
        conf=json.dumps(dict(component.conf), sort_keys=True),
        pickled=component.pickled,
        stateless=component.stateless,
        finite=component.finite,
        basic=component.basic,
        timed=component.timed,
        times_in=component.times_in,
        requires=component.requires,
        external=_json_text(component.external),
        leaves=_json_text(component.leaves),
        role=component.role,
    )
    for output in component.outputs:
        message.outputs.add(name=output.name, fields=output.fields, direct=output.direct)
    for read in component.inputs:
        message.inputs.add(
            component=read.component,
            stream=read.stream,
            grouping=read.grouping.kind,
            fields=read.grouping.fields,
            custom=read.grouping.custom,
            loop=read.loop,
        )
    return message


def _component(message: pb.Component) -> ComponentDef:
    return ComponentDef(
        id=message.id,
        kind="spout" if message.spout else "bolt",
        class_name=message.class_name,
        parallelism=message.parallelism,
        outputs=tuple(StreamDef(o.name, tuple(o.fields), o.direct) for o in message.outputs),
        inputs=tuple(_inputs(message.inputs)),
        conf=json.loads(message.conf),
        pickled=message.pickled,
        stateless=message.stateless,
        finite=message.finite,
        basic=message.basic,
        timed=message.timed,
        times_in=dict(message.times_in),
        requires=tuple(message.requires),
        external=json.loads(message.external or "{}", object_hook=_with_secret),
        leaves=json.loads(message.leaves or "{}", object_hook=_with_secret),
        role=message.role,
    )


def _json_text(data: Mapping[str, Any]) -> str:
    def told(value: Secret) -> dict[str, list[str]]:
        return {_SECRET: list(value.told())}

    return json.dumps(dict(data), sort_keys=True, default=told) if data else ""


def _with_secret(value: dict[str, Any]) -> Any:
    return Secret.from_told(*value[_SECRET]) if value.keys() == {_SECRET} else value


def _inputs(messages: Iterable[pb.Input]) -> Iterable[InputDef]:
    for message in messages:
        grouping = GroupingDef(message.grouping, tuple(message.fields), message.custom)
        yield InputDef(message.component, message.stream, grouping, message.loop)
