"""The ackers of a run on Spark, in the driver's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topo.config.masters import is_loopback
from topo.engine.spark.driver.checkpoint import Checkpoint
from topo.engine.spark.driver.journal import CheckpointJournal
from topo.errors import AckerError
from topo.tracking.security import Tls, fresh_token
from topo.tracking.server import LOOPBACK, AckerServer
from topo.tracking.transport import AckerTarget


class Ackers:
    """The `topology.acker.executors` ackers of a run; a single coordinator if tracking is off."""

    def __init__(self, topology: str, conf: Mapping[str, Any], driver_host: str) -> None:
        count = max(1, conf["topology.acker.executors"])
        bind = conf["topology.acker.bind"] or _reachable(driver_host)
        if ":" not in bind:
            bind = f"{bind}:0"
        tls = Tls.read(
            conf["topology.acker.tls.certificate"],
            conf["topology.acker.tls.key"],
            conf["topology.acker.tls.ca"],
        )
        uses_tls = tls.certificate is not None
        admission = fresh_token()
        # Several ackers cannot share a fixed port: the others take free ones.
        host = bind.rpartition(":")[0]
        binds = [bind, *[f"{host}:0"] * (count - 1)]
        self._servers: list[AckerServer] = []
        for at in binds:
            server = AckerServer(at, tls=tls if uses_tls else None, admission=admission)
            try:
                self._servers.append(server.start())
            except AckerError as error:
                self.close()
                error.at = "topology.acker.bind"
                raise
        self.target = AckerTarget(
            topology,
            fresh_token(),
            tuple(server.address for server in self._servers),
            tls=tls if uses_tls else None,  # with `ca`, clients show the certificate too
            admission=admission,
        )

    def keep_failures_in(self, checkpoint: Checkpoint) -> None:
        """Keep the journal of failures beside the checkpoint, so that trees can be rebuilt."""
        journal = CheckpointJournal(checkpoint)
        for server in self._servers:
            server.service.journal = journal

    def close(self) -> None:
        for server in self._servers:
            server.stop(0.0)


def _reachable(driver_host: str) -> str:
    """Return the address at which executors reach the driver; loop-back for a local one."""
    if not driver_host or is_loopback(driver_host):
        return LOOPBACK
    return f"{driver_host}:0"
