"""Which servers a topology's components talk to: the run's own, or those of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topo.context import TopologyContext
from topo.drpc.calls import Holder
from topo.drpc.desk import Answers, DeskAnswers, Line, desk_of
from topo.drpc.errors import UNKNOWN_FUNCTION, UNREACHABLE, DrpcError
from topo.errors import ComponentError, ConfigError
from topo.tracking.security import Tls, first_line

ADDRESSES, TOKEN_FILE = "topology.drpc.addresses", "topology.drpc.token.file"
FUNCTION = "drpc.function"
"""The setting by which a spout tells its engine that it takes calls."""


def lines_of(
    context: TopologyContext, function: str, committed: Mapping[str, int], gathers: bool
) -> list[Line]:
    """Open a spout task's lines to all its servers.

    `committed` is, by server, the serial of the last request that is committed.
    """
    holder = Holder(context.checkpoint_id, function, context.this_task_index)
    if addresses := context.conf[ADDRESSES]:
        from topo.drpc.remote import RemoteLine

        token, tls = _credentials(context.conf)
        return [
            RemoteLine(address, token, tls, holder, committed, gathers, context.wake)
            for address in addresses
        ]
    desk = desk_of(context.checkpoint_id)
    if desk is not None:
        return [desk.line(holder, committed.get(desk.number, 0), gathers, context.wake)]
    raise _nowhere(context)


def answers_of(context: TopologyContext) -> Answers:
    """Open a task's way for results."""
    if addresses := context.conf[ADDRESSES]:
        from topo.drpc.remote import RemoteAnswers

        return RemoteAnswers(addresses, *_credentials(context.conf))
    desk = desk_of(context.checkpoint_id)
    if desk is not None:
        return DeskAnswers(desk)
    raise _nowhere(context)


def _credentials(conf: Mapping[str, Any]) -> tuple[str, Tls | None]:
    """Return the token and the TLS by which servers are called."""
    file, authority = conf[TOKEN_FILE], conf["topology.drpc.tls.ca"]
    if file is None:
        raise ConfigError(
            "topology.drpc.addresses names servers, and there is no token for them",
            at=TOKEN_FILE,
            hint=f"set {TOKEN_FILE} to the file that `topo drpc --token-file` has",
        )
    return first_line(file), Tls.read(ca=authority) if authority else None


def call_elsewhere(conf: Mapping[str, Any], function: str, args: str, timeout: float) -> str:
    """Call a function at the first server of the settings."""
    from topo.drpc.client import DrpcClient

    token, _ = _credentials(conf)
    authority = conf["topology.drpc.tls.ca"]
    with DrpcClient(conf[ADDRESSES][0], token=token, tls_ca=authority) as client:
        return client.call(function, args, timeout)


def functions_of(components: Mapping[str, Any]) -> list[str]:
    """Return the functions that a topology computes, by its components' settings."""
    settings = (component.conf.get(FUNCTION) for component in components.values())
    return sorted({function for function in settings if function})


def _nowhere(context: TopologyContext) -> ComponentError:
    return ComponentError(
        f"{context.this_component_id!r} has no server of calls: the engine has none, and "
        "topology.drpc.addresses names none",
        hint="start `topo drpc` and set topology.drpc.addresses",
    )


def no_server(name: str, components: Mapping[str, Any]) -> DrpcError:
    """Return the error of a call to a run that has no server of its own."""
    functions = functions_of(components)
    if not functions:
        return DrpcError(
            UNKNOWN_FUNCTION,
            f"{name} computes no function",
            hint="it takes a DrpcSpout; LinearDrpcBuilder makes one",
        )
    return DrpcError(UNREACHABLE, f"{name} has no server of calls now")
