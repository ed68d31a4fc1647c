"""The descriptions that engines give: their plan of a topology, and their needs of a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class PlacedView(Protocol):
    """One component in a plan."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def tasks(self) -> range: ...
    @property
    def slots(self) -> tuple[int, ...]: ...  # of each task
    @property
    def level(self) -> int: ...
    @property
    def fused_into(self) -> str | None: ...
    @property
    def keeps_state(self) -> bool: ...


class PlanView(Protocol):
    """The place of every task of a topology."""

    @property
    def slots(self) -> int: ...
    @property
    def components(self) -> Sequence[PlacedView]: ...
    @property
    def levels(self) -> Sequence[Sequence[PlacedView]]: ...
    def component(self, name: str) -> PlacedView: ...


@dataclass(frozen=True)
class Executor:
    """An executor that a cluster gives to a run, or gave."""

    cores: int
    lost_at: float | None = None
    """When its loss was noticed; None if the executor is alive."""
    place: str = ""
    """Its host and port."""
    why: str = ""
    """Of its loss, in the cluster's words."""
    tasks: int = 0
    """How many it is executing."""
    slots: tuple[int, ...] = ()
    """The slots that it executes, or was the last to execute."""


@dataclass(frozen=True)
class Check:
    """One finding of `topo doctor`; `fix` says what to do about it."""

    name: str
    status: str  # ok, warn, FAIL, skip
    detail: str
    fix: str = ""
