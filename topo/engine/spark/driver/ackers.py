"""The ackers of a run on Spark: in the driver's process, or processes that outlive it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from topo.config.masters import is_loopback, join_address, split_address
from topo.engine.spark.driver.checkpoint import Checkpoint
from topo.engine.spark.driver.journal import CheckpointJournal
from topo.errors import AckerError, ConfigError
from topo.tracking.client import AckerControl
from topo.tracking.direct import DirectTransport
from topo.tracking.security import Tls, first_line, fresh_token
from topo.tracking.server import LOOPBACK, AckerServer
from topo.tracking.transport import AckerTarget


class Ackers:
    """The `topology.acker.executors` ackers of a run; a single coordinator if tracking is off."""

    def __init__(self, topology: str, conf: Mapping[str, Any], driver_host: str) -> None:
        count = max(1, conf["topology.acker.executors"])
        host, port, called = listening_place(conf, driver_host)
        servers_tls, clients_tls = tls_of(conf)
        admission = fresh_token()
        # Several ackers cannot share a fixed port: the others take free ones.
        binds = [join_address(host, port), *[join_address(host, 0)] * (count - 1)]
        self._servers: list[AckerServer] = []
        for at in binds:
            server = AckerServer(at, tls=servers_tls, admission=admission)
            try:
                self._servers.append(server.start())
            except AckerError as error:
                self.close()
                error.at = "topology.acker.bind"
                raise
        self.target = AckerTarget(
            topology,
            fresh_token(),
            tuple(join_address(called, server.port) for server in self._servers),
            tls=clients_tls,
            admission=admission,
        )

    def control(self) -> AckerControl:
        """Return the driver's side of them, which needs no network."""
        services = [server.service for server in self._servers]
        return AckerControl(self.target, DirectTransport(self.target, services), rebuilds=True)

    def keep_failures_in(self, checkpoint: Checkpoint) -> None:
        """Keep the journal of failures beside the checkpoint, so that trees can be rebuilt."""
        journal = CheckpointJournal(checkpoint)
        for server in self._servers:
            server.service.journal = journal

    def close(self) -> None:
        for server in self._servers:
            server.stop(0.0)


def outer_ackers(
    topology: str, conf: Mapping[str, Any], checkpoint_id: str, token: Callable[[], str]
) -> AckerTarget | None:
    """Return the ackers of `topology.acker.addresses`, if tracking is on and there are any.

    A later driver of the same checkpoint has to be known to them as the same topology: its name
    there follows from the checkpoint's id, and `token` returns what is kept in the checkpoint.
    """
    addresses = conf["topology.acker.addresses"]
    if not addresses or not conf["topology.acker.executors"]:
        return None
    file = conf["topology.acker.token.file"]
    admission = first_line(file) if file else None
    prefix = "topology.acker.tls."
    tls = Tls.read(
        conf[f"{prefix}client.certificate"], conf[f"{prefix}client.key"], conf[f"{prefix}ca"]
    )
    return AckerTarget(
        f"{topology}-{checkpoint_id[:8]}",
        token(),
        tuple(addresses),
        tls=None if tls.is_empty else tls,
        admission=admission,
    )


def tls_of(conf: Mapping[str, Any]) -> tuple[Tls | None, Tls | None]:
    """Return what the ackers show, and what workers get: never the ackers' own key.

    With a client's certificate, which is signed by `ca` as the ackers' is, each side asks the other
    for its own.
    """
    prefix = "topology.acker.tls."
    server = Tls.read(conf[f"{prefix}certificate"], conf[f"{prefix}key"], conf[f"{prefix}ca"])
    client = Tls.read(
        conf[f"{prefix}client.certificate"], conf[f"{prefix}client.key"], conf[f"{prefix}ca"]
    )
    if server.certificate is None:
        if not (server.is_empty and client.is_empty):
            given = "a ca" if server.ca else "a client's certificate"
            raise ConfigError(
                f"the ackers have {given} and no certificate of their own: nothing would be "
                "encrypted",
                at=f"{prefix}ca",
                hint=f"set {prefix}certificate and {prefix}key as well",
            )
        return None, None
    if client.certificate is None:
        return Tls(server.certificate, server.key), Tls(ca=server.ca)
    if server.ca is None:
        raise ConfigError(
            "the ackers cannot check a client's certificate without its authority",
            at=f"{prefix}client.certificate",
            hint=f"set {prefix}ca",
        )
    return server, client


def listening_place(conf: Mapping[str, Any], driver_host: str) -> tuple[str, int, str]:
    """Return the host and port to listen at for workers, and the host by which they call."""
    host, port = split_address(conf["topology.acker.bind"] or _reachable(driver_host))
    return host, port, _called(host, driver_host)


def _called(host: str, driver_host: str) -> str:
    """Return the host by which workers call ackers that are bound to this one."""
    if host.strip("[]") not in ("0.0.0.0", "::"):
        return host
    return driver_host or "127.0.0.1"


def _reachable(driver_host: str) -> str:
    """Return the address at which executors reach the driver; loop-back for a local one."""
    if not driver_host or is_loopback(driver_host):
        return LOOPBACK
    return join_address(driver_host, 0)
