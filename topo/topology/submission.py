"""Checks of every topology that is submitted, on every engine."""

from __future__ import annotations

import re

from topo.errors import ConfigError, TargetError
from topo.topology.model import Topology

NAME_HINT = "letters, digits, '-', '_' and '.', at most 100, a letter or digit first"


def is_name(name: object) -> bool:
    """True iff the name is usable as a directory in the registry and a command's argument."""
    if not isinstance(name, str):
        return False
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    return plain.isalnum() and plain.isascii() and name[:1].isalnum() and len(name) <= 100


def name_for(stem: str) -> str:
    """Return a topology's name for a file or a module: its own, or what of it can be one."""
    if is_name(stem):
        return stem
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-_.")
    return plain[:100] or "topology"


def no_name(name: object) -> str:
    return f"{name!r} cannot be a topology's name"


def check_submission(name: object, topology: object) -> None:
    """Check the arguments of `submit_topology`; raise an error if one is invalid."""
    check_topology(topology, "submit_topology(name, topology, conf)")
    if not is_name(name):
        raise ConfigError(no_name(name), hint=NAME_HINT)


def check_topology(given: object, call: str) -> None:
    if isinstance(given, Topology):
        return
    hint = "give what builder.create_topology() returns"
    if hasattr(given, "create_topology"):
        hint = "write builder.create_topology()"
    described = "None" if given is None else f"a {type(given).__name__}"
    raise TargetError(f"{call} takes a Topology; got {described}", hint=hint)
