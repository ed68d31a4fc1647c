"""The seam: an Engine starts Runs. All that is above the engines knows this module alone."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeAlias, cast

from topo.engine.abilities import Computing, Recording
from topo.engine.shapes import Check, PlanView
from topo.errors import ConfigError, did_you_mean
from topo.running import BatchRecord, ErrorEntry, Listener, RunStats
from topo.topology.model import Topology

Conf: TypeAlias = Mapping[str, Any]
ENGINES = {
    "inline": "topo.engine.inline.engine:InlineEngine",
    "simulated": "topo.engine.inline.engine:SimulatedEngine",
    "spark": "topo.engine.spark.engine:SparkEngine",
}


@dataclass(frozen=True)
class Launch:
    """All that an engine needs to know to run a topology; it ignores what it has no use for."""

    name: str
    topology: Topology
    conf: Conf
    master: str = "local[*]"  # "": what has started this process says where, as spark-submit does
    active: bool = True
    capture: Sequence[str] = ()  # components whose tuples are kept
    conclusions: bool = False  # keep what became of messages, too
    listener: Listener | None = None
    log_file: Path | None = None
    run_id: str = ""  # who owns what it keeps, from driver to driver
    files: Sequence[str] = ()  # Python files and archives that workers import from
    archives: Sequence[str] = ()
    now: Callable[[], float] = time.time  # simulated: the test's clock
    shuffled: Random | None = None  # simulated: the order of tasks that are ready
    wake: Callable[[], None] | None = None  # simulated: told of calls that other threads have left
    advance: Callable[[float], None] | None = None  # simulated: moves the test's clock


class Run(Recording, Computing, Protocol):
    """A topology that an engine runs. Every thread may call it at any time."""

    @property
    def name(self) -> str: ...
    @property
    def warnings(self) -> list[str]: ...  # known before it starts
    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def error(self) -> Exception | None: ...  # why it is FAILED
    @property
    def ui(self) -> str: ...  # the address where the engine shows it, or ""
    def start(self) -> Run: ...  # returns at once
    def stats(self) -> RunStats: ...
    def errors(self) -> list[ErrorEntry]: ...
    def batches(self) -> list[BatchRecord]: ...  # the latest, the oldest first
    def activate(self) -> None: ...
    def deactivate(self) -> None: ...
    def kill(self, wait_secs: float = 0) -> None: ...  # what is in flight may finish for so long
    def stop(self) -> None: ...  # at once; nothing is closed
    def wait(self, secs: float | None = None) -> bool: ...  # True iff it has ended
    def await_completion(self, timeout: float | None = None) -> None: ...
    def raise_error(self, *, once: bool = False) -> None: ...


class Engine(Protocol):
    """Something that runs topologies. It is made without arguments, and holds nothing open."""

    def launch(self, launch: Launch) -> Run: ...  # checked, not yet started
    def stop(self) -> None: ...  # end what its runs shared in this process
    def plan(self, launch: Launch) -> PlanView: ...
    def explain(self, launch: Launch) -> str: ...  # the engine's own plan, in its words
    def ways(self, launch: Launch) -> Mapping[str, str]: ...  # how each bolt runs, in words
    def check(self) -> Iterator[Check]: ...  # what it needs of this machine, for `topo doctor`
    def try_out(self, master: str, conf: Conf, archives: Sequence[str]) -> Iterator[Check]: ...
    def warm(self, conf: Conf) -> Iterator[Check]: ...  # make its next starts on this machine quick


def engine_named(name: str) -> Engine:
    """Load an engine; one that is not topo's own is named as `package.module:class`."""
    module, colon, attribute = ENGINES.get(name, name).partition(":")
    if not colon:
        hint = did_you_mean(name, ENGINES) or "name your own as package.module:class"
        raise ConfigError(f"no engine {name!r}; there are {', '.join(ENGINES)}", hint=hint)
    return cast(Engine, getattr(importlib.import_module(module), attribute)())
