"""Submission of a topology that was built elsewhere, and comes as the base64 of its bytes.

Whoever may submit runs code on this machine, as whoever may log in to it and run `topo submit`.
Nothing of the topology is unpickled here: that is the driver's.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topo.config import Config
from topo.errors import TopoError
from topo.manage.registry import Registry
from topo.manage.submit import Request, Resume, submit
from topo.manage.views import Change
from topo.topology.model import Topology
from topo.topology.submission import NAME_HINT, is_name, no_name

STATES = {each.name.lower(): each for each in Resume}
"""What is to be done with the state that a name has left."""


class InvalidSubmission(TopoError):
    """A submission that names no topology, or not where its code is."""

    code = "invalid-submission"


def submit_built(
    registry: Registry,
    *,
    name: str,
    topology: str,
    conf: Mapping[str, Any] | None,
    master: str,
    directory: str | None,
    active: bool,
    state: str,
) -> Change:
    """Submit a topology; do not wait for its first batch."""
    if not is_name(name):
        raise InvalidSubmission(no_name(name), hint=NAME_HINT)
    built = _decoded(topology)
    settings = dict(conf or {})
    Config.validate(settings, components=built.components)
    code = Path(directory) if directory else registry.home
    if not code.is_dir():
        raise InvalidSubmission(
            f"{directory} is no directory of this machine",
            hint="directory: where the modules are that the topology imports",
        )
    request = Request(
        name=name,
        topology=built,
        conf=Config(settings),
        master=master,
        code_directory=code,
        active=active,
        resume=STATES[state],
        origins=dict.fromkeys(settings, "REST"),
    )
    run = submit(registry, request)
    return Change(run.name, run.status, "")


def _decoded(topology: str) -> Topology:
    try:
        built = Topology.from_bytes(base64.b64decode(topology, validate=True))
    except Exception as error:  # whatever somebody sent
        raise InvalidSubmission(
            f"the topology is not valid: {type(error).__name__}: {error}",
            hint="base64.b64encode(topology.to_bytes()).decode()",
        ) from None
    if not built.components:
        raise InvalidSubmission("the topology has no components")
    return built
