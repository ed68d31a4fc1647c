"""What runs can do besides running: record, compute functions, change their slots, save state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from topo.engine.shapes import Executor


class Recording(Protocol):
    """A run that keeps the tuples of captured components, and what became of messages."""

    def tuples(self, component: str, stream: str = "default") -> list[list[Any]]: ...
    @property
    def rows(self) -> Mapping[tuple[str, str], list[list[Any]]]: ...  # of captured components
    @property
    def acked(self) -> Mapping[str, list[Any]]: ...
    @property
    def failed(self) -> Mapping[str, list[Any]]: ...


class Computing(Protocol):
    """A run that answers calls of the functions that its topology computes; see `topo.drpc`."""

    def call(self, function: str, args: str, timeout: float = 60) -> str: ...  # see topo.drpc
    @property
    def drpc(self) -> tuple[str, str] | None: ...  # its server of calls: address and token file


@runtime_checkable
class Scalable(Protocol):
    """A run whose numbers of slots, and of tasks, can change while it runs."""

    @property
    def slots(self) -> int: ...  # 0 before that is known
    @property
    def task_ids(self) -> Mapping[str, Any] | None: ...  # the setting `topology.task.ids`
    def rebalance(
        self, workers: int | None, tasks: Mapping[str, int] | None = None, *, explain: bool = False
    ) -> Mapping[str, Any]: ...  # begins; raises what keeps it from being made
    @property
    def is_rebalancing(self) -> bool: ...
    @property
    def rebalance_failure(self) -> str: ...  # of the last one, or ""


@runtime_checkable
class ClusterRun(Protocol):
    """A run on executors that a cluster gives, if it is not on one machine."""

    def placed(self) -> Sequence[Executor]: ...  # with their slots, and those it lost


@runtime_checkable
class Savable(Protocol):
    """A run that writes a savepoint while it goes on."""

    def save(self, directory: Path) -> dict[str, Any]: ...  # what there is to tell of it
