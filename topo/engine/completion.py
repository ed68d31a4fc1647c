"""Waiting for a run to complete, the same on every engine."""

from __future__ import annotations

from abc import ABC, abstractmethod

from topo.errors import RunError
from topo.topology.model import Topology


class Completion(ABC):
    """The part of a Run that waits for its end and raises what ended it."""

    name: str
    topology: Topology
    error: Exception | None = None
    _was_raised = False

    @property
    @abstractmethod
    def status(self) -> str: ...

    @property
    @abstractmethod
    def reason(self) -> str: ...

    @abstractmethod
    def wait(self, secs: float | None = None) -> bool: ...

    def await_completion(self, timeout: float | None = None) -> None:
        """Wait until all spouts are exhausted and everything is processed."""
        endless = [spout.id for spout in self.topology.spouts if not spout.finite]
        if endless:
            raise RunError(
                f"spout {', '.join(map(repr, endless))} never says that it is exhausted, "
                "so the topology does not complete",
                hint="override is_exhausted, or run.wait(secs) and run.kill()",
            )
        if not self.wait(timeout):
            after = "" if timeout is None else f" after {timeout:g} s"
            raise TimeoutError(f"{self.name} is {self.status}{after}: {self.reason}")
        self.raise_error()

    def raise_error(self, *, once: bool = False) -> None:
        """Raise why it failed, if it did; with `once`, only if it was not raised before."""
        if self.error is None or (once and self._was_raised):
            return
        self._was_raised = True
        raise self.error
