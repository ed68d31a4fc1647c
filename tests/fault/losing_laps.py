"""The topology of `looping` in a process whose slots forget at a start what goes round.

python -m tests.fault.losing_laps DIRECTORY MASTER
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.fault.exactly_once import run_job
from tests.fault.looping import Round, topology
from topo import Topology
from topo.runtime.laps import Laps
from topo.wire.frame import LOOPED


class Losing(Round):
    """A bolt whose tasks do not get what they have saved of their laps."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        Laps.load = _nothing  # type: ignore[method-assign, assignment]


def _nothing(laps: Laps, saved: Mapping[str, bytes]) -> int:
    return LOOPED


def losing(directory: str) -> Topology:
    return topology(directory, Losing)


if __name__ == "__main__":
    run_job(losing)
