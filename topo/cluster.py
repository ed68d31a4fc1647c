"""Spark in this process: `LocalCluster`, for examples, tests and small machines."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from topo.engine.base import Launch, Run, engine_named
from topo.errors import RunError
from topo.running import ENDED
from topo.topology.model import Topology
from topo.topology.submission import check_submission


class LocalCluster:
    """Runs topologies on Spark in this process, with the ackers inside.

    Leaving the `with` kills what runs and raises the first error that no call has raised yet.
    """

    def __init__(self, master: str = "local[*]") -> None:
        self._master = master
        self._engine = engine_named("spark")
        self._runs: list[Run] = []

    def submit_topology(
        self,
        name: str,
        topology: Topology,
        conf: Mapping[str, Any] | None = None,
        *,
        active: bool = True,
        capture: Sequence[str] = (),
        mode: str | None = None,
    ) -> Run:
        """Start a topology; `capture` names components whose tuples are to be kept.

        `mode` is topology.mode: "micro-batch" or "real-time".
        """
        check_submission(name, topology)
        if mode is not None:
            conf = {**(conf or {}), "topology.mode": mode}
        if any(run.name == name and run.status not in ENDED for run in self._runs):
            raise RunError(f"{name!r} is running", hint="kill it, or choose another name")
        launch = Launch(
            name, topology, conf or {}, master=self._master, active=active, capture=capture
        )
        run = self._engine.launch(launch)
        for text in run.warnings:
            warnings.warn(text, stacklevel=2)
        self._runs.append(run)
        return run.start()

    def shutdown(self) -> None:
        """Kill what runs; one that cannot be killed does not keep the others alive."""
        with ExitStack() as kills:
            for run in reversed(self._runs):
                kills.callback(run.kill)

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.shutdown()
        except Exception:
            if error is None:  # else what the `with` raised is the one to see
                raise
        if error is None:
            for run in self._runs:
                run.raise_error(once=True)
