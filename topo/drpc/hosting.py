"""The server of calls in a topology's driver, for as long as the run lasts."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topo.config.masters import is_local, join_address
from topo.drpc.access import Access
from topo.drpc.calls import Figures
from topo.drpc.places import ADDRESSES, TOKEN_FILE, functions_of
from topo.drpc.server import LOOPBACK, DrpcServer, ServerOptions
from topo.errors import ConfigError
from topo.tracking.security import Tls, first_line, fresh_token

_ANY = ("0.0.0.0", "[::]", "::")


class HostedServer:
    """A server that is up, and the settings by which the workers reach it."""

    def __init__(self, functions: list[str], conf: Mapping[str, Any]) -> None:
        prefix = "topology.drpc."
        file = conf[TOKEN_FILE]
        self._directory = None if file else tempfile.mkdtemp(prefix="topo-drpc-")
        self.token_file = file or f"{self._directory}/token"
        certificate, key = conf[f"{prefix}tls.certificate"], conf[f"{prefix}tls.key"]
        try:
            token = first_line(file) if file else _written(Path(self.token_file))
            options = ServerOptions(
                conf[f"{prefix}bind"] or LOOPBACK,
                conf[f"{prefix}http.bind"],
                Access(token),
                has_chosen_token=file is not None,
                tls=Tls.read(certificate, key) if certificate or key else None,
                tls_files=(certificate, key) if certificate and key else None,
            )
            self._server = DrpcServer(options, functions).start()
        except BaseException:
            self._forget()
            raise
        host, port = self._server.host, self._server.address.rpartition(":")[2]
        called = socket.gethostname() if host in _ANY else host
        self.address = join_address(called, int(port))

    @property
    def http_address(self) -> str | None:
        return self._server.http_address

    @property
    def figures(self) -> Figures:
        return self._server.figures

    def settings(self) -> dict[str, Any]:
        """Return the settings by which components find the server."""
        return {ADDRESSES: [self.address], TOKEN_FILE: self.token_file}

    def call(self, function: str, args: str, timeout: float) -> str:
        return self._server.call(function, args, timeout)

    def close(self) -> None:
        self._server.stop()
        self._forget()

    def _forget(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


def driver_server(
    components: Mapping[str, Any], conf: Mapping[str, Any], master: str
) -> HostedServer | None:
    """Start the server of a run, if its topology computes functions and names no other server."""
    functions = functions_of(components)
    if not functions or conf[ADDRESSES]:
        return None
    if not is_local(master) and not conf["topology.drpc.bind"]:
        raise ConfigError(
            f"the functions {', '.join(map(repr, functions))} need a server that workers of "
            f"{master} reach",
            at="topology.drpc.bind",
            hint="set topology.drpc.bind to an address of this machine, with a token file and TLS; "
            "or start `topo drpc` and set topology.drpc.addresses",
        )
    return HostedServer(functions, conf)


def _written(path: Path) -> str:
    """Write a new token into a file that only its owner reads; return it."""
    token = fresh_token()
    path.touch(0o600)
    path.write_text(f"{token}\n", encoding="utf-8")
    return token
