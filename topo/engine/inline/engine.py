"""The inline engine as the seam has it: by the wall clock, or by a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from topo.engine.base import Conf, Launch
from topo.engine.inline.realtime import RealTimeRun
from topo.engine.inline.run import InlineRun
from topo.engine.shapes import Check
from topo.errors import EngineError
from topo.runtime.describing import ways_of
from topo.runtime.task import full_conf


class _OneThread:
    """The base of both engines: runs share nothing, need nothing of the machine, have no plan."""

    def stop(self) -> None:
        pass

    def plan(self, launch: Launch) -> NoReturn:
        raise EngineError("the inline engine has no plan: everything runs in one thread")

    def explain(self, launch: Launch) -> NoReturn:
        self.plan(launch)

    def ways(self, launch: Launch) -> Mapping[str, str]:
        return ways_of(launch.topology, full_conf(launch.conf))

    def check(self) -> Iterator[Check]:
        yield from ()

    def try_out(self, master: str, conf: Conf, archives: Sequence[str]) -> Iterator[Check]:
        yield from ()

    def warm(self, conf: Conf) -> Iterator[Check]:
        yield from ()


class InlineEngine(_OneThread):
    """Runs topologies in a thread of this process, without Java; keeps no state."""

    def launch(self, launch: Launch) -> RealTimeRun:
        return RealTimeRun(
            launch.name,
            launch.topology,
            launch.conf,
            active=launch.active,
            record=bool(launch.capture or launch.conclusions),
            listener=launch.listener,
        )


class SimulatedEngine(_OneThread):
    """Runs topologies in the caller's thread, when the caller moves them; for tests."""

    def launch(self, launch: Launch) -> InlineRun:
        return InlineRun(
            launch.name,
            launch.topology,
            launch.conf,
            now=launch.now,
            active=launch.active,
            shuffled=launch.shuffled,
            wake=launch.wake,
            advance=launch.advance,
        )
